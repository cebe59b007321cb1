"""Clients in a forked child. The child has the parent's objects and descriptors, and neither its threads nor its loops.

A child closes what it has inherited of the parent's connections, without a word on them: otherwise the broker would not
see their end when the parent is gone. A descriptor is not closed by number, which a later finalizer would do again to
whatever has the number then; the null device takes its place.
"""

import logging
import os
import stat
import weakref
from collections.abc import Iterable
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


def watch_forks(forkable: Forkable) -> None:
    """Have `forked` called in children, as long as the object lives."""
    _known.add(forkable)


def detach_sockets(descriptors: Iterable[int]) -> None:
    """Put the null device in the place of sockets."""
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


def _tell_all() -> None:
    for forkable in list(_known):
        try:
            forkable.forked()
        except Exception:
            # The others have to know all the same.
            logger.exception("a client could not let go of its parent's connection")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
