"""Deliberate faults: kills, failing system calls, power cuts and hostile inputs, thousands of them.

`make soak` runs them for an hour, or for SOAK_MINUTES, in SOAK_WORKERS processes, by default one for each core. The
counts are written to `docs/soak.json` all the time.
"""
