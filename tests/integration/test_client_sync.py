"""The blocking face, from plain threads, against a broker in memory that has a loop of its own."""

import itertools
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

import vibemq
from tests.integration.fake_broker import FakeBroker
from tests.waiting import wait_until
from vibemq.errors import LocalProtocolError, NotConnected, PublishFailed, QueueNotFound, VibeMQError


@contextmanager
def serving_in_a_thread() -> Iterator[FakeBroker]:
    broker = FakeBroker()

    @asynccontextmanager
    async def serving() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await broker.start(tasks)
            yield
            tasks.cancel_scope.cancel()

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving()):
        yield broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


def address(broker: FakeBroker) -> str:
    return f"vibemq://127.0.0.1:{broker.port}"


def test_a_publish_leaves_nothing_behind(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        for number in range(100):
            mq.publish("orders", number)
        assert not mq._current().loop._open


def test_it_has_a_loop_of_its_own_also_inside_anothers(broker: FakeBroker) -> None:
    async def program() -> None:
        with vibemq.sync.connect(address(broker)) as mq:
            mq.publish("q", 1)
            assert [message.body for message in mq.fetch("q")] == [1]

    for backend in ("trio", "asyncio"):
        anyio.run(program, backend=backend)


def test_publishing_and_consuming_without_await(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        assert mq.publish("orders", {"id": 0}) == ("orders", 1, False)
        assert len(mq.publish_many("orders", [{"id": n} for n in range(1, 100)])) == 100 - 1
        seen = []
        with mq.subscribe("orders", prefetch=10) as messages:
            for message in messages:
                with message.process():
                    seen.append(message.json()["id"])
                if len(seen) == 100:
                    break
        assert seen == list(range(100))
        wait_until(lambda: broker.unsettled("orders") == 0)


def test_batches_and_fetch(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(50))
        fetched = mq.fetch("orders", max=20, timeout=60)
        assert [message.body for message in fetched] == list(range(20))
        for message in fetched:
            message.ack()
        with mq.subscribe("orders") as messages:
            batch = messages.next_batch(timeout=30)
            assert batch is not None
            assert len(batch) == 30
            batch.ack_all()
            assert messages.next_batch(timeout=0.01) is None
        assert mq.fetch("orders", timeout=0.01) == []
        wait_until(lambda: broker.unsettled("orders") == 0)


def test_many_threads_share_a_client(broker: FakeBroker) -> None:
    sequences: list[int] = []
    with vibemq.sync.connect(address(broker)) as mq:

        def publish() -> None:
            sequences.extend(mq.publish("orders", number).sequence for number in range(50))

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(sequences) == list(range(1, 401))


def test_the_thread_that_calls_iterates_over_what_is_published(broker: FakeBroker) -> None:
    """Rows of a database, and whatever else belongs to a thread, are read where the program reads them."""
    numbers = "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with closing(sqlite3.connect(":memory:")) as database, vibemq.sync.connect(address(broker)) as mq:
        rows = database.execute(numbers)

        def bodies() -> Iterator[dict[str, int]]:
            for (number,) in itertools.islice(rows, 3_000):
                assert threading.current_thread() is threading.main_thread()
                if number == 2_900:
                    # The client itself may be used meanwhile.
                    assert mq.publish("others", number).sequence == 1
                yield {"row": number}

        assert mq.publish_many("orders", bodies()).accepted == 3_000
        failing = (1 / number for number in (2, 1, 0))
        with pytest.raises(ZeroDivisionError) as caught:
            mq.publish_many("orders", itertools.chain([1] * 5_000, failing), return_refused=True)
    [told] = caught.value.__notes__
    assert told.endswith("messages are published to 'orders'; no later one was sent")


class _OfThisThread:
    """A body whose form is the program's work, as that of a model is."""

    def model_dump_json(self) -> str:
        assert threading.current_thread() is threading.main_thread()
        return "1"


def test_the_thread_that_calls_packs(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", _OfThisThread())
        mq.publish("orders", _OfThisThread(), wait=False)
        with mq.publisher("orders") as out:
            out.send(_OfThisThread())
        with pytest.raises(VibeMQError):
            mq.request("nobody", _OfThisThread(), timeout=0.01)
        assert [message.json() for message in mq.fetch("orders", max=3)] == [1, 1, 1]


def test_stopping_ends_an_iteration_in_another_thread(broker: FakeBroker) -> None:
    seen: list[Any] = []
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", "x")
        messages = mq.subscribe("orders")
        with messages:

            def consume() -> None:
                for message in messages:
                    message.ack()
                    seen.append(message.body)

            thread = threading.Thread(target=consume)
            thread.start()
            wait_until(lambda: seen)
            messages.stop()
            thread.join(60)
            assert not thread.is_alive()
    assert seen == ["x"]


def test_closing_ends_an_iteration_in_another_thread(broker: FakeBroker) -> None:
    mq = vibemq.sync.connect(address(broker))
    messages = mq.subscribe("orders").__enter__()
    thread = threading.Thread(target=lambda: list(messages))
    thread.start()
    mq.close()
    thread.join(60)
    assert not thread.is_alive()
    mq.close()


def test_a_client_that_is_closed_while_a_thread_works_hides_no_error_of_its_block(broker: FakeBroker) -> None:
    mq = vibemq.sync.connect(address(broker))
    mq.publish("orders", 1)
    messages = mq.subscribe("orders")

    def work() -> None:
        with messages:
            for message in messages:
                message.ack()
                mq.close()
                raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        work()
    messages.stop()


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), ValueError("of the work")], ids=repr)
def test_a_client_that_is_closed_in_the_middle_of_the_work_does_not_hide_why_it_ends(
    broker: FakeBroker, error: BaseException
) -> None:
    """A signal's handler that closes the client and ends the program, for example."""
    mq = vibemq.sync.connect(address(broker))
    mq.publish("orders", 1)
    [message] = mq.fetch("orders")

    def work() -> None:
        with message.process():
            mq.close()
            raise error

    with pytest.raises(type(error)):
        work()


