"""Classes of routes: how often each may be asked for, how many of them run together."""

from enum import StrEnum


class Kind(StrEnum):
    READ = "read"
    SCAN = "scan"
    """Reads much: few at a time."""
    CHANGE = "change"
    MESSAGES = "messages"
    """Publishing, which may wait for room."""
    SETTLE = "settle"
    """Settling: publishers that wait for room keep no consumer from it."""
    WAIT = "wait"
    """Fetching, which may wait for messages: publishers keep their slots."""
    LOGIN = "login"
    STREAM = "stream"
    """Its answer has no end: a slot of its own, no deadline."""


CHANGING = frozenset((Kind.CHANGE, Kind.MESSAGES, Kind.SETTLE, Kind.WAIT))
"""Not carried out while the broker stops."""
