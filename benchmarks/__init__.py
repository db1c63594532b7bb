"""Speed, measured: run `make bench`, or `python -m benchmarks NAME...` for some of it."""

import cotransport  # noqa: F401 (before torch, so that torch's threads behave as they do for users)
