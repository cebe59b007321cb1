"""The second connection of a blocking client, for publishes that one thread after the other waits for."""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_forks import in_a_child
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.waiting import wait_until
from vibemq.errors import QueueFull, QueueNotFound
from vibemq.model.rows import RowView
from vibemq.sync import direct_publishes
from vibemq.sync.direct_publishes import DirectPublishes


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "WORTHWHILE", 1)


def direct(mq: vibemq.sync.Client) -> DirectPublishes:
    return mq._current().direct


@contextmanager
def with_two_connections(broker: FakeBroker, **options: Any) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(address(broker), **options) as mq:
        mq.publish("first", 0)
        wait_until(lambda: direct(mq)._free)
        yield mq


def used(mq: vibemq.sync.Client) -> int:
    """Publishes over the second connection."""
    made = direct(mq)._made
    return made.used if made is not None else 0


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


def test_refusals_are_told_and_do_not_cost_twice_for_long(broker: FakeBroker) -> None:
    broker.refuse_bodies = b"9"
    with with_two_connections(broker) as mq:
        with pytest.raises(QueueFull):
            mq.publish("orders", 9)
        before = used(mq)
        assert mq.publish("orders", 1).sequence == 1
        assert used(mq) == before
        assert mq.publish("others", 1).sequence == 1
        assert used(mq) == before + 1


def test_errors_are_told(broker: FakeBroker) -> None:
    broker.refuse["orders"] = ("QUEUE_NOT_FOUND", "there is no such queue")
    with with_two_connections(broker) as mq:
        with pytest.raises(QueueNotFound, match="no such queue"):
            mq.publish("orders", 1)
        assert mq.publish("others", 1).sequence == 1


def test_the_answer_of_a_silent_broker_is_not_awaited_for_ever(broker: FakeBroker) -> None:
    with with_two_connections(broker, command_timeout=1) as mq:
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


@pytest.fixture
def interrupted() -> Iterator[Callable[[vibemq.sync.Client, Callable[[], object]], None]]:
    """Have the main thread interrupted when it waits for a publish."""
    before = signal.getsignal(signal.SIGUSR1)

    def interrupt(mq: vibemq.sync.Client, handler: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: handler())
        main = threading.main_thread().ident
        assert main is not None

        def work() -> None:
            wait_until(lambda: direct(mq).under_way)
            signal.pthread_kill(main, signal.SIGUSR1)

        in_a_thread(work)

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def test_a_signals_handler_publishes_while_a_publish_waits(broker: FakeBroker, interrupted: Any) -> None:
    with with_two_connections(broker) as mq:
        found = []

        def handler() -> None:
            broker.silent = False
            found.append(mq.publish("orders", 2))

        broker.silent = True
        interrupted(mq, handler)
        found.append(mq.publish("orders", 1))
    assert sorted(receipt.sequence for receipt in found) == [1, 2]
    assert sorted(payloads(broker)) == [1, 2]


def test_a_signals_handler_closes_while_a_publish_waits(broker: FakeBroker, interrupted: Any) -> None:
    with with_two_connections(broker) as mq:

        def handler() -> None:
            broker.silent = False
            mq.close()

        broker.silent = True
        interrupted(mq, handler)
        assert mq.publish("orders", 1).sequence == 1
    wait_until(lambda: not broker.sessions)


def test_an_interrupted_publish_leaves_no_answer_for_the_next(broker: FakeBroker, interrupted: Any) -> None:
    with with_two_connections(broker) as mq:

        def handler() -> None:
            broker.silent = False
            raise KeyboardInterrupt

        broker.silent = True
        interrupted(mq, handler)
        with pytest.raises(KeyboardInterrupt):
            mq.publish("orders", 1)
        assert not direct(mq).under_way
        assert mq.publish("others", 2) == ("others", 1, False)
        assert mq.unconfirmed == 0


def test_an_unused_one_is_closed(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "IDLE_S", 0.01)
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 1)
        wait_until(lambda: broker.accepted == 2 and direct(mq)._made is None and len(broker.sessions) == 1)
        assert mq.publish("orders", 2).sequence == 2


def test_after_a_reconnection_it_is_made_anew(broker: FakeBroker) -> None:
    """It may lead to another broker than the one that the client has now."""
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        direct(mq)._link.epoch += 1
        assert mq.publish("orders", 1).sequence == 1
        assert direct(mq)._made is not made


def test_a_child_lets_go_of_it_and_the_parent_keeps_it(broker: FakeBroker) -> None:
    with with_two_connections(broker) as mq:
        made = direct(mq)._made
        assert made is not None

        def work() -> None:
            assert not stat.S_ISSOCK(os.fstat(made.descriptor).st_mode)
            assert mq.publish("orders", 1).sequence == 1
            mq.close()

        in_a_child(work)
        assert mq.publish("orders", 2).sequence == 2
        assert used(mq) == 1
