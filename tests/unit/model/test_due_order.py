"""A stretch of the order is a sorted list, near and far."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.due_order import Entry, Stretch

NUMBERS = st.one_of(st.integers(1, 40), st.integers(1, 1 << 62))
ENTRIES = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40, unique=True)


def same(stretch: Stretch, model: list[Entry]) -> None:
    assert (len(stretch), stretch.entries(len(model) + 1)) == (len(model), model)
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
        other = stretch.split()
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
