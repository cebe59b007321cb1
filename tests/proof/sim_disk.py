"""The crash explorer: the real broker over a simulated disk, power cut before every operation, every image judged.

    python -m tests.proof.sim_disk SEED [--lives N --steps N --images N --ending E --aside]   repeats one and shrinks it

What is simulated: `sim_files.seams`. What an image must hold: `sim_judge`. What the broker's clients do: `sim_clients`.
"""

import argparse
import logging
import math
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.sim_explore import ENDINGS, Failure, Plan, Run
from tests.proof.sim_files import Machine, seams
from tests.proof.sim_judge import told_apart
from tests.proof.sim_shrink import shrink
from tests.short_steps import steps_of

PROCESSES = int(os.environ.get("PROOF_PROCESSES", "1"))
FIRST = "PROOF_FIRST"
"""Set in the environment: stop at the first finding and do not shrink it."""
ASIDE = "aside"
"""As an aim: every seed appends beside the loop."""
ASIDE_EVERY = 4
"""Seeds; otherwise one of so many does."""
ASIDE_IMAGES = 4
"""What they are there for shows in what is told."""
STEP_UNITS = 2
"""In one step of the engine, so that what is purged, settled or expires here takes several."""
FINDINGS_MAX = 1 if FIRST in os.environ else 3
OVERRUN_S = 60
"""How far the last seed may go beyond the time of all of them; on a busy machine one takes minutes."""
SHRINK_S = 0.0 if FIRST in os.environ else 20.0


@dataclass(slots=True)
class Tally:
    """What one seed, or all of them, came to."""

    counts: Counter[str] = field(default_factory=Counter)
    worst_weak_ms: float = 0.0
    findings: list[tuple[Finding, tuple[int, int]]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.counts.update(other.counts)
        self.worst_weak_ms = max(self.worst_weak_ms, other.worst_weak_ms)
        self.findings += other.findings


def explore(plan: Plan, machine: Machine, shrink_s: float, ends_at: float = math.inf) -> Tally:
    """One seed, with the seams in place; as far as it comes until `ends_at` of the monotonic clock."""
    run, tally, begun = Run(plan, machine, ends_at), Tally(), time.process_time()
    try:
        run.go()
    except Failure as failure:
        smallest = shrink(failure, machine, shrink_s) if shrink_s else failure
        ending = f" --ending {plan.ending}" if plan.ending else ""
        ending += " --aside" if plan.aside else ""
        repeat = f"python -m tests.proof.sim_disk {plan.seed}{ending}; shrunk to {smallest.plan}"
        finding = Finding(str(smallest), repeat)
        tally.findings.append((finding, told_apart(failure.error)))
    counts = run.ledger.counts
    tally.counts.update(
        images=run.images + run.kills + run.second_crashes,
        kills=run.kills,
        second_crashes=run.second_crashes,
        whole_stores=run.judge.deep,
        operations=run.operations,
        later_steps=counts.later_steps,
        written_ahead=counts.written_ahead,
        lossy=run.losing_images,
        confirmed=counts.confirmed,
        strong=counts.confirmed_strong,
        weak=counts.confirmed_weak,
        asynchronous=counts.confirmed_async,
        reused=counts.reused_told,
        account_changes=counts.account_changes,
        moved=counts.moved,
        positions=counts.positions,
        cpu_ms=int((time.process_time() - begun) * 1000),
    )
    tally.worst_weak_ms = run.worst_weak_s * 1000
    return tally


def _one(task: tuple[Plan, float, float]) -> Tally:
    """In a process of the pool."""
    logging.disable(logging.WARNING)
    machine = Machine()
    with seams(machine), steps_of(STEP_UNITS):
        return explore(task[0], machine, *task[1:])


def _tallies(budget: Budget, ends_at: float) -> Iterator[Tally]:
    shrink_s = min(SHRINK_S, budget.seconds / 4)
    ending = budget.aim if budget.aim in ENDINGS else ""
    tasks = ((_plan(budget, number, ending), shrink_s, ends_at) for number in count())
    if PROCESSES == 1:
        yield from map(_one, tasks)
        return
    # Spawned: this process may have threads of other methods.
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        while True:
            yield from pool.imap_unordered(_one, islice(tasks, 4 * PROCESSES))


def _plan(budget: Budget, number: int, ending: str) -> Plan:
    plan = Plan(budget.seed * 1_000_000 + number, ending=ending)
    if budget.aim == ASIDE or number % ASIDE_EVERY == ASIDE_EVERY - 1:
        return replace(plan, aside=True, images=ASIDE_IMAGES)
    return plan


def run(budget: Budget) -> Result:
    """Seed after seed until the images or the time are used up; stops early after a few findings."""
    before = logging.root.manager.disable
    deadline, total, seeds = time.monotonic() + budget.seconds, Tally(), 0
    tallies = _tallies(budget, deadline + OVERRUN_S)
    try:
        for tally in tallies:
            total.add(tally)
            seeds += 1
            done = total.counts["images"] >= budget.cases
            if done or len(total.findings) >= FINDINGS_MAX or time.monotonic() > deadline:
                break
    finally:
        tallies.close()  # type: ignore[attr-defined]  # a generator
        logging.disable(before)
    return _result(total, seeds, budget)


def _result(total: Tally, seeds: int, budget: Budget) -> Result:
    counts = total.counts
    cpu_s = counts["cpu_ms"] / 1000
    return Result(
        cases=counts["images"],
        unit="images",
        confirmed=counts["confirmed"],
        lost=sum(lost for _, (lost, _) in total.findings),
        resurrected=sum(back for _, (_, back) in total.findings),
        worst_weak_ms=round(total.worst_weak_ms, 1),
        figures={
            "seeds": seeds,
            "images_per_cpu_s": round(counts["images"] / cpu_s) if cpu_s else 0,
            "operations": counts["operations"],
            "steps of long commands": counts["later_steps"],
            "rows written ahead": counts["written_ahead"],
            "images that lost unflushed data": counts["lossy"],
            "kill -9 images": counts["kills"],
            "images of a second crash": counts["second_crashes"],
            "whole stores compared": counts["whole_stores"],
            "confirmed strong": counts["strong"],
            "confirmed weak": counts["weak"],
            "confirmed async": counts["asynchronous"],
            "changes of users and tokens answered": counts["account_changes"],
            "positions of cursors confirmed": counts["positions"],
            "stages moved whole": counts["moved"],
            "sequences of lost weak or async messages given again": counts["reused"],
        },
        findings=[finding for finding, _ in total.findings],
        complete=counts["images"] >= budget.cases,
    )


METHOD = Method(
    name="sim-disk",
    title="Power cuts on a simulated disk",
    run=run,
    short=Size(cases=500, seconds=15),
    crash=Size(cases=150_000, seconds=140),
    torture=Size(cases=1_000_000, seconds=900),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Repeat one seed of the crash explorer.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--lives", type=int, default=Plan(0).lives)
    parser.add_argument("--steps", type=int, default=Plan(0).steps)
    parser.add_argument("--images", type=int, default=Plan(0).images)
    parser.add_argument("--ending", choices=ENDINGS, default="")
    parser.add_argument("--aside", action="store_true")
    given = parser.parse_args()
    plan = Plan(given.seed, given.lives, given.steps, given.images, given.ending, given.aside)
    tally = _one((plan, SHRINK_S, math.inf))
    for finding, _ in tally.findings:
        print(f"{finding.what}\n{finding.repeat}")
    print(dict(tally.counts), f"worst weak window {tally.worst_weak_ms:.0f} ms")


if __name__ == "__main__":
    main()
