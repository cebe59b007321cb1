"""Modes of a data directory's files: its owner alone may read messages."""

import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def private_file(path: Path, content: bytes, *, flush: bool = True) -> None:
    """Write a small file that only its owner may read, and flush it; its name is the caller's to flush."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(file, "wb") as opened:
        os.fchmod(file, FILE_MODE)
        opened.write(content)
        opened.flush()
        if flush:
            os.fsync(file)


def tighten(folder: Path) -> None:
    """Take everybody else's rights to the folder and all below it away.

    What belongs to somebody else, such as the root of a mounted volume, is left as it is.
    """
    for path in (folder, *folder.rglob("*")):
        try:
            if path.is_symlink():
                continue
            mode = path.stat().st_mode & 0o777
            if mode & 0o077:
                path.chmod(mode & 0o700)
        except (PermissionError, FileNotFoundError):
            continue
