"""Sockets: admission, and reading and writing of bytes."""
