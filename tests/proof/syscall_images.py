"""From noted calls to the disks that a power cut may leave. Pure; nothing here touches a file.

What is legal at an instant (POSIX, and a disk of 512-byte sectors):

    a file's bytes    as of its last finished flush, and of every later write any set of sectors; a sector that was
                      written n times since has any of its n + 1 contents
    its size          as flushed, or grown as far as a kept sector needs, or up to what was written since (then zeros)
    cut short         a truncation is kept or not; without it, what was written behind it is not kept either
    names             as of the folder's last finished flush, and of every later creation, renaming and removal any set
    in flight         a call that had begun counts as not flushed; a flush that had not returned, not at all
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from random import Random

from tests.proof.shim import DSYNC, FOLDER, Kind, Note

SECTOR = 512
MAPPED = ("lock.mdb", "vibemq.sqlite-shm")
"""Files written through a map, which no call shows: after a power cut they may hold anything."""
Image = dict[str, bytes | None]
"""Path -> content; None = a folder. A folder comes before what is in it."""


@dataclass(slots=True, eq=False)
class Change:
    """One unflushed change of a file's bytes or size."""

    kind: Kind
    offset: int
    size: int
    data: bytes
    done_at: int


@dataclass(slots=True, eq=False)
class File:
    """`durable` is what a power cut cannot take; `pending` in the order of the calls."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def flush(self, begun_at: int) -> None:
        """A flush that began then has finished: it covers what was done before."""
        covered = [change for change in self.pending if change.done_at <= begun_at]
        self.pending = [change for change in self.pending if change.done_at > begun_at]
        for change in covered:
            apply(self.durable, change)

    def settle(self, change: Change) -> None:
        """One write has reached the disk by itself (O_DSYNC)."""
        if change in self.pending:
            self.pending.remove(change)
            apply(self.durable, change)


@dataclass(slots=True, eq=False)
class Naming:
    """One unflushed change of a folder. `thing` None = a folder was made."""

    kind: Kind
    path: str
    path2: str
    thing: File | None
    done_at: int

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path2 or self.path).parent)


def apply(content: bytearray, change: Change) -> None:
    end = change.offset + change.size
    if change.kind is Kind.TRUNCATE:
        del content[change.size :]
        end = change.size
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if change.kind is Kind.WRITE:
        content[change.offset : end] = change.data


class Disk:
    """What a disk has flushed, and what not, as the calls go by."""

    def __init__(self, root: str) -> None:
        self._names: dict[str, File | None] = {root: None}
        self._durable: dict[str, File | None] = {root: None}
        self._namings: list[Naming] = []
        self._inodes: dict[int, File] = {}

    # -- calls ----------------------------------------------------------------------------------------------------

    def begin(self, note: Note) -> Change | None:
        """A call has begun: from now on its effect may be on the disk."""
        if note.kind in (Kind.WRITE, Kind.ALLOC, Kind.TRUNCATE):
            change = Change(note.kind, note.offset, note.size, note.data, note.after)
            self._inodes.setdefault(note.inode, File()).pending.append(change)
            return change
        if note.kind is not Kind.SYNC:
            self._name(note)
        return None

    def finish(self, note: Note, change: Change | None) -> None:
        """A call has returned."""
        if note.kind is Kind.SYNC and note.flags & FOLDER:
            self._flush_folder(note.path, note.before)
        elif note.kind is Kind.SYNC:
            self._inodes.setdefault(note.inode, File()).flush(note.before)
        elif change is not None and note.kind is Kind.WRITE and note.flags & DSYNC:
            self._inodes[note.inode].settle(change)

    def _name(self, note: Note) -> None:
        thing: File | None
        if note.kind is Kind.CREATE:
            # The number may have been another file's before.
            thing = self._inodes[note.inode] = File()
        else:
            thing = self._names.get(note.path)
        naming = Naming(note.kind, note.path, note.path2, thing, note.after)
        rename(self._names, naming)
        self._namings.append(naming)

    def _flush_folder(self, folder: str, begun_at: int) -> None:
        rest = []
        for naming in self._namings:
            if naming.folder == folder and naming.done_at <= begun_at:
                rename(self._durable, naming)
            else:
                rest.append(naming)
        self._namings = rest

    @property
    def unflushed(self) -> int:
        """Changes that a power cut may take now."""
        return len(self._namings) + sum(len(file.pending) for file in self._inodes.values())

    # -- images ---------------------------------------------------------------------------------------------------

    def image(self, rng: Random, manner: "Manner") -> Image:
        """One legal disk after a power cut now."""
        names = dict(self._durable)
        for naming in manner.chosen(self._namings, rng):
            rename(names, naming)
        image: Image = {}
        for path in sorted(names):
            parent = str(PurePosixPath(path).parent)
            if parent in image or not image:
                thing = names[path]
                image[path] = None if thing is None else self._content(path, thing, rng, manner)
        return image

    def _content(self, path: str, file: File, rng: Random, manner: "Manner") -> bytes:
        content = manner.content(file, rng)
        if PurePosixPath(path).name in MAPPED:
            return rng.randbytes(len(content)) if rng.random() < 0.5 else bytes(len(content))
        return bytes(content)


def rename(names: dict[str, File | None], naming: Naming) -> None:
    """Apply a naming, as far as it makes sense with what the names are."""
    if naming.kind in (Kind.CREATE, Kind.MKDIR):
        names[naming.path] = naming.thing
    elif naming.kind is Kind.UNLINK:
        if names.get(naming.path) is naming.thing:
            names.pop(naming.path, None)
    else:
        if naming.path in names and names[naming.path] is naming.thing:
            del names[naming.path]
        names[naming.path2] = naming.thing


# -- what is kept of what was not flushed ---------------------------------------------------------------------------


class Manner:
    """How a power cut chooses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def chosen(self, namings: list[Naming], rng: Random) -> Iterable[Naming]:
        match self.name:
            case "all" | "all but one sector":
                return namings
            case "none":
                return []
            case "in order":
                return namings[: rng.randint(0, len(namings))]
            case _:
                return [naming for naming in namings if rng.random() < 0.5]

    def content(self, file: File, rng: Random) -> bytearray:
        """The file's bytes, with some of what is pending."""
        content = bytearray(file.durable)
        changes = file.pending
        match self.name:
            case "none":
                return content
            case "all":
                kept = Sectors(changes)
            case "in order":
                kept = Sectors(changes[: rng.randint(0, len(changes))])
            case "by file":
                kept = Sectors(changes if rng.random() < 0.5 else [])
            case "all but one sector":
                kept = Sectors(changes)
                kept.lose_one(rng)
            case _:
                kept = Sectors(changes)
                kept.lose_any(rng)
        kept.apply(content, rng)
        return content


