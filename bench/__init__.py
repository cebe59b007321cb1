"""Measurements of VibeMQ: alone, beside its peers, and against itself. See README.md in this folder."""
