"""Sockets: connections, and reading and writing of bytes."""
