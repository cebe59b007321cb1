"""A large row that a socket has not taken yet, and what comes behind it.

The socket is given copies of a piece each: what it keeps until its peer reads is no part of the row, and the row is
free once the last piece is given. While others wait for memory a row may be let go in the middle; then the rest of it
is read again once the socket goes on and there is memory for it. What the store does not have any more, because the
message was settled by somebody else or its queue has gone, cannot be gone on with: then the connection ends.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from vibemq.model.rows import LargeRow, Rows
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.commit.storage_threads import Store
from vibemq.storage.reading import read_piece

PIECE_BYTES = 262_144
"""Of a large row: so much goes to the socket at once."""


class SentRow:
    """How far a row is."""

    __slots__ = ("at", "origin", "row", "row_bytes", "size", "start")

    def __init__(self, row: Rows) -> None:
        self.row: Rows | None = row
        """None: let go."""
        self.row_bytes = row.size
        part: tuple[int, int] = getattr(row, "part", None) or (0, row.size)
        self.start, end = part
        self.size = end - self.start
        self.at = 0
        """Behind `start`."""
        self.origin = getattr(row, "origin", None)

    def next_piece(self) -> bytes:
        assert self.row is not None
        at = self.start + self.at
        piece = self.row.data[at : at + min(PIECE_BYTES, self.size - self.at)]
        self.at += len(piece)
        return piece


class Unsent:
    """Rows and other bytes in order.

    Args:
        wake: called when a row has come that had been let go.
        lost: called when its rest is not there any more.
        failed: called with what a read raises.
    """

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[], None],
        lost: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._wake = wake
        self._lost = lost
        self._failed = failed
        self._parts: deque[SentRow | bytes] = deque()
        self._asked: SentRow | None = None
        """Waits for memory, or is being read again."""
        self.answers_bytes = 0
        """What of it are no rows."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def size(self) -> int:
        return self.answers_bytes + sum(part.size - part.at for part in self._parts if isinstance(part, SentRow))

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self.answers_bytes += len(data)

    def add_row(self, row: Rows) -> None:
        self._parts.append(SentRow(row))

    def next_piece(self) -> bytes | None:
        """None: there is nothing to give now; `wake` is called when there is."""
        part = self._parts[0] if self._parts else None
        if part is None:
            return None
        if isinstance(part, bytes):
            self._parts.popleft()
            self.answers_bytes -= len(part)
            return part
        if part.row is None:
            self._ask_again(part)
            return None
        piece = part.next_piece()
        if part.at >= part.size:
            self._parts.popleft()
        return piece

    def let_go(self) -> None:
        """Give back the memory of rows that can be read again."""
        for part in self._parts:
            if isinstance(part, SentRow) and part.origin is not None:
                part.row = None

    def close(self) -> None:
        """Nothing is sent any more."""
        self._parts.clear()
        self._asked = None
        if self._store.memory is not None:
            self._store.memory.forget(self)

    def _ask_again(self, part: SentRow) -> None:
        if self._asked is part:
            return
        self._asked = part
        read = partial(self._read, part)
        memory = self._store.memory
        share = None if memory is None else memory.take(self, part.row_bytes, read)
        if memory is None or share is not None:
            read(share)

    def _read(self, part: SentRow, share: MemoryShare | None) -> None:
        if self._asked is not part:
            return
        assert part.origin is not None, "who cannot be read again is not let go"
        queue_id, sequence = part.origin

        def read() -> LargeRow | None:
            piece = read_piece(self._store.large_rows, queue_id, [(sequence, sequence)], 1)
            return LargeRow(piece.slices[0].rows.data, share) if piece.slices else None

        self._store.begin_large(read).add_done_callback(partial(self._came, part))

    def _came(self, part: SentRow, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if self._asked is not part or done.cancelled():
            return
        self._asked = None
        if error is not None:
            self._failed(error)
            return
        row = done.result()
        if row is None or row.size != part.row_bytes:
            self._lost("the rest of a large message that it was reading is not there any more")
            return
        part.row = row
        self._wake()
