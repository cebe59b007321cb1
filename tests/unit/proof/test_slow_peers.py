"""When the loss beside a dead consumer is a finding, and when the machine is too noisy to tell."""

import pytest

from tests.proof.contract import Result
from tests.proof.slow_peers import VARIANTS, Rate, judge

QUIET = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0]
NOISY = [1.0, 1.6, 0.6, 1.3, 0.7, 1.5, 0.5]


def judged(kept_by_clock: float, kept_by_cpu: float, clock: list[float], cpu: list[float]) -> Result:
    """The pairs keep so much; what they keep it of varies."""
    result = Result()
    pairs = [
        (Rate(a * kept_by_clock * wobble, b * kept_by_cpu), Rate(a, b))
        for a, b, wobble in zip(clock, cpu, QUIET, strict=True)
    ]
    judge(VARIANTS[0], pairs, result)
    return result


@pytest.mark.parametrize("cpu", [QUIET, NOISY])
def test_a_small_loss_is_a_finding_where_the_clock_is_quiet(cpu: list[float]) -> None:
    [finding] = judged(0.9, 0.9, QUIET, cpu).findings
    assert "keeps 90.0 %" in finding.what
    assert judged(0.97, 0.97, QUIET, cpu).findings == []


def test_where_the_clock_is_noisy_processor_time_judges() -> None:
    [finding] = judged(0.97, 0.9, NOISY, QUIET).findings
    assert "keeps 90.0 %" in finding.what
    assert judged(0.9, 0.97, NOISY, QUIET).findings == []


def test_time_that_passes_without_work_is_seen_by_the_clock_however_noisy() -> None:
    [finding] = judged(0.6, 1.0, NOISY, QUIET).findings
    assert "keeps 60.0 %" in finding.what


def test_a_loss_that_noise_may_be_is_told_and_not_judged() -> None:
    result = Result()
    ratios = [0.6, 1.2, 0.9, 1.1, 0.8, 1.0, 0.94]
    judge(VARIANTS[0], [(Rate(r * n, r * n), Rate(n, n)) for r, n in zip(ratios, NOISY, strict=True)], result)
    assert result.findings == []
    assert not result.complete
    assert any(name.startswith("too noisy") for name in result.figures)
