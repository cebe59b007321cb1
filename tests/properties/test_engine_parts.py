"""The engine's run-keeping parts against plain dicts and lists."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.backoff import DELAY_MS_MAX, retry_delay_ms
from vibemq.engine.queue import delayed as later_module
from vibemq.engine.queue import unacked as held_module
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.ready import Ready
from vibemq.engine.queue.sizes import CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX, MARK_MS, SPAN_MS_MAX, Sizes
from vibemq.engine.queue.unacked import Unacked
from vibemq.model import instants as instants_module
from vibemq.model import runs as runs_module
from vibemq.model.instants import Instants
from vibemq.model.runs import RunSet, run_count

small = st.integers(1, 40)
runs = st.tuples(small, st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
steps = st.lists(st.tuples(st.sampled_from(["add", "take", "extend", "due"]), runs, st.integers(1, 20)), max_size=40)


def members(found: list[tuple[int, int]]) -> list[int]:
    return [s for first, last in found for s in range(first, last + 1)]


@pytest.fixture(params=["in one list", "in parts"], scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """What many stretches and runs are kept in, with parts of up to four as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in parts":
            patch.setattr(held_module, "STRETCHES_TOGETHER_MAX", 4)
            patch.setattr(runs_module, "RUNS_TOGETHER_MAX", 4)
        yield


@pytest.mark.usefixtures("kept")
@given(steps)
def test_held_is_a_dict_of_deadlines(actions: list[tuple[str, tuple[int, int], int]]) -> None:
    unacked, model = Unacked(), dict[int, int]()
    for action, (first, last), instant in actions:
        inside = [s for s in sorted(model) if first <= s <= last]
        if action == "add":
            if not inside:
                unacked.add(first, last, instant, 10 * (last - first + 1))
                model.update(dict.fromkeys(range(first, last + 1), instant))
        elif action == "take":
            assert members(unacked.take(first, last)) == inside
            for sequence in inside:
                del model[sequence]
        elif action == "extend":
            assert unacked.extend(first, last, instant) == len(inside)
            model.update(dict.fromkeys(inside, instant))
        else:
            overdue = members(unacked.due(instant))
            assert overdue == [s for s in sorted(model) if model[s] <= instant]
            for sequence in overdue:
                unacked.take(sequence, sequence)
                del model[sequence]
        assert members(unacked.runs()) == sorted(model)
        assert members(unacked.overlap(first, last)) == [s for s in sorted(model) if first <= s <= last]
        assert unacked.count == len(model)
        assert unacked.size == 10 * len(model)
        assert all(unacked.earliest <= deadline for deadline in model.values())


@pytest.mark.usefixtures("kept")
@given(
    st.lists(st.tuples(st.sampled_from(["add", "pop", "remove", "oldest"]), runs, st.integers(1, 9)), max_size=40),
    st.dictionaries(st.integers(0, 3).filter(lambda level: level != 1), st.sets(small), max_size=3),
)
def test_ready_is_a_list_sorted_by_level_and_sequence(
    actions: list[tuple[str, tuple[int, int], int]], priorities: dict[int, set[int]]
) -> None:
    level_of = {s: level for level, sequences in priorities.items() for s in sequences}
    levels = {level: RunSet((s, s) for s in level_of if level_of[s] == level) for level in priorities}
    ready, model = Ready(levels), set[int]()

    def key(sequence: int) -> tuple[int, int]:
        return -level_of.get(sequence, 1), sequence

    for action, (first, last), count in actions:
        inside = {s for s in model if first <= s <= last}
        if action == "add" and not inside:
            ready.add(first, last)
            model |= set(range(first, last + 1))
        elif action == "pop":
            expected = sorted(model, key=key)[:count]
            assert members(ready.pop(count)) == expected
            model -= set(expected)
        elif action == "remove":
            assert set(members(ready.remove(first, last))) == inside
            model -= inside
        elif action == "oldest":
            expected = sorted(model)[:count]
            assert members(ready.oldest(count)) == expected
            model -= set(expected)
        assert members(ready.runs()) == sorted(model)
        assert members(ready.smallest(count)) == sorted(model)[:count]
        assert members(ready.next(len(ready))) == sorted(model, key=key)
        assert ready.count == len(model)


@pytest.fixture(params=["few", "many"], scope="module")
def crowded(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is kept by instant and by sequence, with short stretches as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            patch.setattr(later_module, "TOGETHER_MAX", 2)
            patch.setattr(instants_module, "_DENSE", 4)
        yield


@pytest.mark.usefixtures("crowded")
@given(st.lists(st.tuples(st.sampled_from(["add", "fill", "pop", "remove"]), runs, st.integers(1, 30)), max_size=60))
def test_later_is_a_dict_of_instants(actions: list[tuple[str, tuple[int, int], int]]) -> None:
    delayed, model = Delayed(), dict[int, int]()
    for action, (first, last), instant in actions:
        if action == "add":
            delayed.add(first, instant)
            model[first] = instant
        elif action == "fill":
            fresh = {s: instant + s % 3 for s in range(first, last + 1) if s not in model}
            delayed.fill(Instants(fresh))
            model.update(fresh)
        elif action == "pop":
            assert sorted(delayed.pop_due(instant)) == sorted(s for s, due in model.items() if due <= instant)
            model = {s: due for s, due in model.items() if due > instant}
        else:
            assert sorted(delayed.remove(first, last)) == sorted(s for s in model if first <= s <= last)
            model = {s: due for s, due in model.items() if not first <= s <= last}
        assert members(delayed.runs()) == sorted(model)
        assert delayed.smallest(2) == sorted(model)[:2]
        assert delayed.lowest() == min(model, default=None)
        assert delayed.next_due() == (min(model.values()) if model else None)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3_000)), min_size=1, max_size=200), st.integers(0, 200))
