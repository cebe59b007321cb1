"""What waits for an instant leaves in any order, and no removal pays for the others."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.engine.test_scaling import cost
from vibemq.engine.queue import delayed as module
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.timing.due_order import SameDue
from vibemq.model.instants import Instants


def waiting(count: int, apart: int) -> Delayed:
    delayed = Delayed()
    for sequence in range(1, count + 1):
        delayed.add(sequence, 1_000 + apart * sequence)
    return delayed


@pytest.mark.parametrize("apart", [0, 7])
@pytest.mark.parametrize("order", ["first", "last", "any"])
def test_a_removal_costs_the_same_however_many_wait(order: str, apart: int) -> None:
    def dearest(count: int) -> int:
        delayed, sequences = waiting(count, apart), list(range(1, count + 1))
        if order == "any":
            Random(3).shuffle(sequences)
        elif order == "last":
            sequences.reverse()
        return max(cost(lambda s=sequence: delayed.remove(s, s)) for sequence in sequences)

    small, big = dearest(500), dearest(2_000)
    assert big <= 1.5 * small + 60, f"{small} instructions of 500, {big} of 2,000"


def test_the_next_instant_is_known_at_once_after_very_many_have_left() -> None:
    delayed = waiting(2_000, 7)
    for sequence in range(1, 1_999):
        delayed.remove(sequence, sequence)
    assert cost(delayed.next_due) < 40
    assert delayed.next_due() == 1_000 + 7 * 1_999


def test_one_that_waits_for_another_instant_is_due_then() -> None:
    delayed = waiting(3, 10)
    delayed.add(1, 5_000)
    assert delayed.pop_due(2_000) == [2, 3]
    assert (len(delayed), delayed.next_due(), delayed.pop_due(5_000)) == (1, 5_000, [1])


# -- runs that fall due together --------------------------------------------------------------------------------------


@pytest.fixture(params=[(3, 2), (4, 8), (64, 1024)])
def short(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few are a run, and a stretch has few. The same for all examples of a test, and for no other test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RUN_LEAST", request.param[0])
        patch.setattr(module, "TOGETHER_MAX", request.param[1])
        yield


ACTIONS = st.tuples(
    st.sampled_from(["even", "runs", "each", "add", "remove", "pop", "drop", "advance"]),
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(1, 9),
)


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.usefixtures("short")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ACTIONS, max_size=40))
def test_it_is_a_sorted_list_whether_or_not_neighbours_fall_due_together(
    some: bool, actions: list[tuple[str, int, int, int]]
) -> None:
    known = Instants() if some else None
    delayed, model, horizon, end = Delayed(known), dict[int, int](), 0, 0
    for action, first, count, due in actions:
        match action:
            case "even" | "runs" | "each":
                # Now and then between others that are gone.
                start = first if not any(first <= s < first + count for s in model) else end + 1
                sequences = range(start, start + count)
                each = {
                    "even": [due] * count,
                    "runs": [due + at * 3 // count for at in range(count)],
                    "each": [due + at * 7 % 5 for at in range(count)],
                }[action]
                if known is not None:
                    known.put_columns(sequences, each)
                delayed.add_all(sequences, due if action == "even" else each)
                model |= zip(sequences, each, strict=True)
                end = max(end, start + count - 1)
            case "add" if first not in model:
                if known is not None:
                    known[first] = due
                delayed.add(first, due)
                model[first] = due
                end = max(end, first)
            case "remove":
                gone = sorted(s for s in model if first <= s < first + count)
                assert delayed.remove(first, first + count - 1) == gone
                model = {s: at for s, at in model.items() if s not in gone}
            case "pop":
                ordered = sorted((at, s) for s, at in model.items() if at <= due)[:count]
                assert delayed.pop_due(due, count) == [s for _, s in ordered]
                for _, sequence in ordered:
                    del model[sequence]
            case "drop":
                ordered = sorted((at, s) for s, at in model.items() if at <= horizon)[:count]
                front = delayed.front(count)
                assert [(at, s) for at, low, high in front for s in range(low, high + 1)] == ordered
                delayed.drop_front(count)
                for _, sequence in ordered:
                    del model[sequence]
            case "advance":
                horizon = max(horizon, due)
                delayed.advance(due)
        check(delayed, model, horizon)


def check(delayed: Delayed, model: dict[int, int], horizon: int) -> None:
    ordered = sorted((at, s) for s, at in model.items())
    fallen = [entry for entry in ordered if entry[0] <= horizon]
    assert (len(delayed), delayed.fallen) == (len(model), len(fallen))
    assert [(at, s) for at, low, high in delayed.front(999) for s in range(low, high + 1)] == fallen
    assert delayed.front_runs(7) == runs_in_turn([s for _, s in fallen[:7]])
    assert delayed.front_runs(999) == runs_in_turn([s for _, s in fallen])
    assert sorted(delayed) == sorted(model)
    assert [s for low, high in delayed.runs() for s in range(low, high + 1)] == sorted(model)
    assert delayed.due_by(horizon + 2) == [s for at, s in ordered if at <= horizon + 2]
    assert delayed.next_due() == (ordered[0][0] if ordered else None)
    later = [at for at, _ in ordered if at > horizon]
    assert delayed.next_later() == (later[0] if later else module.END)
    assert len(delayed._order) == len(delayed._bounds)
    assert all(stretch.last <= bound for stretch, bound in zip(delayed._order, delayed._bounds, strict=True))


def runs_in_turn(sequences: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for sequence in sequences:
        if runs and runs[-1][1] + 1 == sequence:
            runs[-1] = (runs[-1][0], sequence)
        else:
            runs.append((sequence, sequence))
    return runs


def test_a_million_that_fall_due_together_are_one_entry() -> None:
    delayed = Delayed(known := Instants())
    for first in range(1, 1_000_000, 1_000):
        known.put_columns(range(first, first + 1_000), 5_000)
        delayed.add_all(range(first, first + 1_000), 5_000)
    assert len(delayed._order) == 1
    assert cost(lambda: delayed.advance(5_000)) < 200
    assert delayed.front(2_000) == [(5_000, 1, 2_000)]
    assert cost(lambda: delayed.drop_front(2_000)) < 600
    assert (delayed.fallen, delayed.front(9)) == (998_000, [(5_000, 2_001, 2_009)])


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_run_with_very_many_holes_is_not_very_many_runs(shuffled: bool) -> None:
    delayed, holes = Delayed(), list(range(2, 20_000, 2))
    delayed.add_all(range(1, 20_001), 7)
    if shuffled:
        Random(3).shuffle(holes)
    for sequence in holes:
        delayed.remove(sequence, sequence)
    assert len(delayed._order) < 120
    assert sum(isinstance(stretch, SameDue) for stretch in delayed._order) < 60
    assert delayed.pop_due(7) == sorted({*range(1, 20_001)} - set(holes))


def test_what_is_filled_in_after_a_restart_is_in_runs_again() -> None:
    delayed = Delayed(known := Instants())
    for number in range(60):
        known.put_columns(range(1 + 1_000 * number, 1_001 + 1_000 * number), 9_000 - 10 * number)
    delayed.fill(known.copy())
    assert len(delayed._order) == 60
    delayed.advance(8_410)
    assert delayed.front(1_500) == [(8_410, 59_001, 60_000)]
