"""A broker in a forked child: the child has the parent's objects and descriptors, and neither its threads nor its loop.

A lock of flock(2) and a listening socket live as long as one process has them open. A child that kept them would keep
the next broker from the data directory, and clients would wait for answers at a port that nobody serves. So the child
lets go of them as soon as it begins, and unlocks nothing: the lock is the parent's, too.
"""

import ctypes
import fcntl
import logging
import os
import socket
import stat
import sys
import weakref
from collections.abc import Collection, Iterator
from typing import Protocol

from vibemq.storage.local.inherited import let_go_of
from vibemq.storage.local.lock import LOCK_NAME

logger = logging.getLogger("vibemq.broker")

FORKED = (
    "this broker runs in the process that this one was forked from; connect to broker.url with a client here, or "
    "start another broker with a data directory of its own"
)
_FIRST_OF_OURS = 3
"""Standard input, output and errors are the program's, also when they are files in the data directory."""


class ForkWatcher(Protocol):
    """What has to know that it is in a forked child now."""

    def forked(self) -> None:
        """Called in the child before anything else runs there. Must not wait, nor take a lock of the parent's."""


_running: "weakref.WeakSet[ForkWatcher]" = weakref.WeakSet()


def watch_forks(broker: ForkWatcher) -> None:
    """Have `forked` called in children, until `no_longer`."""
    _running.add(broker)


def no_longer(broker: ForkWatcher) -> None:
    _running.discard(broker)


def let_go(broker: ForkWatcher, data_dir: str, ports: Collection[int]) -> None:
    """In a forked child: keep none of the parent's files and sockets open, and see to it that nothing of its broker is
    ever finalised here.

    Args:
        data_dir: without links; its files are let go of if its lock is one of them.
        ports: of its listeners.
    """
    # A store that is closed by the interpreter's end would write to files that the parent writes to.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(broker))
    let_go_of([*_files(data_dir), *_sockets(ports)])


def _files(data_dir: str) -> list[int]:
    found = {}
    for descriptor, mode in _open_descriptors():
        # A folder, when another thread of the parent was about to flush it.
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            path = _path_of(descriptor)
            if path.startswith(data_dir + os.sep):
                found[descriptor] = path
    return list(found) if os.path.join(data_dir, LOCK_NAME) in found.values() else []


def _sockets(ports: Collection[int]) -> list[int]:
    """Listening ones, and those of the connections that have come in by them."""
    return [
        descriptor
        for descriptor, mode in _open_descriptors()
        if stat.S_ISSOCK(mode) and _local_port(descriptor) in ports
    ]


def _open_descriptors() -> Iterator[tuple[int, int]]:
    """With their modes."""
    for name in os.listdir("/dev/fd"):
        try:
            if int(name) >= _FIRST_OF_OURS:
                yield int(name), os.fstat(int(name)).st_mode
        except OSError:
            continue  # The descriptor of the listing itself.


def _path_of(descriptor: int) -> str:
    try:
        if sys.platform == "darwin":
            return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _local_port(descriptor: int) -> int | None:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            address = same.getsockname()
    except OSError:
        return None
    return address[1] if isinstance(address, tuple) and len(address) > 1 else None


def _tell_all() -> None:
    for broker in list(_running):
        try:
            broker.forked()
        except Exception:
            # The others have to know all the same.
            logger.exception("the files and sockets of the parent's broker stay open in this forked process")


os.register_at_fork(after_in_child=_tell_all)
