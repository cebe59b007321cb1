"""Records read back from the journal: small ones whole, large ones through a verified window."""
