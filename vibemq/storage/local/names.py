"""Files and their names: a file that is open may have lost its name to another one."""

import errno
import fcntl
import os
from pathlib import Path

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""What was there is gone: on NFS a name that somebody else has removed is stale."""


def has_name(file: int, path: Path) -> bool:
    """Whether an open file is the one that `path` names now."""
    try:
        named = path.stat()
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return False
        raise
    return os.path.samestat(os.fstat(file), named)


def open_locked(path: Path, flags: int, kind: int) -> int | None:
    """The descriptor of a file that is locked with flock(2); None while another process has it, or when another file
    has taken its name meanwhile."""
    file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        if has_name(file, path):
            return file
    except BlockingIOError:
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None
