"""Clients in a forked child. The child has the parent's objects and descriptors, and neither its threads nor its loops.

A child closes what it has inherited of the parent's connections, without a word on them: otherwise the broker would not
see their end when the parent is gone. So each socket is known from its making on, while it connects and shakes hands,
too, and no process is forked while one is made. A descriptor is not closed by number, which a later finalizer would do
again to whatever has the number then; the null device takes its place.
"""

import logging
import os
import socket
import stat
import weakref
from collections.abc import Iterable
from threading import RLock
from typing import Protocol

logger = logging.getLogger(__name__)

FORKED = (
    "this client was connected before the process was forked, and its connection belongs to the parent; connect in the "
    "child"
)


class Forkable(Protocol):
    """What has to know that it is in a forked child now."""

    def forked(self) -> None:
        """Called in the child before anything else runs there. Must not wait, nor take a lock of the parent's."""


_known: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()
_making = RLock()
"""Held for the microseconds in which a socket is there and not known, and while the process is forked. Reentrant, for a
signal's handler that forks."""


def watch_forks(forkable: Forkable) -> None:
    """Have `forked` called in children, as long as the object lives."""
    _known.add(forkable)


def open_socket(family: socket.AddressFamily) -> socket.socket:
    """A TCP socket that children do not keep. It may be handed over to whatever keeps the object, and so its number."""
    with _making:
        made = socket.socket(family, socket.SOCK_STREAM)
        _sockets.add(made)
    return made


def _detach(descriptors: Iterable[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            if descriptor >= 0 and _is_socket(descriptor):
                os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _begin_forking() -> None:
    _making.acquire()


def _go_on_in_parent() -> None:
    _making.release()


def _go_on_in_child() -> None:
    global _making
    # Threads that wait for the parent's are not here.
    _making = RLock()
    try:
        _detach([each.fileno() for each in list(_sockets)])
    except OSError:
        logger.exception("this process could not let go of its parent's connections")
    for forkable in list(_known):
        try:
            forkable.forked()
        except Exception:
            # The others have to know all the same.
            logger.exception("a client could not learn that it is in a forked child")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_begin_forking, after_in_parent=_go_on_in_parent, after_in_child=_go_on_in_child)
