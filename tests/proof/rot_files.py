"""Rot in the files themselves, as a disk makes it: the real provider opens them, in a child that may die of it.

A damaged page can hide keys from LMDB as well as spoil values, so what is served is held against the model: whatever is
missing or different must have been refused or named by `check`.
"""

import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from tests.proof.forked import ChildDied, in_fork
from tests.proof.rot_journal import Rot, damaged
from tests.proof.rot_store import LMDB, SQLITE, Served, Sown, new_store, serve, wanted, wrong_rows
from vibemq.model.stored import StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.lmdb.repair import repair as repair_lmdb
from vibemq.storage.sqlite.check import repair as repair_sqlite
from vibemq.testing.storage_workload import comparable

ALARM_S = 20
"""A child that reads for ever is ended."""


@dataclass(slots=True)
class FileCounts:
    cases: int = 0
    refused: int = 0
    """At the start, or by a read."""
    named: int = 0
    """By `check` alone: served were other messages, and the right ones."""
    harmless: int = 0
    died: dict[str, int] = field(default_factory=dict)
    """By signal."""
    repaired: int = 0
    undetected: int = 0
    sigbus: int = 0
    findings: list[str] = field(default_factory=list)


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

    def check(self, rot: Rot, counts: FileCounts, *, repair: bool) -> None:
        """Damage a copy, let a child open it, and judge what it says."""
        counts.cases += 1
        folder = self._sown.copy(self._work / "rotten")
        (folder / self._name).write_bytes(damaged(self._content, rot))
        try:
            served = in_fork(lambda: self._serve(folder))
        except ChildDied as death:
            self._died(rot, death, counts)
            return
        except RuntimeError as error:
            counts.findings.append(f"{rot}: {error}")
            return
        problem = self._judge(served, counts)
        if problem is not None:
            counts.undetected += 1
            counts.findings.append(f"{rot}: {problem}")
        elif repair and (served.errors or served.problems):
            self._check_repair(rot, folder, counts)
        shutil.rmtree(folder, ignore_errors=True)

    def _serve(self, folder: Path) -> Served:
        signal.alarm(ALARM_S)
        return serve(new_store(folder, self._provider))

    def _died(self, rot: Rot, death: ChildDied, counts: FileCounts) -> None:
        name = signal.Signals(-death.code).name if death.code < 0 else str(death.code)
        counts.died[name] = counts.died.get(name, 0) + 1
        if name == "SIGBUS":
            counts.sigbus += 1
            counts.findings.append(f"{rot}: {death}")

    def _judge(self, served: Served, counts: FileCounts) -> str | None:
        wrong = wrong_rows(served, self._sown.model)
        if wrong:
            return f"message {wrong[0]} was served with other bytes"
        if served.errors:
            counts.refused += 1
            return None
        if served.problems:
            counts.named += 1
            return None
        missing = self._wanted.keys() - served.rows.keys()
        if missing:
            return f"{len(missing)} messages are gone and nobody says so: {sorted(missing)[:3]}"
        if served.dead.keys() != self._sown.model.dead.entries.keys():
            return "dead letters are gone and nobody says so"
        assert served.state is not None
        found = comparable(served.state)
        if found != self._state:
            return f"the state is another and nobody says so: {_difference(found, self._state)}"
        counts.harmless += 1
        return None

    def _check_repair(self, rot: Rot, folder: Path, counts: FileCounts) -> None:
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
        signal.alarm(2 * ALARM_S)
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
