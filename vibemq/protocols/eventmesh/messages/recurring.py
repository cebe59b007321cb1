"""What was worked out for one message, for others that have the same headers."""

from typing import Generic, TypeVar

T = TypeVar("T")

KEYS_MAX = 512
KEY_BYTES_MAX = 2_048
"""Longer ones are not worth their memory."""


class Recurring(Generic[T]):
    """A key is remembered when it comes for the second time: where the headers of each message are its own, as ids and
    times are, a session keeps a few bytes of each and no more."""

    __slots__ = ("_once", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, T] = {}
        """To be read."""
        self._once: set[int] = set()

    def remember(self, key: bytes, value: T) -> None:
        if not 0 < len(key) <= KEY_BYTES_MAX:
            return
        mark = hash(key)
        if mark in self._once:
            if len(self.known) >= KEYS_MAX:
                self.known.clear()
            self.known[key] = value
            return
        if len(self._once) >= KEYS_MAX:
            self._once.clear()
        self._once.add(mark)
