"""The queue engine: pure and deterministic. No I/O, no clock, no randomness, no byte layout."""
