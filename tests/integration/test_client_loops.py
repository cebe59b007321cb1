"""An asynchronous client belongs to the event loop that opened it: in another one, every call that waits says so."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_sync import address, serving_in_a_thread
from vibemq.errors import LocalProtocolError


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_call_in_another_loop_changes_nothing(broker: FakeBroker, elsewhere: asyncio.AbstractEventLoop) -> None:
    def there(work: Callable[[], Awaitable[object]]) -> object:
        async def run() -> object:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), elsewhere).result()

    mq = vibemq.connect(address(broker))
    there(mq.open)
    messages = mq.subscribe("orders")
    there(messages.start)

    async def here() -> None:
        for call in (mq.close, mq.flush, mq.ping, mq.publisher("orders").__aenter__, messages.stop, messages.drain):
            with pytest.raises(LocalProtocolError, match="belongs to another event loop"):
                await call()

    asyncio.run(here())
    there(lambda: mq.publish("orders", 1))
    assert there(lambda: anext(messages)).json() == 1  # type: ignore[attr-defined]
    there(mq.close)
    asyncio.run(mq.close())  # Closed already.


def test_a_client_whose_loop_has_ended_is_not_waited_for(broker: FakeBroker) -> None:
    loop = asyncio.new_event_loop()
    mq = vibemq.connect(address(broker))
    loop.run_until_complete(mq.open())
    with pytest.raises(LocalProtocolError, match="belongs to another event loop"):
        asyncio.run(mq.close())
    loop.run_until_complete(mq.close())
    loop.close()
