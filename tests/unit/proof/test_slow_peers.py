"""When the loss beside a dead consumer is a finding, and when the machine is too noisy to tell."""

from random import Random

import pytest

from tests.proof.contract import Result
from tests.proof.slow_peers import VARIANTS, Kept, Rate, judge

QUIET = 0.01
NOISY = 0.3


def kept(by_clock: float, by_cpu: float, clock_noise: float, cpu_noise: float, pairs: int = 60) -> Kept:
    """Pairs of one machine: both halves vary as much, and the dead consumer takes its part of the one."""
    rng = Random(11)
    made = Kept()
    for _ in range(pairs):
        clock, beside_clock = (rng.lognormvariate(0, clock_noise) for _ in "ab")
        cpu, beside_cpu = (rng.lognormvariate(0, cpu_noise) for _ in "ab")
        made.add(Rate(clock * by_clock, cpu * by_cpu), Rate(beside_clock, beside_cpu))
    return made


def judged(pairs: Kept) -> Result:
    result = Result()
    judge(VARIANTS[0], pairs, result)
    return result


@pytest.mark.parametrize("cpu_noise", [QUIET, NOISY])
def test_a_small_loss_is_a_finding_where_the_clock_is_quiet(cpu_noise: float) -> None:
    [finding] = judged(kept(0.9, 0.9, QUIET, cpu_noise)).findings
    assert "the fast one keeps 90." in finding.what or "the fast one keeps 89." in finding.what


def test_a_small_loss_is_a_finding_where_processor_time_is_quiet() -> None:
    assert judged(kept(0.97, 0.9, NOISY, QUIET)).findings


def test_time_that_passes_without_work_is_seen_by_the_clock_however_noisy() -> None:
    assert judged(kept(0.6, 1.0, NOISY, QUIET)).findings


def test_what_keeps_enough_is_clear_and_no_finding() -> None:
    pairs = kept(0.98, 0.98, QUIET, QUIET, pairs=12)
    assert pairs.is_clear
    result = judged(pairs)
    assert result.findings == []
    assert result.complete


@pytest.mark.parametrize("by_clock", [0.93, 0.97])
def test_a_loss_that_noise_may_be_is_told_and_not_judged(by_clock: float) -> None:
    pairs = kept(by_clock, 0.98, NOISY, QUIET, pairs=20)
    assert not pairs.is_clear
    result = judged(pairs)
    assert result.findings == []
    assert not result.complete
    assert any(name.startswith("not clear") for name in result.figures)


def test_two_pairs_are_too_few_to_tell() -> None:
    assert judged(kept(0.5, 0.5, QUIET, QUIET, pairs=2)).findings == []
