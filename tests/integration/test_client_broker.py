"""The client against real brokers in processes of their own, on asyncio and trio."""

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.names import queue_named_after
from tests.waiting import until
from vibemq.client import Outgoing, ReconnectPolicy
from vibemq.errors import (
    ConnectionLost,
    InvalidOptions,
    NotConnected,
    PublishRefused,
    QueueExists,
    QueueFull,
    QueueNotFound,
)

pytestmark = pytest.mark.anyio

QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.1)
PROGRAM = """
import sys, anyio, vibemq

async def main():
    async with vibemq.Broker(sys.argv[1], port=int(sys.argv[2])) as broker:
        print(broker.port, flush=True)
        await broker.run()

anyio.run(main)
"""


class Home:
    """A broker that can be killed and started again on its data and port."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-c", PROGRAM, str(self._data_dir), str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=60)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("broker"))
    home.start()
    yield home
    home.kill()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return queue_named_after(request)


async def test_a_message_goes_round(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        receipt = await mq.publish(queue, {"id": 1}, headers={"a": "b"}, priority="high")
        assert receipt == (queue, 1, False)
        async with mq.subscribe(queue) as messages:
            message = await anext(messages)
            assert (message.body, message.headers["a"], message.sequence, message.attempt) == ({"id": 1}, "b", 1, 1)
            await message.ack()
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight, info.next_sequence) == (0, 0, 2)


async def test_thousands_in_order(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        report = await mq.publish_many(queue, range(10_000))
        assert [receipt.sequence for receipt in report] == list(range(1, 10_001))
        bodies: list[int] = []
        async with mq.subscribe(queue, prefetch=1_000) as messages:
            async for batch in messages.batches():
                bodies += [message.body for message in batch]
                batch.ack_all()
                if len(bodies) == 10_000:
                    break
        assert bodies == list(range(10_000))
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight, info.delayed) == (0, 0, 0)


async def test_equal_messages_travel_compressed_for_as_long_as_it_takes(home: Home, queue: str) -> None:
    body = {"order": "1" * 400, "state": "new"}
    async with vibemq.connect(home.url, compression="auto") as mq:
        await mq.publish_many(queue, [body] * 60_000)
        received = 0
        async with mq.subscribe(queue, prefetch=2_000) as messages:
            async for batch in messages.batches():
                received += len(batch)
                batch.ack_all()
                if received == 60_000:
                    break
        assert mq.reconnects == 0


async def test_a_request_keeps_its_place_behind_what_was_published_before(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq, anyio.create_task_group() as tasks:
        await mq.publish(queue, "first", wait=False)
        tasks.start_soon(mq.request, queue, "second")
        await anyio.wait_all_tasks_blocked()
        await mq.publish(queue, "third", wait=False)
        async with mq.subscribe(queue) as messages:
            taken = [await anext(messages) for _ in range(3)]
            assert [message.body for message in taken] == ["first", "second", "third"]
            await taken[1].reply("done")


async def test_verbs_of_a_message(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.create_queue(queue, max_attempts=5)
        await mq.publish_many(queue, ["retry", "release", "reject"])
        async with mq.subscribe(queue) as messages:
            batch = [await anext(messages) for _ in range(3)]
            await batch[0].retry(delay=0)
            await batch[1].release()
            await batch[2].reject("no good")
            again = [await anext(messages) for _ in range(2)]
            assert Counter(message.body for message in again) == {"retry": 1, "release": 1}
            assert {message.attempt for message in again} == {2}
            for message in again:
                await message.ack()
        letters = (await mq.admin("dlq.list", queue=queue))["letters"]
        assert [(letter["error"], letter["sequence"]) for letter in letters] == [("no good", 3)]


async def test_fetch(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        assert await mq.fetch(queue, max=3, timeout=0.05) == []
        await mq.publish_many(queue, range(5))
        first = await mq.fetch(queue, max=3, timeout=60)
        assert [message.body for message in first] == [0, 1, 2]
        rest = await mq.fetch(queue, max=10, timeout=0)
        assert [message.body for message in rest] == [3, 4]
        for message in [*first, *rest]:
            await message.ack()
        assert await mq.fetch(queue, max=3, timeout=0.05) == []
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight, info.consumers) == (0, 0, 0)


async def test_what_was_fetched_is_settled_however_many_fetches_come_between(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(3))
        done, longer, dead = [(await mq.fetch(queue, timeout=60))[0] for _ in range(3)]
        for _ in range(1_100):
            assert await mq.fetch(f"{queue}.idle", timeout=0) == []
        await done.ack()
        await longer.extend(3600)
        await dead.reject("broken")
        await mq.ping()
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight, info.dead) == (0, 1, 1)


async def test_fetched_messages_that_nobody_settles_leave_nothing_in_the_client(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(20))
        fetched = [message for _ in range(20) for message in await mq.fetch(queue)]
        link = mq._link
        await until(lambda: not link.subscriptions)
        assert len(link.restored.all()) == 20
        for message in fetched[:10]:
            message.ack()
        await mq.ping()
        del fetched, message
        gc.collect()
        await until(lambda: link.restored.all() == [])
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight) == (0, 10)


async def test_what_a_stop_has_left_ungiven_is_given_back_at_the_end_of_the_block(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(3))
        async with mq.subscribe(queue) as messages:
            message = await anext(messages)
            await messages.stop(release=False)
        assert [message.body for message in await mq.fetch(queue, max=3, timeout=60)] == [1, 2]
        await message.ack()
        await mq.ping()
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight) == (0, 2)


async def test_a_passing_queue_is_created_anew_with_its_changes(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.create_queue(queue, exclusive=True, max_messages=1_000)
        await mq.change_queue(queue, max_messages=5)
        mq._supervisor._connection.end("of the test")  # type: ignore[union-attr]
        await until(lambda: mq.is_connected and mq.reconnects == 1)
        await mq.ping()
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.options.exclusive, info.options.max_messages) == (True, 5)


async def test_a_cancelled_fetch_gives_back_what_came(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(10))
        for step in range(20):
            with anyio.move_on_after(step * 0.0002):
                for message in await mq.fetch(queue, max=10, timeout=60):
                    await message.release()
        assert len(await mq.fetch(queue, max=10, timeout=60)) == 10


async def test_leaving_gives_back_what_is_unsettled(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(10))
        async with mq.subscribe(queue) as messages:
            await (await anext(messages)).ack()
            await anext(messages)
        async with mq.subscribe(queue) as messages:
            message = await anext(messages)
            assert (message.body, message.attempt) == (1, 2)


async def test_refusals(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.create_queue(queue, max_messages=3)
        with pytest.raises(PublishRefused) as caught:
            await mq.publish_many(queue, range(5))
        assert list(caught.value.refused) == [3, 4]
        with pytest.raises(QueueFull):
            await mq.publish(queue, 6)
        with pytest.raises(QueueExists):
            await mq.create_queue(queue, max_messages=4, must_match=True)
        with pytest.raises(InvalidOptions):
            await mq.change_queue(queue, colour="red")
        assert await mq.purge_queue(queue) == 3


async def test_declare_and_delete(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        assert await mq.declare(queue, max_attempts=5) == []
        with pytest.raises(QueueExists):
            await mq.declare(queue, message_ttl=60, on_conflict="fail")
        await mq.declare(queue, message_ttl=60, on_conflict="override")
        info = await mq.queue_info(queue)
        assert info is not None
        assert (info.options.message_ttl_ms, info.options.max_attempts) == (60_000, 5)
        async with mq.subscribe(queue) as messages:
            await mq.delete_queue(queue)
            with pytest.raises(QueueNotFound):
                await anext(messages)
        assert await mq.queue_info(queue) is None


async def test_dedup_delay_and_ttl(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        assert not (await mq.publish(queue, 1, dedup_id="once")).duplicate
        assert (await mq.publish(queue, 1, dedup_id="once")) == (queue, 1, True)
        await mq.publish_many(queue, [Outgoing("later", delay=0.3), Outgoing("at once")])
        async with mq.subscribe(queue) as messages:
            bodies = [(await anext(messages)).body for _ in range(3)]
        assert bodies == [1, "at once", "later"]


@pytest.mark.long_where(anyio_backend="asyncio")
async def test_extras_of_many_messages_outlive_a_kill(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(10), delay=2, headers={"k": "v"})
        await mq.publish_many(queue, [Outgoing(20 - number, delay=(20 - number) / 1e3) for number in range(10)])
        await mq.publish_many(queue, [Outgoing("gone", ttl=0.001) for _ in range(10)])
        await mq.publish_many(queue, [Outgoing(number, dedup_id=f"{queue}-{number % 10}") for number in range(20)])
        home.kill()
        home.start()
        async with mq.subscribe(queue) as messages:
            found = [await anext(messages) for _ in range(30)]
        assert [message.headers for message in found] == [{}] * 20 + [{"k": "v"}] * 10
        assert [message.body for message in found[20:]] == list(range(10))
        # Those of them that fell due before the others were published are delivered before these.
        assert sorted(message.body for message in found[:20]) == [*range(10), *range(11, 21)]
        assert [message.body for message in found[:20] if message.body > 10] == list(range(11, 21))


async def test_groups_each_see_everything(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(3))
        for group in ("one", "two"):
            async with mq.subscribe(queue, group=group, start="beginning") as messages:
                assert [(await anext(messages)).body for _ in range(3)] == [0, 1, 2]


async def test_a_handler_publishes(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.publish_many(queue, range(50))
        async with mq.subscribe(queue, prefetch=5) as messages:
            async for message in messages:
                async with message.process():
                    receipt = await mq.publish(f"{queue}-out", message.body)
                if receipt.sequence == 50:
                    break


@pytest.mark.slow
@pytest.mark.long_where(anyio_backend="trio")
async def test_killing_the_broker_loses_nothing_and_sticks_nowhere(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.start()
    total = 200
    confirmed: list[Any] = []
    seen: Counter[Any] = Counter()
    moments = {count: anyio.Event() for count in (40, 80, 120)}
    try:
        with anyio.fail_after(60):
            async with vibemq.connect(home.url, reconnect=QUICK) as mq, anyio.create_task_group() as tasks:
                await mq.create_queue("orders", max_attempts=100, retry_base=0.01, retry_max=0.01)

                async def produce() -> None:
                    for number in range(total):
                        confirmed.append(await mq.publish("orders", number))
                        if len(confirmed) in moments:
                            moments[len(confirmed)].set()

                async def trouble() -> None:
                    for moment in moments.values():
                        await moment.wait()
                        await anyio.to_thread.run_sync(home.kill)
                        await anyio.to_thread.run_sync(home.start)

                tasks.start_soon(produce)
                tasks.start_soon(trouble)
                async with mq.subscribe("orders", prefetch=50) as messages:
                    async for message in messages:
                        seen[message.body] += 1
                        await message.ack()
                        if len(seen) == total:
                            break
                assert sorted(receipt.sequence for receipt in confirmed) == list(range(1, total + 1))
                await until(lambda: mq.reconnects >= len(moments) and mq.is_connected)
                assert (await mq.publish("orders", "one more")).sequence == total + 1
    finally:
        home.kill()
    assert sorted(seen) == list(range(total))


@pytest.mark.slow
@pytest.mark.long_where(anyio_backend="trio")
async def test_a_subscription_that_is_not_restored_sees_twice_only_what_was_in_hand(tmp_path: Path) -> None:
    """The program learns of the loss before anything is handed out again, and publishes go on meanwhile."""
    home = Home(tmp_path)
    home.start()
    total, kills, in_hand = 200, 3, 5
    seen: Counter[int] = Counter()
    try:
        with anyio.fail_after(60):
            async with vibemq.connect(home.url, reconnect=QUICK) as mq:
                changes: list[bool] = []
                mq.on_connection_change(lambda change: changes.append(change.connected))
                await mq.create_queue("orders", max_attempts=100, lost_connection="release")
                await mq.publish_many("orders", range(total - kills))
                for kill in range(kills):
                    async with mq.subscribe("orders", prefetch=128, restore=False) as messages:
                        held = [await anext(messages) for _ in range(in_hand)]
                        seen.update(message.body for message in held)
                        await anyio.to_thread.run_sync(home.kill)
                        await until(lambda: not mq.is_connected)
                        with pytest.raises(ConnectionLost):
                            await anext(messages)
                        assert (changes[-1], all(message.lost for message in held)) == (False, True)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(mq.publish, "orders", total - 1 - kill)
                        await anyio.to_thread.run_sync(home.start)
                async with mq.subscribe("orders", prefetch=128, restore=False) as messages:
                    async for message in messages:
                        seen[message.body] += 1
                        await message.ack()
                        if len(seen) == total:
                            break
    finally:
        home.kill()
    assert sorted(seen) == list(range(total))
    assert sum(seen.values()) == total + kills * in_hand


async def test_a_client_that_was_not_entered_says_how_to() -> None:
    mq = vibemq.connect("vibemq://127.0.0.1:1")
    assert not mq.is_connected
    for use in (mq.ping, lambda: mq.publish("q", 1), lambda: mq.fetch("q"), lambda: mq.create_queue("q")):
        with pytest.raises(NotConnected, match="async with"):
            await use()
    for begin in (lambda: mq.subscribe("q"), lambda: mq.publisher("q")):
        with pytest.raises(NotConnected, match="async with"):
            begin()
    assert not hasattr(mq, "publsh")
    # Hooks that shut down run also when those that start up have failed.
    await mq.close()


async def test_a_lease_without_a_limit_ends_with_the_connection(home: Home, queue: str) -> None:
    async with vibemq.connect(home.url) as mq:
        await mq.create_queue(queue, ack_timeout_ms=100, retry_base_ms=1, retry_max_ms=1, max_attempts=50)
        await mq.publish_many(queue, ["held", "expires"])
        async with vibemq.connect(home.url, reconnect=ReconnectPolicy(max_attempts=0)) as other:
            holder = other.subscribe(queue, prefetch=1, ack_timeout=0)
            await holder.start()
            held = await anext(holder)
            async with mq.subscribe(queue, prefetch=1) as messages:
                # Its lease has begun later and has ended already.
                assert [(await anext(messages)).attempt for _ in range(2)] == [1, 2]
                assert (held.body, held.lost, holder.held) == ("held", False, 1)
                connections = (await mq.admin("connections.list", limit=1_000))["connections"]
                mine = mq._link.protocol
                assert mine is not None
                for connection in connections:
                    if connection["connection_id"] != mine.connection_id:
                        await mq.admin("connections.close", connection_id=connection["connection_id"])
                while (message := await anext(messages)).body != "held":
                    await message.ack()
                assert message.attempt == 2
