"""The tail that groups share: whoever looks has seen everything, and a publish looks at nobody."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine import Batch
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.tail import GAPS_MAX, Tail
from vibemq.model import commands as ask
from vibemq.model.effects import Deliver, Outcome
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Overflow


class Reader:
    """Follows a tail as a group does."""

    def __init__(self, tail: "Tail[Reader]", *, attended: bool) -> None:
        self.tail, self.seen = tail, tail.last
        self.got: list[int] = []
        self.expected: list[int] = []
        tail.add(self, attended=attended)

    def catch_up(self) -> None:
        self.got += sequences(self.tail.since(self.seen))
        self.seen = self.tail.last


moves = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("join"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("attend"), st.integers(0, 9), st.integers(0, 1)),
        st.tuples(st.just("look"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("call"), st.integers(1, 4), st.just(0)),
    ),
    max_size=60,
)


@given(moves)
def test_whoever_looks_has_seen_everything_once_and_everybody_is_called(moves: list[tuple[str, int, int]]) -> None:
    tail: Tail[Reader] = Tail()
    readers: list[Reader] = []
    attended: set[Reader] = set()
    for what, first, second in moves:
        reader = readers[first % len(readers)] if readers else None
        if what == "show":
            start = tail.last + 1 + first
            tail.show(start, start + second - 1, units=first)
            for each in readers:
                each.expected += range(start, start + second)
        elif what == "join":
            readers.append(Reader(tail, attended=bool(first)))
            attended |= {readers[-1]} if first else set()
        elif what == "call":
            called, cost = tail.call(first)
            assert len(called) <= first
            assert cost >= len(called)
            assert all(each.got == each.expected for each in called)
        elif reader is None:
            continue
        elif what == "attend":
            tail.move(reader, attended=bool(second))
            (attended.add if second else attended.discard)(reader)
        elif what == "look":
            reader.catch_up()
            assert reader.got == reader.expected
        else:
            tail.drop(reader)
            readers.remove(reader)
            attended.discard(reader)
    while tail.is_ahead:
        tail.call(3)
    assert all(reader.got == reader.expected for reader in attended)
    for reader in readers:
        reader.catch_up()
        assert reader.got == reader.expected


def test_gaps_that_everybody_has_seen_are_forgotten_though_nobody_looks() -> None:
    tail: Tail[Reader] = Tail()
    readers = [Reader(tail, attended=number % 2 == 0) for number in range(10)]
    for sequence in range(1, 20 * GAPS_MAX, 2):
        tail.show(sequence, sequence)
        while tail.is_ahead:
            tail.call(4)
        assert tail.run_count <= GAPS_MAX + 1
    for reader in readers:
        reader.catch_up()
        assert reader.got == list(range(1, 20 * GAPS_MAX, 2))


# -- in the engine ------------------------------------------------------------------------------------------------


def with_groups(groups: int, *, consumers: bool = True) -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for number in range(groups):
        driver.handle(ask.Subscribe(number, None, 1, "q", group=f"g{number}", capacity_messages=100_000))
        if not consumers:
            driver.handle(ask.CloseSession(number, clean=True))
    return driver


def cost(work: Callable[[], object]) -> int:
    return sum(instructions(work).values())


def costs_of_a_publish(groups: int, extra: MessageExtra | None = None, *, consumers: bool = True) -> list[int]:
    """Of each step, until everybody has been told."""
    driver = with_groups(groups, consumers=consumers)
    engine, now = driver.engine, driver.now
    batch = Batch([ask.Publish(0, None, "q", rows_of(1), {0: extra} if extra else None)])
    outcomes: list[Outcome] = []
    costs = [cost(lambda: outcomes.append(engine.advance(batch, now)))]
    while outcomes or ((at := engine.next_deadline()) is not None and at <= now):
        if not outcomes:
            costs.append(cost(lambda: outcomes.append(engine.tick(now))))
        elif ticket := outcomes.pop().ticket:
            costs.append(cost(lambda ticket=ticket: outcomes.append(engine.committed(ticket, now))))
    assert not engine.violations()
    return costs


def test_no_step_of_a_publish_costs_more_with_more_groups() -> None:
    few, many = (costs_of_a_publish(groups) for groups in (2 * STEP_UNITS, 8 * STEP_UNITS))
    assert max(many) < 1.2 * max(few)
    assert sum(many) > 2 * sum(few)


def test_no_step_of_a_delayed_publish_costs_more_with_more_groups() -> None:
    later = MessageExtra(deliver_at=1 << 40)
    few, many = (costs_of_a_publish(groups, later) for groups in (2 * STEP_UNITS, 8 * STEP_UNITS))
    assert max(many) < 1.2 * max(few)


def test_a_publish_for_groups_without_consumers_looks_at_none_of_them() -> None:
    few, many = (costs_of_a_publish(groups, consumers=False) for groups in (10, 300))
    assert sum(many) < 1.1 * sum(few)


def test_delayed_messages_leave_no_long_work_for_the_next_who_looks() -> None:
    driver = with_groups(3, consumers=False)
    driver.publish(6_000, deliver_at=1 << 40)
    driver.advance(0)
    group = driver.engine._state.queues["q"].groups["g1"]
    assert cost(lambda: group.waiting) < 200
    assert group.waiting == 6_000


def test_whatever_becomes_of_groups_that_are_yet_to_be_called_each_message_comes_once() -> None:
    groups = 20 * STEP_UNITS
    driver = with_groups(groups)

    def do(command: ask.Command) -> None:
        driver.submit(driver.engine.advance(Batch([command]), driver.now))

    # Those that were made last are called last: they have seen nothing when this befalls them.
    last = groups - 1
    driver.hold = True
    do(ask.Publish(0, None, "q", rows_of(2)))
    driver.keep(1)
    do(ask.DeleteGroup(0, None, "q", f"g{last}"))
    do(ask.CloseSession(last - 1, clean=True))
    do(ask.SeekGroup(0, None, "q", f"g{last - 2}", ask.StartAt.NOW))
    do(ask.Subscribe(9_000, None, 1, "q", group="new", capacity_messages=100_000))
    do(ask.Publish(0, None, "q", rows_of(1)))
    driver.keep(len(driver.waiting))
    do(ask.Subscribe(9_001, None, 1, "q", group=f"g{last - 1}", capacity_messages=100_000))
    do(ask.Unsubscribe(last - 3, None, 1))
    do(ask.Subscribe(9_002, None, 1, "q", group=f"g{last - 3}", capacity_messages=100_000))
    assert last - 4 not in {deliver.session for deliver in driver.delivers()}
    driver.hold = False
    driver.keep()
    driver.advance(0)
    driver.check()
    received = driver.take()
    assert received.pop(9_000) == [3]
    assert received.pop(9_001) == received.pop(9_002) == [1, 2, 3]
    assert received == {session: [1, 2, 3] for session in range(last - 3)}


def test_messages_that_overflow_into_dead_letters_are_shown_to_nobody() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, max_messages=2, overflow=Overflow.REDIRECT_TO_DLQ)
    for session in (1, 2):
        driver.subscribe(session, capacity_messages=100)
    driver.publish(5)
    driver.publish(1)
    driver.check()
    assert driver.take() == {1: [1, 2, 6], 2: [1, 2, 6]}


def test_what_has_expired_on_its_way_is_gone_though_no_group_is_called() -> None:
    driver = with_groups(2, consumers=False)
    driver.hold = True
    driver.handle(ask.Publish(0, None, "q", rows_of(2), {0: MessageExtra(expires_at=driver.now + 5)}))
    driver.advance(10)
    driver.keep()
    assert (driver.info().ready, driver.info().counters["expired"]) == (1, 2)


def test_a_queue_that_is_deleted_calls_nobody() -> None:
    driver = with_groups(2 * STEP_UNITS)
    driver.submit(driver.engine.advance(Batch([ask.Publish(0, None, "q", rows_of(1))]), driver.now))
    before = len(driver.effects)
    driver.handle(ask.DeleteQueue(9, None, "q"))
    assert driver.engine.next_deadline() is None
    assert not [effect for effect in driver.effects[before:] if isinstance(effect, Deliver)]
