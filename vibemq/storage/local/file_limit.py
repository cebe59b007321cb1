"""What keeps a file from growing on a disk that has room: the process's limit of file size, or a quota.

The kernel writes what still fits and refuses the rest, and databases call a short write an I/O error.
"""

import errno
import os
import resource
from collections.abc import Iterable
from pathlib import Path

WHERE_SET = "`ulimit -f`, `LimitFSIZE=` of a systemd unit"
RESTART = "restart to recover"
_OWNER = "give the data directory to the broker's user (`chown --recursive`), then restart to recover"
_MENDS = {
    errno.EACCES: _OWNER,
    errno.EPERM: _OWNER,
    errno.EROFS: "see why its file system is read-only, then restart to recover",
    errno.EMFILE: "raise the process's limit of open files (`ulimit -n`, `LimitNOFILE=`), then restart to recover",
    errno.ENFILE: "raise the system's limit of open files, then restart to recover",
}
"""Of errors that a restart alone would meet again."""
PROBE = "probe"
PROBE_BYTES = 64 << 10


def file_limit() -> int | None:
    """Bytes that a file of this process may have; None when there is no limit. It may be changed from outside."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def limit_sentence(limit: int) -> str:
    return f"a file may have {limit} bytes in this process ({WHERE_SET})"


def remedy_of(error: OSError) -> str:
    """What an operator does about a write that failed with an unknown outcome, after which the process ends."""
    limit = file_limit()
    if error.errno == errno.EFBIG and limit is not None:
        return f"{limit_sentence(limit)}: raise that limit and restart, nothing that was confirmed is lost"
    return _MENDS.get(error.errno or 0, RESTART)


def no_file_fits(folder: Path) -> bool:
    """Whether its file system has no inode left, which it calls a full disk, too."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return False
    # Some make inodes of free blocks: when those are gone, so are these, and space is what is short.
    return state.f_files > 0 and state.f_favail == 0 and state.f_bavail > 0


def why_no_growth(files: Iterable[Path], folder: Path, *, too_big: bool = False) -> str | None:
    """What kept one of the files from growing, when it was a limit of their size or a quota.

    Args:
        folder: where the quota is tried out.
        too_big: the kernel has said that a file would be; it may be shorter than the limit, which the write was behind.
    """
    limit = file_limit()
    if limit is not None and (too_big or any(file.exists() and file.stat().st_size >= limit for file in files)):
        return limit_sentence(limit)
    return "the quota of its disk is used up" if _is_over_quota(folder / PROBE) else None


def _is_over_quota(probe: Path) -> bool:
    """Request a few blocks, and give them back."""
    try:
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, PROBE_BYTES)
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.errno == errno.EDQUOT
    return False
