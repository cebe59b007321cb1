"""Modes of a data directory's files: its owner alone may read messages."""

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
COMMON = ("lock", "owner.json", "store.json", "store.json.new", "ballast", "ballast-start", "unfinished", "probe")
"""What the folder of every store may hold."""
BESIDE = (
    "audit",
    "audit/audit-*.jsonl",
    "exports",
    "exports/dead-letters-*",
    "history",
    "history.new",
    "backups.jsonl",
    "backups.jsonl.new",
)
"""What a broker keeps beside its store."""
_OF_THE_FILE_SYSTEM = frozenset({"lost+found"})


def private_file(path: Path, content: bytes, *, flush: bool = True) -> None:
    """Write a small file that only its owner may read, and flush it; its name is the caller's to flush."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(file, "wb") as opened:
        os.fchmod(file, FILE_MODE)
        opened.write(content)
        opened.flush()
        if flush:
            os.fsync(file)


def tighten(folder: Path, known: Iterable[str]) -> None:
    """Take everybody else's rights to a store's files away, and to the folders that hold nothing but such files.

    What belongs to somebody else, such as the root of a mounted volume, is left as it is, and so is every file that is
    not of the store.

    Args:
        known: names inside of the folder, `*` and `?` as in a shell, "/" between the levels.
    """
    _tighten(folder, [tuple(name.split("/")) for name in (*COMMON, *BESIDE, *known)])


def _tighten(folder: Path, known: Sequence[tuple[str, ...]]) -> None:
    shared = False
    for path in _entries(folder):
        inner = [levels[1:] for levels in known if fnmatchcase(path.name, levels[0])]
        if not inner:
            shared |= path.name not in _OF_THE_FILE_SYSTEM
        elif path.is_symlink():
            continue
        elif path.is_dir():
            _tighten(path, [levels for levels in inner if levels])
        else:
            _restrict(path)
    if not shared:
        _restrict(folder)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (PermissionError, FileNotFoundError):
        return []


def _restrict(path: Path) -> None:
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            path.chmod(mode & 0o700)
    except (PermissionError, FileNotFoundError):
        return
