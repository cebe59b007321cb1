"""A file descriptor that is readable while there is something to take: for event loops of others."""

import contextlib
import os
import select
import sys

_ONE = (1).to_bytes(8, sys.byteorder)
_READ = 4_096
"""Of a pipe; an eventfd gives all at once."""
_WAIT_MAX_S = 86_400.0


class Wakeup:
    """An eventfd, or a pipe where there is none. Any thread may use it."""

    def __init__(self) -> None:
        self._reading, self._writing = _descriptors()

    def fileno(self) -> int:
        return self._reading

    def set(self) -> None:
        # A pipe that is full is readable, which is all that is wanted.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, _ONE)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, _READ)

    def wait(self, timeout: float | None) -> None:
        """Until it is set, for a day at most; `timeout` in seconds."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.poll(None if timeout is None else min(max(0.0, timeout), _WAIT_MAX_S) * 1_000)

    def replace(self) -> None:
        """In a forked child: what is shared with the parent gets the numbers of new descriptors, which others may have
        registered."""
        reading, writing = _descriptors()
        os.dup2(reading, self._reading, inheritable=False)
        if self._writing != self._reading:
            os.dup2(writing, self._writing, inheritable=False)
        for descriptor in {reading, writing}:
            os.close(descriptor)

    def close(self) -> None:
        for descriptor in {self._reading, self._writing}:
            os.close(descriptor)


def _descriptors() -> tuple[int, int]:
    """To read from, and to write to."""
    if hasattr(os, "eventfd"):
        both = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return both, both
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing
