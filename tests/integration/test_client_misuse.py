"""Arguments of a kind that cannot be used are named, and told how to write them."""

import copy
import multiprocessing
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_sync import address, serving_in_a_thread
from vibemq.errors import ConfigInvalid, LocalProtocolError


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


@pytest.mark.parametrize("name", ["max_message_bytes", "max_unconfirmed", "max_unconfirmed_bytes", "command_timeout"])
@pytest.mark.parametrize("value", ["x", True])
def test_an_option_of_another_kind(name: str, value: object) -> None:
    with pytest.raises(ConfigInvalid, match=f"{name} is {value!r}; it must be a (whole )?number"):
        vibemq.connect("vibemq://localhost", **{name: value})


@pytest.mark.anyio
async def test_the_client_for_await_is_not_awaited_and_has_no_with() -> None:
    mq: Any = vibemq.connect("vibemq://localhost")
    with pytest.raises(TypeError, match="async with"):
        await mq
    with pytest.raises(TypeError, match=r"vibemq\.sync\.connect"), mq:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("made", ["subscribe", "publisher"])
async def test_nor_is_what_it_makes(broker: FakeBroker, made: str) -> None:
    async with vibemq.connect(address(broker)) as mq:
        one: Any = getattr(mq, made)("orders")
        with pytest.raises(TypeError, match=r"is used with `async with`.*, and not awaited"):
            await one
        with pytest.raises(TypeError, match=r"vibemq\.sync\.connect"), one:
            pass


@pytest.mark.anyio
async def test_many_that_come_one_after_the_other_go_through_a_publisher(broker: FakeBroker) -> None:
    async def bodies() -> AsyncIterator[int]:
        yield 1

    async with vibemq.connect(address(broker)) as mq:
        with pytest.raises(LocalProtocolError, match="async for body in"):
            await mq.publish_many("orders", bodies())  # type: ignore[arg-type]


@pytest.mark.parametrize("bodies", [None, 5])
def test_many_that_are_not_many(broker: FakeBroker, bodies: Any) -> None:
    with (
        vibemq.sync.connect(address(broker)) as mq,
        pytest.raises(LocalProtocolError, match=rf"publish_many takes many bodies, and this is {bodies}"),
    ):
        mq.publish_many("orders", bodies)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), 1e12])
def test_the_bounds_of_a_request_are_told_alike(broker: FakeBroker, timeout: float) -> None:
    with (
        vibemq.sync.connect(address(broker)) as mq,
        pytest.raises(LocalProtocolError, match=r"timeout is .* s; it must be more than 0 and at most 4,294,967 s"),
    ):
        mq.request("orders", 1, timeout=timeout)


def test_a_negative_bound_of_bytes(broker: FakeBroker) -> None:
    with (
        vibemq.sync.connect(address(broker)) as mq,
        pytest.raises(LocalProtocolError, match=r"prefetch_bytes is -1; it must be 0 \(no bound\) or more"),
    ):
        mq.subscribe("orders", prefetch_bytes=-1)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_client_that_is_given_to_another_process(broker: FakeBroker, method: str) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        process = multiprocessing.get_context(method).Process(target=print, args=(mq,))
        with pytest.raises(TypeError, match=r"neither pickled nor copied; give another process the address"):
            process.start()
        assert mq.publish("orders", 1).sequence


@pytest.mark.anyio
async def test_what_belongs_to_a_connection_is_neither_pickled_nor_copied(broker: FakeBroker) -> None:
    async with vibemq.connect(address(broker)) as mq, mq.subscribe("kept") as messages:
        await mq.publish_many("kept", range(3))
        batch = await messages.next_batch()
        for thing in (mq, messages, mq.publisher("kept"), vibemq.sync.Inbox(), batch, batch[0]):
            for take in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="neither pickled nor copied; give another process"):
                    take(thing)
