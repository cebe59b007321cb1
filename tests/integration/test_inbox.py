"""Subscriptions that deliver into one place, waited for by a file descriptor."""

import itertools
import math
import os
import select
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.fake_broker import QUICK, FakeBroker
from tests.integration.test_client_forks import in_a_child
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.waiting import wait_until
from vibemq.client import Message
from vibemq.errors import ClientForked, ConnectionLost, LocalProtocolError, NotConnected, QueueNotFound
from vibemq.sync import Inbox, wakeup
from vibemq.sync import inbox as inbox_module


@pytest.fixture(params=["eventfd", "pipe"])
def inbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd")
    with Inbox() as inbox:
        yield inbox


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


def readable(inbox: Inbox, timeout_s: float = 0) -> bool:
    return bool(select.select([inbox], [], [], timeout_s)[0])


@pytest.mark.parametrize("timeout", [math.inf, 1e12, 2**31 / 1_000])
def test_get_waits_as_long_as_it_is_told(broker: FakeBroker, inbox: Inbox, timeout: float) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        inbox.add(mq.subscribe("orders"))
        threading.Thread(target=mq.publish, args=["orders", "late"]).start()
        message = inbox.get(timeout)
        assert message is not None
        assert message.body == "late"
        message.ack()
    waking = wakeup.Wakeup()
    waking.set()
    waking.wait(timeout)
    waking.close()


def test_a_subscription_that_has_begun_and_is_offline_stays_what_it_is(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vibemq.sync.connect(address(broker)) as mq, mq.subscribe("orders") as messages:
        with monkeypatch.context() as offline:
            offline.setattr(messages._subscription, "_epoch", 0)
            with pytest.raises(LocalProtocolError, match="without a `with` block"):
                inbox.add(messages)
        mq.publish("orders", 1)
        batch = messages.next_batch(timeout=60)
        assert batch is not None
        assert (len(batch), len(inbox)) == (1, 0)


def take(inbox: Inbox, count: int) -> list[object]:
    """As a foreign event loop does: wait for the descriptor, then take what is there."""
    bodies: list[object] = []
    while len(bodies) < count:
        assert readable(inbox, 60)
        for message in inbox.take(7):
            bodies.append(message.body)
            message.ack()
    return bodies


def test_many_subscriptions_of_many_clients(tmp_path_factory: pytest.TempPathFactory, inbox: Inbox) -> None:
    real = BrokerProcess(tmp_path_factory.mktemp("broker"))
    real.start()
    try:
        with vibemq.sync.connect(real.url) as one, vibemq.sync.connect(real.url) as other:
            ids = {
                client.publish_many(queue, [f"{queue}-{n}" for n in range(200)])
                and inbox.add(client.subscribe(queue, prefetch=10)).id: queue
                for client, queue in ((one, "a"), (one, "b"), (other, "c"))
            }
            assert sorted(take(inbox, 600)) == sorted(f"{queue}-{n}" for queue in "abc" for n in range(200))
            assert not inbox.take()
            assert not readable(inbox)
            other.publish("b", "late")
            message = inbox.get(timeout=60)
            assert message is not None
            assert (message.body, message.subscription_id in ids) == ("late", True)
            assert inbox.get(timeout=0) is None
            inbox.close()
            info = one.queue_info("b")
            assert info is not None
            assert (info.ready, info.in_flight) == (1, 0)
    finally:
        real.stop()


def test_take_never_waits_and_leaves_the_descriptor_readable_for_the_rest(broker: FakeBroker, inbox: Inbox) -> None:
    assert inbox.take() == []
    assert not readable(inbox)
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(10))
        inbox.add(mq.subscribe("orders"))
        wait_until(lambda: len(inbox) == 10)
        assert [message.body for message in inbox.take(4)] == [0, 1, 2, 3]
        assert readable(inbox)
        assert [message.body for message in inbox.take(4)] == [4, 5, 6, 7]
        assert readable(inbox)
        assert [message.body for message in inbox.take()] == [8, 9]
        assert not readable(inbox)


def test_several_threads_take_each_message_once(broker: FakeBroker, inbox: Inbox) -> None:
    seen: list[int] = []
    with vibemq.sync.connect(address(broker)) as mq:
        inbox.add(mq.subscribe("orders", prefetch=20))

        def work() -> None:
            while (message := inbox.get(timeout=60)) is not None and message.body >= 0:
                seen.append(message.body)
                message.ack()
            assert message is not None
            message.ack()

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        mq.publish_many("orders", [*range(500), -1, -1, -1, -1])
        for worker in workers:
            worker.join(60)
        assert sorted(seen) == list(range(500))


def test_prefetch_bounds_what_is_in_it(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(100))
        inbox.add(mq.subscribe("orders", prefetch=5))
        wait_until(lambda: len(inbox) == 5)
        mq.ping()
        assert len(inbox) == 5


