"""The write-ahead journal: segments, records, and which of them recovery believes."""
