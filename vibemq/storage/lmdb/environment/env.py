"""Opening the LMDB file: who may write it, how big its map is, and what is checked before mapping it.

The checkpointer's process is the only writer, always with full sync: LMDB's unsynced modes leave a broken file after
a power cut. The broker maps the same file read-only. The map is far bigger than any data: address space costs
nothing, and growing a map while readers are active is what goes wrong.
"""

import errno
import os
import shutil
import struct
import sys
from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged, StorageFull
from vibemq.storage.lmdb.environment.pages import HEAD_BYTES, MAGIC, page_bytes_of
from vibemq.storage.local.disk import Disk, write_again

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
LOCK_BYTES = 16 << 10
"""More than its 64 readers take."""
MAP_BYTES_MAX = 1 << 40
GROWN = 1.25
"""A disk that has become so many times as big is mapped anew."""
_META_AT = 16
_HINT = "restore a backup, or run `vibemq-admin check --repair`"
_META_BYTES = 136
_LAST_PAGE_AT = 24 + 2 * 48
"""Behind magic, version, address and map size (24 bytes) and two database records of 48 (mdb.c, MDB_meta)."""


def map_bytes(folder: Path) -> int:
    """Twice the disk, at most 1 TiB, in whole MiB: never full before the disk is."""
    disk = shutil.disk_usage(folder).total
    return max(1 << 30, min(MAP_BYTES_MAX, 2 * disk)) & ~((1 << 20) - 1)


def map_is_short(env: lmdb.Environment, wanted: int) -> bool:
    """Whether the disk has grown so much since the map was made that the map may be full before the disk is. Where
    others take of the disk and give back it seems to grow all the time, by little."""
    return wanted > GROWN * int(env.info()["map_size"])


def open_writer(folder: Path) -> lmdb.Environment:
    """Open (or create) the store for the one writing process. Call `missing_bytes` first."""
    folder.mkdir(parents=True, exist_ok=True)
    _reserve_lock_file(folder)
    env = lmdb.open(
        str(folder), map_size=map_bytes(folder), sync=True, metasync=True, max_readers=64, mode=0o600, lib_version=0
    )
    # A process that was killed while it read, such as a checkpointer at a backup, has left its snapshot: no page that
    # is in it, nor any that is freed later, would be used again.
    env.reader_check()
    return env


def open_reader(folder: Path) -> lmdb.Environment:
    """Map the store read-only; its transactions must be short and never cross an await. Call `missing_bytes` first."""
    _reserve_lock_file(folder)
    return lmdb.open(
        str(folder), map_size=map_bytes(folder), readonly=True, create=False, max_readers=64, lib_version=0
    )


def _reserve_lock_file(folder: Path) -> None:
    """Give the lock file its blocks. LMDB makes it with holes and maps it: filling one on a full disk is SIGBUS.

    Raises StorageFull.
    """
    path = folder / LOCK_FILE
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, LOCK_BYTES)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFull(f"no room for {path}: {error.strerror}; free space on its disk") from error
    finally:
        os.close(file)


def open_inspector(folder: Path) -> lmdb.Environment:
    """Map the store read-only, without LMDB's lock: nothing is written, and nobody may write. See `length_of_gap`."""
    return lmdb.open(str(folder), map_size=map_bytes(folder), readonly=True, create=False, lock=False, lib_version=0)


def missing_bytes(folder: Path) -> int:
    """How much shorter the file is than its newest header says; the file is then stretched with zeros.

    Reading a mapped page behind the end of the file kills the process with SIGBUS, so the gap is filled before
    anything is mapped. A gap can be harmless (pages that were freed before they were ever written) or the mark of a
    cut: when this is not 0, walk the whole store before trusting it.

    Raises:
        StorageDamaged: the file has no valid header at all.
    """
    missing = length_of_gap(folder)
    if missing:
        path = folder / DATA_FILE
        os.truncate(path, path.stat().st_size + missing)
    return missing


def length_of_gap(folder: Path) -> int:
    """As `missing_bytes`, and the file stays as it is: it must not be mapped then."""
    path = folder / DATA_FILE
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    needed = _bytes_needed(head)
    if needed is None:
        raise StorageDamaged("no valid LMDB header", path=str(path), offset=0, hint=_HINT)
    missing = max(0, needed - path.stat().st_size)
    if missing and needed > map_bytes(folder):
        raise StorageDamaged(f"its header claims {needed} bytes", path=str(path), offset=0, hint=_HINT)
    return missing


def heal_header(folder: Path) -> bool:
    """Put the sound one of the two header pages in the place of a broken one; return whether that was needed.

    LMDB opens nothing while either is broken. The older header stands for the state one transaction earlier, all of
    which is still there: LMDB uses no page again that one of the two refers to. For repair only.
    """
    path = folder / DATA_FILE
    if not path.exists():
        return False
    with path.open("r+b") as file:
        head = file.read(HEAD_BYTES)
        page_bytes = page_bytes_of(head)
        pages = [head[:page_bytes], head[page_bytes : 2 * page_bytes]]
        sound = [_ends(head, start) is not None for start in (0, page_bytes)]
        if sound[0] == sound[1]:
            return False
        good = sound.index(True)
        # The page number in front is the page's own.
        healed = (1 - good).to_bytes(8, sys.byteorder) + pages[good][8:]
        file.seek((1 - good) * page_bytes)
        file.write(healed)
        file.flush()
        os.fsync(file.fileno())
    return True


def flush_again(disk: Disk, folder: Path) -> None:
    """Make durable what is committed, whoever committed it. LMDB flushes a transaction's pages before it writes its
    header, but the header may be one that the disk refused; nobody writes meanwhile."""
    file = disk.open(str(folder / DATA_FILE))
    try:
        disk.fdatasync(file)
        head = disk.pread(file, HEAD_BYTES, 0)
        write_again(disk, file, min(len(head), 2 * page_bytes_of(head)))
    finally:
        disk.close(file)


def remove_unborn(folder: Path, *, has_journal: bool) -> None:
    """Remove a data file that nothing was ever committed to: a power cut came while LMDB made it.

    Its two header pages are not flushed before the first commit, so any part of them may be zeros, and LMDB would
    refuse the file; pages of that commit may be there already. Only for a directory without a version file. Beside a
    journal, which is made after the first commit, a longer file without any header is left alone: it may be a store
    that lost more than its beginning.
    """
    path = folder / DATA_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    header_bytes = 2 * page_bytes_of(head)
    head = head[:header_bytes]
    needed = _bytes_needed(head)
    nothing_committed = needed is not None and needed <= header_bytes
    never_flushed = not head.strip(b"\0") and not (has_journal and path.stat().st_size > header_bytes)
    if nothing_committed or never_flushed:
        path.unlink()


def _bytes_needed(head: bytes) -> int | None:
    """File length according to the newest of the two meta pages; None when neither is whole."""
    page_bytes = page_bytes_of(head)
    found = [ends for start in (0, page_bytes) if (ends := _ends(head, start)) is not None]
    return (max(found)[1] + 1) * page_bytes if found else None


def _ends(head: bytes, start: int) -> tuple[int, int] | None:
    """(transaction, last page) of the meta page that begins there; None when it is not whole."""
    meta = head[start + _META_AT : start + _META_AT + _META_BYTES]
    if len(meta) < _META_BYTES or struct.unpack_from("=I", meta)[0] != MAGIC:
        return None
    last_page, transaction = struct.unpack_from("=QQ", meta, _LAST_PAGE_AT)
    return transaction, last_page
