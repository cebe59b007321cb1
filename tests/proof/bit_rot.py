"""Bit rot: flipped bits, a few wrong bytes, zeroed sectors and pages, cut files, in journal, stored values and both
providers' files, SQLite's log among them.

Detected is what somebody refuses or `check` names. Harmless is what hits nothing that counts: free space, bytes behind
the last record, pages that LMDB has freed. A torn tail is damage to the last flushed batch with nothing behind it that
says it was durable; `figures` counts it apart, for a journal that crashed while busy and for one that was idle, where
a mark stands behind the last record. Everything else would be undetected.
"""

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import lmdb

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.rot_files import FileCounts, RottenFiles
from tests.proof.rot_journal import Counts, Rot, RottenJournal, cuts, flips, smears, zeroes
from tests.proof.rot_store import Sown, sow
from tests.proof.rot_values import RottenValues, ValueRot, value_flips, value_losses
from tests.proof.sim_disk import FIRST
from vibemq.storage.kvstore.store import load_state
from vibemq.testing.memory_kv import MemoryKV

SECTOR, PAGE = 512, 4096
FINDINGS_MAX = 1 if FIRST in os.environ else 20
REPAIR_EVERY = 8
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 64 << 20
FILES = (("lmdb", "store/data.mdb", 48), ("sqlite", "vibemq.sqlite", 8), ("sqlite", "vibemq.sqlite-wal", 8))
"""How many findings go to a repair each: that of LMDB starts a process."""


