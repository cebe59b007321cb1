"""Rot in the files themselves, as a disk makes it: the real provider opens them, in a child that may die of it.

A damaged page can hide keys from LMDB as well as spoil values, so what is served is held against the model: whatever is
missing or different must have been refused or named by `check`.
"""

import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.proof.forked import ChildDied, in_fork
from tests.proof.rot_child import map_in_forks
from tests.proof.rot_journal import Rot, damaged
from tests.proof.rot_pages import STRUCTURES
from tests.proof.rot_store import LMDB, SQLITE, Served, Sown, new_store, serve, wanted, wrong_rows
from vibemq.errors import StorageDamaged
from vibemq.model.stored import StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.lmdb.repair import repair as repair_lmdb
from vibemq.storage.sqlite.check import repair as repair_sqlite
from vibemq.testing.storage_workload import comparable

REPAIR_ALARM_S = 60
"""A child that reads for ever is ended."""


@dataclass(slots=True)
class FileCounts:
    cases: int = 0
    refused: int = 0
    """At the start, or by a read."""
    named: int = 0
    """By `check` alone: served were other messages, and the right ones."""
    later: int = 0
    """Refused or named when something had been written since."""
    harmless: int = 0
    died: dict[str, int] = field(default_factory=dict)
    """By signal."""
    repaired: int = 0
    undetected: int = 0
    sigbus: int = 0
    findings: list[str] = field(default_factory=list)


REFUSED, NAMED, LATER, HARMLESS, UNDETECTED = range(5)


class Verdict(NamedTuple):
    word: int
    problem: str = ""


class RottenFiles:
    """One file of a sown store."""

    def __init__(self, sown: Sown, provider: str, name: str, work: Path) -> None:
        self._sown = sown
        self._provider = provider
        self._name = name
        self._work = work
        self._content = (sown.data_dir / name).read_bytes()
        self._wanted = wanted(sown.model)
        self._state = comparable(sown.model.state)
        self.size = len(self._content)
        self.structure = sorted({at + i for at, size in STRUCTURES[name](self._content) for i in range(size)})
        """Offsets of the bytes that no checksum of a value covers."""

    def check(self, rots: Sequence[Rot], counts: FileCounts, *, repair_every: int) -> Generator[None]:
        """Damage a copy, let a child open it, and judge what it says; of what was found every so many are repaired."""
        for rot, answer in zip(rots, map_in_forks(self._try, rots), strict=True):
            counts.cases += 1
            if isinstance(answer, ChildDied):
                self._died(rot, answer, counts)
            elif isinstance(answer, Exception):
                counts.findings.append(f"{rot}: {answer}")
            else:
                self._count(rot, answer, counts)
                found = counts.refused + counts.named
                if answer.word in (REFUSED, NAMED) and found % repair_every == 0:
                    self._check_repair(rot, counts)
            yield

    def _damaged(self, rot: Rot, name: str) -> Path:
        folder = self._sown.copy(self._work / name)
        (folder / self._name).write_bytes(damaged(self._content, rot))
        return folder

    def _try(self, rot: Rot) -> Verdict:
        if damaged(self._content, rot) == self._content:
            return Verdict(HARMLESS)
        folder = self._damaged(rot, "rotten")
        verdict = self._judge(serve(new_store(folder, self._provider)))
        return self._second_life(folder) if verdict.word == HARMLESS else verdict

    def _second_life(self, folder: Path) -> Verdict:
        """Harmless it is only if the next write into the file makes nothing of it: lists of free pages can lie."""
        try:
            store = new_store(folder, self._provider)
            store.open()
            if self._provider != "lmdb":
                store.maintain()
            store.close()
        except StorageDamaged:
            return Verdict(LATER)
        verdict = self._judge(serve(new_store(folder, self._provider)))
        if verdict.word == UNDETECTED:
            return Verdict(UNDETECTED, f"after the next write {verdict.problem}")
        return verdict if verdict.word == HARMLESS else Verdict(LATER)

    def _count(self, rot: Rot, verdict: Verdict, counts: FileCounts) -> None:
        counts.refused += verdict.word == REFUSED
        counts.named += verdict.word == NAMED
        counts.harmless += verdict.word == HARMLESS
        counts.later += verdict.word == LATER
        if verdict.problem:
            counts.undetected += 1
            counts.findings.append(f"{rot}: {verdict.problem}")

    def _died(self, rot: Rot, death: ChildDied, counts: FileCounts) -> None:
        name = signal.Signals(-death.code).name if death.code < 0 else str(death.code)
        counts.died[name] = counts.died.get(name, 0) + 1
        if name not in ("SIGABRT", "SIGSEGV"):
            # LMDB trusts its pages, and falls over some. But nothing behind the end is read, and nothing for ever.
            counts.sigbus += name == "SIGBUS"
            counts.findings.append(f"{rot}: {death}")

    def _judge(self, served: Served) -> Verdict:
        wrong = wrong_rows(served, self._sown.model)
        if wrong:
            return Verdict(UNDETECTED, f"message {wrong[0]} was served with other bytes")
        if served.errors:
            return Verdict(REFUSED)
        if served.problems:
            return Verdict(NAMED)
        missing = self._wanted.keys() - served.rows.keys()
        if missing:
            return Verdict(UNDETECTED, f"{len(missing)} messages are gone and nobody says so: {sorted(missing)[:3]}")
        if served.dead.keys() != self._sown.model.dead.entries.keys():
            return Verdict(UNDETECTED, "dead letters are gone and nobody says so")
        assert served.state is not None
        found = comparable(served.state)
        if found != self._state:
            return Verdict(UNDETECTED, f"the state is another and nobody says so: {_difference(found, self._state)}")
        return Verdict(HARMLESS)

    def _check_repair(self, rot: Rot, counts: FileCounts) -> None:
        folder = self._damaged(rot, "repaired")
        try:
            problems, served = in_fork(lambda: self._repair(folder))
        except (ChildDied, RuntimeError) as error:
            counts.findings.append(f"{rot}: after the repair: {error}")
            return
        problem = self._judge_repair(problems, served)
        if problem is None:
            counts.repaired += 1
        else:
            counts.findings.append(f"{rot}: {problem}")

    def _repair(self, folder: Path) -> tuple[list[Problem], Served]:
        signal.alarm(REPAIR_ALARM_S)
        problems = repair_lmdb(folder, LMDB) if self._provider == "lmdb" else repair_sqlite(folder, SQLITE)
        return problems, serve(new_store(folder, self._provider))

    def _judge_repair(self, problems: list[Problem], served: Served) -> str | None:
        if served.errors or served.problems:
            return f"after the repair: {(served.errors or [p.what for p in served.problems])[0]}"
        wrong = wrong_rows(served, self._sown.model)
        if wrong:
            return f"after the repair message {wrong[0]} has other bytes"
        if self._wanted.keys() - served.rows.keys() and not problems:
            return "the repair lost messages and lists nothing"
        return None


def _difference(found: StoredState, expected: StoredState) -> str:
    if found.queues.keys() != expected.queues.keys():
        return f"queues {sorted(found.queues)}, not {sorted(expected.queues)}"
    for queue_id, queue in expected.queues.items():
        for name in queue.__slots__:
            if getattr(queue, name) != getattr(found.queues[queue_id], name):
                return f"{queue.name}.{name}"
    return "the store's own counts"
