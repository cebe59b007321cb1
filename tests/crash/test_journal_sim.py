"""The journal on a simulated disk: any crash, at any operation, with any legal loss of what was not flushed."""

import errno
import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from vibemq.errors import StorageFailed, StorageFull
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.testing.sim_disk import PowerCut, SimDisk

SEGMENT = 2048
IMAGES = 2000


@dataclass
class History:
    """What a run asked for and was told, over any number of restarts."""

    bodies: dict[int, bytes] = field(default_factory=dict)
    confirmed: int = 0
    applied: int = 0
    written: int = 0

    def next_body(self, rng: random.Random) -> bytes:
        self.written += 1
        return b"%08d" % self.written + rng.randbytes(
            rng.choice((0, 9, 100, 480, 700, 3000 if rng.random() < 0.1 else 40))
        )


def work(disk: SimDisk, history: History, rng: random.Random, steps: int) -> None:
    """Recover, compare with the history, then append, flush, checkpoint and recycle."""
    journal, report = Journal.open(disk, "/j", segment_bytes=SEGMENT, applied_lsn=history.applied)
    found = {record.lsn: record.body for record in report}
    assert report.last_lsn >= history.confirmed, "a confirmed record is gone"
    assert list(found) == list(range(history.applied + 1, report.last_lsn + 1)), "not a prefix"
    for lsn, body in found.items():
        assert body == history.bodies[lsn], f"record {lsn} is not what was appended"
    history.bodies = {lsn: body for lsn, body in history.bodies.items() if lsn <= report.last_lsn}
    # Recovery flushes what it believes, so from here on it may not be lost any more.
    history.confirmed = report.last_lsn
    for _ in range(steps):
        step(journal, history, rng)
    if rng.random() < 0.2:
        journal.close()
        history.confirmed = max(history.bodies, default=history.confirmed)


def step(journal: Journal, history: History, rng: random.Random) -> None:
    chance = rng.random()
    if chance < 0.6:
        body = history.next_body(rng)
        lsn = journal.stats().last_lsn + 1
        history.bodies[lsn] = body
        cut = rng.randrange(len(body))
        try:
            assert journal.append([body[:cut], body[cut:]]).lsn == lsn
        except StorageFull:
            del history.bodies[lsn]
    elif chance < 0.8:
        history.confirmed = max(history.confirmed, journal.sync())
    elif chance < 0.9:
        if rng.random() < 0.5:
            journal.seal()
        sealed = [s for s in journal.sealed_segments() if s.last_lsn > history.applied]
        if sealed:
            history.applied = rng.choice(sealed).last_lsn
        journal.release(history.applied)
    else:
        try:
            journal.pool.prepare_spare()
        except StorageFull:
            pass


def crash_images(seed: int) -> int:
    """Run one disk through several lives; return how many crash images were checked."""
    rng = random.Random(seed)
    disk, history, images = SimDisk(seed=seed, short_writes=seed % 3 == 0), History(), 0
    for _ in range(6):
        disk.crash_at = disk.ops + rng.randrange(1, 90)
        try:
            work(disk, history, rng, steps=40)
        except PowerCut:
            pass
        for _ in range(3):
            # Side branches: other legal images of the same crash, each recovered with its own copy of history.
            branch = History(dict(history.bodies), history.confirmed, history.applied, history.written)
            work(disk.crash(rng), branch, rng, steps=0)
            images += 1
        disk = disk.crash(rng) if rng.random() < 0.8 else disk.kill()
        images += 1
    work(disk, history, rng, steps=0)
    return images


def test_recovered_records_are_a_prefix_that_holds_everything_confirmed() -> None:
    seed = images = 0
    while images < IMAGES:
        images += crash_images(seed)
        seed += 1


def fixed_workload(disk: SimDisk, history: History) -> None:
    work(disk, history, random.Random(5), steps=60)


def operations() -> int:
    disk = SimDisk()
    fixed_workload(disk, History())
    return disk.ops


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_operation_loses_nothing_confirmed(code: int) -> None:
    for number in range(1, operations() + 1):
        disk, history = SimDisk(seed=number, errors={number: code}), History()
        with suppress(StorageFailed):
            fixed_workload(disk, history)
        for after in (disk.kill(), disk.crash(random.Random(number))):
            work(after, History(dict(history.bodies), history.confirmed, history.applied), random.Random(0), steps=5)


def test_power_loss_at_any_operation() -> None:
    for number in range(1, operations() + 1):
        disk, history = SimDisk(seed=number, crash_at=number), History()
        with pytest.raises(PowerCut):
            fixed_workload(disk, history)
        work(disk.crash(random.Random(number)), history, random.Random(0), steps=5)
