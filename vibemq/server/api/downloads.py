"""Bodies that HTTP clients download: each counts as memory for large messages, as what sessions read does.

How large a body is, opened or of a dead letter, is known when it has been read. So a few are read uncounted, and one
for which there is no memory is let go, and read again when there is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from vibemq.errors import Blocked
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.net.large_turns import LargeTurns

UNCOUNTED_MAX = 2
"""Bodies at a time that are read before anybody knows how large they are."""
PATIENCE_S = 10.0
"""So long a client waits for memory before it is told to come again."""

Read = Callable[[], Awaitable[memoryview]]


class Downloads:
    def __init__(self, turns: LargeTurns) -> None:
        self._turns = turns
        self._uncounted = asyncio.Semaphore(UNCOUNTED_MAX)

    async def read(self, read: Read) -> "Download":
        """The body that `read` reads; it may be called twice.

        Raises:
            Blocked: others hold the memory.
        """
        waits = _Waits()
        async with self._uncounted:
            body = await read()
            size = len(body)
            if size <= LARGE_ROW_BYTES:
                return Download(body)
            memory = self._turns.outgoing.take(waits, size, waits.grant)
        if memory is None:
            del body
            memory = await self._granted(waits)
            body = await read()
        return Download(body, memory, self._turns)

    async def _granted(self, waits: "_Waits") -> MemoryShare:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await waits.granted
        except TimeoutError:
            raise Blocked(
                "the memory for large messages (limits.message_memory_bytes) is with others; try again in a few seconds"
            ) from None
        finally:
            self._turns.outgoing.forget(waits)


class _Waits:
    """Somebody who waits for memory."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[MemoryShare] = asyncio.get_running_loop().create_future()

    def grant(self, memory: MemoryShare) -> None:
        if not self.granted.done():
            self.granted.set_result(memory)


class Download:
    """A body, and the memory that it counts as until it is dropped or has been sent."""

    large_left = 0
    is_read = True

    def __init__(self, body: memoryview, memory: MemoryShare | None = None, turns: LargeTurns | None = None) -> None:
        self.body = body
        self.row_left = len(body)
        self._memory = memory
        self._turns = turns
        self._cut: Callable[[], None] = _nothing

    @contextmanager
    def under_way(self, cut: Callable[[], None]) -> Iterator[None]:
        """While it is sent: `row_left` tells how much of it is still to go. `cut` ends the connection of a client that
        hardly takes any of it while others wait for memory."""
        self._cut = cut
        if self._turns is not None:
            self._turns.sends(self)
        try:
            yield
        finally:
            self._end()

    def let_row_go(self) -> None:
        self._cut()

    def cut_large(self, why: str) -> None:
        """Nothing comes from the client."""

    def _end(self) -> None:
        self._cut = _nothing
        if self._turns is not None:
            self._turns.ended(self)
        if self._memory is not None:
            self.body = memoryview(b"")
            self._memory.release()


def _nothing() -> None:
    """The answer has not begun."""
