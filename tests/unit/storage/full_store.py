"""A store on a disk with a known size: filled until messages are refused, drained, and filled again."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from vibemq.errors import StorageFull
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import GroupCreated, HandedOut, MessagesAdded, QueueCreated, Record, Settled
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider

ROUNDS = 2
"""Of housekeeping, after which a drained store must take messages."""
REFUSALS = 5
Usage = namedtuple("Usage", "total used free")


def blocks(folder: Path) -> int:
    """Bytes of all files below the folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


class ReportedDisk:
    """What `shutil.disk_usage` says of a disk that has nothing but the folder. The files are real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, total: int) -> None:
        self.folder, self.total, self.others = folder, total, 0
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total - self.free, max(0, self.free)))

    @property
    def free(self) -> int:
        """Negative when more was written than the disk has."""
        return self.total - self.others - blocks(self.folder)


class FullStore:
    """One queue. Everything up to `head` is settled, everything before `next` was confirmed. Beside it is a transient
    one, to which the disk is nothing."""

    def __init__(self, provider: IStorageProvider, body_bytes: int, batch_bytes: int) -> None:
        self.provider = provider
        self.head = self.next = 1
        self._passing = 1
        count = max(1, batch_bytes // body_bytes)
        self._rows = Rows.of([pack_row(f"m{index}", b"x" * body_bytes) for index in range(count)])
        provider.open()
        provider.append([QueueCreated(1, "q", QueueOptions(), 0, "a"), GroupCreated(1, 0, "", True, 1)])
        transient = QueueOptions(durability=Durability.TRANSIENT)
        provider.append([QueueCreated(2, "t", transient, 0, "b"), GroupCreated(2, 0, "", True, 1)])

    def publish(self) -> bool:
        """One batch; whether it was taken."""
        try:
            self.provider.append([MessagesAdded(1, self.next, 5, self._rows)])
        except StorageFull:
            return False
        self.next += self._rows.count
        return True

    def fill(self) -> int:
        """Until batches are refused for some rounds of housekeeping; how many messages were taken."""
        before, refused = self.next, 0
        while refused < REFUSALS:
            if self.publish():
                refused = 0
            else:
                refused += 1
                self.provider.maintain()
        self.pass_by()
        return self.next - before

    def pass_by(self) -> None:
        """Messages of the transient queue, which are not refused however full the disk is."""
        first, last = self._passing, self._passing + self._rows.count - 1
        self.provider.append([MessagesAdded(2, first, 5, self._rows)])
        assert self.provider.read(2, first, last, 1 << 40)[0].rows == self._rows
        self.provider.append([Settled(2, 0, [(first, last)])])
        self._passing = last + 1

    def settle(self, part: float = 1.0) -> None:
        """A part of what is there, in steps. Nothing of it may be refused."""
        stop = self.head + int((self.next - self.head) * part)
        while self.head < stop:
            last = min(self.head + max(self._rows.count // 2, 1), stop) - 1
            for record in self._settlement(self.head, last):
                self.provider.append([record])
            self.head = last + 1

    def _settlement(self, first: int, last: int) -> list[Record]:
        return [HandedOut(1, 0, [(first, last)]), Settled(1, 0, [(first, last)])]

    def publish_again(self, count: int) -> None:
        """Publish so many messages within `ROUNDS` of housekeeping."""
        wanted, rounds = self.next + count, 0
        while self.next < wanted:
            if not self.publish():
                assert rounds < ROUNDS, f"refused after {rounds} rounds of housekeeping: {self.provider.stats()}"
                rounds += 1
                self.provider.maintain()

    def assert_takes_messages_again(self, part: float) -> None:
        """Filled and drained by a part, without a restart and with some: everything that was confirmed is there, and no
        settlement is refused."""
        for restart in (False, True):
            taken = self.fill()
            if restart:
                self.restart()
            self.settle(part)
            if restart:
                self.restart()
            self.publish_again(max(int(taken * part) // 3, 1))
            self.assert_nothing_lost()
        assert list(self.provider.check()) == []

    def assert_nothing_lost(self) -> None:
        parts = self.provider.read(1, self.head, self.next, 1 << 40)
        assert sum(part.rows.count for part in parts) == self.next - self.head

    def restart(self) -> None:
        self.provider.close()
        queues = self.provider.open().queues
        assert queues[1].next_sequence == self.next
        self._passing = queues[2].next_sequence
