"""Brings lines of the log to a descriptor, in a thread: whoever reads them may stand still, and the broker goes on."""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Of lines that wait for a reader that stands still. More are left out, and counted."""
TOGETHER_MAX = 100
"""Lines of one write."""
_NEWLINE = ord("\n")


@dataclass(frozen=True)
class _Entry:
    data: bytes
    records: int
    """That are lost with it."""


class LineWriter:
    """`start` once, then `put` from any thread; the order is kept. The thread ends with the process.

    Args:
        descriptor: of a pipe, a file or a terminal; blocking or not.
        left_out_line: tells of how many records were left out. It is written where they would stand.
    """

    def __init__(
        self, descriptor: int, left_out_line: Callable[[int], bytes], *, kept_bytes_max: int = KEPT_BYTES_MAX
    ) -> None:
        self._descriptor = descriptor
        self._left_out_line = left_out_line
        self._kept_bytes_max = kept_bytes_max
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()
        """The first ones are being written."""
        self._bytes = 0
        """Of them all."""
        self._left_out = 0
        self._torn = False
        """The last write ended within a line."""
        self._stands_still = False
        """A flush has waited in vain, and nothing was written since."""

    def start(self) -> None:
        """Raises RuntimeError when the system allows no more threads."""
        threading.Thread(target=self._run, name="vibemq-log", daemon=True).start()

    def put(self, line: bytes) -> None:
        """Does not wait for the descriptor. The line ends with a newline."""
        with self._changed:
            if self._entries and self._bytes + len(line) > self._kept_bytes_max:
                self._left_out += 1
                return
            self._tell_left_out()
            self._append(_Entry(line, 1))

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that waits has been written or has failed, also what is put meanwhile; False when the time is
        up. Blocks.

        At the end of a process there are several flushes. Only the first one waits for a reader that stands still.
        """
        with self._changed:
            written = self._changed.wait_for(lambda: not self._entries, 0 if self._stands_still else timeout_s)
            self._stands_still = not written
            return written

    def _append(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.data)
        self._changed.notify_all()

    def _tell_left_out(self) -> None:
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._append(_Entry(self._left_out_line(count), count))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._entries)
                # Not by an iterator: a collection of garbage may log, in this thread, and add to them.
                first = [self._entries[index] for index in range(min(len(self._entries), TOGETHER_MAX))]
            written = self._write(first)
            with self._changed:
                self._stands_still = False
                for entry in first:
                    self._entries.popleft()
                    self._bytes -= len(entry.data)
                    written -= len(entry.data)
                    if written < 0:
                        # The next record tries again.
                        self._left_out += entry.records
                if written == 0:
                    # Also when nobody logs anything any more.
                    self._tell_left_out()
                self._changed.notify_all()

    def _write(self, entries: Sequence[_Entry]) -> int:
        """How many bytes of them the descriptor has taken; fewer than all when it takes no more."""
        lead = b"\n" if self._torn else b""
        written = 0
        try:
            data = memoryview(b"".join((lead, *(entry.data for entry in entries))))
            while written < len(data):
                written += write_some(self._descriptor, data[written:])
                self._torn = data[written - 1] != _NEWLINE
        except (OSError, MemoryError):
            # Its reader has left, or its disk is full: there is nobody to be told.
            pass
        return written - len(lead)


def write_some(descriptor: int, data: memoryview) -> int:
    """How much was written; waits until it is some. Raises OSError."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            # Who shares the terminal or the pipe has made it so.
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
