"""Speed, measured: run `make bench`, or `python -m benchmarks NAME...` for some of it."""