def test_a_subscription_that_ends_is_told_once_and_the_others_go_on(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        with pytest.raises(QueueNotFound):
            inbox.add(mq.subscribe("missing"))
        inbox.add(mq.subscribe("orders"))
        inbox.add(mq.subscribe("others"))
        mq.delete_queue("orders")
        with pytest.raises(QueueNotFound, match="it was deleted"):
            inbox.get(timeout=60)
        mq.publish("others", 1)
        message = inbox.get(timeout=60)
        assert message is not None
        assert message.body == 1
    with pytest.raises(NotConnected, match="closed"):
        inbox.get(timeout=60)
    with pytest.raises(LocalProtocolError, match=r"inbox.add\(mq.subscribe"):
        inbox.get()


def test_a_lost_connection_is_told_and_its_messages_are_gone(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(3))
        inbox.add(mq.subscribe("orders", restore=False))
        wait_until(lambda: len(inbox) == 3)
        connection = mq._current().client._supervisor._connection
        assert connection is not None
        mq._current().loop.call(connection.end, "of the test")
        wait_until(lambda: len(inbox) == 1)
        with pytest.raises(ConnectionLost):
            inbox.take()
        assert inbox.take() == []
        inbox.add(mq.subscribe("orders"))
        assert take(inbox, 3) == [0, 1, 2]


def test_what_nobody_takes_does_not_gather_with_each_lost_connection(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker), reconnect=QUICK) as mq:
        mq.publish_many("orders", range(3))
        subscription = inbox.add(mq.subscribe("orders"))
        inner = subscription._subscription
        for interruptions in range(3):
            wait_until(lambda: len(inbox) == 3 and subscription.connected)
            mq._current().loop.call(mq._current().client._supervisor._connection.end, "of the test")
            wait_until(lambda many=interruptions: inner.stats.interruptions > many)
        assert take(inbox, 3) == [0, 1, 2]
        assert len(inbox) == 0


def test_what_is_removed_or_drained_gives_its_messages_back(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(6))
        removed = inbox.add(mq.subscribe("orders", prefetch=3))
        wait_until(lambda: len(inbox) == 3)
        inbox.remove(removed)
        assert inbox.take() == []
        drained = inbox.add(mq.subscribe("orders", prefetch=3))
        wait_until(lambda: inbox._arrived and inbox._arrived[0][0].id == drained.id)
        drained.drain(timeout=0)
        wait_until(lambda: not inbox.take() and not drained.held)
        messages = mq.fetch("orders", max=6, timeout=60)
        assert sorted(message.body for message in messages) == list(range(6))


def test_draining_waits_for_nobody_who_would_have_to_take(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(6))
        subscription = inbox.add(mq.subscribe("orders", prefetch=3))
        wait_until(lambda: len(inbox) == 3)
        (mine,) = inbox.take(1)
        assert subscription.drain(timeout=0.01) == 1
        mine.ack()
        assert subscription.drain() == 0
        assert inbox.take() == []
        messages = mq.fetch("orders", max=5, timeout=60)
        assert len(messages) == 5


