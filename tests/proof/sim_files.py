"""The code that speaks `pathlib` and `os` (version file, compaction, migration), brought onto a simulated disk.

`seams()` puts simulated parts in the places where the lmdb provider takes the operating system's: disk, LMDB, locks,
paths, threads. What decides anything stays the product's own.
"""

import functools
import io
import posixpath
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from tests.proof.sim_lmdb import DATA_FILE, Book, SimEnv, snapshot_number
from vibemq.server.commit import committer
from vibemq.storage import migrate
from vibemq.storage.lmdb import compacting, compaction, migration, prepare, provider, upkeep
from vibemq.storage.lmdb.checkpoint import checkpoint, checkpointer, schedule
from vibemq.storage.lmdb.environment.free_pages import UnusedPages
from vibemq.storage.lmdb.journal import large, record_writer, recovery, segment_pool
from vibemq.storage.lmdb.journal.segment import JournalRecord, SegmentReader
from vibemq.storage.local import store_file
from vibemq.storage.local.disk import write_all
from vibemq.testing.sim_disk import SimDisk

TRANSACTION_BYTES = 4_000
"""Small, so that a checkpoint takes several transactions."""
LARGE_BYTES = 2_000
"""Of an outcome that may have a row that was written ahead."""
REMEMBERED_MAX = 4_000
"""Segments whose records are remembered, each of a few KiB."""

_handles = count(1000)
_open: dict[int, tuple[SimDisk, int | None, str]] = {}


class SimPath(PurePosixPath):
    """A path on one disk; made by `path_on`."""

    disk: ClassVar[SimDisk]
    book: ClassVar[Book]
    __slots__ = ()

    def exists(self) -> bool:
        return self.disk.exists(str(self))

    def resolve(self) -> "SimPath":
        return self

    def mkdir(self, *, mode: int = 0, parents: bool = False, exist_ok: bool = False) -> None:
        self.disk.mkdir(str(self))

    def stat(self) -> Any:
        return SimpleNamespace(st_size=len(self.disk.content(str(self))))

    def read_bytes(self) -> bytes:
        if not self.disk.exists(str(self)):
            raise FileNotFoundError(str(self))
        return self.disk.content(str(self))

    def iterdir(self) -> "Iterator[SimPath]":
        return (self / name for name in self.disk.listdir(str(self)))

    def rename(self, target: "SimPath") -> None:
        self.disk.rename(str(self), str(target))

    def unlink(self, *, missing_ok: bool = False) -> None:
        if self.exists() or not missing_ok:
            self.disk.unlink(str(self))

    def open(self, mode: str) -> io.BytesIO:
        if mode != "rb":
            raise NotImplementedError(mode)
        return io.BytesIO(self.read_bytes())


def path_on(disk: SimDisk, book: Book, path: str) -> SimPath:
    kind: type[SimPath] = type("SimPath", (SimPath,), {"disk": disk, "book": book, "__slots__": ()})
    return kind(path)


def migrate_if_old(data_dir: Any) -> None:
    """As an operator does before the broker of a new version starts."""
    info = store_file.read_store_info(data_dir)
    if info is not None and info.version < len(migrate.find_steps(info.provider)):
        migrate.migrate(data_dir)


class _Os:
    """`os`, for paths that are `SimPath`s."""

    O_RDONLY = O_RDWR = O_CREAT = O_DIRECTORY = O_CLOEXEC = 0
    path = posixpath

    @staticmethod
    def open(path: SimPath, flags: int, mode: int = 0) -> int:
        disk = path.disk
        handle = next(_handles)
        _open[handle] = (disk, None if disk.is_folder(str(path)) else disk.open(str(path)), str(path))
        return handle

    @staticmethod
    def close(handle: int) -> None:
        disk, file, _ = _open.pop(handle)
        if file is not None:
            disk.close(file)

    @staticmethod
    def fsync(handle: int) -> None:
        disk, file, path = _open[handle]
        if file is None:
            disk.fsync_dir(path)
        else:
            disk.fsync(file)

    @staticmethod
    def chmod(path: SimPath, mode: int) -> None:
        """Permissions are no part of the simulation."""

    @staticmethod
    def fchmod(handle: int, mode: int) -> None:
        """Permissions are no part of the simulation."""

    @staticmethod
    def rename(old: SimPath, new: SimPath) -> None:
        old.disk.rename(str(old), str(new))


def _private_file(path: SimPath, content: bytes, *, flush: bool = True) -> None:
    disk = path.disk
    file = disk.open(str(path), create=True)
    if disk.size(file):
        disk.truncate(file, 0)
    write_all(disk, file, [content], 0)
    if flush:
        disk.fsync(file)
    disk.close(file)


def _rmtree(folder: SimPath, ignore_errors: bool = False) -> None:
    disk, path = folder.disk, str(folder)
    if disk.exists(path):
        for name in disk.listdir(path):
            disk.unlink(f"{path}/{name}")
        disk.unlink(path)


