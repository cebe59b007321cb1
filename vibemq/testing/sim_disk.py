"""A disk in memory that loses power like a real one: torn, reordered, and the same again for the same seed.

A file is what readers see (`content`), what is surely on disk (`durable`), and every image each 512-byte sector
had since the last flush. A power cut leaves, for each sector, the durable image or any later one. A folder's
entries work alike: an operation that was not followed by `fsync_dir` survives or does not.

After a failed flush the pages count as clean, as Linux counts them: part of them is on disk, the next flush
reports success and repairs nothing.

What one power cut left is a `Fate`: drawn at random, written down, and shrunk when it broke something. Images share
their bytes with the disk they were made of until either writes, so that thousands can be made of one run.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vibemq.testing.sim_file import SECTOR, FileFate, SimFile, milder_file

__all__ = ["SECTOR", "Fate", "PowerCut", "SimDisk"]

UNLIMITED = 1 << 40


class PowerCut(BaseException):
    """The simulated machine is off. Not an OSError: nothing inside it may handle this."""


class Fate(NamedTuple):
    """What one power cut left of everything that was not flushed."""

    changes: tuple[bool, ...]
    """For each pending change of a folder, in order: whether it survived."""
    files: tuple[tuple[str, FileFate], ...]


_Entries = dict[str, SimFile | None]
"""A node of None is a folder."""


@dataclass(slots=True)
class _FolderChange:
    """One create, unlink, rename or mkdir that is not durable yet."""

    folder: str
    removed: tuple[str, SimFile | None] | None = None
    added: tuple[str, SimFile | None] | None = None

    def apply(self, entries: _Entries) -> None:
        if self.added and self.removed:
            # A rename moves the file from wherever an earlier, lost rename has left it.
            for path in [path for path, node in entries.items() if node is not None and node is self.added[1]]:
                del entries[path]
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
        watch: called with the name of every operation that changes anything, before it does.
        pause: called in the middle of every flush of a file; others may use the disk meanwhile. What they write then
            is not covered by that flush.
        ops: operations so far (everything but close, size and free_bytes).
    """

    seed: int = 0
    capacity: int = UNLIMITED
    errors: dict[int, int] = field(default_factory=dict)
    crash_at: int | None = None
    short_writes: bool = False
    watch: Callable[[str], None] | None = None
    pause: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.ops = 0
        self.log: list[str] = []
        self._rng = random.Random(self.seed)  # noqa: S311 - repeatable on purpose
        self._entries: _Entries = {"/": None}
        self._durable: _Entries = {"/": None}
        self._pending: list[_FolderChange] = []
        self._open: dict[int, SimFile] = {}
        self._next_file = 3

    # -- what the storage rooms call ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> int:
        node = self._entries.get(path)
        self._step("open", path, changes=node is None and create)
        if node is None:
            if path in self._entries or not create:
                raise _os_error(errno.ENOENT, path)
            self._need_folder(path)
            node = SimFile()
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
        if self.capacity != UNLIMITED:
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
        self._step("pread", str(size), changes=False)
        return bytes(memoryview(self._open[file].content)[offset : offset + size])

    def pread_into(self, file: int, buffer: memoryview, offset: int) -> int:
        data = self.pread(file, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def fdatasync(self, file: int) -> None:
        node = self._open[file]
        try:
            self._cut_if(self._step("fdatasync", ""))
        except OSError:
            node.durable = node.after(node.draw(self._rng)).content
            node.versions.clear()
            node.sizes.clear()
            raise
        serial = node.serial
        if self.pause is not None:
            self.pause()
        node.flush(serial)

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
        # Between two folders, it is the new one's flush that counts.
        self._change(_FolderChange(_parent(new), removed=(old, node), added=(new, node)))
        self._cut_if(cut)

    def unlink(self, path: str) -> None:
        cut = self._step("unlink", path)
        if path not in self._entries:
            raise _os_error(errno.ENOENT, path)
        self._change(_FolderChange(_parent(path), removed=(path, self._entries[path])))
        self._cut_if(cut)

    def listdir(self, folder: str) -> list[str]:
        self._step("listdir", folder, changes=False)
        if folder not in self._entries:
            raise _os_error(errno.ENOENT, folder)
        return sorted(p.rpartition("/")[2] for p in self._entries if p != "/" and _parent(p) == folder)

    def mkdir(self, folder: str) -> None:
        cut = self._step("mkdir", folder, changes=folder not in self._entries)
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
        return self.after(self.draw(rng))

    def draw(self, rng: random.Random) -> Fate:
        """What a power cut at this moment may leave."""
        odds = rng.choice((0.0, 1.0, 0.5))
        changes = tuple(rng.random() < odds for _ in self._pending)
        files = ((path, node.draw(rng)) for path, node in self._survivors(changes))
        return Fate(changes, tuple((path, fate) for path, fate in files if fate is not None))

    def newest(self) -> Fate:
        """Nothing is lost: everything reached the disk just in time."""
        changes = tuple(True for _ in self._pending)
        files = ((p, n.newest()) for p, n in self._survivors(changes) if n.versions or n.sizes)
        return Fate(changes, tuple(files))

    def after(self, fate: Fate) -> "SimDisk":
        """The disk as this power cut leaves it; this one is left as it was."""
        files = dict(fate.files)
        after = SimDisk(capacity=self.capacity)
        entries = self._after_changes(fate.changes)
        for path in sorted(entries):
            if path == "/" or _parent(path) in after._entries:
                node = entries[path]
                after._entries[path] = None if node is None else node.after(files.get(path))
        after._durable = dict(after._entries)
        return after

    def losses(self, fate: Fate) -> list[str]:
        """What was written and is not the newest on disk, in words."""
        lost = [
            f"folder change {_describe(change)}"
            for change, kept in zip(self._pending, fate.changes, strict=True)
            if not kept
        ]
        newest = {path: node.newest() for path, node in self._survivors(fate.changes)}
        for path, file in fate.files:
            if file.size != newest[path].size:
                lost.append(f"size of {path}")
            pairs = zip(file.sectors, newest[path].sectors, strict=True)
            lost += [f"sector {was[0]} of {path} (version {was[1]} of {now[1]})" for was, now in pairs if was != now]
        return lost

    def milder(self, fate: Fate) -> Iterator[Fate]:
        """The same power cut with one loss fewer, for every loss."""
        for index, kept in enumerate(fate.changes):
            if not kept:
                changes = (*fate.changes[:index], True, *fate.changes[index + 1 :])
                there = {path: node.newest() for path, node in self._survivors(changes) if node.versions or node.sizes}
                known = dict(fate.files)
                yield Fate(changes, tuple((path, known.get(path, newest)) for path, newest in there.items()))
        newest = {path: node.newest() for path, node in self._survivors(fate.changes)}
        for index, (path, file) in enumerate(fate.files):
            for better in milder_file(file, newest[path]):
                yield fate._replace(files=(*fate.files[:index], (path, better), *fate.files[index + 1 :]))

    def kill(self) -> "SimDisk":
        """The disk after the process died and the machine did not: everything written is still seen."""
        after = SimDisk(seed=self.seed + 1, capacity=self.capacity)
        clones: dict[int, SimFile] = {}

        def clone(node: SimFile | None) -> SimFile | None:
            return None if node is None else clones.setdefault(id(node), node.clone())

        def clone_entry(entry: tuple[str, SimFile | None] | None) -> tuple[str, SimFile | None] | None:
            return None if entry is None else (entry[0], clone(entry[1]))

        after._entries = {path: clone(node) for path, node in self._entries.items()}
        after._durable = {path: clone(node) for path, node in self._durable.items()}
        after._pending = [
            _FolderChange(change.folder, clone_entry(change.removed), clone_entry(change.added))
            for change in self._pending
        ]
        return after

    def exists(self, path: str) -> bool:
        return path in self._entries

    def is_flushed(self, path: str) -> bool:
        """Whether the file's bytes are all on disk."""
        node = self._node(path)
        return not node.versions and not node.sizes

    def is_folder(self, path: str) -> bool:
        return path in self._entries and self._entries[path] is None

    def content(self, path: str) -> bytes:
        """What a reader of the file sees now."""
        return bytes(self._node(path).content)

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Change stored bytes behind everybody's back, as rot does."""
        node = self._node(path)
        node.flush(node.serial)
        node.own()
        for image in (node.content, node.durable):
            image[offset : offset + len(data)] = data

    def put(self, path: str, content: bytes) -> None:
        """Make this the durable content of a file, new or old, behind everybody's back."""
        node = self._entries.get(path)
        if node is None:
            node = self._entries[path] = self._durable[path] = SimFile()
        node.flush(node.serial)
        node.own()
        node.content[:] = node.durable[:] = content

    # -- inside ---------------------------------------------------------------------------------------------------

    def _after_changes(self, changes: Sequence[bool]) -> _Entries:
        entries = dict(self._durable)
        for change, kept in zip(self._pending, changes, strict=True):
            if kept:
                change.apply(entries)
        return entries

    def _survivors(self, changes: Sequence[bool]) -> list[tuple[str, SimFile]]:
        entries = self._after_changes(changes)
        return [(path, entry) for path in sorted(entries) if (entry := entries[path]) is not None]

    def _node(self, path: str) -> SimFile:
        node = self._entries[path]
        assert node is not None
        return node

    def _step(self, name: str, detail: str, *, changes: bool = True) -> bool:
        """Count an operation. True: the power goes during it. Raises what the test asked for."""
        if self.crash_at is not None and self.ops >= self.crash_at:
            raise PowerCut
        if changes and self.watch is not None:
            self.watch(name)
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


def _describe(change: _FolderChange) -> str:
    removed, added = change.removed, change.added
    if removed and added:
        return f"rename of {removed[0]} to {added[0]}"
    return f"removal of {removed[0]}" if removed else f"creation of {added[0]}" if added else "nothing"


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _os_error(code: int, what: str) -> OSError:
    return OSError(code, f"{os.strerror(code)} (simulated: {what})")
