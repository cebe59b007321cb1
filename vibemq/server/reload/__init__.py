"""Reads the settings again while the broker runs, and lets all of them count that can, or none."""
