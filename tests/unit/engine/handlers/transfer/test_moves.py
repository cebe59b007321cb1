"""Messages that are moved into another queue are in exactly one of the two, whatever fails in between."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.collecting import collect
from vibemq.errors import Blocked, InvalidOptions, QueueNotFound, StorageFull, WrongIncarnation
from vibemq.model.commands import (
    DeleteQueue,
    JoinCursor,
    MoveMessages,
    Pressure,
    Publish,
    SeekGroup,
    SetPressure,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Moved
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, Overflow, Retention
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("a")
    driver.create("b")
    return driver


def publish(driver: Driver, *names: str, queue: str = "a", **extra: Any) -> Any:
    extras = {index: MessageExtra(**extra) for index in range(len(names))} if extra else None
    return driver.ask(Publish(9, None, queue, Rows.of([name.encode() for name in names]), extras))


def rows_by_place(driver: Driver) -> dict[tuple[int, int], str]:
    """What was stored, by queue and sequence."""
    return {
        (record.queue_id, sequence): row.decode()
        for record in driver.records_of(MessagesAdded)
        for sequence, row in enumerate(record.rows, record.first_sequence)
    }


def names_in(driver: Driver, name: str) -> list[str]:
    """What some group of the queue has not settled."""
    queue = driver.engine._state.queues[name]
    rows = rows_by_place(driver)
    return [rows[queue.queue_id, s] for group in queue.groups.values() for s in group.unsettled_set()]


def command(driver: Driver, sequences: list[int], source: str = "a", target: str = "b") -> MoveMessages:
    """As the server makes it, from what it has read."""
    known = driver.engine.readers.queue(source)
    queue_id = known.queue_id
    rows = rows_by_place(driver)
    stored = [sequence for sequence in sequences if (queue_id, sequence) in rows]
    joined = Rows.of([rows[queue_id, sequence].encode() for sequence in stored])
    return MoveMessages(1, None, source, known.incarnation, target, stored, [driver.now] * len(stored), joined)


def move(driver: Driver, *sequences: int, source: str = "a", target: str = "b") -> Any:
    return driver.ask(command(driver, list(sequences), source, target))


def test_messages_leave_one_queue_and_enter_the_other(driver: Driver) -> None:
    publish(driver, "x", "y", "z")
    assert move(driver, 1, 3) == Moved(2, 0)
    assert (names_in(driver, "a"), names_in(driver, "b")) == (["y"], ["x", "z"])
    assert move(driver, 1, 2, 3) == Moved(1, 0)
    driver.check()
    driver.restart()
    assert (names_in(driver, "a"), names_in(driver, "b")) == ([], ["x", "z", "y"])
    driver.check()


def test_what_a_consumer_holds_stays_with_it(driver: Driver) -> None:
    driver.subscribe(1, "a", capacity_messages=2)
    publish(driver, "x", "y", "z")
    assert move(driver, 1, 2, 3) == Moved(1, 0)
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=0)
    driver.settle(1, 2)
    assert names_in(driver, "a") == ["x"]
    driver.check()


def test_delays_expiries_and_waits_for_a_retry_are_kept(driver: Driver) -> None:
    driver.subscribe(1, "a")
    publish(driver, "failed")
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=500)
    publish(driver, "delayed", deliver_at=driver.now + 1_000)
    driver.close(1, clean=True)
    driver.take()
    publish(driver, "short", expires_at=driver.now + 100)
    assert move(driver, 1, 2, 3) == Moved(3, 0)
    driver.restart()
    driver.subscribe(2, "b")
    assert driver.take() == {2: [3]}
    driver.settle(2, 3, verb=Settlement.RELEASE)
    driver.close(2, clean=True)
    driver.take()
    driver.advance(400)
    assert driver.info("b").dead == 1
    driver.subscribe(3, "b")
    driver.advance(100)
    assert driver.take() == {3: [1]}
    driver.advance(500)
    assert driver.take() == {3: [2]}
    driver.check()


def test_the_time_to_live_of_the_source_goes_on() -> None:
    driver = Driver()
    driver.create("a", message_ttl_ms=1_000)
    driver.create("b")
    publish(driver, "x")
    moving = command(driver, [1])
    driver.advance(600)
    assert driver.ask(moving) == Moved(1, 0)
    driver.advance(399)
    assert driver.info("b").ready == 1
    driver.advance(1)
    assert (driver.info("b").ready, driver.info("b").dead) == (0, 1)


def test_priorities_are_kept() -> None:
    driver = Driver()
    for name in ("a", "b"):
        driver.create(name, mode=DeliveryMode.PRIORITY_BASED)
    publish(driver, "normal")
    publish(driver, "high", priority=3)
    move(driver, 1, 2)
    driver.subscribe(1, "b")
    assert driver.take() == {1: [2, 1]}


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.DROP_OLDEST, Overflow.BLOCK_PUBLISHER])
def test_a_full_target_takes_what_fits_and_drops_nothing(overflow: Overflow) -> None:
    driver = Driver()
    driver.create("a")
    driver.create("b", max_messages=2, overflow=overflow)
    publish(driver, *"wxyz")
    assert move(driver, 1, 2, 3, 4) == Moved(2, 2)
    assert move(driver, 3, 4) == Moved(0, 2)
    assert (names_in(driver, "a"), names_in(driver, "b")) == (["y", "z"], ["w", "x"])
    driver.check()


def test_a_broker_short_of_memory_moves_nothing(driver: Driver) -> None:
    publish(driver, "x")
    driver.handle(SetPressure(Pressure.BLOCKING))
    assert isinstance(move(driver, 1), Blocked)
    assert names_in(driver, "a") == ["x"]


ROUTES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "fan-out": ({"mode": DeliveryMode.FAN_OUT_WITH_ACK}, {}, "is a fan-out"),
    "log": ({"retention": Retention.LOG}, {}, "keeps a log"),
    "transient target": ({}, {"durability": Durability.TRANSIENT}, "is transient and loses"),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_promise_that_cannot_be_kept_is_refused(route: str) -> None:
    driver = Driver()
    source, target, reason = ROUTES[route]
    driver.create("a", **source)
    driver.create("b", **target)
    publish(driver, "x")
    refused = move(driver, 1)
    assert isinstance(refused, InvalidOptions)
    assert reason in str(refused)
    with pytest.raises(InvalidOptions, match=reason):
        driver.engine.readers.movable("a", "b", 0, 9, 9)
    assert names_in(driver, "a") == ["x"]


def test_queues_that_cannot_be_used_together_are_refused(driver: Driver) -> None:
    publish(driver, "x")
    assert "is the source and the target" in str(move(driver, 1, target="a"))
    assert isinstance(move(driver, 1, target="missing"), QueueNotFound)
    driver.ask(JoinCursor(1, None, "a", "reader"))
    assert "is also read by group 'reader'" in str(move(driver, 1))
    assert names_in(driver, "a") == ["x", "x"]


def test_a_queue_that_was_made_anew_keeps_its_messages(driver: Driver) -> None:
    publish(driver, "old 1", "old 2")
    read_before = command(driver, [1, 2])
    driver.ask(DeleteQueue(1, None, "a"))
    driver.create("a")
    publish(driver, "new 1", "new 2")
    assert isinstance(driver.ask(read_before), WrongIncarnation)
    assert (names_in(driver, "a"), names_in(driver, "b")) == (["new 1", "new 2"], [])
    driver.check()


def test_a_transient_source_moves_into_a_durable_queue() -> None:
    driver = Driver()
    driver.create("a", durability=Durability.TRANSIENT)
    driver.create("b")
    publish(driver, "x", "y")
    assert move(driver, 1) == Moved(1, 0)
    driver.restart()
    assert (names_in(driver, "a"), names_in(driver, "b")) == ([], ["x"])


@pytest.mark.parametrize("durability", [Durability.STRONG, Durability.WEAK, Durability.ASYNC])
def test_a_move_that_the_disk_refuses_did_not_happen(durability: Durability) -> None:
    driver = Driver()
    driver.create("a")
    driver.create("b", durability=durability)
    driver.subscribe(1, "a")
    publish(driver, "failed")
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=500)
    driver.close(1, clean=True)
    publish(driver, "plain")
    driver.hold = True
    moving = command(driver, [1, 2])
    moving.token = "moving"
    driver.handle(moving)
    assert driver.info("a").ready + driver.info("a").delayed == 0
    driver.hold = False
    driver.refuse()
    assert isinstance(driver.answer("moving"), StorageFull)
    driver.tick()
    assert (names_in(driver, "a"), names_in(driver, "b")) == (["failed", "plain"], [])
    driver.check()
    driver.take()
    driver.subscribe(2, "a")
    assert driver.take() == {2: [2]}
    driver.advance(500)
    assert driver.delivers()[-1].acquired == {1: 2}
    assert driver.take() == {2: [1]}


def test_a_move_that_the_disk_refuses_keeps_what_is_noted_of_its_messages(driver: Driver) -> None:
    driver.create("c", mode=DeliveryMode.PRIORITY_BASED, dead_letter=False)
    publish(driver, *["urgent"] * 600, queue="c", priority=3, expires_at=driver.now + 1_000)
    driver.hold = True
    driver.handle(command(driver, list(range(1, 501)), source="c"))
    driver.hold = False
    queue = driver.engine._state.queues["c"]
    for _ in range(50):
        collect(queue)
    driver.refuse()
    driver.tick()
    publish(driver, "plain", queue="c")
    driver.subscribe(1, "c", capacity_messages=1)
    assert driver.take() == {1: [1]}
    driver.advance(1_000)
    assert driver.info("c").ready == 1, "the others have expired"
    driver.check()


@pytest.mark.parametrize("dead_letter", [True, False])
def test_what_expires_during_a_move_that_the_disk_refuses_is_gone(*, dead_letter: bool) -> None:
    driver = Driver()
    driver.create("a", dead_letter=dead_letter, message_ttl_ms=5_000)
    driver.create("b")
    publish(driver, "own", expires_at=driver.now + 1_000)
    publish(driver, "by the queue")
    driver.hold = True
    driver.handle(command(driver, [1, 2]))
    driver.advance(6_000)
    driver.hold = False
    driver.refuse()
    driver.advance(100)
    assert (names_in(driver, "a"), names_in(driver, "b")) == ([], [])
    assert driver.info("a").dead == 2 * dead_letter
    driver.check()
    driver.restart()
    assert names_in(driver, "a") == []


@pytest.mark.parametrize(
    ("start", "sequence", "kept"),
    [(StartAt.BEGINNING, 0, ["a", "b", "c", "d"]), (StartAt.SEQUENCE, 3, ["c", "d"]), (StartAt.NOW, 0, [])],
)
@pytest.mark.parametrize("moved", [[1, 4], [2, 3], [1, 2, 3, 4]])
def test_a_seek_during_a_move_that_the_disk_refuses_sees_the_messages(
    driver: Driver, moved: list[int], start: StartAt, sequence: int, kept: list[str]
) -> None:
    driver.subscribe(1, "a")
    publish(driver, "a", "b", "c", "d")
    driver.settle(1, 2, verb=Settlement.RETRY, delay_ms=5_000)
    driver.close(1, clean=True)
    driver.hold = True
    driver.handle(command(driver, moved))
    driver.handle(SeekGroup(1, None, "a", "", start, sequence))
    driver.refuse()
    driver.hold = False
    driver.tick()
    driver.advance(1_000)
    driver.check()
    assert (names_in(driver, "a"), names_in(driver, "b")) == (kept, [])
    driver.restart()
    assert (names_in(driver, "a"), names_in(driver, "b")) == (kept, [])


def test_a_chain_of_moves_that_the_disk_refuses_did_not_happen(driver: Driver) -> None:
    driver.create("c")
    driver.ask(DeleteQueue(1, None, "b"))
    driver.create("b", durability=Durability.ASYNC)
    publish(driver, "x")
    onward = command(driver, [1])
    driver.hold = True
    driver.handle(onward)
    driver.handle(MoveMessages(1, None, "b", driver.info("b").incarnation, "c", [1], [driver.now], onward.rows))
    assert [driver.info(name).ready for name in "ab"] == [0, 0]
    driver.hold = False
    driver.refuse()
    driver.tick()
    assert [names_in(driver, name) for name in "abc"] == [["x"], [], []]
    driver.check()


def test_a_group_that_comes_while_a_move_fails_loses_nothing_of_the_others(driver: Driver) -> None:
    publish(driver, "x", "y")
    driver.hold = True
    driver.handle(command(driver, [1, 2]))
    driver.handle(SeekGroup(1, None, "a", "late", StartAt.BEGINNING))
    driver.hold = False
    driver.refuse()
    driver.tick()
    driver.check()
    later = driver.engine._state.queues["a"].alive(1, driver.now)
    assert later.runs() == [(1, 2)]
    driver.restart()
    driver.subscribe(1, "a")
    assert driver.take() == {1: [1, 2]}
    driver.check()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish", "publish", "move", "move", "back", "take", "ack", "retry", "keep", "refuse", "restart", "wait"]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


class Mover:
    """Two queues, a consumer of each, and an operator; every message has a name of its own."""

    def __init__(self, durabilities: tuple[Durability, Durability]) -> None:
        self.driver = Driver()
        for name, durability in zip("ab", durabilities, strict=True):
            self.driver.create(name, durability=durability, max_attempts=1_000)
        self.driver.hold = True
        self._count = 0
        self._sessions = 0
        self.settled: set[str] = set()

    def publish(self, number: int) -> None:
        names = [f"m{self._count + n}" for n in range(1 + number % 3)]
        self._count += len(names)
        extra = {"deliver_at": self.driver.now + 50} if number > 5 else {}
        publish(self.driver, *names, **extra)

    def move(self, number: int, source: str = "a", target: str = "b") -> None:
        found = self.driver.engine.readers.movable(source, target, number, 1 << 40, 3)
        wanted = [s for first, last in found.runs for s in range(first, last + 1)]
        self.driver.handle(command(self.driver, wanted, source, target))

    def back(self, number: int) -> None:
        self.move(number, "b", "a")

    def take(self, number: int) -> None:
        self._sessions += 1
        self.driver.subscribe(self._sessions, "ab"[number % 2], credit=1 + number)

    def _held(self, number: int) -> tuple[Any, int] | None:
        sessions = self.driver.engine._state.sessions.values()
        held = [
            (c, s)
            for known in sessions
            for c in known.consumers.values()
            for a, b in c.unacked.runs()
            for s in range(a, b + 1)
        ]
        return held[number % len(held)] if held else None

    def ack(self, number: int) -> None:
        held = self._held(number)
        if held is not None:
            consumer, sequence = held
            name = rows_by_place(self.driver).get((consumer.queue.queue_id, sequence))
            if name is not None:
                self.settled.add(name)
                self.driver.settle(consumer.session.number, sequence)

    def retry(self, number: int) -> None:
        held = self._held(number)
        if held is not None:
            self.driver.settle(held[0].session.number, held[1], verb=Settlement.RETRY, delay_ms=20 * (number % 2))

    def keep(self, number: int) -> None:
        self.driver.keep(number or None)

    def refuse(self, number: int) -> None:
        self.driver.refuse()

    def restart(self, number: int) -> None:
        self.driver.restart()

    def wait(self, number: int) -> None:
        self.driver.advance(10 * number)


@settings(max_examples=300)
@given(STEPS, st.tuples(*[st.sampled_from([Durability.STRONG, Durability.WEAK, Durability.ASYNC])] * 2))
def test_whatever_happens_each_message_is_in_one_queue(
    steps: list[tuple[str, int]], durabilities: tuple[Durability, Durability]
) -> None:
    mover = Mover(durabilities)
    for kind, number in steps:
        getattr(mover, kind)(number)
    driver = mover.driver
    driver.hold = False
    driver.keep()
    driver.tick()
    driver.check()
    there = names_in(driver, "a") + names_in(driver, "b")
    assert len(there) == len(set(there))
    assert set(there) | mover.settled >= set(rows_by_place(driver).values())
    driver.restart()
    assert sorted(names_in(driver, "a") + names_in(driver, "b")) == sorted(there)
