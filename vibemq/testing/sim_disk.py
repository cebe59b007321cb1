"""A disk in memory that loses power like a real one: torn, reordered, and the same again for the same seed.

A file is what readers see (`content`), what is surely on disk (`durable`), and every image each 512-byte sector
had since the last flush. A power cut leaves, for each sector, the durable image or any later one. A folder's
entries work alike: an operation that was not followed by `fsync_dir` survives or does not.

After a failed flush the pages count as clean, as Linux counts them: part of them is on disk, the next flush
reports success and repairs nothing.
"""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

SECTOR = 512
UNLIMITED = 1 << 40


class PowerCut(BaseException):
    """The simulated machine is off. Not an OSError: nothing inside it may handle this."""


class _File:
    __slots__ = ("content", "durable", "sizes", "versions")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.versions: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def write(self, data: bytes, offset: int) -> None:
        self.resize(max(len(self.content), offset + len(data)))
        self.content[offset : offset + len(data)] = data
        for sector in range(offset // SECTOR, (offset + len(data) + SECTOR - 1) // SECTOR):
            image = bytes(self.content[sector * SECTOR : (sector + 1) * SECTOR])
            self.versions.setdefault(sector, []).append(image)

    def resize(self, size: int) -> None:
        if size != len(self.content):
            _set_size(self.content, size)
            self.sizes.append(size)

    def flush(self) -> None:
        _set_size(self.durable, len(self.content))
        for sector, images in self.versions.items():
            _put(self.durable, sector, images[-1])
        self.versions.clear()
        self.sizes.clear()

    def survive(self, rng: random.Random) -> bytearray:
        """One legal content after a power cut."""
        left = bytearray(self.durable)
        odds = rng.choice((0.0, 1.0, 0.5, rng.random()))
        if self.sizes and rng.random() < odds:
            _set_size(left, rng.choice(self.sizes))
        for sector, images in self.versions.items():
            if rng.random() < odds:
                _put(left, sector, images[-1] if rng.random() < 0.7 else rng.choice(images))
        return left


def _set_size(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _put(data: bytearray, sector: int, image: bytes) -> None:
    start = sector * SECTOR
    room = len(data) - start
    if room > 0:
        data[start : start + min(room, len(image))] = image[:room]


@dataclass(slots=True)
class _FolderChange:
    """One create, unlink, rename or mkdir that is not durable yet. A node of None is a folder."""

    folder: str
    removed: tuple[str, _File | None] | None = None
    added: tuple[str, _File | None] | None = None

    def apply(self, entries: dict[str, _File | None]) -> None:
        if self.removed and entries.get(self.removed[0]) is self.removed[1]:
            entries.pop(self.removed[0], None)
        if self.added:
            entries[self.added[0]] = self.added[1]


@dataclass
class SimDisk:
    """A `Disk` for tests.

    Attributes:
        capacity: bytes of all files together; more is ENOSPC.
        errors: operation number (from 1) → errno it fails with.
        crash_at: operation number at which the power goes; the operation itself may still have an effect.
        short_writes: let some writes take only part of what they are offered.
        ops: operations so far (everything but close, size and free_bytes).
    """

    seed: int = 0
    capacity: int = UNLIMITED
    errors: dict[int, int] = field(default_factory=dict)
    crash_at: int | None = None
    short_writes: bool = False

    def __post_init__(self) -> None:
        self.ops = 0
        self.log: list[str] = []
        self._rng = random.Random(self.seed)  # noqa: S311 - repeatable on purpose
        self._entries: dict[str, _File | None] = {"/": None}
        self._durable: dict[str, _File | None] = {"/": None}
        self._pending: list[_FolderChange] = []
        self._open: dict[int, _File] = {}
        self._next_file = 3

    # -- what the storage rooms call ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> int:
        self._step("open", path)
        node = self._entries.get(path)
        if node is None:
            if path in self._entries or not create:
                raise _os_error(errno.ENOENT, path)
            self._need_folder(path)
            node = _File()
            self._change(_FolderChange(_parent(path), added=(path, node)))
        self._next_file += 1
        self._open[self._next_file] = node
        return self._next_file

    def close(self, file: int) -> None:
        del self._open[file]

    def pwritev(self, file: int, buffers: Sequence[bytes], offset: int) -> int:
        node = self._open[file]
        data = b"".join(buffers)
        try:
            cut = self._step("pwritev", str(len(data)))
        except OSError:
            # A failed write may have moved part of its bytes.
            node.write(data[: self._rng.randrange(len(data) + 1)], offset)
            raise
        grow = max(0, offset + len(data) - len(node.content))
        data = data[: len(data) - max(0, grow - self.free_bytes("/"))]
        if not data:
            raise _os_error(errno.ENOSPC, "pwritev")
        if self.short_writes and self._rng.random() < 0.5:
            data = data[: self._rng.randrange(1, len(data) + 1)]
        node.write(data, offset)
        self._cut_if(cut)
        return len(data)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        self._step("pread", str(size))
        return bytes(self._open[file].content[offset : offset + size])

    def fdatasync(self, file: int) -> None:
        node = self._open[file]
        try:
            self._cut_if(self._step("fdatasync", ""))
        except OSError:
            node.durable = node.survive(self._rng)
            node.versions.clear()
            node.sizes.clear()
            raise
        node.flush()

    def fsync(self, file: int) -> None:
        self.fdatasync(file)

    def fallocate(self, file: int, size: int) -> None:
        node = self._open[file]
        cut = self._step("fallocate", str(size))
        if size - len(node.content) > self.free_bytes("/"):
            raise _os_error(errno.ENOSPC, "fallocate")
        node.resize(max(size, len(node.content)))
        self._cut_if(cut)

    def truncate(self, file: int, size: int) -> None:
        cut = self._step("truncate", str(size))
        self._open[file].resize(size)
        self._cut_if(cut)

    def size(self, file: int) -> int:
        return len(self._open[file].content)

    def rename(self, old: str, new: str) -> None:
        cut = self._step("rename", f"{old} {new}")
        if old not in self._entries:
            raise _os_error(errno.ENOENT, old)
        node = self._entries[old]
        self._change(_FolderChange(_parent(old), removed=(old, node), added=(new, node)))
        self._cut_if(cut)

    def unlink(self, path: str) -> None:
        cut = self._step("unlink", path)
        if path not in self._entries:
            raise _os_error(errno.ENOENT, path)
        self._change(_FolderChange(_parent(path), removed=(path, self._entries[path])))
        self._cut_if(cut)

    def listdir(self, folder: str) -> list[str]:
        self._step("listdir", folder)
        if folder not in self._entries:
            raise _os_error(errno.ENOENT, folder)
        return sorted(p.rpartition("/")[2] for p in self._entries if p != "/" and _parent(p) == folder)

    def mkdir(self, folder: str) -> None:
        cut = self._step("mkdir", folder)
        if folder not in self._entries:
            self._need_folder(folder)
            self._change(_FolderChange(_parent(folder), added=(folder, None)))
        self._cut_if(cut)

    def fsync_dir(self, folder: str) -> None:
        self._cut_if(self._step("fsync_dir", folder))
        for change in [c for c in self._pending if c.folder == folder]:
            change.apply(self._durable)
        self._pending = [c for c in self._pending if c.folder != folder]

    def free_bytes(self, folder: str) -> int:
        return self.capacity - sum(len(n.content) for n in self._entries.values() if n is not None)

    # -- what tests call ------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> "SimDisk":
        """The disk as it may be found after the power comes back; this one is left as it was."""
        entries = dict(self._durable)
        odds = rng.choice((0.0, 1.0, 0.5))
        for change in self._pending:
            if rng.random() < odds:
                change.apply(entries)
        after = SimDisk(seed=rng.randrange(1 << 32), capacity=self.capacity)
        for path, node in sorted(entries.items()):
            if path == "/" or _parent(path) in after._entries:
                after._entries[path] = None if node is None else _File(bytes(node.survive(rng)))
        after._durable = dict(after._entries)
        return after

    def kill(self) -> "SimDisk":
        """The disk after the process died and the machine did not: everything written is still seen."""
        after = SimDisk(seed=self.seed + 1, capacity=self.capacity)
        after._entries, after._durable, after._pending = dict(self._entries), dict(self._durable), list(self._pending)
        return after

    def content(self, path: str) -> bytes:
        """What a reader of the file sees now."""
        return bytes(self._node(path).content)

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Change stored bytes behind everybody's back, as rot does."""
        node = self._node(path)
        node.flush()
        for image in (node.content, node.durable):
            image[offset : offset + len(data)] = data

    # -- inside ---------------------------------------------------------------------------------------------------

    def _node(self, path: str) -> _File:
        node = self._entries[path]
        assert node is not None
        return node

    def _step(self, name: str, detail: str) -> bool:
        """Count an operation. True: the power goes during it. Raises what the test asked for."""
        if self.crash_at is not None and self.ops >= self.crash_at:
            raise PowerCut
        self.ops += 1
        self.log.append(f"{name} {detail}")
        if code := self.errors.get(self.ops):
            raise _os_error(code, name)
        return self.ops == self.crash_at

    def _cut_if(self, cut: bool) -> None:
        if cut:
            raise PowerCut

    def _change(self, change: _FolderChange) -> None:
        change.apply(self._entries)
        self._pending.append(change)

    def _need_folder(self, path: str) -> None:
        if _parent(path) not in self._entries:
            raise _os_error(errno.ENOENT, path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _os_error(code: int, what: str) -> OSError:
    return OSError(code, f"{os.strerror(code)} (simulated: {what})")
