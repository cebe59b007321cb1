"""Limits of domains on what clients have open at a time."""

import gc
from itertools import pairwise

import pytest

from vibemq.protocols.blazingmq.domain_use import ClientUse, DomainUse
from vibemq.protocols.blazingmq.errors import UnknownHere
from vibemq.protocols.blazingmq.queue_names import parse_uri
from vibemq.protocols.blazingmq.session import BlazingmqSession
from vibemq.protocols.blazingmq.settings import BlazingmqSettings, Domain
from vibemq.protocols.blazingmq.streams import OpenedQueue
from vibemq.testing.session_conformance import context


def queue(name: str, **limits: int) -> OpenedQueue:
    return OpenedQueue(0, parse_uri(f"bmq://d/{name}"), f"d..{name}", Domain(**limits))  # type: ignore[arg-type]


def test_producers_and_consumers_are_counted_for_each_queue_over_all_clients() -> None:
    everybody = DomainUse()
    one, other = ClientUse(everybody), ClientUse(everybody)
    orders, bills = (queue(name, max_producers=2, max_consumers=1) for name in ("orders", "bills"))
    for client in (one, other):
        client.check(orders, producers=1, consumers=0)
        client.count(orders, producers=1)
    with pytest.raises(UnknownHere, match=r"has 2 producers.* allows 2 \(max_producers\)"):
        one.check(orders, producers=1, consumers=0)
    one.check(orders, producers=0, consumers=1)
    one.count(orders, consumers=1)
    with pytest.raises(UnknownHere, match=r"has 1 consumers.* allows 1 \(max_consumers\)"):
        other.check(orders, producers=0, consumers=1)
    other.check(bills, producers=1, consumers=1)
    other.count(orders, producers=-1)
    one.check(orders, producers=1, consumers=0)


def test_queues_are_counted_while_anybody_has_them_open() -> None:
    everybody = DomainUse()
    one, other = ClientUse(everybody), ClientUse(everybody)
    one.count(queue("a"), producers=1)
    limited = queue("b", max_queues=1)
    with pytest.raises(UnknownHere, match=r"has 1 queues open.*\(max_queues\)"):
        other.check(limited, producers=1, consumers=0)
    other.check(queue("a", max_queues=1), producers=1, consumers=0)
    one.count(queue("a"), producers=-1)
    other.check(limited, producers=1, consumers=0)
    assert everybody.open_queues == 0


def test_what_a_client_had_is_free_when_it_has_left() -> None:
    everybody = DomainUse()
    one, other = ClientUse(everybody), ClientUse(everybody)
    one.count(queue("a"), producers=1, consumers=1)
    other.count(queue("b"), consumers=3)
    one.leave()
    assert everybody.open_queues == 1
    # What is said of it afterwards is not counted twice.
    one.count(queue("a"), producers=-1)
    assert everybody.open_queues == 1
    other.leave()
    other.leave()
    assert everybody.open_queues == 0


def test_what_a_client_had_is_free_when_its_session_is_let_go() -> None:
    everybody = DomainUse()
    settings = BlazingmqSettings(domains={"d": Domain()})
    session = BlazingmqSession(context(), settings, everybody)
    session._state.add_writers(queue("a"), 1)
    assert everybody.open_queues == 1
    for _ in session.let_go():
        pass
    assert everybody.open_queues == 0


def test_very_many_queues_are_given_back_in_steps() -> None:
    everybody = DomainUse()
    settings = BlazingmqSettings(domains={"d": Domain()})
    session = BlazingmqSession(context(), settings, everybody)
    state = session._state
    for number in range(5_000):
        opened = state.queues[number] = queue(str(number))
        state.add_writers(opened, 1)
    state.close()
    left = [(everybody.open_queues, len(state.queues)) for _ in session.let_go()]
    assert left[-1] == (0, 0)
    counted = [5_000, *(sum(each) - 5_000 for each in left if each[0])]
    assert all(before - after <= 1_000 for before, after in pairwise(counted)), "all of them in one step"
    freed = [queues for _, queues in left]
    assert all(before - after <= 1_000 for before, after in pairwise(freed)), "all of them in one step"


def test_the_collector_looks_at_no_table_of_queues() -> None:
    shared = DomainUse()
    use = ClientUse(shared)
    for number in range(5):
        use.count(queue(f"q{number}"), producers=1, consumers=1)
    assert not any(gc.is_tracked(table) for table in (shared._counts, shared._open, use._mine))
