"""Words that clients and the broker both say. A client needs them alone, and does not wait for commands, effects and
records."""
