"""Loads: bodies, the open loop, quantiles."""

import pytest

from bench.common import load
from bench.common.load import Bodies, Pacer, quantiles_ms, sent_at, without_warm_up


@pytest.mark.parametrize("size", [16, 128, 1024])
def test_a_body_has_its_size_and_its_instant(size: int) -> None:
    body = Bodies(size).make(7, 12.5)
    assert len(body) == size
    assert sent_at(body) == 12.5


def test_a_body_too_small_for_its_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        Bodies(15)


def test_what_is_late_is_due_at_once_and_keeps_its_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    instant = 100.0
    monkeypatch.setattr(load, "now", lambda: instant)
    pacer = Pacer(rate=1000, messages=10)
    assert pacer.due(sent=0) == 1
    assert pacer.delay(sent=1) == pytest.approx(0.001)
    instant = 100.0045
    assert pacer.due(sent=1) == 4
    assert pacer.due_at(4) == pytest.approx(100.004)
    assert pacer.delay(sent=1) < 0
    instant = 200.0
    assert pacer.due(sent=5) == 5


def test_quantiles_are_in_milliseconds() -> None:
    found = quantiles_ms([number / 1000 for number in range(1, 101)])
    assert found["p50_ms"] == pytest.approx(51)
    assert found["p99_ms"] == pytest.approx(100)
    assert found["count"] == 100
    assert quantiles_ms([]) == {}


def test_the_warm_up_is_a_tenth_but_not_without_end() -> None:
    assert len(without_warm_up([0.0] * 100)) == 90
    assert len(without_warm_up([0.0] * 100_000)) == 99_500
