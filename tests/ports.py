"""Ports that stay a test's own while its broker is away."""

import socket
import weakref


def held_port(owner: object) -> int:
    """A port of 127.0.0.1 that nobody else is given as long as the owner lives. Whoever binds it by its number, with
    SO_REUSEADDR as servers do, may listen there."""
    held = socket.socket()
    weakref.finalize(owner, held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # It never listens: then another socket may.
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    return port
