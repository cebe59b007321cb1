"""The broker's memory for large messages: who may hold how much of it, and who waits.

Whoever wants room gets it in the order of asking. One body always gets it when nobody else holds any, however large it
is: so nobody waits for ever. What is held is given back when its `MemoryShare` is released or dropped.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable


class MemoryShare:
    """Some bytes of a budget."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: "MessageMemory", size: int) -> None:
        self._budget = budget
        self.size = size

    def release(self) -> None:
        """May be called again, and in any thread."""
        size, self.size = self.size, 0
        if size:
            self._budget.give_back(size)

    def __del__(self) -> None:
        # A refused message, a broken connection, a read that came too late: whoever drops the body lets go of this.
        self.release()


Granted = Callable[[MemoryShare], object]


class MessageMemory:
    """Lives on the event loop. It knows who waits, and how much is held; what is held has one owner, who was given it.

    Args:
        bytes_max: held at a time; more by one body that is larger than all of it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: dict[Hashable, tuple[int, Granted]] = {}
        """In the order of asking."""
        self._waits_since = 0.0
        """When the first of them has become the first."""
        self.bytes_held = 0

    def take(self, key: Hashable, size: int, granted: Granted) -> MemoryShare | None:
        """Room for `size` bytes; None: not now. Then `granted` is called with it later, once.

        Whoever is given it owns it. It may come after `forget`: a callee that wants it no more drops it.
        """
        if key not in self._waiting:
            if (share := self.take_now(size)) is not None:
                return share
            if not self._waiting:
                self._waits_since = self._loop.time()
            self._waiting[key] = size, granted
        return None

    def take_now(self, size: int) -> MemoryShare | None:
        """Room for `size` bytes; None: there is none, or others wait for it."""
        return self._share(size) if not self._waiting and self._fits(size) else None

    def waits(self, key: Hashable) -> bool:
        return key in self._waiting

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def waited_s(self) -> float:
        """How long nobody has got anything although somebody waits."""
        return self._loop.time() - self._waits_since if self._waiting else 0.0

    def forget(self, key: Hashable) -> None:
        """Whoever may have waited has gone."""
        is_first = next(iter(self._waiting), None) == key
        if self._waiting.pop(key, None) is not None:
            if is_first:
                self._waits_since = self._loop.time()
            self._serve()

    def give_back(self, size: int) -> None:
        """May be called in any thread."""
        if threading.get_ident() == self._thread:
            self._give_back(size)
            return
        try:
            self._loop.call_soon_threadsafe(self._give_back, size)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _give_back(self, size: int) -> None:
        self.bytes_held -= size
        self._serve()

    def _fits(self, size: int) -> bool:
        return not self.bytes_held or self.bytes_held + size <= self._bytes_max

    def _share(self, size: int) -> MemoryShare:
        self.bytes_held += size
        return MemoryShare(self, size)

    def _serve(self) -> None:
        while self._waiting:
            key, (size, granted) = next(iter(self._waiting.items()))
            if not self._fits(size) or self._loop.is_closed():
                return
            del self._waiting[key]
            self._waits_since = self._loop.time()
            # Not within whatever has just let go.
            self._loop.call_soon(granted, self._share(size))
