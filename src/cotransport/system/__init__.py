"""Files, signals, cores and random numbers."""
