"""Messages published with a delay, and their turn among the others."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.queue.ready import Levels
from vibemq.engine.queue.scheduled import Scheduled, in_turn
from vibemq.engine.queue.sizes import Sizes
from vibemq.model.instants import Instants
from vibemq.model.runs import RunSet, runs_of

LEVELS: Levels = {3: RunSet([(2, 2), (5, 6)])}


def filled(values: dict[int, int]) -> Scheduled:
    made = Scheduled(Instants(values | {6: 5}), LEVELS)
    made.fill(Instants(values))
    return made


def test_each_level_has_its_own_order() -> None:
    scheduled = filled({1: 30, 2: 20, 3: 10, 5: 40})
    scheduled.add(6)
    scheduled.advance(30)
    assert sorted(scheduled.fallen_levels()) == [1, 3]
    level = scheduled.level(3)
    assert level is not None
    assert level.front(9) == [(5, 6, 6), (20, 2, 2)]
    assert (len(scheduled), scheduled.fallen, scheduled.later, scheduled.next_later()) == (5, 4, 1, 40)
    assert scheduled.runs() == [(1, 1), (2, 2), (3, 3), (5, 6)]
    assert scheduled.smallest(3, 2) == [2, 3, 5]
    assert scheduled.within(2, 5) == [2, 3, 5]
    scheduled.pop_front(3, 2)
    assert (scheduled.lowest(), scheduled.due_at(2), scheduled.due_at(3)) == (1, 0, 10)
    assert scheduled.remove(1, 9) == [1, 3, 5]
    assert not scheduled


@given(
    st.dictionaries(st.integers(1, 60), st.integers(1, 40)),
    st.lists(
        st.one_of(
            st.tuples(st.just("advance"), st.integers(0, 40), st.just(0)),
            st.tuples(st.just("remove"), st.integers(1, 60), st.integers(0, 20)),
            st.tuples(st.just("add"), st.integers(61, 90), st.integers(1, 40)),
            st.tuples(st.just("pop"), st.integers(0, 9), st.just(0)),
        ),
        max_size=30,
    ),
)
def test_it_counts_what_has_fallen_due(values: dict[int, int], actions: list[tuple[str, int, int]]) -> None:
    known = Instants(values)
    scheduled, model, horizon = Scheduled(known), dict(values), 0
    scheduled.fill(Instants(values))
    for action, first, more in actions:
        match action:
            case "advance":
                horizon = max(horizon, first)
            case "remove":
                gone = sorted(s for s in model if first <= s <= first + more)
                assert scheduled.remove(first, first + more) == gone
                model = {s: due for s, due in model.items() if s not in gone}
            case "add":
                model.setdefault(first, more)
                known[first] = model[first]
                scheduled.add(first)
            case "pop" if scheduled.fallen:
                level = scheduled.level(1)
                assert level is not None
                for due, sequence, _ in level.front(first):
                    assert model.pop(sequence) == due
                scheduled.pop_front(1, first)
        scheduled.advance(horizon)
        fallen = sorted((due, s) for s, due in model.items() if due <= horizon)
        level = scheduled.level(1)
        assert ([] if level is None else level.front(99)) == [(due, s, s) for due, s in fallen]
        assert (scheduled.fallen, len(scheduled)) == (len(fallen), len(model))
        later = sorted(due for due in model.values() if due > horizon)
        assert scheduled.next_later() == (later[0] if later else scheduled.next_from(10**9))
        assert scheduled.runs() == runs_of(model)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.sets(st.integers(1, 30)),
    st.dictionaries(st.integers(31, 50), st.integers(1, 60)),
    st.integers(0, 60),
)
def test_two_orders_meet_where_the_instants_do(
    steps: list[int], missing: set[int], due: dict[int, int], count: int
) -> None:
    sizes, published, now = Sizes(), {}, 1
    for sequence, step in enumerate(steps, 1):
        before, now = now, now + step
        sizes.add(sequence, sequence, 1, now, 60_000, apart=any(before <= at < now for at in due.values()))
        published[sequence] = now
    plain = runs_of(published.keys() - missing)
    fallen = sorted((at, sequence) for sequence, at in due.items())
    runs, taken = in_turn(plain, as_runs(fallen, count), sizes, count)
    keys = [(published[s], 0, s) for s in published.keys() - missing] + [(at, 1, s) for at, s in fallen]
    wanted = [s for _, _, s in sorted(keys)[:count]]
    assert [s for first, last in runs for s in range(first, last + 1)] == wanted
    assert taken == sum(s in due for s in wanted)


def as_runs(fallen: list[tuple[int, int]], count: int) -> list[tuple[int, int, int]]:
    """Neighbours that fall due together as one, as far as `count` reaches."""
    found: list[tuple[int, int, int]] = []
    for due, sequence in fallen[:count]:
        if found and (found[-1][0], found[-1][2]) == (due, sequence - 1):
            found[-1] = (due, found[-1][1], sequence)
        else:
            found.append((due, sequence, sequence))
    return found