class Sowing:
    """One run; `result` grows as it goes."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._begun = time.monotonic()
        self._random = Random(budget.seed)
        self.result = Result(unit="flips, zeroes and cuts")
        self.figures: Counter[str] = Counter()

    def run(self) -> None:
        with memory_folder(self._budget.work) as work:
            self._run(work)
        cases = self._budget.cases
        self.result.complete = self.result.cases >= cases * 9 // 10
        self.result.figures.update(self.figures)
        self.result.undetected += len(self.result.findings) - self.figures["files: died of SIGBUS"]

    def _run(self, work: Path) -> None:
        busy = sow(work / "busy", "lmdb", self._budget.seed)
        idle = sow(work / "idle", "lmdb", self._budget.seed, idle=True)
        cases = self._budget.cases
        pairs = pairs_of(busy)
        self._journal("busy", busy, pairs, cases // 5, until=0.12)
        self._journal("idle", idle, pairs_of(idle), cases // 5, until=0.24)
        self._values(pairs, cases // 5, until=0.4)
        files = cases - self.result.cases
        for number, (provider, name, repair_every) in enumerate(FILES):
            live = name.endswith("-wal")
            sown = busy if provider == "lmdb" else sow(work / Path(name).name, provider, self._budget.seed, live=live)
            part = RottenFiles(sown, provider, name, work)
            self._files(part, name, files // len(FILES), repair_every, until=0.6 + 0.2 * number)

    def _late(self, until: float) -> bool:
        return time.monotonic() - self._begun > until * self._budget.seconds

    def _each(self, what: str, rots: Iterable[Any], check: Callable[[Any], None], counts: Counts, until: float) -> None:
        """Go on until the share of the time is over, or enough is found."""
        for rot in rots:
            if self._late(until) or len(self.result.findings) + len(counts.findings) >= FINDINGS_MAX:
                return
            self.figures[f"{what}: {rot.kind}"] += 1
            check(rot)

    def _found(self, what: str, findings: list[str]) -> None:
        repeat = f"python -m tests.proof short bit-rot --seed {self._budget.seed}"
        self.result.findings += [Finding(f"{what}: {finding}", repeat) for finding in findings[:FINDINGS_MAX]]

    def _journal(self, what: str, sown: Sown, pairs: dict[bytes, bytes], cases: int, *, until: float) -> None:
        kv = MemoryKV()
        kv.fill(pairs)
        rotten = RottenJournal(sown.data_dir / "journal", load_state(kv).lsn)
        counts, reading = Counts(), Counts()
        for path, size in rotten.sizes.items():
            share = cases * size // sum(rotten.sizes.values())
            rots = chain(rotten.header_flips(path, share // 4), journal_rots(path, size, share * 3 // 4, self._random))
            self._each("journal", rots, lambda rot: rotten.check(rot, counts), counts, until)
            some = flips(path, size, max(1, 80 * size // max(1, share)))
            self._each(
                "journal, while it is read", some, lambda rot: rotten.check_reading(rot, reading), reading, until
            )
        self.result.cases += counts.cases + reading.cases
        self.figures[f"{what} journal: refused"] += counts.detected + reading.detected
        self.figures[f"{what} journal: harmless"] += counts.harmless + reading.harmless
        self.figures[f"{what} journal: last batch cut as a torn tail"] += counts.tail
        self.figures[f"{what} journal: of these by a flipped bit"] += counts.flipped_tail
        self.figures["repairs that saved all the rest"] += counts.repaired
        self._found(f"{what} journal", counts.findings + reading.findings)

    def _values(self, pairs: dict[bytes, bytes], cases: int, *, until: float) -> None:
        rotten, counts = RottenValues(pairs), Counts()
        rotten.check_repair_of_the_sound(counts)
        losses = list(value_losses(pairs, self._random))
        losses = self._random.sample(losses, min(len(losses), cases // 2))
        bits = 8 * sum(map(len, pairs.values()))
        stride = max(1, bits // max(1, cases - len(losses)))
        rots: Iterator[ValueRot] = chain(losses, value_flips(pairs, stride, self._random.randrange(stride)))

        def check(rot: ValueRot) -> None:
            rotten.check(rot, counts, repair=rot.kind != "flip" or counts.cases % REPAIR_EVERY == 0)

        self._each("values", rots, check, counts, until)
        self.result.cases += counts.cases
        self.figures["values: refused and named"] += counts.detected
        self.figures["values: harmless"] += counts.harmless
        self.figures["repairs that saved all the rest"] += counts.repaired
        self._found("values", counts.findings)

    def _files(self, rotten: RottenFiles, name: str, cases: int, repair_every: int, *, until: float) -> None:
        counts = FileCounts()
        rots = file_rots(rotten, name, max(cases, 20), self._random)
        checks = rotten.check(rots, counts, repair_every=repair_every)
        for rot, _ in zip(rots, checks, strict=False):
            self.figures[f"{name}: {rot.kind}"] += 1
            if self._late(until) or len(self.result.findings) + len(counts.findings) >= FINDINGS_MAX:
                break
        checks.close()
        self.result.cases += counts.cases
        self.figures[f"{name}: refused"] += counts.refused
        self.figures[f"{name}: named by check"] += counts.named
        self.figures[f"{name}: found after the next write"] += counts.later
        self.figures[f"{name}: harmless"] += counts.harmless
        self.figures["repairs that saved all the rest"] += counts.repaired
        for signal_name, died in counts.died.items():
            self.figures[f"files: died of {signal_name}"] += died
        self._found(name, counts.findings)


def journal_rots(path: str, size: int, cases: int, rng: Random, block: int = SECTOR) -> Iterator[Rot]:
    """About `cases` of them: all blocks and pages zeroed if there is room, a tenth cuts, the rest flips."""
    blocks = list(zeroes(path, size, block)) + list(zeroes(path, size, PAGE))
    if len(blocks) > cases // 4:
        blocks = rng.sample(blocks, cases // 4)
    yield from blocks
    stride = max(1, size // max(1, cases // 10))
    yield from cuts(path, size, stride, rng.randrange(stride))
    stride = max(1, 8 * size // max(1, cases * 9 // 10 - len(blocks)))
    yield from flips(path, size, stride, rng.randrange(stride))


def file_rots(rotten: RottenFiles, name: str, cases: int, rng: Random) -> list[Rot]:
    """About `cases` of them: half are flips in its structure (all of it, if there is room), the rest of every kind.

    In any order: the time may not be enough for all of them.
    """
    bits = [Rot("flip", name, byte, 1, bit) for byte in rotten.structure for bit in range(8)]
    flips_of_structure = rng.sample(bits, min(len(bits), cases // 2))
    few_bytes = list(smears(name, rotten.size, max(1, 4 * rotten.size // cases), rng.randrange(rotten.size)))
    left = max(20, cases - len(flips_of_structure) - len(few_bytes))
    rots = flips_of_structure + few_bytes + list(journal_rots(name, rotten.size, left, rng, SECTOR))
    rng.shuffle(rots)
    return rots


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: nothing here depends on the disk, and thousands of copies are made."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        yield otherwise
        return
    with TemporaryDirectory(prefix="bit-rot-", dir=MEMORY) as folder:
        yield Path(folder)


def pairs_of(sown: Sown) -> dict[bytes, bytes]:
    folder = str(sown.data_dir / "store")
    with lmdb.open(folder, readonly=True, lock=False, lib_version=0) as env, env.begin() as transaction:
        return {bytes(key): bytes(value) for key, value in transaction.cursor()}


def run(budget: Budget) -> Result:
    sowing, before = Sowing(budget), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        sowing.run()
    finally:
        logging.disable(before)
    return sowing.result


METHOD = Method(
    name="bit-rot",
    title="Bit rot and truncation",
    run=run,
    short=Size(cases=100, seconds=20),
    crash=Size(cases=14_000, seconds=110),
    torture=Size(cases=120_000, seconds=1_000),
)


def main() -> None:
    import sys
    import tempfile

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        result = run(Budget(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), Path(folder)))
    print(result.cases, "cases", dict(result.figures), result.undetected, "undetected", *result.findings, sep="\n")


if __name__ == "__main__":
    main()
