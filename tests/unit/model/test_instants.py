"""Instants against a dict."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from vibemq.model import instants as module
from vibemq.model.extras.columns import each_of
from vibemq.model.instants import Instants
from vibemq.model.runs import END, runs_of

near = st.integers(1, 40)
far = st.integers(1, 5_000)
steps = st.lists(
    st.tuples(st.sampled_from(["set", "del", "update", "even", "clear"]), st.one_of(near, far), st.integers(0, 9)),
    max_size=60,
)


@pytest.fixture(params=["sparse", "dense"], autouse=True, scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pages of few entries become arrays as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "dense":
            patch.setattr(module, "_DENSE", 3)
        yield


@given(steps, steps, steps)
def test_a_copy_and_what_it_was_copied_from_change_apart(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], again: list[tuple[str, int, int]]
) -> None:
    one, model = Instants(), dict[int, int]()
    change(one, model, before)
    other, third, others, thirds = one.copy(), one.copy(), model.copy(), model.copy()
    change(one, model, after)
    assert (other, third) == (others, thirds)
    change(other, others, again)
    fourth, fourths = other.copy(), others.copy()
    change(third, thirds, after)
    change(other, others, after)
    assert [one, other, third, fourth] == [model, others, thirds, fourths]


def change(instants: Instants, model: dict[int, int], actions: list[tuple[str, int, int]]) -> None:
    for verb, sequence, number in actions:
        if verb == "set":
            # Some are further apart than 32 bits.
            instants[sequence] = model[sequence] = (number + 1) ** 12
        elif verb == "even":
            some = dict.fromkeys(range(sequence, sequence + 60 + 20 * number), 1 + number % 2)
            instants.put_columns(list(some), 1 + number % 2)
            model.update(some)
        elif verb == "del" and sequence in model:
            del instants[sequence], model[sequence]
        elif verb == "update":
            some = {s: number + s for s in range(sequence, sequence + number)}
            instants.update(some)
            model.update(some)
        elif verb == "clear" and number == 0:
            instants.clear()
            model.clear()


def test_a_copy_takes_little_memory_until_it_is_changed() -> None:
    instants = Instants({sequence: sequence + 1 for sequence in range(1, 20_000)})
    copy = instants.copy()
    assert all(copy._pages[number] is page for number, page in instants._pages.items())
    copy[5] = 1
    del instants[6_000]
    assert [number for number, page in instants._pages.items() if copy._pages[number] is not page] == [0, 5]


@given(steps)
def test_it_is_a_dict_in_order(actions: list[tuple[str, int, int]]) -> None:
    instants, model = Instants(), dict[int, int]()
    for verb, sequence, number in actions:
        change(instants, model, [(verb, sequence, number)])
        assert list(instants) == sorted(model)
        assert (len(instants), bool(instants)) == (len(model), bool(model))
        assert instants == model
        assert instants.get(sequence) == model.get(sequence, 0)
        assert (sequence in instants) == (sequence in model)
        assert instants.within(sequence, sequence + 9) == [s for s in sorted(model) if sequence <= s <= sequence + 9]
        assert instants.lowest(number) == sorted(model)[:number]
        assert instants.until(number) == [s for s in sorted(model) if model[s] <= number]
        assert instants.runs() == runs_of(model)
        assert [list(column) for column in instants.columns()] == [sorted(model), [model[s] for s in sorted(model)]]
    twin = Instants(instants)
    twin[99_999] = 1
    assert 99_999 not in instants
    assert twin != instants
    assert Instants(model) == instants


def test_what_is_missing_is_a_key_error() -> None:
    instants = Instants({1: 5})
    for sequence in (2, 5_000):
        with pytest.raises(KeyError):
            del instants[sequence]
        with pytest.raises(KeyError):
            instants[sequence]


def test_empty_ones_stay_apart() -> None:
    one, other = Instants(), Instants()
    one[1] = 5
    assert not other


@pytest.mark.parametrize(("apart", "bytes_each"), [(1, 9), (0, 1)])
def test_a_million_in_order_take_little_memory(monkeypatch: pytest.MonkeyPatch, apart: int, bytes_each: int) -> None:
    monkeypatch.setattr(module, "_DENSE", 100)
    instants = Instants()
    for first in range(0, 1 << 20, 1024):
        instants.update({sequence: (1 << 41) + apart * sequence for sequence in range(first, first + 1024)})
    assert len(instants) == 1 << 20
    assert sum(map(sys.getsizeof, instants._pages.values())) < bytes_each << 20


run_puts = st.tuples(st.integers(1, 1_500), st.integers(64, 300), st.sampled_from([1, 1 << 20, 1 << 33, 1 << 41]))


@given(st.lists(run_puts, min_size=1, max_size=6))
def test_neighbours_are_put_into_a_page_that_is_there(puts: list[tuple[int, int, int]]) -> None:
    instants, model = Instants(), dict[int, int]()
    for first, size, base in puts:
        before, known = instants.copy(), dict(model)
        some = [base + step for step in range(size)]
        instants.put_columns(range(first, first + size), some)
        model.update(enumerate(some, first))
        assert (instants, len(instants)) == (model, len(model))
        assert (before, len(before)) == (known, len(known))


@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 1_500), st.sampled_from([0, 1, 7, 1 << 40])), max_size=6),
    st.integers(1, 3_000),
    st.integers(0, 1_500),
)
def test_many_are_put_at_once(puts: list[tuple[int, int, int]], first: int, more: int) -> None:
    instants, copies, model = Instants(), list[tuple[Instants, dict[int, int]]](), dict[int, int]()
    for start, count, number in puts:
        copies.append((instants.copy(), dict(model)))
        values = {sequence: number * sequence or 5 for sequence in range(start, start + count)}
        instants.put_columns(list(values), list(values.values()) if number else 5)
        model |= values
    assert (instants, len(instants)) == (model, len(model))
    assert all(copy == before for copy, before in copies)
    found = sorted(s for s in model if first <= s <= first + more)
    sequences, instants_there = instants.span(first, first + more)
    assert list(sequences) == found
    assert list(each_of(instants_there, len(found))) == [model[s] for s in found]
    assert not isinstance(instants_there, int) or len(found) == more + 1


@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 1_500), st.sampled_from([0, 1, 1 << 40])), max_size=3),
    st.integers(1, 3_000),
    st.integers(0, 3_000),
    st.sampled_from([1, 3]),
)
def test_many_are_removed_at_once(puts: list[tuple[int, int, int]], first: int, more: int, step: int) -> None:
    instants, model = Instants(), dict[int, int]()
    for start, count, number in puts:
        sequences = range(start, start + count)
        instants.put_columns(sequences, [number * sequence or 5 for sequence in sequences])
        model |= {sequence: number * sequence or 5 for sequence in sequences}
    copy, before = instants.copy(), dict(model)
    instants.remove_all(gone := instants.within(first, first + more)[::step])
    for sequence in gone:
        del model[sequence]
    assert (instants, len(instants), list(instants)) == (model, len(model), sorted(model))
    assert (copy, len(copy)) == (before, len(before))
    instants[first] = model[first] = 9
    assert (instants, len(instants)) == (model, len(model))


@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 1_500), st.sampled_from([0, 1])), max_size=4),
    st.integers(1, 3_000),
    st.integers(1, 200),
)
def test_some_notes_reach_as_far_as_they_are(puts: list[tuple[int, int, int]], start: int, most: int) -> None:
    instants, model = Instants(), dict[int, int]()
    for first, count, number in puts:
        sequences = range(first, first + count)
        instants.put_columns(sequences, [number * sequence or 5 for sequence in sequences])
        model |= {sequence: number * sequence or 5 for sequence in sequences}
    there = [sequence for sequence in sorted(model) if sequence >= start]
    reach = instants.reach(start, most)
    if not there:
        assert reach is None
    else:
        assert reach is not None
        assert reach[0] == there[0]
        assert reach[1] == END or (reach[1] in model and len(instants.within(start, reach[1])) >= most)


@given(
    st.lists(st.tuples(st.integers(1, 6_000), st.integers(1, 1_500), st.sampled_from([0, 1, 1 << 40])), max_size=4),
    st.lists(st.integers(1, 6_000), max_size=4),
    st.lists(st.tuples(st.integers(0, 8_000), st.sampled_from([0, 2, 900, 4_000])), max_size=5),
)
def test_whatever_is_in_ranges_is_removed(
    puts: list[tuple[int, int, int]], lone: list[int], wanted: list[tuple[int, int]]
) -> None:
    model = dict.fromkeys(lone, 3)
    for start, count, number in puts:
        model |= {sequence: number * sequence or 5 for sequence in range(start, start + count)}
    instants = Instants(model.items())
    copy, before = instants.copy(), dict(model)
    ranges = runs_of({sequence for start, more in wanted for sequence in range(start, start + more + 1)})
    gone = {sequence for first, last in ranges for sequence in range(first, last + 1)} & model.keys()
    assert all(instants.meets(*run) == any(run[0] <= sequence <= run[1] for sequence in model) for run in ranges)
    changed = instants.remove_ranges(ranges)
    assert {sequence >> module.PAGE_SHIFT for sequence in changed} == {s >> module.PAGE_SHIFT for s in gone}
    assert len(changed) == len({sequence >> module.PAGE_SHIFT for sequence in changed})
    for sequence in gone:
        del model[sequence]
    assert (instants, len(instants), list(instants)) == (model, len(model), sorted(model))
    assert (copy, len(copy), list(copy)) == (before, len(before), sorted(before))
    instants[9] = model[9] = 9
    assert (instants, len(instants)) == (model, len(model))


def test_what_many_ranges_cost_is_what_is_there() -> None:
    def cost(count: int) -> int:
        ranges = [(first, first + 1) for first in range(0, 3 * count, 3)]
        some = Instants(dict.fromkeys((ranges[0][0], ranges[-1][0]), 5))
        return sum(instructions(lambda: some.remove_ranges(ranges)).values())

    assert cost(100_000) < 1.5 * cost(5_000)


def test_whole_pages_are_removed_without_a_look_at_what_is_in_them() -> None:
    def cost(pages: int) -> int:
        some = Instants()
        some.put_columns(range(1, pages * module.PAGE), 5)
        return sum(instructions(lambda: some.remove_ranges([(5, (pages - 1) * module.PAGE)])).values())

    assert cost(66) - cost(34) < 32 * 100
