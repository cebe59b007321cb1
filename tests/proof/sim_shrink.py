"""The smallest run that still fails: fewer lives, fewer steps; the image's own losses are shrunk where it failed."""

import math
import time
from dataclasses import replace

from tests.proof.sim_explore import Failure, Plan, Run
from tests.proof.sim_files import Machine


def fails(plan: Plan, machine: Machine, deadline: float = math.inf) -> Failure | None:
    """Whether it fails before the deadline, of the monotonic clock."""
    try:
        Run(plan, machine, deadline).go()
    except Failure as failure:
        return failure
    return None


def shrink(failure: Failure, machine: Machine, seconds: float) -> Failure:
    """Leave out what does not matter to the failure, as far as the time allows. Any failure counts as the same."""
    deadline = time.monotonic() + seconds
    smallest = _fewer_lives(failure, machine, deadline)

    life, step = smallest.life, smallest.step
    steps = [(earlier, number) for earlier in range(life) for number in range(smallest.plan.steps)]
    steps += [(life, number) for number in range(step + 1)]
    return _fewer_steps(smallest, steps, machine, deadline)


def _fewer_lives(failure: Failure, machine: Machine, deadline: float) -> Failure:
    return fails(replace(failure.plan, lives=failure.life + 1), machine, deadline) or failure


def _fewer_steps(smallest: Failure, steps: list[tuple[int, int]], machine: Machine, deadline: float) -> Failure:
    """Drop halves, then quarters, and so on down to single steps (Zeller's ddmin, without the complements)."""
    size = max(1, len(steps) // 2)
    while True:
        index = 0
        while index < len(steps):
            if time.monotonic() > deadline:
                return smallest
            without = frozenset(steps[index : index + size])
            found = fails(replace(smallest.plan, left_out=smallest.plan.left_out | without), machine, deadline)
            if found is not None and found.life <= smallest.life:
                smallest = found
                steps = [step for step in steps if step not in without]
            else:
                index += size
        if size == 1:
            return smallest
        size = max(1, size // 2)
