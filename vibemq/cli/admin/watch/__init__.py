"""Verbs that look at a running broker: its figures, its users, its records."""
