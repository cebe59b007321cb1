"""What a blocking client was given and its program has not taken: it is shown later, or given back at once."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.interrupting import interrupted
from tests.waiting import wait_until
from vibemq import sync
from vibemq.client import Message
from vibemq.errors import LocalProtocolError

Take = Callable[[sync.Subscription[Any]], list[Any]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


@pytest.fixture
def mq(broker: FakeBroker) -> Iterator[sync.Client]:
    with sync.connect(address(broker)) as mq:
        yield mq


def of_a_loop(messages: sync.Subscription[Any]) -> list[Any]:
    for message in messages:
        message.ack()
        return [message.body]
    return []


def of_an_iterator(messages: sync.Subscription[Any]) -> list[Any]:
    message = next(iter(messages))
    message.ack()
    return [message.body]


def of_a_loop_that_fails(messages: sync.Subscription[Any]) -> list[Any]:
    seen = []
    try:
        for message in messages:
            with message.process(reject_on=(ValueError,)):
                seen.append(message.body)
                raise ValueError
    except ValueError:
        pass
    return seen


def of_a_batch(messages: sync.Subscription[Any]) -> list[Any]:
    batch = messages.next_batch()
    assert batch is not None
    assert [message.body for message in batch] == [int(payload) for payload in batch.payloads()]
    batch.ack_all()
    return [message.body for message in batch]


@pytest.mark.parametrize("take", [of_a_loop, of_an_iterator, of_a_loop_that_fails])
def test_the_rest_of_a_batch_comes_first_in_the_next_loop(broker: FakeBroker, mq: sync.Client, take: Take) -> None:
    mq.publish_many("orders", range(10))
    with mq.subscribe("orders", prefetch=10) as messages:
        wait_until(lambda: messages.held == 10)
        seen = [*take(messages), *take(messages), *take(messages), *of_a_batch(messages)]
        assert seen == list(range(10))
        wait_until(lambda: not broker.unsettled("orders"))


def test_a_loop_that_is_not_over_keeps_nothing_to_itself(mq: sync.Client) -> None:
    mq.publish_many("orders", range(6))
    with mq.subscribe("orders", auto_ack=True) as messages:
        wait_until(lambda: messages.held == 6)
        one, other = iter(messages), iter(messages)
        assert [next(iterator).body for iterator in (one, other, one, other)] == [0, 1, 2, 3]
        assert of_a_batch(messages) == [4, 5]
        mq.publish("orders", 6)
        assert next(one).body == 6


def test_an_asynchronous_batch_begins_with_what_a_loop_has_left() -> None:
    async def program() -> None:
        async with vibemq.Broker(storage="memory") as broker, vibemq.connect(broker.url) as mq:
            await mq.publish_many("orders", range(5))
            async with mq.subscribe("orders") as messages:
                async for message in messages:
                    assert message.body == 0
                    break
                assert [message.body for message in await messages.next_batch()] == [1, 2, 3, 4]
                await mq.publish("orders", 5)
                assert (await anext(messages)).body == 5

    anyio.run(program)


def test_a_thread_that_waits_takes_what_another_one_leaves(mq: sync.Client) -> None:
    seen: list[int] = []
    with mq.subscribe("orders") as messages:

        def take() -> None:
            for message in messages:
                seen.append(message.body)
                break

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(messages._subscription.parked) == 4)
        mq.publish_many("orders", range(4))
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert sorted(seen) == [0, 1, 2, 3]


def test_several_threads_that_leave_their_loops_take_each_message_once(broker: FakeBroker, mq: sync.Client) -> None:
    seen: list[int] = []
    with mq.subscribe("orders", prefetch=50) as messages:

        def take() -> None:
            while len(seen) < 1_000:
                for _, message in zip(range(3), messages, strict=False):
                    message.ack()
                    seen.append(message.body)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        mq.publish_many("orders", range(1_000))
        wait_until(lambda: len(seen) >= 1_000)
        messages.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert sorted(seen) == list(range(1_000))


@pytest.mark.parametrize("end", ["drain", "stop"])
def test_what_a_loop_has_left_is_given_back(broker: FakeBroker, mq: sync.Client, end: str) -> None:
    mq.publish_many("orders", range(10))
    with mq.subscribe("orders", prefetch=10) as messages:
        wait_until(lambda: messages.held == 10)
        assert of_a_loop(messages) == [0]
        thread = threading.Thread(target=messages.drain if end == "drain" else messages.stop)
        thread.start()
        thread.join(60)
        wait_until(lambda: len(broker.queue("orders").ready) == 9)
        assert list(messages) == []
        assert messages.next_batch() is None


def test_a_loop_in_another_thread_ends_when_its_subscription_is_stopped(broker: FakeBroker, mq: sync.Client) -> None:
    mq.publish_many("orders", range(10))
    with mq.subscribe("orders", prefetch=10) as messages:
        wait_until(lambda: messages.held == 10)
        iterator = iter(messages)
        assert next(iterator).body == 0

        async def leave() -> None:
            messages._subscription.leave(release=True)

        # The broker has not confirmed it yet.
        mq._current().loop.call(leave)
        assert next(iterator, None) is None


# -- interrupted ------------------------------------------------------------------------------------------------------


def test_an_interrupted_fetch_gives_back_what_it_had(broker: FakeBroker, mq: sync.Client) -> None:
    mq.publish_many("orders", range(3))
    last = 0
    fetched: list[Message[Any]] = []
    for step in interrupted(lambda: fetched.extend(mq.fetch("orders", max=2, timeout=60))):
        last = step
        wait_until(lambda: len(broker.queue("orders").ready) == 3)
    assert last > 10
    assert [message.body for message in fetched] == [0, 1]


def test_a_fetch_that_is_interrupted_in_its_last_moment(broker: FakeBroker, mq: sync.Client) -> None:
    """The thread has its answer."""
    mq.publish_many("orders", range(3))
    loop = mq._current().loop
    wait_for = loop._wait_for

    def interrupted(call: Any) -> Any:
        wait = call.answer.wait

        class Interrupting:
            def __getattr__(self, name: str) -> Any:
                return getattr(answer, name)

            def wait(self) -> Any:
                wait()
                raise KeyboardInterrupt

        answer = call.answer
        call.answer = Interrupting()
        return wait_for(call)

    loop._wait_for = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        mq.fetch("orders", max=2, timeout=60)
    del loop._wait_for
    wait_until(lambda: len(broker.queue("orders").ready) == 3)


def test_an_interrupted_beginning_of_a_subscription_is_undone(broker: FakeBroker, mq: sync.Client) -> None:
    mq.publish_many("orders", range(3))
    entered: list[sync.Subscription[Any]] = []
    last = 0
    for step in interrupted(lambda: entered.append(mq.subscribe("orders").__enter__())):
        last = step
        wait_until(lambda: len(broker.queue("orders").ready) == 3)
    assert last > 10
    entered[0].stop()


def test_a_block_in_the_block_of_the_same_subscription_leaves_that_alone(mq: sync.Client) -> None:
    mq.publish("orders", 1)
    with mq.subscribe("orders") as messages:
        with pytest.raises(LocalProtocolError, match="has begun already"), messages:
            pass
        mq.ping()
        assert of_a_loop(messages) == [1]


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("kind", ["for", "next_batch"])
def test_what_an_interrupted_thread_had_comes_next(mq: sync.Client, kind: str, auto_ack: bool) -> None:
    given: list[Any] = []
    """Messages, or batches."""
    iterators: list[Iterator[Message[Any]]] = []
    """Each is left as it is."""

    def take() -> None:
        if kind == "for":
            iterators.append(iter(messages))
            given.append(next(iterators[-1]))
        else:
            given.append(messages.next_batch())

    def bodies() -> list[int]:
        return [message.body for each in given for message in ([each] if kind == "for" else each)]

    with mq.subscribe("orders", auto_ack=auto_ack) as messages:
        sent = last = 0

        def begin() -> None:
            nonlocal sent
            mq.publish_many("orders", range(sent, sent + 3))
            sent += 3
            wait_until(lambda: messages.stats.received == sent)

        begin()
        for step in interrupted(take):
            last = step
            while len(bodies()) < sent:
                take()
            assert bodies() == list(range(sent))
            begin()
        while len(bodies()) < sent:
            take()
        assert bodies() == list(range(sent))
    assert last > 10