def test_a_stream_and_its_refusals(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        with mq.publisher("orders") as out:
            for number in range(10):
                out.send(number)
        assert broker.unsettled("orders") == 10


def test_queue_verbs_and_errors(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.create_queue("orders", max_attempts=9)
        info = mq.queue_info("orders")
        assert info is not None
        assert info.options.max_attempts == 9
        assert [queue.name for queue in mq.list_queues()] == ["orders"]
        assert mq.declare("orders", max_attempts=9) == []
        mq.change_queue("orders", max_attempts=2)
        mq.publish("orders", 1)
        assert mq.purge_queue("orders") == 1
        mq.delete_queue("orders")
        with pytest.raises(QueueNotFound):
            mq.subscribe("missing").__enter__()
        assert mq.is_connected
        assert mq.ping() < 5
    with pytest.raises(NotConnected):
        vibemq.sync.connect("vibemq://127.0.0.1:1")


def test_a_client_left_open_does_not_keep_the_interpreter(broker: FakeBroker) -> None:
    program = f"""
        import threading, vibemq
        mq = vibemq.sync.connect({address(broker)!r})
        mq.publish("orders", 1)
        messages = mq.subscribe("orders").__enter__()
        threading.Thread(target=lambda: list(messages), daemon=True).start()
        message = mq.fetch("orders", timeout=0.01)
        print("done")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_a_subscription_that_was_not_entered_says_so_at_once(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq, pytest.raises(LocalProtocolError, match=r"with` in vibemq.sync"):
        next(iter(mq.subscribe("orders")))


def test_a_closed_client_says_so(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        out = mq.publisher("orders")
        mq.publish("orders", 1)
        [message] = mq.fetch("orders")
    for use in (
        mq.ping,
        lambda: mq.publish("orders", 1),
        lambda: mq.fetch("orders"),
        lambda: out.send(1),
        message.ack,
    ):
        with pytest.raises(NotConnected, match="closed"):
            use()


def test_publishing_without_waiting(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        for number in range(3_000):
            assert mq.publish("orders", number, wait=False) is None
        assert mq.publish("orders", "last").sequence == 3_001
        mq.flush()
        assert (mq.unconfirmed, broker.unsettled("orders")) == (0, 3_001)
        broker.refuse_bodies = b"bad"
        mq.publish("orders", "bad", wait=False)
        wait_until(lambda: mq._current().client.publishing.unwaited.failed)
        with pytest.raises(PublishFailed, match="no room"):
            mq.publish("orders", "not published", wait=False)
        with pytest.raises(LocalProtocolError, match="cannot be published"):
            mq.publish("orders", object(), wait=False)
        mq.publish("orders", "bad", wait=False)
        with pytest.raises(PublishFailed, match="no room"):
            mq.close()
    assert broker.unsettled("orders") == 3_001


def test_what_is_not_taken_yet_is_bounded(broker: FakeBroker) -> None:
    """Also when the client's thread has no time for it."""
    with vibemq.sync.connect(address(broker)) as mq:
        loop, go_on = mq._current().loop, threading.Event()
        loop.post(go_on.wait)
        sent: list[int] = []

        def publish() -> None:
            for number in range(2_000):
                mq.publish("orders", b"x" * 10_000, wait=False)
                sent.append(number)

        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(lambda: len(sent) >= 24)
        assert len(loop._calls) < 60
        go_on.set()
        thread.join(60)
        mq.flush()
        assert broker.unsettled("orders") == 2_000


def test_many_threads_publish_without_waiting(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        threads = [
            threading.Thread(target=lambda: [mq.publish("orders", n, wait=False) for n in range(1_000)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert broker.unsettled("orders") == 4_000


def test_what_failed_without_waiting_is_told_at_the_end_of_the_program(broker: FakeBroker) -> None:
    broker.refuse_bodies = b"bad"
    program = f"""
        import vibemq.sync
        mq = vibemq.sync.connect({address(broker)!r})
        mq.publish("orders", "good", wait=False)
        mq.publish("orders", "bad", wait=False)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "PublishFailed: 1 messages of earlier publish(wait=False) failed" in ended.stderr
    assert broker.unsettled("orders") == 1


def test_several_threads_take_batches_of_one_subscription(broker: FakeBroker) -> None:
    taken: list[int] = []
    with vibemq.sync.connect(address(broker)) as mq, mq.subscribe("orders", prefetch=2) as messages:

        def take() -> None:
            for batch in messages.batches():
                taken.extend(message.json() for message in batch)
                batch.ack_all()

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(50):
            mq.publish("orders", number)
        wait_until(lambda: len(taken) == 50)
        messages.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert sorted(taken) == list(range(50))


@pytest.mark.parametrize("prefetch", [1, 500])
def test_acknowledgements_travel_without_another_call(broker: FakeBroker, prefetch: int) -> None:
    with vibemq.sync.connect(address(broker)) as mq, mq.subscribe("orders", prefetch=prefetch) as messages:
        mq.publish_many("orders", range(3))
        for _, message in zip(range(3), messages, strict=False):
            message.ack()
        wait_until(lambda: not broker.unsettled("orders"))


def test_an_acknowledgement_long_after_the_delivery_travels_by_itself(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq, mq.subscribe("orders") as messages:
        mq.publish("orders", 1)
        message = next(iter(messages))
        wait_until(lambda: not mq._current().loop._coming)
        message.ack()
        wait_until(lambda: not broker.unsettled("orders"))


def test_a_thread_that_waits_for_messages_is_told_when_the_loop_ends(broker: FakeBroker) -> None:
    mq = vibemq.sync.connect(address(broker))
    messages = mq.subscribe("orders").__enter__()
    ended = threading.Event()

    def take() -> None:
        try:
            messages.next_batch()
        except NotConnected:
            ended.set()

    thread = threading.Thread(target=take)
    thread.start()
    loop = mq._current().loop
    wait_until(lambda: loop._parked)
    messages._subscription.halt = lambda: None  # type: ignore[method-assign]  # as if nobody told it
    loop.close()
    assert ended.wait(60)
    thread.join()
