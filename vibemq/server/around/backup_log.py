"""Which backups the broker has written: a line of JSON for each in a file of the data directory, the latest 100."""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from vibemq.storage.local.modes import private_file
from vibemq.storage.local.store_file import fsync_folder

NAME = "backups.jsonl"
KEPT = 100


class BackupLog:
    """Everything here blocks. Without a data directory nothing is remembered."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / NAME
        self._lock = Lock()
        """Backups may end together, each in a thread of its own."""

    def add(self, backup: Mapping[str, Any]) -> None:
        """Raises OSError."""
        if self._file is None:
            return
        with self._lock:
            kept = [*self._read(), dict(backup)][-KEPT:]
            new = self._file.with_name(NAME + ".new")
            private_file(new, b"".join(orjson.dumps(one) + b"\n" for one in kept))
            new.replace(self._file)
            fsync_folder(self._file.parent)

    def latest_first(self) -> list[dict[str, Any]]:
        """With `is_there`: whether its folder still is. Raises OSError."""
        return [{**one, "is_there": os.path.isdir(str(one.get("target", "")))} for one in reversed(self._read())]

    def size_of(self, folder: Path) -> int:
        """Bytes of all files of a backup. Raises OSError."""
        return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())

    def _read(self) -> list[dict[str, Any]]:
        """A line that is no JSON object is left out."""
        try:
            lines = b"" if self._file is None else self._file.read_bytes()
        except FileNotFoundError:
            return []
        found = (_object(line) for line in lines.splitlines())
        return [one for one in found if one is not None]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
