"""Broken connectors: the programs of `test_spark_replans` must notice what becomes of the rows."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from tests.properties.spark_replans.broker import HOLD_MS
from tests.properties.spark_replans.program import carry_out, step
from tests.properties.spark_replans.world import UnexpectedRefusal, World
from vibemq.spark.errors import SourceError
from vibemq.spark.read import plans, stream
from vibemq.spark.read.cursors import QueryCursors
from vibemq.spark.read.offsets import Positions
from vibemq.spark.read.plans import QueryPlans


def forget_the_plan(patch: pytest.MonkeyPatch) -> None:
    """Nor can a batch be entered that nobody has planned."""
    patch.setattr(QueryPlans, "settle", lambda self, start, end: end)
    patch.setattr(QueryPlans, "planned", lambda self, start, end: None)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    advance = stream._Live.advance

    def eager(self: Any, start: Positions, limits: Any) -> Positions:
        end = advance(self, start, limits)
        self._cursors.acknowledge(end, plans.tag_of(end))
        return end

    patch.setattr(stream._Live, "advance", eager)


def ignore_the_epoch(patch: pytest.MonkeyPatch) -> None:
    ask, wait = QueryCursors.ask_to_acknowledge, QueryCursors.acknowledged
    asked_last: dict[int, tuple[Positions, str]] = {}

    def remember(self: Any, positions: Positions, tag: str, **more: Any) -> Any:
        asked_last[id(self)] = positions, tag
        return ask(self, positions, tag, **more)

    def stubborn(self: Any, asked: Any, **more: Any) -> None:
        try:
            wait(self, asked, **more)
        except SourceError:
            positions, tag = asked_last[id(self)]
            self._joined.clear()
            for queue, position in positions.items():
                self.of(queue, position)
            wait(self, ask(self, positions, tag, **more), **more)

    patch.setattr(QueryCursors, "ask_to_acknowledge", remember)
    patch.setattr(QueryCursors, "acknowledged", stubborn)


def go_on_without_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    join = QueryCursors._join

    def careless(self: Any, queue: str, at: Any) -> Any:
        return join(self, queue, at, "" if at else "continue")

    patch.setattr(QueryCursors, "decide", lambda self, queues: None)
    patch.setattr(QueryCursors, "_join", careless)


def heed_the_option_again(patch: pytest.MonkeyPatch) -> None:
    """Whatever loss it was set for."""
    decide = QueryCursors.decide

    def forgetful(self: Any, queues: Any) -> None:
        chosen = self._settings.new_checkpoint
        if not chosen.loss:
            decide(self, queues)
        for found in self._look_at([queue for queue in queues if chosen.loss and queue not in self._joined]):
            self._decided[found.queue] = found

    patch.setattr(QueryCursors, "decide", forgetful)


PHASES = (Phase.generate,)
FINDINGS = "acknowledged and not written|twice in one output|older driver got a batch|not everything arrived"


def compare_no_numbers(patch: pytest.MonkeyPatch) -> None:
    """Tasks only say that they read."""
    patch.setattr(World, "entered_as", lambda self: "")


def acknowledge_what_nobody_has_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueryPlans, "check_read", lambda self, start: None)


def forget_batches_without_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueryPlans, "note_empty", lambda self, start, mark, patient: None)


several, limit = st.integers(4, 9), st.integers(1, 3)
published = st.tuples(st.just("publish"), st.just("a"), several)
ran = st.tuples(st.just("run"), limit, st.just(""))
died = st.tuples(st.just("run"), limit, st.sampled_from(["planned", "noted", "read"]))
lost = st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), st.just(""))
back = st.sampled_from([("count from 0", "continue", 0), ("roll back and seek", 1, 0)])
without_rows = st.just(("without rows", 1, ""))
one_back = st.just(("roll back", 1, 0))
AIMED = {
    forget_the_plan: [published, ran, published, st.tuples(st.just("roll back"), st.integers(1, 2), st.just(0))],
    acknowledge_early: [published, died],
    ignore_the_epoch: [published, ran, ran, published, st.just(("older driver", 0, 0))],
    go_on_without_a_checkpoint: [published, ran, published, st.just(("lose", "continue", ""))],
    heed_the_option_again: [published, ran, published, lost, published, lost],
    compare_no_numbers: [published, ran, published, back],
    acknowledge_what_nobody_has_read: [published, ran, published, back],
    forget_batches_without_rows: [published, ran, without_rows, published, one_back],
}
LAZY = {acknowledge_what_nobody_has_read}
"""Programs that come to where the defect shows: chance alone rarely does."""


@pytest.mark.parametrize("mutant", AIMED)
def test_a_broken_connector_is_noticed(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """By what becomes of the rows; that it refuses too much would be no proof."""

    @given(st.lists(step, max_size=2), st.tuples(*AIMED[mutant]))
    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        phases=PHASES,
        report_multiple_bugs=False,
    )
    def same(before: list[Any], aimed: tuple[Any, ...]) -> None:
        with suppress(SourceError, UnexpectedRefusal):
            carry_out(World("auto", HOLD_MS, is_lazy=mutant in LAZY), [*before, *aimed])

    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError, match=FINDINGS):
            same()


@pytest.mark.parametrize("mutant", AIMED)
def test_the_sound_connector_passes_where_a_broken_one_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    @given(st.lists(step, max_size=2), st.tuples(*AIMED[mutant]))
    @settings(max_examples=30, deadline=None, database=None)
    def same(before: list[Any], aimed: tuple[Any, ...]) -> None:
        carry_out(World("auto", HOLD_MS, is_lazy=mutant in LAZY), [*before, *aimed])

    same()
