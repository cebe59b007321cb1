"""The session of one principal over HTTP, driven by an engine without a broker around it."""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vibemq.engine import Batch, Engine, EngineSettings
from vibemq.errors import QueueNotFound, RateLimited, ShuttingDown, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import (
    CloseSession,
    CreateQueue,
    Extend,
    Publish,
    SetCapacity,
    Settle,
    Settlement,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Reply, SettledRuns, Subscribed
from vibemq.model.options import QueueOptions
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, pack_row
from vibemq.model.runs import RunSet
from vibemq.model.stored import Slice
from vibemq.protocols.session import Goodbye, SessionContext, SessionLimits
from vibemq.web.api.messages import session as module
from vibemq.web.api.messages.session import FETCH_BYTES, FetchedBatch, HttpPeerSession

USER = Principal("user")
NOW = 1_000_000


def context(woken: Callable[[], None] = lambda: None) -> SessionContext:
    return SessionContext(
        session=7,
        connection_id="c",
        server_version="1",
        authentication=True,
        limits=SessionLimits(),
        queue_defaults=QueueOptions(),
        now=NOW,
        new_id=lambda: "id",
        wake=woken,
    )


class Asked:
    """A session, and what was told to whoever asked."""

    def __init__(self) -> None:
        self.woken = 0
        self.session = HttpPeerSession(context(self._wake), USER, lambda number: range(1_000))
        self.told: list[Any] = []

    def _wake(self) -> None:
        self.woken += 1

    def fetch(self, most: int = 10, *, wait_ms: int = 0, group: str | None = None) -> Any:
        return self.session.fetch(
            "q",
            group,
            most,
            wait_ms=wait_ms,
            ack_timeout_ms=5_000,
            keeps_letters=True,
            now=self.session.now,
            told=self.told.append,
        )

    def answer(self, command: Any, result: Any) -> None:
        self.session.apply([Reply(7, command.token, result)])

    def deliver(self, consumer: int, first: int, count: int, *, settled: bool = False, size: int = 1) -> None:
        rows = Rows.of([pack_row(f"m{n}", b"x" * size) for n in range(count)])
        deliver = Deliver(7, consumer, "q", 1, 0, [(first, first + count - 1)], settled=settled)
        self.session.deliver(deliver, [Slice(first, NOW, rows)])


def subscribed(asked: Asked, **wanted: Any) -> Subscribe:
    asked.fetch(**wanted)
    (command,) = asked.session.commands()
    assert isinstance(command, Subscribe)
    asked.answer(command, Subscribed("q", "", command.consumer, 1))
    return command


def test_a_fetch_is_a_subscription_that_comes_and_goes() -> None:
    asked = Asked()
    command = subscribed(asked, most=10, wait_ms=1_000)
    assert (command.credit, command.capacity_messages, command.create) == (10, 10, True)
    assert asked.session.next_deadline() == NOW + 1_000
    asked.deliver(1, 5, 3)
    (end,) = asked.session.commands()
    assert isinstance(end, Unsubscribe)
    asked.deliver(1, 8, 2)
    assert asked.told == []
    asked.answer(end, None)
    (batch,) = asked.told
    assert [message.sequence for message in batch.messages] == [5, 6, 7, 8, 9]
    assert (asked.session.held, asked.session.idle) == (5, False)
    assert asked.woken == 2


def test_without_waiting_it_takes_what_is_there() -> None:
    asked = Asked()
    subscribed(asked, most=10)
    (end,) = asked.session.commands()
    asked.answer(end, None)
    assert asked.told[0].messages == []
    assert asked.session.idle


def test_one_whose_time_is_over_is_ended_by_the_clock() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.session.tick(NOW + 999)
    assert asked.session.commands() == []
    asked.session.tick(NOW + 1_000)
    (end,) = asked.session.commands()
    assert isinstance(end, Unsubscribe)


def test_a_refused_one_is_told() -> None:
    asked = Asked()
    asked.fetch()
    (command,) = asked.session.commands()
    asked.session.refused(command.token, QueueNotFound("q"))
    assert isinstance(asked.told[0], QueueNotFound)
    assert asked.session.idle


def test_an_abandoned_one_gives_back_unharmed() -> None:
    asked = Asked()
    fetch = asked.fetch(wait_ms=1_000)
    asked.session.abandon(fetch)
    (command,) = asked.session.commands()
    asked.answer(command, Subscribed("q", "", 1, 1))
    (end,) = asked.session.commands()
    asked.deliver(1, 1, 2)
    asked.answer(end, None)
    (release,) = asked.session.commands()
    assert isinstance(release, Settle)
    assert (release.verb, list(release.runs)) == (Settlement.RELEASE, [(1, 1), (2, 2)])
    asked.answer(release, SettledRuns([(1, 2)]))
    assert asked.session.idle


def test_what_nobody_acknowledges_is_not_held() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.deliver(1, 1, 2, settled=True)
    (end,) = asked.session.commands()
    asked.answer(end, None)
    assert asked.told[0].settled
    assert (asked.session.held, asked.session.idle) == (0, True)


def test_a_body_that_fits_into_no_answer_is_turned_down_and_the_fetch_goes_on() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.deliver(1, 1, 1, size=LARGE_ROW_BYTES + 1)
    reject, another = asked.session.commands()
    assert isinstance(reject, Settle)
    assert (reject.consumer, reject.verb, list(reject.runs)) == (1, Settlement.REJECT, [(1, 1)])
    assert another == SetCapacity(7, None, 1, 10, FETCH_BYTES, add_credit=1)
    assert reject.reason == "too large for HTTP: its messages have at most 1,048,576 bytes"
    asked.deliver(1, 2, 1, size=LARGE_ROW_BYTES)
    (end,) = asked.session.commands()
    asked.answer(end, None)
    assert [message.sequence for message in asked.told[0].messages] == [2]


def test_a_body_that_fits_into_no_answer_is_passed_over_where_nothing_is_acknowledged() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.deliver(1, 1, 1, size=LARGE_ROW_BYTES + 1, settled=True)
    assert asked.session.commands() == [SetCapacity(7, None, 1, 10, FETCH_BYTES, add_credit=1)]


def test_a_large_body_that_nobody_wants_any_more_goes_back_unharmed() -> None:
    asked = Asked()
    fetch = asked.fetch(wait_ms=1_000)
    (command,) = asked.session.commands()
    asked.answer(command, Subscribed("q", "", 1, 1))
    asked.session.abandon(fetch)
    (end,) = asked.session.commands()
    asked.deliver(1, 1, 1, size=LARGE_ROW_BYTES + 1)
    asked.answer(end, None)
    (release,) = asked.session.commands()
    assert isinstance(release, Settle)
    assert release.verb is Settlement.RELEASE


def test_what_comes_for_nobody_goes_back() -> None:
    asked = Asked()
    asked.deliver(3, 1, 2)
    (release,) = asked.session.commands()
    assert isinstance(release, Settle)
    assert (release.consumer, release.verb, list(release.runs)) == (3, Settlement.RELEASE, [(1, 2)])


def test_a_subscription_that_ends_ends_its_fetch_once() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.session.apply([ConsumerEnded(7, 1, "q", QueueNotFound("q"))])
    assert isinstance(asked.told[0], QueueNotFound)
    asked.session.tick(NOW + 2_000)
    assert asked.session.commands() == []
    assert len(asked.told) == 1


def test_what_is_held_is_forgotten_behind_the_engine() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.deliver(1, 1, 2)
    (end,) = asked.session.commands()
    asked.answer(end, None)
    assert asked.session.extended(1, None) == NOW + 5_000
    assert asked.session.extended(1, 60_000) == NOW + 60_000
    asked.session.tick(NOW + 60_000 + module.GRACE_MS - 1)
    assert asked.session.held == 2
    asked.session.tick(NOW + 60_000 + module.GRACE_MS)
    assert asked.session.held == 0
    assert asked.session.extended(1, 1) == 0


def test_an_idle_one_leaves_and_takes_nothing_any_more() -> None:
    asked = Asked()
    assert asked.session.next_deadline() == NOW + module.IDLE_MS
    asked.session.tick(NOW + module.IDLE_MS)
    assert [type(request) for request in asked.session.commands()] == [Goodbye]
    assert not asked.session.usable


def test_nobody_waits_in_vain_at_the_end() -> None:
    asked = Asked()
    subscribed(asked, wait_ms=1_000)
    asked.session.ask(lambda session, token: Publish(session, token, "q", Rows.of([])), asked.told.append)
    asked.session.shutdown("server_shutdown")
    assert [type(told) for told in asked.told] == [ShuttingDown, ShuttingDown]
    assert not asked.session.usable
    failed = Asked()
    failed.fetch()
    failed.session.fail(VibeMQError("broken"))
    assert (str(failed.told[0]), failed.session.closing) == ("broken", True)


def test_what_is_held_has_a_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "HELD_MAX", 15)
    asked = Asked()
    assert asked.fetch(most=10) is not None
    assert asked.fetch(most=6) is None
    assert isinstance(asked.told[0], RateLimited)
    assert asked.fetch(most=5) is not None


