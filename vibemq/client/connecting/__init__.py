"""Connections: made, kept, replaced, and let go of in a forked child."""
