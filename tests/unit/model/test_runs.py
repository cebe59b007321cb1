"""RunSet against a plain set."""

import itertools
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model import runs as module
from vibemq.model.runs import (
    RUNS_TOGETHER_MAX,
    RunSet,
    run_count,
    runs_in_order,
    runs_of,
    runs_of_ascending,
    smallest_of,
)

small = st.integers(0, 60)
run = st.tuples(small, st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.fixture(params=["in one list", "in parts"], autouse=True, scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test is run with sets in parts of up to four runs as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in parts":
            patch.setattr(module, "RUNS_TOGETHER_MAX", 4)
        yield


def members(runs: list[tuple[int, int]]) -> set[int]:
    return {s for first, last in runs for s in range(first, last + 1)}


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), run), max_size=40))
def test_adding_and_removing_behave_like_a_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    runs, plain = RunSet(), set[int]()
    for verb, (first, last) in steps:
        if verb == "add":
            runs.add(first, last)
            plain |= members([(first, last)])
        else:
            removed = runs.remove(first, last)
            assert removed == len(plain & members([(first, last)]))
            plain -= members([(first, last)])
        assert set(runs) == plain
        assert len(runs) == len(plain)
        assert runs.run_count == len(runs_of(plain))
        assert runs == RunSet(runs_of(plain))
        for window in ((first, last), (first - 2, last + 20)):
            assert members(runs.overlap(*window)) == plain & members([window])
            assert runs.covers(*window) == (members([window]) <= plain)
            grown = members([(window[0] - 1, window[1] + 1)])
            assert runs.touching(*window) == [r for r in runs_of(plain) if members([r]) & grown]


@given(st.sets(small))
def test_runs_are_sorted_disjoint_and_never_adjacent(plain: set[int]) -> None:
    runs = RunSet((s, s) for s in plain).runs()
    assert runs == runs_of(plain)
    assert all(b_first > a_last + 1 for (_, a_last), (b_first, _) in itertools.pairwise(runs))


@given(st.sets(small), st.integers(0, 70))
def test_pop_front_takes_the_smallest(plain: set[int], count: int) -> None:
    runs = RunSet(runs_of(plain))
    front = runs.front(count)
    taken = runs.pop_front(count)
    assert front == taken
    assert members(taken) == set(sorted(plain)[:count])
    assert set(runs) == plain - members(taken)
    assert run_count(taken) == min(count, len(plain))
    assert len(runs) == len(plain) - run_count(taken)
    rest = runs_of(plain - members(taken))
    assert (runs.runs(), runs.run_count) == (rest, len(rest))


@given(st.sets(small), run)
def test_overlap_is_the_intersection(plain: set[int], window: tuple[int, int]) -> None:
    runs = RunSet(runs_of(plain))
    assert members(runs.overlap(*window)) == plain & members([window])


@given(st.sets(small, min_size=1))
def test_first_and_last(plain: set[int]) -> None:
    runs = RunSet(runs_of(plain))
    assert (runs.first, runs.last) == (min(plain), max(plain))


def test_an_empty_set_has_no_first() -> None:
    with pytest.raises(IndexError):
        _ = RunSet().first


def test_a_million_in_order_is_one_run() -> None:
    runs = RunSet()
    for first in range(1, 1_000_001, 1000):
        runs.add(first, first + 999)
    assert runs.runs() == [(1, 1_000_000)]


def test_no_list_of_a_scattered_set_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a long list moves all that stands behind its place."""
    monkeypatch.setattr(module, "RUNS_TOGETHER_MAX", 1_000)
    runs = RunSet((s, s) for s in range(0, 80_000, 2))
    assert runs.run_count == 40_000
    for sequence in range(0, 80_000, 6):
        runs.remove(sequence, sequence)
    assert _longest(runs) <= module.RUNS_TOGETHER_MAX
    assert runs.count == runs.run_count == 26_666
    runs.remove(10, 79_900)
    assert _longest(runs) <= module.RUNS_TOGETHER_MAX
    assert runs.runs()[:3] == [(2, 2), (4, 4), (8, 8)]


def _longest(runs: RunSet) -> int:
    parts = runs._parts or []
    return max([len(runs._firsts), *(_longest(part) for part in parts)])


@given(st.sets(st.integers(1, 300)), st.sets(st.integers(1, 300)))
def test_many_runs_at_once_are_the_same_as_one_by_one(before: set[int], later: set[int]) -> None:
    runs = RunSet(runs_of(before))
    assert (runs.runs(), runs.count) == (runs_of(before), len(before))
    for sequence in later:
        runs.remove(sequence, sequence)
    runs.add_all(runs_of(later))
    assert (runs.runs(), runs.count) == (runs_of(before | later), len(before | later))


@pytest.mark.parametrize("number", [0, 10, 3 * RUNS_TOGETHER_MAX])
def test_a_copy_is_a_set_of_its_own(number: int) -> None:
    runs = [(2 * n, 2 * n) for n in range(1, number + 1)]
    original = RunSet(runs)
    copied = original.copy()
    assert (copied, copied.count, copied.runs()) == (original, number, runs)
    original.remove(1, 10)
    original.add(1, 1)
    assert copied.runs() == runs
    copied.remove(3, 1 << 40)
    assert original.runs() == [(1, 1), *runs[5:]]


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 4), st.integers(0, 30))
def test_the_smallest_of_several_lists(numbers: list[int], parts: int, count: int) -> None:
    members = sorted(set(numbers))
    lists = [runs_of(members[part::parts]) for part in range(parts)]
    assert smallest_of(lists, count) == runs_of(members[:count])


@given(st.lists(st.integers(1, 12)))
def test_sequences_in_any_order_some_of_them_twice_become_runs(sequences: list[int]) -> None:
    runs = runs_of(sequences)
    assert members(runs) == set(sequences)
    assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(runs))


@given(st.sets(st.integers(1, 30), min_size=1), st.randoms())
def test_sequences_become_runs(members: set[int], random: Random) -> None:
    ascending = sorted(members)
    assert runs_of_ascending(ascending) == runs_of(members)
    assert runs_of_ascending([]) == []
    shuffled = ascending[:]
    random.shuffle(shuffled)
    for sequences in (ascending, shuffled):
        runs = runs_in_order(sequences)
        assert [s for first, last in runs for s in range(first, last + 1)] == sequences
        assert all(one[1] + 1 != other[0] for one, other in itertools.pairwise(runs))
