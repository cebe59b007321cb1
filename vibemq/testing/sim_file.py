"""One file of a simulated disk: what is seen, what is surely on disk, and what a power cut may leave of it."""

import random
from collections.abc import Iterator
from typing import NamedTuple

SECTOR = 512
DURABLE = -1
"""In place of a version's index: nothing that was written since the last flush."""


class FileFate(NamedTuple):
    """What is left of a file's unflushed changes: indexes into its sizes and each sector's versions, or DURABLE."""

    size: int
    sectors: tuple[tuple[int, int], ...]


class SimFile:
    """`content` and `durable` may be shared with another file until one of the two writes (`own`)."""

    __slots__ = ("_shared", "content", "durable", "serial", "sizes", "versions")

    def __init__(self, content: bytearray | None = None) -> None:
        self.content = self.durable = bytearray() if content is None else content
        self._shared = True
        self.versions: dict[int, list[tuple[int, bytes]]] = {}
        """Per sector: (serial of the write, image), since the last flush."""
        self.sizes: list[tuple[int, int]] = []
        self.serial = 0

    def own(self) -> None:
        """Stop sharing bytes, before the first change."""
        if self._shared:
            self.content, self.durable = bytearray(self.content), bytearray(self.durable)
            self._shared = False

    def write(self, data: bytes, offset: int) -> None:
        self.own()
        self.serial += 1
        self.resize(max(len(self.content), offset + len(data)))
        self.content[offset : offset + len(data)] = data
        for sector in range(offset // SECTOR, (offset + len(data) + SECTOR - 1) // SECTOR):
            image = bytes(self.content[sector * SECTOR : (sector + 1) * SECTOR])
            self.versions.setdefault(sector, []).append((self.serial, image))

    def resize(self, size: int) -> None:
        if size != len(self.content):
            self.own()
            self.serial += 1
            _set_size(self.content, size)
            self.sizes.append((self.serial, size))

    def flush(self, up_to_serial: int) -> None:
        """Everything written up to there is on disk; what came later may be as well, or not."""
        if not self.versions and not self.sizes:
            return
        self.own()
        done = [size for serial, size in self.sizes if serial <= up_to_serial]
        if done:
            _set_size(self.durable, done[-1])
            del self.sizes[: len(done)]
        for sector, images in list(self.versions.items()):
            count = sum(serial <= up_to_serial for serial, _ in images)
            if count:
                _put(self.durable, sector, images[count - 1][1])
                del images[:count]
            if not images:
                del self.versions[sector]

    def draw(self, rng: random.Random) -> FileFate | None:
        """One legal fate of what is not flushed; None when all is."""
        if not self.versions and not self.sizes:
            return None
        sectors = sorted(self.versions)
        odds = rng.choice((0.0, 1.0, 0.5, 0.9, rng.random()))
        odd_one = rng.choice(sectors) if sectors and rng.random() < 0.3 else None
        size = rng.randrange(len(self.sizes)) if self.sizes and rng.random() < odds else DURABLE
        chosen = []
        for sector in sectors:
            newest = len(self.versions[sector]) - 1
            index = newest if rng.random() < 0.7 else rng.randint(0, newest)
            # Now and then all but one sector share a fate: the smallest tear.
            lost = (odds < 0.5) != (sector == odd_one) if odd_one is not None else rng.random() >= odds
            chosen.append((sector, DURABLE if lost else index))
        return FileFate(size, tuple(chosen))

    def clone(self) -> "SimFile":
        """A file of its own in the same state, unflushed changes included."""
        self._shared = True
        other = SimFile(self.content)
        other.durable = self.durable
        other.versions = {sector: list(images) for sector, images in self.versions.items()}
        other.sizes, other.serial = list(self.sizes), self.serial
        return other

    def newest(self) -> FileFate:
        return FileFate(len(self.sizes) - 1, tuple((s, len(v) - 1) for s, v in sorted(self.versions.items())))

    def after(self, fate: FileFate | None) -> "SimFile":
        if fate is None:
            self._shared = True
            return SimFile(self.durable)
        left = bytearray(self.durable)
        if fate.size != DURABLE:
            _set_size(left, self.sizes[fate.size][1])
        for sector, index in fate.sectors:
            if index != DURABLE:
                _put(left, sector, self.versions[sector][index][1])
        return SimFile(left)


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


def milder_file(file: FileFate, newest: FileFate) -> Iterator[FileFate]:
    """The same fate with one loss fewer, for every loss."""
    if file.size != newest.size:
        yield file._replace(size=newest.size)
    for index, (was, now) in enumerate(zip(file.sectors, newest.sectors, strict=True)):
        if was != now:
            yield file._replace(sectors=(*file.sectors[:index], now, *file.sectors[index + 1 :]))
