"""Sockets: who is let in, and how bytes come and go."""
