"""Some of the sequences of another one behave as if they had instants of their own."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.instants import Instants
from vibemq.model.members import InstantsOfSome
from vibemq.model.runs import RunSet, runs_of

SEQUENCES = st.integers(1, 3_000)
RUNS = st.lists(st.tuples(SEQUENCES, st.integers(0, 1_500)), max_size=3)
KNOWN = Instants((sequence, 10 * sequence) for sequence in range(1, 6_000))


@given(RUNS, st.lists(st.tuples(st.booleans(), SEQUENCES), max_size=40), SEQUENCES, st.integers(0, 50))
def test_they_are_instants(
    runs: list[tuple[int, int]], actions: list[tuple[bool, int]], start: int, count: int
) -> None:
    members = RunSet((first, first + more) for first, more in runs)
    some, model = InstantsOfSome(KNOWN, members.runs()), Instants((s, KNOWN[s]) for s in members)
    for put, sequence in actions:
        if put:
            assert some.put(sequence, KNOWN[sequence]) == model.put(sequence, KNOWN[sequence])
        elif sequence in model:
            del some[sequence], model[sequence]
        assert (sequence in some, some.get(sequence)) == (sequence in model, model.get(sequence))
    some.remove_all(gone := some.within(start, start + 900)[:: 1 + count % 2])
    model.remove_all(gone)
    assert (len(some), some.runs()) == (len(model), model.runs())
    assert some.within(start, start + 1_100) == model.within(start, start + 1_100)
    runs_there = some.runs_within(start, start + 1_100)
    assert [s for first, last in runs_there for s in range(first, last + 1)] == model.within(start, start + 1_100)
    assert model.runs_within(start, start + 1_100) == runs_of(model.within(start, start + 1_100))
    assert (some.within(start, start), some.lowest(count, start)) == (
        model.within(start, start),
        model.lowest(count, start),
    )
    if model:
        assert some.first == model.first
