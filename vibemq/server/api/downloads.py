"""Bodies that HTTP clients download: each counts as memory for large messages, as what sessions read does.

How large a body is, opened or of a dead letter, is known when it has been read. So a few are read uncounted, and one
for which there is no memory is let go.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vibemq.errors import Blocked
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.net.large_turns import LargeTurns

UNCOUNTED_MAX = 2
"""Bodies at a time that are read before anybody knows how large they are."""


class Downloads:
    def __init__(self, turns: LargeTurns) -> None:
        self._turns = turns
        self.uncounted = asyncio.Semaphore(UNCOUNTED_MAX)
        """Held while a body is read, until it is counted."""

    def counted(self, body: memoryview) -> "Download":
        """Raises Blocked: others hold the memory."""
        if len(body) <= LARGE_ROW_BYTES:
            return Download(body)
        memory = self._turns.outgoing.take_now(len(body))
        if memory is None:
            self._turns.refused()
            raise Blocked(
                "the memory for large messages (limits.message_memory_bytes) is with others; try again in a few seconds"
            )
        return Download(body, memory, self._turns)


class Download:
    """A body, and the memory that it counts as until it is dropped or has been sent."""

    def __init__(self, body: memoryview, memory: MemoryShare | None = None, turns: LargeTurns | None = None) -> None:
        self.body = body
        self.size = self.row_left = 0
        """Of what is sent, which may be a part of the body."""
        self.bytes_per_s_min = 0
        self._memory = memory
        self._turns = turns
        self.cut: Callable[[], None] = _nothing

    @contextmanager
    def under_way(self, cut: Callable[[], None], bytes_per_s_min: int) -> Iterator[None]:
        """While `body` is sent; `row_left` tells how much of it is still to go."""
        self.size = self.row_left = len(self.body)
        self.cut, self.bytes_per_s_min = cut, bytes_per_s_min
        if self._turns is not None:
            self._turns.downloads(self)
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        self.cut = _nothing
        if self._turns is not None:
            self._turns.download_ended(self)
        if self._memory is not None:
            self.body = memoryview(b"")
            self._memory.release()


def _nothing() -> None:
    """The answer has not begun, or has ended."""
