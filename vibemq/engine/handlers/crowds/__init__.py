"""Queues with more groups than one step looks at: they are gone through in steps."""
