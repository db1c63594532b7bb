"""Files, signals, cores and random numbers: everything that deals with the operating system."""
