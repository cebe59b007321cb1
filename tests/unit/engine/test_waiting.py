"""The table of requests that wait for a reply."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.waiting import Places, RequestTable, Waiting
from vibemq.errors import RequestFailed
from vibemq.model.commands import Requester


def add(table: RequestTable, address: str, due_at: int, timeout_ms: int, session: int = 1) -> Waiting:
    waiting = Waiting(session, Requester(address, address, timeout_ms), "q", due_at, table, Places(), 1)
    table.add(waiting)
    return waiting


ACTIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5_000), st.integers(1, 3)), max_size=60)


@given(ACTIONS)
def test_deadlines_are_late_by_a_little_and_never_early(actions: list[tuple[int, int, int]]) -> None:
    table, now, waiting, number = RequestTable(), 1_000_000, dict[str, tuple[int, int]](), 0
    for action, amount, session in actions:
        if action <= 1:
            number += 1
            add(table, str(number), now + amount, amount, session)
            waiting[str(number)] = (now + amount, amount)
        elif action == 2:
            now += amount
            for taken in table.take_due(now, 1_000):
                due_at, _ = waiting.pop(taken.requester.address)
                assert due_at <= now
            assert all(now < due_at + timeout // 64 + 1 for due_at, timeout in waiting.values())
        else:
            for taken in table.take_of(session, amount):
                del waiting[taken.requester.address]
        assert len(table) == len(waiting)
        at = table.next_due()
        assert (at is None) == (not waiting)
        for address, (due_at, _) in waiting.items():
            assert (table.find(address, now) is not None) == (now < due_at)


def test_it_is_as_large_as_what_waits_however_long_the_timeouts_are() -> None:
    table, day = RequestTable(), 86_400_000
    for number in range(20_000):
        table.forget(add(table, str(number), 1_000 * number + day, day))
    add(table, "last", 1, day)
    assert len(table._buckets) <= 80
    assert len(table) == 1


def test_what_has_ended_ends_once() -> None:
    table = RequestTable()
    waiting = add(table, "a", 10, 10)
    waiting.fail(RequestFailed("gone"))
    waiting.fail(RequestFailed("gone twice"))
    assert [str(error) for _, error in table.failed] == ["gone"]
    assert not table.forget(waiting)
