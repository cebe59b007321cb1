"""The second connection of a blocking client, for publishes that one thread after the other waits for."""

import math
import os
import signal
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pytest

import vibemq
from tests.integration.fake_broker import QUICK, FakeBroker
from tests.integration.test_client_forks import connections_to, in_a_child
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.waiting import wait_until
from vibemq.client import ClientSettings
from vibemq.client.connecting.connection import PATIENCE
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publisher import PackedPublish
from vibemq.errors import (
    Blocked,
    NotAuthorized,
    QueueFull,
    QueueNotFound,
    RateLimited,
    RequestTimeout,
)
from vibemq.model.rows import RowView
from vibemq.protocols.native.codec.extensions import publish_many_ack
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.sync import direct_publishes
from vibemq.sync.direct_publishes import DirectPublishes
from vibemq.sync.publish_connection import Claim, PublishConnection


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "WORTHWHILE", 1)


class Interrupting(Protocol):
    def __call__(self, waits: Callable[[], object], handler: Callable[[], object] = ...) -> None:
        """`handler` runs in the main thread once it `waits`; without one, KeyboardInterrupt is raised there."""


def raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def interrupted() -> Iterator[Interrupting]:
    """Have the main thread interrupted when it waits for something."""
    before = signal.getsignal(signal.SIGUSR1)

    def interrupt(waits: Callable[[], object], handler: Callable[[], object] = raise_interrupt) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: handler())
        main = threading.main_thread().ident
        assert main is not None

        def work() -> None:
            wait_until(waits)
            signal.pthread_kill(main, signal.SIGUSR1)

        in_a_thread(work)

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def direct(mq: vibemq.sync.Client) -> DirectPublishes:
    return mq._current().direct


@contextmanager
def with_two_connections(broker: FakeBroker, **options: Any) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(address(broker), **options) as mq:
        mq.publish("first", 0)
        wait_until(lambda: direct(mq)._made)
        yield mq


def give_time(mq: vibemq.sync.Client, seconds: float) -> None:
    """From now on answers on the second connection are awaited for so long. A slow machine has made it by then."""
    made = direct(mq)._made
    if made is not None:
        made._timeout_s, made._patience_s = seconds, seconds * PATIENCE
        made._wait_at_most(made._patience_s)


@pytest.mark.parametrize("timeout", [math.inf, 1e12])
def test_a_command_timeout_may_be_endless(broker: FakeBroker, timeout: float) -> None:
    with with_two_connections(broker, command_timeout=timeout) as mq:
        before = used(mq)
        mq.publish("orders", 1)
        assert used(mq) == before + 1
        made = direct(mq)._made
        assert made is not None
        made.claims.append(Claim())
        made.returned.clear()
        closing, _ = in_a_thread(lambda: direct(mq).close(timeout))
        made.returned.set()
        closing.join(60)
        made.claims.clear()
    assert broker.accepted == 2