class _NoLock:
    """One simulated process at a time owns the directory."""

    def __init__(self, folder: object) -> None:
        pass

    def acquire(self, *, wait_s: float = 0.0) -> None:
        pass

    def require_name(self) -> None:
        pass

    def release(self) -> None:
        pass


def _open_writer(folder: SimPath) -> SimEnv:
    return SimEnv(folder.disk, str(folder), folder.book, create=True)


def _open_reader(folder: SimPath) -> SimEnv:
    return SimEnv(folder.disk, str(folder), folder.book, create=False)


def _missing_bytes(folder: SimPath) -> int:
    path = str(folder / DATA_FILE)
    if folder.disk.exists(path) and folder.disk.content(path):
        snapshot_number(folder.disk.content(path), path)
    return 0


def _remembering() -> type[SegmentReader]:
    """The product's reader; bytes that it has read before, as the same segment, it does not read once more.

    Images differ in the few sectors that were not flushed, and every segment is read twice in each.
    """
    memory: dict[tuple[int, bytes], list[JournalRecord]] = {}

    class Remembering(SegmentReader):
        def records(self) -> Iterator[JournalRecord]:
            seen = (self._serial, self._disk.pread(self._file, self.size, 0))
            found = memory.get(seen)
            if found is None:
                if len(memory) >= REMEMBERED_MAX:
                    memory.clear()
                found = memory[seen] = list(super().records())
            return iter(found)

    return Remembering


class Machine:
    """What the product finds in place of the operating system; `disk` is that of the process that runs now."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.monotonic: Callable[[], float] = lambda: 0.0
        self.new_link: Callable[..., Any] = lambda *_, **__: None
        self.new_upkeep: Callable[..., Any] = lambda *_: None
        self.serials = count(1)
        """Of the journal's segments: the same in each repetition of a run."""

    @contextmanager
    def at(self, disk: SimDisk) -> Iterator[None]:
        before, self.disk = self.disk, disk
        try:
            yield
        finally:
            self.disk = before


@contextmanager
def seams(machine: Machine) -> Iterator[None]:
    """Within it, the lmdb provider runs on the machine."""

    def real_disk() -> SimDisk:
        return machine.disk

    def disk_usage(folder: object) -> SimpleNamespace:
        return SimpleNamespace(total=machine.disk.capacity, free=machine.disk.free_bytes("/"))

    clock = SimpleNamespace(monotonic=lambda: machine.monotonic())
    no_check: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    places: list[tuple[Any, dict[str, Any]]] = [
        (provider, {"RealDisk": real_disk, "open_reader": _open_reader, "DirectoryLock": _NoLock}),
        (compacting, {"directory_bytes": lambda folder: 0}),
        (upkeep, {"map_bytes": lambda folder: 0, "map_is_short": lambda env, wanted: False}),
        (provider, {"refuse_remote": no_check, "SpareSegments": lambda work: machine.new_upkeep(work)}),
        (schedule, {"CheckpointerLink": lambda *a, **k: machine.new_link(*a, **k), "time": clock}),
        (checkpoint, {"RealDisk": real_disk, "open_writer": _open_writer, "WriterLock": _NoLock}),
        (checkpoint, {"TRANSACTION_BYTES": TRANSACTION_BYTES}),
        (checkpointer, {"RealDisk": real_disk, "unused_pages": lambda path: UnusedPages()}),
        (recovery, {"SegmentReader": _remembering()}),
        (segment_pool, {"new_serial": lambda: next(machine.serials), "LARGE_TAIL_BYTES": 4_096}),
        (large, {"CRC_PIECE_BYTES": 512, "FLUSH_BYTES": 1_024, "TAIL_BYTES_MAX": 512}),
        (record_writer, {"TAIL_BYTES_MAX": 512}),
        (committer, {"LARGE_ROW_BYTES": LARGE_BYTES}),
        (migration, {"open_writer": _open_writer, "WriterLock": _NoLock, "missing_bytes": _missing_bytes}),
        (prepare, {"os": _Os, "RealDisk": real_disk, "WriterLock": _NoLock, "missing_bytes": _missing_bytes}),
        (prepare, {"check_pages": no_check, "tighten": no_check}),
        (provider, {"shutil": SimpleNamespace(disk_usage=disk_usage)}),
        (checkpointer, {"shutil": SimpleNamespace(disk_usage=disk_usage), "time": clock, "_answer": no_check}),
        (compaction, {"os": _Os, "shutil": SimpleNamespace(rmtree=_rmtree)}),
        (compaction, {"store_size": lambda env: (0, 0), "map_used_ratio": lambda env: 0.0}),
        (store_file, {"os": _Os, "private_file": _private_file}),
        (migrate, {"DirectoryLock": _NoLock, "find_steps": functools.lru_cache(migrate.find_steps)}),
    ]
    with ExitStack() as stack:
        for module, names in places:
            stack.enter_context(patch.multiple(module, **names))
        yield
