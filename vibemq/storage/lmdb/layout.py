"""What lies where in a data directory, and which version of that this code speaks.

store.json         {"provider": "lmdb", "version": 1}
journal/           segments                              (segment.py)
store/             the LMDB environment                  (env.py, keys in vibemq.storage.keys)
ballast            blocks kept for a full disk           (ballast.py)
lock, owner.json   who owns the directory                (lock.py)
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibemq.errors import StorageDamaged, StoreVersionError

PROVIDER = "lmdb"
VERSION = 1
VERSION_FILE = "store.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one data directory."""

    data_dir: Path

    @property
    def journal(self) -> Path:
        return self.data_dir / "journal"

    @property
    def store(self) -> Path:
        return self.data_dir / "store"

    @property
    def version_file(self) -> Path:
        return self.data_dir / VERSION_FILE


def check_version(layout: Layout) -> bool:
    """Return whether there is a store; a fresh directory has none.

    Raises:
        StoreVersionError: another provider's store, one of a newer VibeMQ, or one that must be migrated first.
        StorageDamaged: the version file makes no sense.
    """
    try:
        text = layout.version_file.read_text()
    except FileNotFoundError:
        return False
    path = str(layout.version_file)
    try:
        facts: dict[str, Any] = json.loads(text)
        provider, version = str(facts["provider"]), int(facts["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageDamaged(f"the version file cannot be read ({error!r})", path=path) from error
    if provider != PROVIDER:
        raise StoreVersionError(f"{layout.data_dir} holds a {provider} store; start with storage provider {provider!r}")
    if version > VERSION:
        raise StoreVersionError(
            f"{layout.data_dir} was written by a newer VibeMQ (store version {version}, this one knows {VERSION}); "
            "upgrade VibeMQ, or restore a backup of that time"
        )
    if version < VERSION:
        raise StoreVersionError(
            f"{layout.data_dir} has store version {version}, this VibeMQ needs {VERSION}; run `vibemq-admin migrate`"
        )
    return True


def write_version(layout: Layout) -> None:
    """Note provider and version, atomically and durably."""
    temporary = layout.version_file.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(json.dumps({"provider": PROVIDER, "version": VERSION}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(layout.version_file)
    fsync_folder(layout.data_dir)


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