def test_a_connection_that_cannot_be_made_is_not_tried_again_at_once(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> PublishConnection:
        raise OverflowError("of the test")

    monkeypatch.setattr(direct_publishes, "PublishConnection", fails)
    with vibemq.sync.connect(address(broker)) as mq:
        for number in range(100):
            mq.publish("orders", number)
            wait_until(lambda: not direct(mq)._making)
    assert payloads(broker) == list(range(100))
    assert broker.accepted == 2


def used(mq: vibemq.sync.Client) -> int:
    """Publishes over the second connection."""
    made = direct(mq)._made
    return made.used if made is not None else 0


def waiting(mq: vibemq.sync.Client) -> bool:
    """Whether a thread waits for the answer to its publish."""
    made = direct(mq)._made
    return made is not None and made.resumable


def payloads(broker: FakeBroker, queue: str = "orders") -> list[int]:
    rows = broker.queue(queue).rows
    return [int(RowView(rows[sequence]).payload) for sequence in sorted(rows)]


def in_a_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_one_waited_publish_after_the_other_goes_over_it(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        assert [mq.publish("orders", number).sequence for number in range(20)] == list(range(1, 21))
        assert (used(mq), broker.accepted) == (20, 2)
    assert payloads(broker) == list(range(20))
    wait_until(lambda: not broker.sessions)


def test_a_few_publishes_are_not_worth_one(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "WORTHWHILE", 16)
    with vibemq.sync.connect(address(broker)) as mq:
        for number in range(10):
            mq.publish("orders", number)
        mq.ping()
        assert (direct(mq)._making, broker.accepted) == (False, 1)


@pytest.mark.parametrize("options", [{"publish_connection": False}, {"safe_retry": False}])
def test_it_is_not_made_when_it_is_not_wanted_or_a_message_might_be_doubled(
    broker: FakeBroker, options: dict[str, bool]
) -> None:
    with vibemq.sync.connect(address(broker), **options) as mq:
        for number in range(5):
            mq.publish("orders", number)
        mq.ping()
        assert broker.accepted == 1


def test_what_is_sent_later_overtakes_nothing(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        for number in range(0, 300, 3):
            mq.publish("orders", number, wait=False)
            mq.publish("orders", number + 1)
            mq.publish("orders", number + 2)
        assert used(mq) > 0
    assert payloads(broker) == list(range(300))


def test_what_is_sent_and_not_confirmed_is_not_overtaken_either(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.silent = True
        mq.publish("orders", 1, wait=False)
        wait_until(lambda: not mq._current().loop.has_calls)
        thread, results = in_a_thread(lambda: mq.publish("orders", 2))
        wait_until(lambda: mq.unconfirmed == 2)
        assert used(mq) == 0
        broker.silent = False
        thread.join()
    assert results == [("orders", 2, False)]


def test_a_settlement_goes_before_the_next_publish(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq, mq.subscribe("orders") as messages:
        mq.publish("orders", 1)
        before = used(mq)
        for message in messages:
            message.ack()
            mq.publish("done", 1)
            assert broker.unsettled("orders") == 0
            break
        assert used(mq) == before


def test_a_settlement_is_ruled_out_by_the_answer_to_the_next_publish(broker: FakeBroker) -> None:
    """It was sent; that the broker has read it is known once it has answered something on the same connection."""
    with with_two_connections(broker) as mq, mq.subscribe("orders") as messages:
        mq.publish("orders", 1)
        batch = messages.next_batch()
        assert batch is not None
        batch.ack_all()
        wait_until(lambda: broker.unsettled("orders") == 0)
        before = used(mq)
        mq.publish("done", 1)
        assert used(mq) == before
        mq.publish("done", 2)
        assert used(mq) == before + 1


def test_a_pause_is_not_overtaken(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq, mq.subscribe("orders") as messages:
        mq.publish("warm", 0)
        before = used(mq)
        messages.set_prefetch(0)
        mq.publish("orders", 1)
        assert used(mq) == before


def test_a_call_that_was_given_up_is_not_overtaken(broker: FakeBroker, interrupted: Interrupting) -> None:
    with with_two_connections(broker) as mq:
        broker.silent = True
        interrupted(lambda: mq._current().client.publishing.link._requests.by_id)
        with pytest.raises(KeyboardInterrupt):
            mq.create_queue("made")
        wait_until(lambda: not mq._current().client.publishing.link._requests.by_id)
        thread, _ = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: mq.unconfirmed)
        assert used(mq) == 0
        broker.silent = False
        thread.join()


def test_a_lost_confirm_is_got_again_and_the_message_is_not_doubled(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.swallow_acks = 1
        assert mq.publish("orders", 1) == ("orders", 1, False)
        assert direct(mq)._made is None
        assert mq.reconnects == 0
    assert payloads(broker) == [1]


def test_a_broker_that_says_goodbye_is_not_asked_that_way(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        assert made is not None
        made.interrupt()
        assert mq.publish("orders", 1) == ("orders", 1, False)
        wait_until(lambda: mq.publish("orders", 2) and used(mq))


def publishes(broker: FakeBroker) -> int:
    """Frames with messages that the broker has received."""
    return broker.frames.count(CommandType.PUBLISH_MANY)


def test_a_refusal_is_told_and_sent_once(broker: FakeBroker) -> None:
    broker.refuse_bodies = b"9"
    with with_two_connections(broker) as mq:
        before = publishes(broker)
        with pytest.raises(QueueFull, match="no room"):
            mq.publish("orders", 9)
        assert mq.publish("orders", 1).sequence == 1
        assert (used(mq), publishes(broker) - before) == (2, 2)


def test_a_duplicate_is_told_and_sent_once(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        before = publishes(broker)
        assert mq.publish("orders", 1, dedup_id="a") == ("orders", 1, False)
        assert mq.publish("orders", 1, dedup_id="a") == ("orders", 1, True)
        assert (used(mq), publishes(broker) - before) == (2, 2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("QUEUE_NOT_FOUND", QueueNotFound), ("NOT_AUTHORIZED", NotAuthorized), ("BLOCKED", Blocked)],
)
def test_an_error_is_told_and_keeps_the_connection(broker: FakeBroker, code: str, kind: type[Exception]) -> None:
    broker.refuse["orders"] = (code, "it cannot be done")
    with with_two_connections(broker) as mq:
        made, before = direct(mq)._made, publishes(broker)
        for _ in range(40):
            with pytest.raises(kind, match="it cannot be done"):
                mq.publish("orders", 1)
        assert mq.publish("others", 1).sequence == 1
        assert direct(mq)._made is made
        assert (used(mq), publishes(broker) - before, broker.accepted) == (41, 41, 2)


def test_a_client_that_is_too_fast_goes_on_with_one_connection(broker: FakeBroker) -> None:
    """Each connection has a bucket of its own: a second, or another one each time, would get round the limit."""
    with with_two_connections(broker) as mq:
        broker.refuse["orders"] = ("RATE_LIMITED", "send slower")
        before = publishes(broker)
        for _ in range(40):
            with pytest.raises(RateLimited):
                mq.publish("orders", 1)
        del broker.refuse["orders"]
        for number in range(40):
            mq.publish("orders", number)
        assert (used(mq), publishes(broker) - before, broker.accepted) == (1, 80, 2)


def test_what_the_first_connection_is_refused_for_its_rate_does_not_go_over_the_second(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.refuse["orders"] = ("RATE_LIMITED", "send slower")
        with pytest.raises(RateLimited):
            mq.publish_many("orders", [1, 2]).raise_for_refused()
        with pytest.raises(RateLimited):
            mq.publish("orders", 1)
        assert used(mq) == 0


def test_a_broker_that_stops_takes_the_message_on_the_next_connection(broker: FakeBroker) -> None:
    broker.refuse["orders"] = ("SHUTTING_DOWN", "it stops")
    with with_two_connections(broker, reconnect=QUICK) as mq:
        thread, results = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: mq.reconnects)
        del broker.refuse["orders"]
        thread.join()
        assert results == [("orders", 1, False)]


def test_no_connection_is_made_soon_after_one_that_the_broker_has_ended(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.refuse["orders"] = ("SHUTTING_DOWN", "it stops")
        made = direct(mq)._made
        assert made is not None
        made.ended = True
        assert mq.publish("others", 1).sequence == 1
        for number in range(40):
            mq.publish("others", number)
        mq.ping()
        assert (direct(mq)._made, broker.accepted) == (None, 2)


def test_a_goodbye_behind_the_confirm_is_heard() -> None:
    ours, theirs = socket.socketpair()
    settings = ClientSettings()
    with theirs:
        connection = PublishConnection(ours, ClientProtocol(settings), settings, 0)
        goodbye = encode_frame(encode_body(CommandType.DISCONNECT, "bye"))
        theirs.sendall(encode_frame(publish_many_ack("1", "orders", 7, 1)) + goodbye)
        packed = PackedPublish("orders", b"row", {"dedup_id": "a"}, own_dedup=True, id=None)
        assert connection.publish(packed) == ("orders", 7, False)
        assert connection.ended
        connection.close()


def test_a_silent_broker_that_comes_back_has_the_message_once(broker: FakeBroker) -> None:
    """Also in a queue without a dedup window: nothing but a lost connection has it sent again."""
    with with_two_connections(broker, command_timeout=5) as mq:
        made, before = direct(mq)._made, publishes(broker)
        assert made is not None
        broker.silent = True
        thread, results = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: made.pings)
        broker.silent = False
        thread.join()
        assert results == [("orders", 1, False)]
        assert mq.publish("orders", 2) == ("orders", 2, False)
        assert (direct(mq)._made, publishes(broker) - before) == (made, 2)


def test_a_broker_that_answers_pings_only_is_not_waited_for_for_ever(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        give_time(mq, 0.5)
        before = publishes(broker)
        broker.mute = True
        with pytest.raises(RequestTimeout, match=r"within 0.5 s; it may or may not"):
            mq.publish("orders", 1)
        broker.mute = False
        give_time(mq, 60)
        assert mq.publish("orders", 2) == ("orders", 1, False)
        assert publishes(broker) - before == 2


def test_the_answer_of_a_silent_broker_is_not_awaited_for_ever(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        give_time(mq, 1)
        broker.silent = True
        thread, results = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: direct(mq)._made is None)
        broker.silent = False
        thread.join()
    assert results == [("orders", 1, False)]
    assert payloads(broker) == [1]


def test_closing_waits_for_the_publish_of_another_thread(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.silent = True
        publishing, results = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: direct(mq).under_way)
        assert mq.unconfirmed == 1
        closing, _ = in_a_thread(mq.close)
        wait_until(lambda: direct(mq)._closed)
        broker.silent = False
        publishing.join()
        closing.join()
    assert results == [("orders", 1, False)]


def test_closing_waits_also_when_an_earlier_connection_was_lost(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        broker.swallow_acks = 1
        mq.publish("orders", 1)
        mq.publish("orders", 2)
        wait_until(lambda: direct(mq)._made)
        made = direct(mq)._made
        assert made is not None
        broker.silent = True
        assert not made.returned.is_set()
        made.returned = comes_back = ComesBack(broker)
        publishing, results = in_a_thread(lambda: mq.publish("orders", 3))
        wait_until(lambda: waiting(mq))
        mq.close()
        assert comes_back.is_set()
        publishing.join()
    assert results == [("orders", 3, False)]


class ComesBack(threading.Event):
    """The broker does once somebody waits for this."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__()
        self._broker = broker

    def wait(self, timeout: float | None = None) -> bool:
        self._broker.silent = False
        return super().wait(timeout)


class InterruptedClaims(deque[Claim]):
    """A signal's handler raises right behind the claim."""

    def append(self, claim: Claim) -> None:
        super().append(claim)
        raise KeyboardInterrupt


def test_an_interrupt_right_behind_the_claim_parks_nothing(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        assert made is not None
        made.claims = InterruptedClaims()
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        assert not direct(mq).under_way
        made.claims = deque(made.claims)
        assert mq.publish("orders", 1).sequence == 1
        assert used(mq) == 1


def test_a_signals_handler_publishes_while_a_publish_waits(broker: FakeBroker, interrupted: Interrupting) -> None:
    with with_two_connections(broker) as mq:
        found = []

        def handler() -> None:
            broker.silent = False
            found.append(mq.publish("orders", 2))

        broker.silent = True
        interrupted(lambda: waiting(mq), handler)
        found.append(mq.publish("orders", 1))
    assert sorted(receipt.sequence for receipt in found) == [1, 2]
    assert sorted(payloads(broker)) == [1, 2]


def test_a_signals_handler_closes_while_a_publish_waits(broker: FakeBroker, interrupted: Interrupting) -> None:
    with with_two_connections(broker) as mq:

        def handler() -> None:
            broker.silent = False
            mq.close()

        broker.silent = True
        interrupted(lambda: waiting(mq), handler)
        assert mq.publish("orders", 1).sequence == 1
    wait_until(lambda: not broker.sessions)


def test_an_interrupted_publish_stays_on_its_way_and_is_not_overtaken(
    broker: FakeBroker, interrupted: Interrupting
) -> None:
    """As one over the first connection, which the broker has as well. Its answer is not taken for that of the next."""
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        broker.silent = True
        interrupted(lambda: waiting(mq))
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        assert not direct(mq).under_way
        broker.silent = False
        assert mq.publish("orders", 2) == ("orders", 2, False)
        assert mq.unconfirmed == 0
        assert direct(mq)._made is made
    assert payloads(broker) == [1, 2]


def test_what_is_not_waited_for_goes_behind_an_interrupted_publish(
    broker: FakeBroker, interrupted: Interrupting
) -> None:
    with with_two_connections(broker) as mq, vibemq.sync.connect(address(broker)) as other:
        made = direct(mq)._made
        broker.deaf.append(broker.sessions[1])
        interrupted(lambda: waiting(mq))
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        mq.publish("orders", 2, wait=False)
        wait_until(lambda: not mq._current().loop.has_calls)
        other.publish("others", 1)
        assert payloads(broker) == [], "the broker would have read it by now"
        broker.deaf.clear()
        mq.flush()
        assert direct(mq)._made is made
        before = used(mq)
        mq.publish("orders", 3)
        assert used(mq) == before + 1
    assert payloads(broker) == [1, 2, 3]


def test_what_follows_a_publish_that_was_interrupted_while_it_was_sent_goes_behind_it(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq, vibemq.sync.connect(address(broker)) as other:
        made = direct(mq)._made
        assert made is not None
        made._socket = InterruptedSocket(fileno=made._socket.detach())
        broker.deaf.append(broker.sessions[1])
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        mq.publish("orders", 2, wait=False)
        wait_until(lambda: not mq._current().loop.has_calls)
        other.publish("others", 1)
        assert payloads(broker) == []
        broker.deaf.clear()
        mq.flush()
        assert direct(mq)._made is None
    assert payloads(broker) == [1, 2]


class InterruptedSocket(socket.socket):
    """A signal's handler raises when all is sent."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        super().sendall(data, flags)
        raise KeyboardInterrupt


class InterruptedAnswers(socket.socket):
    """A signal's handler raises when the first answer is awaited."""

    interrupts = 1

    def recv(self, *args: Any) -> bytes:
        self.interrupts -= 1
        if self.interrupts >= 0:
            raise KeyboardInterrupt
        return super().recv(*args)


@pytest.mark.parametrize("taken", [False, True], ids=["before the loop has it", "when the loop has it"])
def test_a_second_interrupt_while_the_first_is_dealt_with_does_not_silence_the_client(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    with with_two_connections(broker) as mq:
        made, loop = direct(mq)._made, mq._current().loop
        assert made is not None
        made._socket = InterruptedAnswers(fileno=made._socket.detach())

        def post(call: Callable[[], object]) -> None:
            monkeypatch.undo()
            if taken:
                really_post(call)
                wait_until(lambda: not loop.has_calls)
            raise KeyboardInterrupt

        broker.deaf.append(broker.sessions[1])
        really_post = loop.post
        monkeypatch.setattr(loop, "post", post)
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        broker.deaf.clear()
        wait_until(lambda: not made.claims)
        wait_until(lambda: not mq._current().client.publishing.link._put_off)
        mq.publish("orders", 2, wait=False)
        mq.flush()
        assert mq.publish("orders", 3).sequence == 3
    assert sorted(payloads(broker)) == [1, 2, 3]


def test_an_interrupted_publish_that_is_never_read_holds_nothing_up_for_long(
    broker: FakeBroker, interrupted: Interrupting
) -> None:
    with with_two_connections(broker) as mq:
        direct(mq)._settings = replace(direct(mq)._settings, command_timeout=0.5)
        broker.deaf.append(broker.sessions[1])
        interrupted(lambda: waiting(mq))
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        assert mq.publish("orders", 2) == ("orders", 1, False)
        assert direct(mq)._made is None
        broker.deaf.clear()


def test_an_interrupt_that_ends_the_block_leaves_no_connection_behind(
    broker: FakeBroker, interrupted: Interrupting
) -> None:
    found: list[PublishConnection | None] = []

    def program() -> None:
        with with_two_connections(broker) as mq:
            found.append(direct(mq)._made)
            broker.deaf.append(broker.sessions[1])
            interrupted(lambda: waiting(mq))
            mq.publish("orders", 1)

    with pytest.raises(KeyboardInterrupt):
        program()
    [made] = found
    assert made is not None
    assert made.returned.is_set(), "closed"
    broker.deaf.clear()
    wait_until(lambda: not broker.sessions)


def test_a_thread_that_signals_disturb_is_not_kept_for_ever(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them has the system's wait for an answer begin anew."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with with_two_connections(broker, command_timeout=0.5) as mq:
            monkeypatch.setattr(direct_publishes, "IDLE_S", 0.01)
            made = direct(mq)._made
            assert made is not None

            def comes_back() -> None:
                wait_until(lambda: waiting(mq))
                mq._current().loop.post(lambda: direct(mq)._look_after(made, -1, 0.0))
                wait_until(lambda: not direct(mq)._made)
                broker.silent = False

            broker.silent = True
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            thread, _ = in_a_thread(comes_back)
            assert mq.publish("orders", 1) == ("orders", 1, False)
            thread.join()
            assert (made.used, made.pings) == (1, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_unused_one_is_closed(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "IDLE_S", 0.01)
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 1)
        wait_until(lambda: broker.accepted == 2 and direct(mq)._made is None and len(broker.sessions) == 1)
        assert mq.publish("orders", 2).sequence == 2


def test_one_that_was_in_use_is_looked_at_again(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_two_connections(broker) as mq:
        monkeypatch.setattr(direct_publishes, "IDLE_S", 0.01)
        made = direct(mq)._made
        assert made is not None
        broker.silent = True
        thread, results = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: waiting(mq))
        mq._current().loop.call(direct(mq)._look_after, made, made.used, float("inf"))
        broker.silent = False
        thread.join()
        wait_until(lambda: direct(mq)._made is None)
    assert results == [("orders", 1, False)]


def test_after_a_reconnection_it_is_made_anew(broker: FakeBroker) -> None:
    """It may lead to another broker than the one that the client has now."""
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        direct(mq)._link.epoch += 1
        assert mq.publish("orders", 1).sequence == 1
        assert direct(mq)._made is not made


def test_a_child_does_not_keep_what_is_being_made(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        broker.silent = True
        publishing, _ = in_a_thread(lambda: mq.publish("orders", 1))
        wait_until(lambda: broker.accepted == 2)
        assert len(connections_to(broker.port)) == 2

        def work() -> None:
            assert not connections_to(broker.port)

        in_a_child(work)
        broker.silent = False
        publishing.join()


def test_a_child_lets_go_of_it_and_the_parent_keeps_it(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        assert made is not None

        def work() -> None:
            assert not stat.S_ISSOCK(os.fstat(made._socket.fileno()).st_mode)
            assert mq.publish("orders", 1).sequence == 1
            mq.close()

        in_a_child(work)
        assert mq.publish("orders", 2).sequence == 2
        assert used(mq) == 1
