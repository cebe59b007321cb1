"""`store.json`: which provider a data directory belongs to, and which version its layout has.

    {"provider": "sqlite", "version": 1, "created_at": 1763726400000}

Written atomically and durably. A directory without it holds no store yet.
"""

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from vibemq.errors import StorageDamaged, StoreVersionError
from vibemq.storage.local.modes import private_file

STORE_FILE = "store.json"


@dataclass(frozen=True, slots=True)
class StoreInfo:
    provider: str
    version: int
    created_at: int
    """Milliseconds; 0 = unknown."""
    restored: bool = False
    """It is a backup or came from one, and no broker was started on it yet: `storage/timeline.py`."""


def read_store_info(data_dir: Path) -> StoreInfo | None:
    """None for a directory without a store.

    Raises:
        StorageDamaged: the file makes no sense.
    """
    path = data_dir / STORE_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        facts = json.loads(text)
        created_at, restored = int(facts.get("created_at", 0)), bool(facts.get("restored", False))
        return StoreInfo(str(facts["provider"]), int(facts["version"]), created_at, restored)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise StorageDamaged(
            f"the store file cannot be read ({exc!r})",
            path=str(path),
            hint='write {"provider": "<name>", "version": <number>} into it by hand if you know both',
        ) from exc


def write_store_info(data_dir: Path, info: StoreInfo) -> None:
    facts = {"provider": info.provider, "version": info.version, "created_at": info.created_at}
    if info.restored:
        facts["restored"] = True
    temporary = data_dir / f"{STORE_FILE}.new"
    private_file(temporary, (json.dumps(facts) + "\n").encode())
    temporary.rename(data_dir / STORE_FILE)
    fsync_folder(data_dir)
    _fsync_name(data_dir)


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone, and those above it that are missing; their names survive a power cut.

    Raises:
        NotADirectoryError: a file is in its place.
    """
    missing = [level for level in (folder, *folder.parents) if not level.exists()]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    for level in reversed(missing):
        _fsync_name(level)


def _fsync_name(folder: Path) -> None:
    """Make the folder's own name durable: without it, everything inside is out of reach."""
    try:
        fsync_folder(folder.resolve().parent)
    except PermissionError:
        # Somebody else made the folder where we may not look; he is the one to flush its name.
        return


def fsync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    _fsync(folder, os.O_DIRECTORY)


def fsync_file(path: Path) -> None:
    """Make the file's bytes durable, whoever wrote them."""
    _fsync(path, 0)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_store(data_dir: Path, provider: str, version: int) -> None:
    """`check_store`, and refuse a directory without a store as well."""
    if not check_store(data_dir, provider, version):
        raise StoreVersionError(f"{data_dir} holds no store (no {STORE_FILE}); a broker makes one when it starts")


def check_store(data_dir: Path, provider: str, version: int) -> bool:
    """Whether there is a store that this provider may open; False for a fresh directory.

    Raises:
        StoreVersionError: another provider's store, a newer one, or one that must be migrated first.
        StorageDamaged: the store file makes no sense.
    """
    info = read_store_info(data_dir)
    if info is None:
        return False
    if info.provider != provider:
        raise StoreVersionError(
            f"{data_dir} holds a store of the {info.provider!r} provider, not of {provider!r}; "
            f"use --storage {info.provider} (storage.provider in the settings), or choose another data directory"
        )
    if info.version > version:
        raise newer_store(data_dir, info.version, version)
    if info.version < version:
        raise StoreVersionError(
            f"{data_dir} has store version {info.version}, this VibeMQ needs {version}; "
            f"copy the directory (`cp -a {data_dir} COPY`), then run `vibemq-admin migrate apply --data-dir {data_dir}`"
        )
    return True


def newer_store(data_dir: Path, version: int, known: int) -> StoreVersionError:
    return StoreVersionError(
        f"{data_dir} was written by a newer VibeMQ (store version {version}, this one knows up to {known}); "
        "upgrade VibeMQ, or restore a backup of that time"
    )
