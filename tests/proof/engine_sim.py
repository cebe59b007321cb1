"""The engine against a naive broker and against its own laws, seed after seed; a case is one step of a client's life.

python -m tests.proof.engine_sim KIND MODE SEED STEPS      repeats one life
"""

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.engine_lives import CleanLife, HardLife
from tests.simulation.lifetimes import Lifetimes
from tests.simulation.selective import SelectiveChaos
from tests.simulation.test_engine_chaos import Chaos
from tests.simulation.test_range_reads import read_all_of
from vibemq.model.options import DeliveryMode, Durability

STEPS = 250
CHAOS_STEPS = 200
FINDINGS_MAX = 3


def hard(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    life = HardLife(seed, mode)
    try:
        life.live_through(steps)
    finally:
        figures["settlements by others than the holder"] += life.foreign_acks
        figures["groups taken over"] += life.takeovers
        figures["clock jumps of a year"] += life.clock.jumps
        figures["messages published"] += life.first_seen - 1
    return life.steps


def clean(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    life = CleanLife(seed, mode)
    life.live_through(steps)
    figures["messages published"] += life.first_seen - 1
    figures["clean lives"] += 1
    return life.steps


def chaos(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    """All commands, full disks and crashes, in every mode at once."""
    Chaos(seed).live(min(steps, CHAOS_STEPS))
    figures["lives of all commands at once"] += 1
    return min(steps, CHAOS_STEPS)


def lifetimes(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    """Queues that go away by themselves; their modes make no difference."""
    Lifetimes(seed).live(steps)
    figures["lives of queues that go away"] += 1
    return steps


def selectors(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    """The same with selectors, and queues that hold up what is behind a failed message."""
    SelectiveChaos(seed).live(min(steps, CHAOS_STEPS))
    figures["lives with selectors"] += 1
    return min(steps, CHAOS_STEPS)


RANGE_STEPS = 25
"""Of one life; each drains what may be a whole restart's leap."""
_RANGE_MAX = {"publish": 30, "lose": 5, "restart": 0, "drain": 1 << 40, "fetch": 1 << 40, "reject": 5, "quarantine": 5}


def ranges(seed: int, mode: DeliveryMode, steps: int, figures: Counter[str]) -> int:
    """Readers by range of queues that lose their newest messages, strong ones and others; modes make no difference."""
    rng = random.Random(seed)
    durability = rng.choice((Durability.STRONG, Durability.WEAK, Durability.ASYNC))
    script = [_range_step(rng) for _ in range(min(steps, RANGE_STEPS))]
    figures["messages published"] += read_all_of(durability, script)
    figures["lives of readers by range"] += 1
    return len(script)


def _range_step(rng: random.Random) -> tuple[str, int]:
    step = rng.choice([*_RANGE_MAX, "commit"])
    most = _RANGE_MAX.get(step, 0)
    return step, rng.choice((1, 7, most)) if most > 100 else rng.randint(min(1, most), most)


Kind = Callable[[int, DeliveryMode, int, Counter[str]], int]
KINDS: dict[str, Kind] = {
    "hard": hard,
    "clean": clean,
    "chaos": chaos,
    "lifetimes": lifetimes,
    "selectors": selectors,
    "ranges": ranges,
}
SHARES = ("hard", "ranges", "hard", "chaos", "lifetimes", "hard", "clean", "selectors", "chaos")


def run(budget: Budget) -> Result:
    result, figures = Result(unit="steps"), Counter[str]()
    begun, cpu = time.monotonic(), time.process_time()
    modes = list(DeliveryMode)
    for number in count():
        late = time.monotonic() - begun > budget.seconds
        if result.cases >= budget.cases or late or len(result.findings) >= FINDINGS_MAX:
            break
        shares = (budget.aim,) if budget.aim in KINDS else SHARES
        kind, mode = shares[number % len(shares)], modes[number // len(shares) % len(modes)]
        seed = random.Random(f"{budget.seed}/{number}").randrange(1 << 32)
        try:
            result.cases += KINDS[kind](seed, mode, STEPS, figures)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
            result.cases += STEPS
            repeat = f"python -m tests.proof.engine_sim {kind} {mode.name} {seed} {STEPS}"
            result.findings.append(Finding(f"{type(error).__name__}: {error} ({_place(error)})", repeat))
        figures["lives"] += 1
    figures["steps_per_cpu_s"] = round(result.cases / max(time.process_time() - cpu, 1e-9))
    result.confirmed = figures.pop("messages published", 0)
    result.figures.update(figures)
    result.complete = result.cases >= budget.cases
    return result


def _place(error: BaseException) -> str:
    """The line that failed; the checks of the driver speak for themselves."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}: {last.line}"


METHOD = Method(
    name="engine-sim",
    title="The engine against a naive model",
    run=run,
    short=Size(cases=1_000, seconds=10),
    crash=Size(cases=60_000, seconds=40),
    torture=Size(cases=400_000, seconds=200),
)


def main(kind: str, mode: str, seed: str, steps: str) -> None:
    figures = Counter[str]()
    print(KINDS[kind](int(seed), DeliveryMode[mode], int(steps), figures), "steps", dict(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