def test_ages_of_a_slow_queue_are_known_to_within_a_second(publishes: list[tuple[int, int]], kept_from: int) -> None:
    sizes, at, sequence = Sizes(), 0, 1
    known: list[tuple[int, int, int]] = []
    for count, gap in publishes:
        at += gap
        sizes.add(sequence, sequence + count - 1, 10, at, SPAN_MS_MAX)
        known.append((sequence, sequence + count - 1, at))
        sequence += count
    if kept_from:
        sizes.forget(1, sequence, RunSet([(min(kept_from, sequence - 1), sequence)]))
        assert sizes.renumber(sequence)
    for first, last, published_at in known:
        for message in range(max(first, kept_from), last + 1):
            assert published_at - MARK_MS < sizes.published_at(message) <= published_at


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100_000), st.integers(0, 5_000)), max_size=30))
def test_sizes_of_whole_publishes_add_up_and_ages_never_flatter(publishes: list[tuple[int, int, int]]) -> None:
    sizes, at, sequence = Sizes(), 0, 1
    known: list[tuple[int, int, int]] = []
    for count, size, gap in publishes:
        at += gap
        sizes.add(sequence, sequence + count - 1, size, at, 1_000)
        known.append((sequence, sequence + count - 1, at))
        sequence += count
    assert sizes.between(1, sequence) == sizes.total == sum(size for _, size, _ in publishes)
    for first, last, published_at in known:
        assert published_at - 1_000 <= sizes.published_at(first) <= published_at
        assert sizes.last_at(published_at - 1) < first or published_at == 0
        assert sizes.between(first, first) + sizes.between(first + 1, last) == sizes.between(first, last)


@given(st.sets(small), st.integers(1, 40), st.lists(small, max_size=4), st.integers(1, 5))
def test_keeping_sizes_of_some_messages_keeps_theirs(alive: set[int], step: int, cuts: list[int], most: int) -> None:
    """In stretches, with a new message behind each, and with the numbers behind them put right bit by bit."""
    sizes, wanted, end = Sizes(), RunSet((s, s) for s in alive), 40

    def add(sequence: int) -> None:
        sizes.add(sequence, sequence, 10 * sequence, sequence * 10_000 * step, 0)

    def check() -> None:
        assert all(sizes.between(s, s) == 10 * s for s in [*alive, *range(41, end + 1)])
        assert sizes.between(1, end) == sizes.total
        assert sizes.between(41, end) == sum(10 * s for s in range(41, end + 1))

    for sequence in range(1, 41):
        add(sequence)
    first = 1
    for last in [*sorted(set(cuts)), 40]:
        sizes.forget(first, last, wanted)
        check()
        first = last + 1
        end += 1
        add(end)
        check()
    while not sizes.renumber(most):
        check()
    check()
    assert len(sizes) <= len(alive) + end - 39


def test_neighbouring_publishes_share_chunks() -> None:
    sizes = Sizes()
    for sequence in range(1, 10_001):
        sizes.add(sequence, sequence, 100, 0, 1_000)
    assert len(sizes) == -(-10_000 // CHUNK_MESSAGES_MAX)
    big = Sizes()
    for sequence in range(1, 11):
        big.add(sequence, sequence, CHUNK_BYTES_MAX // 2, 0, 1_000)
    assert len(big) == 5


@given(st.integers(1, 200), st.integers(1, 10_000), st.integers(0, 200_000), st.floats(0, 1, exclude_max=True))
def test_a_retry_waits_between_half_and_all_of_its_delay(failed: int, base: int, cap: int, jitter: float) -> None:
    delay = retry_delay_ms(failed, base_ms=base, max_ms=cap, jitter=jitter)
    full = min(base << min(failed - 1, 40), cap or DELAY_MS_MAX, DELAY_MS_MAX)
    assert full / 2 <= delay <= full


@given(st.lists(runs, max_size=20))
def test_weighing_counts_every_held_message(added: list[tuple[int, int]]) -> None:
    unacked = Unacked()
    for first, last in added:
        if not unacked.take(first, last):
            unacked.add(first, last, 1, 0)
    unacked.weigh(lambda first, last: 7 * (last - first + 1))
    assert unacked.size == 7 * run_count(unacked.runs())


def test_no_list_of_a_scattered_hold_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement in a long list moves all that stands behind its place."""
    monkeypatch.setattr(held_module, "STRETCHES_TOGETHER_MAX", 1_000)
    unacked = Unacked()
    unacked.add(1, 80_000, 5, 80_000)
    for sequence in range(2, 80_000, 2):
        unacked.take(sequence, sequence)
    assert unacked.count == unacked.size == 40_001
    assert max(len(part._firsts) for part in unacked._parts or []) <= held_module.STRETCHES_TOGETHER_MAX
    assert len(unacked._firsts) < 100
    assert run_count(unacked.take(1, 80_000)) == 40_001
    assert (unacked.count, unacked.size, unacked.runs()) == (0, 0, [])