class Leases(RuleBasedStateMachine):
    """Two sessions on one engine, whatever they do: a message is held by one consumer at most, a settlement is told to
    be done if and only if the engine held the message for it, and in the end nothing is lost."""

    @initialize()
    def begin(self) -> None:
        self.engine = Engine(
            EngineSettings(auto_create=True, queue_defaults=QueueOptions(retry_base_ms=0, max_attempts=1_000)),
            jitter=lambda: 0.0,
            new_id=lambda: "0" * 32,
        )
        self.now = NOW
        self.rows: dict[int, bytes] = {}
        self.sessions = {
            number: HttpPeerSession(
                SessionContext(
                    session=number,
                    connection_id=str(number),
                    server_version="1",
                    authentication=False,
                    limits=SessionLimits(),
                    queue_defaults=QueueOptions(),
                    now=NOW,
                    new_id=lambda: "id",
                ),
                USER,
                self.engine.readers.session_consumers,
            )
            for number in (1, 2)
        }
        self.batches: list[tuple[int, FetchedBatch]] = []
        self.acked: set[int] = set()
        self.published = 0
        self.decide([CreateQueue(99, None, "q")])

    def decide(self, commands: list[Any]) -> None:
        batch = Batch(commands)
        while not batch.done:
            self.tell(self.engine.advance(batch, self.now))

    def tell(self, outcome: Any) -> None:
        effects = [*outcome.effects, *outcome.after_append, *outcome.gated]
        more = self.engine.committed(outcome.ticket, self.now) if outcome.ticket else None
        for effect in effects:
            session = self.sessions.get(effect.session)
            if session is None:
                continue
            session.tick(self.now)
            if isinstance(effect, Deliver):
                slices = [
                    Slice(first, self.now, Rows.of([pack_row(f"m{n}", b"x") for n in range(first, last + 1)]))
                    for first, last in effect.runs
                ]
                session.deliver(effect, slices)
            else:
                session.apply([effect])
        if more is not None:
            self.tell(more)
        self.drive()

    def drive(self) -> None:
        for session in self.sessions.values():
            while requests := session.commands():
                self.decide([request for request in requests if not isinstance(request, Goodbye)])

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        self.published += count
        self.decide([Publish(99, None, "q", Rows.of([pack_row("m", b"x")] * count))])

    @rule(number=st.sampled_from([1, 2]), most=st.integers(1, 4), wait_ms=st.sampled_from([0, 50]))
    def fetch(self, number: int, most: int, wait_ms: int) -> None:
        def told(result: Any) -> None:
            assert isinstance(result, FetchedBatch), result
            assert len(result.messages) <= most
            self.batches.append((number, result))

        session = self.sessions[number]
        session.fetch("q", None, most, wait_ms=wait_ms, ack_timeout_ms=100, keeps_letters=True, now=self.now, told=told)
        self.drive()

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), verb=st.sampled_from([*Settlement, None]))
    def settle(self, data: st.DataObject, verb: Settlement | None) -> None:
        number, batch = data.draw(st.sampled_from(self.batches))
        if not batch.messages:
            return
        sequence = data.draw(st.sampled_from(batch.messages)).sequence
        session = self.sessions[number]
        held = self.held(number, batch.consumer, sequence)
        results: list[Any] = []

        def command(number: int, token: Any) -> Any:
            if verb is None:
                return Extend(number, token, batch.consumer, [(sequence, sequence)], 100)
            return Settle(number, token, batch.consumer, verb, [(sequence, sequence)])

        session.ask(command, results.append)
        self.drive()
        (result,) = results
        assert (sequence in RunSet(result.runs)) is held, "told to be done if and only if it was held"
        if held and verb is not None:
            session.settled(batch.consumer, 1)
        if held and verb in (Settlement.ACK, Settlement.REJECT):
            assert sequence not in self.acked, "settled for good once"
            self.acked.add(sequence)

    def held(self, number: int, consumer: int, sequence: int) -> bool:
        known = self.engine._state.consumer(number, consumer)
        return known is not None and bool(known.unacked.overlap(sequence, sequence))

    @rule(ms=st.integers(1, 200))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        for session in self.sessions.values():
            session.tick(self.now)
        self.drive()
        self.tell(self.engine.tick(self.now))

    @invariant()
    def nothing_is_lost(self) -> None:
        queue = self.engine._state.queues["q"]
        (group,) = queue.groups.values()
        assert group.unsettled == self.published - len(self.acked)

    @invariant()
    def sessions_know_at_least_what_they_hold(self) -> None:
        for number, session in self.sessions.items():
            state = self.engine._state.sessions.get(number)
            held = 0 if state is None else sum(consumer.unacked.count for consumer in state.consumers.values())
            assert session.held >= held, "else it would end, and take away what is leased"

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.decide([CloseSession(1, True), CloseSession(2, False)])
        self.nothing_is_lost()
        (group,) = self.engine._state.queues["q"].groups.values()
        assert group.in_flight == 0


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