def test_what_a_client_drains_while_it_is_closed_takes_nothing_of_others_along(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(message: Message[Any]) -> None:
        raise NotConnected("this client is closed")

    with vibemq.sync.connect(address(broker)) as mq, vibemq.sync.connect(address(broker)) as other:
        mq.publish_many("orders", range(3))
        mq.publish_many("more", range(2))
        drained = inbox.add(mq.subscribe("orders"))
        inbox.add(other.subscribe("more"))
        wait_until(lambda: len(inbox) == 5)
        with monkeypatch.context() as patched:
            patched.setattr(Message, "release", closed)
            drained.drain(timeout=0)
            assert [message.queue for message in inbox.take()] == ["more", "more"]


def test_auto_ack_is_for_what_is_taken(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(10))
        inbox.add(mq.subscribe("orders", auto_ack=True))
        wait_until(lambda: len(inbox) == 10)
        assert [message.settled for message in inbox.take(3)] == [True] * 3
        wait_until(lambda: broker.unsettled("orders") == 7)


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("end", ["drain", "nothing"])
def test_a_client_that_closes_takes_no_message_of_another_with_it(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, end: str, noticed: bool
) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("a", "of A")
        mq.publish("b", "of B")
        inbox.add(mq.subscribe("a", auto_ack=True))
        wait_until(lambda: len(inbox) == 1)
        other = vibemq.sync.connect(address(broker))
        theirs = inbox.add(other.subscribe("b", auto_ack=True))
        wait_until(lambda: len(inbox) == 2)
        if end == "drain":
            theirs.drain(timeout=0)
        if not noticed:
            # It closes just after it was asked.
            monkeypatch.setattr(Message, "stale", False)
            monkeypatch.setattr(inbox, "_collect", lambda inner: None)
            theirs._subscription.watch = None
        other.close()
        assert [message.body for message in inbox.take()] == ["of A"]
        wait_until(lambda: not broker.unsettled("a"))
        assert broker.unsettled("b") == 1


def test_what_an_interrupted_call_had_acknowledged_is_returned_by_the_next(
    broker: FakeBroker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(3))
        subscription = inbox.add(mq.subscribe("orders", auto_ack=True))
        wait_until(lambda: len(inbox) == 3)
        ack = Message.ack

        def interrupted(message: Message[object]) -> object:
            if message.body == 1:
                raise KeyboardInterrupt
            return ack(message)

        monkeypatch.setattr(Message, "ack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            inbox.take()
        monkeypatch.undo()
        assert readable(inbox)
        assert [message.body for message in inbox.take()] == [0, 1, 2]
        wait_until(lambda: not subscription.held)
        wait_until(lambda: not broker.unsettled("orders"))


class Interrupted(Exception):
    pass


def interrupting(line: int) -> Any:
    """Raises before the line that this thread runs as the `line`-th one in the module of the inbox."""
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != inbox_module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    return trace


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_call_that_is_interrupted_at_any_line_loses_nothing(broker: FakeBroker, inbox: Inbox, auto_ack: bool) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        inbox.add(mq.subscribe("orders", auto_ack=auto_ack))
        for line in itertools.count(1):
            mq.publish_many("orders", range(3))
            wait_until(lambda: len(inbox) == 3 and readable(inbox))
            bodies = []
            before = sys.gettrace()
            sys.settrace(interrupting(line))
            try:
                bodies = [message.body for message in inbox.take()]
            except Interrupted:
                pass
            finally:
                sys.settrace(before)
            was_interrupted = not bodies
            while readable(inbox):
                for message in inbox.take(1):
                    bodies.append(message.body)
                    if not auto_ack:
                        message.ack()
            assert bodies == [0, 1, 2], f"interrupted before line {line}"
            if not was_interrupted:
                break
        assert line > 10


@pytest.mark.parametrize("end", ["remove", "stop", "drain"])
def test_a_thread_does_not_wait_for_subscriptions_that_have_ended(broker: FakeBroker, inbox: Inbox, end: str) -> None:
    told: list[str] = []
    with vibemq.sync.connect(address(broker)) as mq:
        subscription = inbox.add(mq.subscribe("orders"))

        def wait() -> None:
            try:
                inbox.get()
            except LocalProtocolError as error:
                told.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        if end == "remove":
            inbox.remove(subscription)
        else:
            getattr(subscription, end)()
        thread.join(60)
        assert len(told) == 1
        assert "no subscription that goes on" in told[0]


def test_closing_tells_a_thread_that_waits(broker: FakeBroker, inbox: Inbox) -> None:
    told: list[str] = []
    with vibemq.sync.connect(address(broker)) as mq:
        inbox.add(mq.subscribe("orders"))

        def wait() -> None:
            try:
                inbox.get()
            except NotConnected as error:
                told.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        inbox.close()
        thread.join(60)
        assert told == ["this inbox is closed; make another with vibemq.sync.Inbox()"]
        inbox.close()


def test_a_subscription_in_a_block_is_refused(broker: FakeBroker, inbox: Inbox) -> None:
    with (
        vibemq.sync.connect(address(broker)) as mq,
        mq.subscribe("orders") as messages,
        pytest.raises(LocalProtocolError, match="without a `with` block"),
    ):
        inbox.add(messages)


def test_a_forked_child_disturbs_nothing(broker: FakeBroker, inbox: Inbox) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 1)
        inbox.add(mq.subscribe("orders"))
        wait_until(lambda: len(inbox) == 1)

        def use() -> None:
            with pytest.raises(ClientForked, match="make another in the child"):
                inbox.take()
            inbox._wakeup.clear()
            inbox.close()

        in_a_child(use)
        assert readable(inbox)
        assert take(inbox, 1) == [1]


def test_a_full_pipe_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")
    one = wakeup.Wakeup()
    try:
        for _ in range(20_000):
            one.set()
        assert select.select([one], [], [], 0)[0]
        while select.select([one], [], [], 0)[0]:
            one.clear()
        one.wait(0)
    finally:
        one.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_message_that_comes_while_the_descriptor_is_read_is_noticed(
    broker: FakeBroker, inbox: Inbox, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        inbox.add(mq.subscribe("orders"))
        mq.publish("orders", "first")
        wait_until(lambda: len(inbox) == 1)
        clear = inbox._wakeup.clear

        def clear_meanwhile() -> None:
            monkeypatch.undo()
            if when == "after":
                clear()
            mq.publish("orders", "second")
            wait_until(lambda: len(inbox) == 1)
            if when == "before":
                clear()

        monkeypatch.setattr(inbox._wakeup, "clear", clear_meanwhile)
        taken = [message.body for message in inbox.take()]
        while readable(inbox):
            taken += [message.body for message in inbox.take()]
        assert taken == ["first", "second"]
