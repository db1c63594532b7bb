"""Deliberate faults: kills, failing system calls, power cuts and hostile inputs, thousands of them.

`make soak` runs them for an hour, or for SOAK_MINUTES, and writes the counts to `tests/soak/results.md`.
"""
