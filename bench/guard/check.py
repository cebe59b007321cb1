"""Runs the scenarios of the hot path and holds them against their budgets."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.guard.budgets import Budget
from bench.guard.counting import calls, instructions
from bench.guard.frozen import reference
from bench.guard.hot_path import MESSAGES, Maker, Scenario

Figure = TypeVar("Figure")
TIMED_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one scenario, per message."""

    calls: float
    instructions: float
    hottest: tuple[tuple[str, float], ...]
    """Functions by instructions per message, the heaviest first."""


def counted(make: Maker) -> Cost:
    """Deterministic for one version of Python."""
    called = _run(make, calls)
    executed = _run(make, instructions)
    hottest = tuple((name, number / MESSAGES) for name, number in executed.most_common(5))
    return Cost(called / MESSAGES, executed.total() / MESSAGES, hottest)


def reference_loops(make: Maker) -> float:
    """Processor time of the scenario by that of the frozen loop over as many messages; the best of some rounds each,
    taken in turn, so that a busy machine disturbs both."""
    ours, theirs = float("inf"), float("inf")
    for _ in range(TIMED_ROUNDS):
        ours = min(ours, _run(make, _thread_s))
        theirs = min(theirs, _thread_s(lambda: reference(MESSAGES)))
    return ours / theirs


def complaints(cost: Cost, budget: Budget) -> list[str]:
    found = []
    where = ", ".join(f"{name.rpartition('/')[2]} {number:.0f}" for name, number in cost.hottest)
    if cost.calls > budget.calls:
        found.append(f"{cost.calls:.2f} calls per message, {budget.calls} allowed; most instructions in: {where}")
    if cost.instructions > budget.instructions:
        found.append(
            f"{cost.instructions:.1f} instructions per message, {budget.instructions} allowed; most in: {where}"
        )
    return found


def _run(make: Maker, measure: Callable[[Callable[[], object]], Figure]) -> Figure:
    with _fresh(make) as scenario:
        figure = measure(scenario.work)
        scenario.check()
        return figure


def _thread_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@contextmanager
def _fresh(make: Maker) -> Iterator[Scenario]:
    parent = Path(tempfile.mkdtemp(prefix="vibemq-guard-"))
    scenario = make(parent / "data")
    try:
        yield scenario
    finally:
        scenario.close()
        shutil.rmtree(parent)
