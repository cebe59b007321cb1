"""A stretch of the order is a sorted list, near and far."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.queue.timing.due_order import Entry, SameDue, Stretch, neighbours

NUMBERS = st.one_of(st.integers(1, 40), st.integers(1, 1 << 62))
ENTRIES = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40, unique=True)


def same(stretch: Stretch, model: list[Entry]) -> None:
    assert (len(stretch), stretch.runs(len(model) + 1)) == (len(model), [(due, s, s) for due, s in model])
    assert (stretch.first_due, stretch.last_due, stretch.last) == (model[0][0], model[-1][0], model[-1])


@given(ENTRIES, NUMBERS, st.integers(0, 40))
def test_it_is_in_order(entries: list[Entry], instant: int, cut: int) -> None:
    stretch = Stretch(*entries[0])
    for due, sequence in entries:
        stretch.insert(due, sequence)
    model = sorted(entries)
    same(stretch, model)
    assert all(stretch.place_of(*entry) == place for place, entry in enumerate(model))
    assert stretch.place_after(instant) == sum(due <= instant for due, _ in model)
    if model[-1][0] >= instant:
        assert stretch.due_from(instant) == min(due for due, _ in model if due >= instant)
    if len(model) > 1:
        other = stretch.split(len(model) // 2)
        same(stretch, model[: len(model) // 2])
        same(other, model[len(model) // 2 :])
        model, stretch = model[len(model) // 2 :], other
    stretch.remove(0, cut)
    assert stretch.sequences(0, 99) == [sequence for _, sequence in model[cut:]]


@given(ENTRIES)
def test_many_are_put_behind_the_others_at_once(entries: list[Entry]) -> None:
    model = sorted(entries)
    stretch = Stretch(*model[0])
    stretch.append(*model[0])
    if rest := model[1:]:
        stretch.extend(array("Q", [due for due, _ in rest]), array("Q", [sequence for _, sequence in rest]))
    same(stretch, model)


@given(st.integers(1, 20), st.integers(1, 90), st.integers(0, 9), st.integers(0, 99), st.integers(1, 99))
def test_a_run_is_a_stretch_of_the_same(due: int, count: int, near: int, first: int, last: int) -> None:
    run = SameDue(due, 100, 99 + count)
    stretch = run.stretch()
    assert (len(run), run.first_due, run.last_due, run.last) == (len(stretch), due, due, stretch.last)
    assert [run.place_after(at) for at in range(22)] == [stretch.place_after(at) for at in range(22)]
    assert [run.place_of(due, s) for s in range(100, 100 + count)] == list(range(count))
    assert (run.place_of(due - 1, 150), run.place_of(due + 1, 50), run.place_of(due, 50)) == (0, count, 0)
    assert list(run.sequences(first, last)) == stretch.sequences(first, last)
    assert run.runs(last) == [(due, 100, 99 + min(count, last))]
    place = first % count
    found = [s for s in range(100 + place, 100 + count + 5) if s != 100 + last]
    if found and found[0] == 100 + place:
        at = found.index(100 + place)
        assert run.following(place, found, at) == stretch.following(place, found, at)
        assert neighbours(found, at, near + 1) == min(near + 1, len(found), last - place if last > place else 999)
    if place:
        other = run.split(place)
        assert (list(run.sequences(0, 99)), list(other.sequences(0, 99))) == (
            stretch.sequences(0, place),
            stretch.sequences(place, 99),
        )
        other.remove(0, near % len(other))
        assert list(other.sequences(0, 99)) == stretch.sequences(place + near % (count - place), 99)
        if len(run) > 1:
            run.remove(1, len(run))
            assert list(run.sequences(0, 99)) == [100]
