from collections.abc import Sequence
from functools import partial
from typing import Any

from vibemq.model.effects import Deliver, Effect, Outcome, Reply
from vibemq.server.commit.release_order import EffectRouter


def reply(token: Any, session: int = 1, order: int = -1) -> Reply:
    return Reply(session, token, None, order)


def delivery(sequence: int, session: int = 1) -> Deliver:
    return Deliver(session, 1, "q", 1, 0, [(sequence, sequence)])


class Ears:
    """What each session has heard, as tokens and sequences."""

    def __init__(self, *sessions: int) -> None:
        self.effect_router = EffectRouter()
        self.heard: dict[int, list[Any]] = {session: [] for session in sessions}
        for session in sessions:
            self.effect_router.connect(session, partial(self._hear, session))

    def _hear(self, session: int, effects: Sequence[Effect]) -> None:
        self.heard[session].extend(map(self._name, effects))

    @staticmethod
    def _name(effect: Effect) -> Any:
        return effect.token if isinstance(effect, Reply) else getattr(effect, "runs", None)


def test_what_may_be_told_is_told_at_once() -> None:
    ears = Ears(1)
    assert ears.effect_router.accept(Outcome(effects=[reply("a")])) == ((), ())
    assert ears.heard[1] == ["a"]


def test_an_immediate_effect_does_not_overtake_an_earlier_gated_one() -> None:
    ears = Ears(1)
    holds = ears.effect_router.accept(Outcome(gated=[reply("strong")])).gated
    ears.effect_router.accept(Outcome(effects=[reply("later")]))
    assert ears.heard[1] == []
    ears.effect_router.release(holds)
    assert ears.heard[1] == ["strong", "later"]


def test_other_sessions_do_not_wait() -> None:
    ears = Ears(1, 2)
    ears.effect_router.accept(Outcome(gated=[reply("strong")]))
    ears.effect_router.accept(Outcome(effects=[reply("mine", 1), reply("other", 2)]))
    assert ears.heard == {1: [], 2: ["other"]}


def test_gates_that_open_out_of_order_are_told_in_order() -> None:
    ears = Ears(1)
    first = ears.effect_router.accept(Outcome(gated=[reply("first")])).gated
    second = ears.effect_router.accept(Outcome(gated=[reply("second")])).gated
    ears.effect_router.release(second)
    assert ears.heard[1] == []
    ears.effect_router.release(first)
    assert ears.heard[1] == ["first", "second"]


def test_a_delivery_stands_behind_the_gated_answer_of_its_own_step() -> None:
    ears = Ears(1)
    holds = ears.effect_router.accept(Outcome(effects=[delivery(7), reply("now")], gated=[reply("subscribed")])).gated
    assert ears.heard[1] == ["now"]
    ears.effect_router.release(holds)
    assert ears.heard[1] == ["now", "subscribed", [(7, 7)]]


def test_what_waits_for_the_append_is_told_before_the_flush_of_the_same_step() -> None:
    ears = Ears(1, 2)
    settled, published = reply("settled", order=0), reply("published", order=1)
    held = ears.effect_router.accept(Outcome(effects=[reply("other", 2)], after_append=[settled], gated=[published]))
    assert ears.heard == {1: [], 2: ["other"]}
    ears.effect_router.release(held.after_append)
    assert ears.heard[1] == ["settled"]
    ears.effect_router.release(held.gated)
    assert ears.heard[1] == ["settled", "published"]


def test_the_answers_of_one_step_keep_the_order_they_were_asked_in() -> None:
    ears = Ears(1)
    tokens = [["quick 1"], ["strong"], ["quick 2"]]
    quick_1, strong, quick_2 = (reply(token, order=order) for order, token in enumerate(tokens))
    holds = ears.effect_router.accept(Outcome(effects=[quick_1, quick_2], gated=[strong])).gated
    assert ears.heard[1] == [["quick 1"]]
    ears.effect_router.release(holds)
    assert ears.heard[1] == tokens


def test_effects_of_sessions_that_are_gone_are_dropped() -> None:
    ears = Ears(1)
    holds = ears.effect_router.accept(Outcome(gated=[reply("late")])).gated
    ears.effect_router.disconnect(1)
    assert ears.effect_router.accept(Outcome(gated=[reply("later")])) == ([], [])
    ears.effect_router.release(holds)
