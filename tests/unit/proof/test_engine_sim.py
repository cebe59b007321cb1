from collections import Counter

import pytest

from tests.proof.engine_lives import YEAR_MS, CleanLife, HardLife, JumpingClock
from tests.proof.engine_sim import KINDS
from vibemq.engine.queue.unacked import Unacked
from vibemq.model.options import DeliveryMode


def test_a_jump_of_the_wall_moves_instants_by_the_drift_only() -> None:
    clock = JumpingClock(1_000_000)
    for jump in (YEAR_MS, -2 * YEAR_MS, YEAR_MS):
        clock.jump(jump)
        before = clock.flow(0)
        assert before + 4_500 <= clock.flow(5_000) <= before + 5_300


@pytest.mark.parametrize("mode", list(DeliveryMode))
def test_hard_lives_agree_with_the_model(mode: DeliveryMode) -> None:
    life = HardLife(11, mode)
    life.live_through(80)
    assert life.foreign_acks > 0


def test_a_clean_life_delivers_everything_once() -> None:
    figures = Counter[str]()
    assert KINDS["clean"](3, DeliveryMode.ROUND_ROBIN, 60, figures) == 60
    assert figures["messages published"] > 50


def test_a_deadline_that_is_ignored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unacked, "due", lambda held, now, most: [])
    with pytest.raises(AssertionError):
        HardLife(11, DeliveryMode.ROUND_ROBIN).live_through(200)


def test_a_second_delivery_in_a_clean_life_is_noticed() -> None:
    life = CleanLife(3, DeliveryMode.ROUND_ROBIN)
    life.live_through(30)
    life._times.update(dict.fromkeys(life._times, 1))
    with pytest.raises(AssertionError):
        life.live_through(30)