MANNERS = tuple(map(Manner, ("none", "all", "in order", "by file", "all but one sector", "any", "any", "any")))


class Sectors:
    """Which version of each sector is kept: at first the last one of each, and every change of size."""

    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes
        self._versions = Counter(s for change in changes if change.kind is Kind.WRITE for s in _sectors(change))
        """How many of a sector's writes are kept."""
        self._sizes_kept = 1.0
        """How likely a change of size is kept."""

    def lose_one(self, rng: Random) -> None:
        """One sector keeps an older content than the last."""
        if self._versions:
            sector = rng.choice(list(self._versions))
            self._versions[sector] = rng.randrange(self._versions[sector])

    def lose_any(self, rng: Random) -> None:
        self._sizes_kept = 0.5
        share = rng.choice((0.1, 0.5, 0.9))
        for sector, count in self._versions.items():
            if rng.random() >= share:
                self._versions[sector] = rng.randrange(count)

    def apply(self, content: bytearray, rng: Random) -> None:
        left = dict(self._versions)
        limit = None
        longest = len(content)
        for change in self._changes:
            end = change.offset + change.size
            kept = rng.random() < self._sizes_kept
            if change.kind is Kind.WRITE:
                self._apply_write(content, change, left, limit)
                longest = max(longest, end)
            elif change.kind is Kind.TRUNCATE and change.size < longest:
                longest = change.size
                if kept and limit is None:
                    del content[change.size :]
                else:
                    # Not kept: what was written behind it since went to blocks that nothing names.
                    limit = change.size if limit is None else min(limit, change.size)
            else:
                longest = max(longest, end)
                if kept and limit is None:
                    content.extend(bytes(max(0, end - len(content))))
        if limit is None and rng.random() < self._sizes_kept:
            content.extend(bytes(max(0, longest - len(content))))

    def _apply_write(self, content: bytearray, change: Change, left: dict[int, int], limit: int | None) -> None:
        for sector in _sectors(change):
            if not left[sector]:
                continue
            left[sector] -= 1
            start = max(change.offset, sector * SECTOR)
            end = min(change.offset + change.size, (sector + 1) * SECTOR)
            if limit is not None and end > limit:
                continue
            if len(content) < end:
                content.extend(bytes(end - len(content)))
            content[start:end] = change.data[start - change.offset : end - change.offset]


def _sectors(change: Change) -> range:
    return range(change.offset // SECTOR, (change.offset + change.size - 1) // SECTOR + 1)


# -- time -----------------------------------------------------------------------------------------------------------


def timeline(notes: list[Note], disk: Disk, until: int) -> Iterator[int]:
    """Play the calls up to an instant; stop after each beginning and return of one.

    Yields the last instant at which the disk still stands so: whatever was confirmed by then must be on it.
    """
    moments = sorted(
        [(note.before, 0, index) for index, note in enumerate(notes)]
        + [(note.after, 1, index) for index, note in enumerate(notes)]
    )
    moments = [moment for moment in moments if moment[0] <= until]
    begun: dict[int, Change | None] = {}
    for (_, returned, index), (following, _, _) in pairwise([*moments, (until + 1, 0, 0)]):
        if returned:
            disk.finish(notes[index], begun.pop(index))
        else:
            begun[index] = disk.begin(notes[index])
        yield following - 1
