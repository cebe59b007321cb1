"""The figures of the last 48 hours: rings in memory, one file, and who has a place in them."""
