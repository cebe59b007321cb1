"""Queues that go away by themselves, with a whole broker: what dead clients leave behind, and what their end costs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from pydantic import ValidationError

import vibemq
from tests.crash.forked_command import CONTEXT
from tests.integration.fake_broker import QUICK
from tests.waiting import until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq.config import Settings
from vibemq.errors import ConfigInvalid, InvalidOptions, QueueExclusive
from vibemq.model.commands import CreateQueue
from vibemq.model.effects import Departure
from vibemq.model.options import Durability, QueueOptions
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

CLIENTS = 100
QUEUES = 10_000


@pytest.fixture(params=["lmdb", "sqlite", "memory"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TimedBroker]:
    async with TimedBroker(tmp_path / "data", storage=request.param) as broker:
        yield broker


def removed(broker: TimedBroker) -> dict[str, int]:
    return {str(why): count for why, count in broker.metrics_counters.queues_removed.items() if count}


async def one_client(url: str, number: int) -> object:
    mq = vibemq.connect(url)
    await mq.open()
    await mq.create_queue(f"reply.{number}", exclusive=True, durability="async")
    await mq.create_queue(f"events.{number}", auto_delete=True)
    await mq.create_queue(f"results.{number}", expires=3600)
    await mq.publish(f"reply.{number}", b"x")
    subscription = mq.subscribe(f"events.{number}")
    await subscription.__aenter__()
    return mq, subscription


def be_clients(url: str, numbers: range, ready: Connection) -> None:
    """The life of a process: many clients, until it is killed."""

    async def live() -> None:
        clients = await asyncio.gather(*(one_client(url, number) for number in numbers))
        ready.send(len(clients))
        await asyncio.Event().wait()

    asyncio.run(live())


@pytest.mark.parametrize("processes", [4, pytest.param(10, marks=pytest.mark.long)])
async def test_nothing_is_left_behind_by_crowds_of_clients_that_die(tmp_path: Path, processes: int) -> None:
    async with TimedBroker(tmp_path / "data") as broker:
        await die_in_crowds(broker, processes)


async def die_in_crowds(broker: TimedBroker, processes: int) -> None:
    for number in range(processes):
        reader, writer = CONTEXT.Pipe(duplex=False)
        numbers = range(number * CLIENTS, (number + 1) * CLIENTS)
        process = CONTEXT.Process(target=be_clients, args=(broker.url, numbers, writer))
        with reader, writer:
            process.start()
            try:
                assert await to_thread.run_sync(reader.poll, 120)
                assert reader.recv() == CLIENTS
                assert broker.metrics()["active_queues"] == (number + 3) * CLIENTS
            finally:
                process.kill()
                process.join()
        await until(lambda: not broker.connection_count)
        await until(lambda number=number: broker.metrics()["active_queues"] == (number + 1) * CLIENTS)
    total = processes * CLIENTS
    # Counted when it is on disk, and so a little later than it is gone.
    await until(lambda: removed(broker) == {"auto_delete": total, "exclusive": total})
    broker.advance(3_600)
    await until(lambda: not broker.list_queues())
    await until(lambda: removed(broker) == {"auto_delete": total, "exclusive": total, "expired": total})


async def test_ten_thousand_that_expire_at_once_leave_the_loop_to_others(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data") as broker:
        local = broker._running().local_session
        made = 0

        async def prepared(attempt: int) -> None:
            nonlocal made
            for number in range(QUEUES):
                name, options = f"q{attempt}-{number}", QueueOptions(expires_ms=60_000, durability=Durability.WEAK)
                await asyncio.sleep(0)
                broker._running().decider.decide([CreateQueue(9, None, name, options)])
            made += QUEUES
            await local.ask(lambda session, token: CreateQueue(session, token, "stays"))
            broker.advance_unseen(60)

        async def expire(_: None) -> None:
            broker._running().timers.look_now()
            with anyio.fail_after(60):
                while removed(broker).get("expired", 0) < made:
                    await asyncio.sleep(0)

        with unlogged():
            assert await longest_hold_s(expire, prepared) <= HOLD_S_MAX
        assert [info.name for info in broker.list_queues()] == ["stays"]


@contextmanager
def unlogged() -> Iterator[None]:
    """The lines of the log are no part of what is measured: the test runner keeps them all."""
    logger = logging.getLogger("vibemq.queues")
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)


async def test_others_are_refused_and_may_reply(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url) as mine, vibemq.connect(broker.url) as other:
        await mine.create_queue("replies", exclusive=True)
        refused = [
            other.create_queue("replies"),
            other.declare("replies", exclusive=True),
            other.fetch("replies", max=1, timeout=0),
            other.change_queue("replies", max_attempts=2),
            other.purge_queue("replies"),
            other.delete_queue("replies"),
            other.admin("group.join", queue="replies", group="readers"),
        ]
        for asked in refused:
            with pytest.raises(QueueExclusive, match="belongs to another connection"):
                await asked
        await other.publish("replies", b"42")
        (message,) = await mine.fetch("replies", max=1, timeout=60)
        assert message.payload == b"42"
        message.ack()
    await until(lambda: broker.queue_info("replies") is None)


async def test_single_messages_and_dead_letters_belong_to_the_owner(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url) as mine, vibemq.connect(broker.url) as other:
        await mine.create_queue("replies", exclusive=True)
        await other.create_queue("kept")
        await mine.publish_many("replies", [b"1", b"2", b"3", b"4", b"5"])
        for message in await mine.fetch("replies", max=3, timeout=60):
            message.reject("unwanted")
        await until(lambda: (info := broker.queue_info("replies")) is not None and info.dead == 3)
        refused = [
            ("dlq.purge", {"queue": "replies"}),
            ("dlq.purge", {}),
            ("dlq.replay", {"queue": "replies", "to": "kept"}),
            ("dead.redrive", {"queue": "replies", "to": "kept", "ids": [1, 2, 3]}),
            ("message.remove", {"queue": "replies", "sequences": [4]}),
            ("queue.move", {"queue": "replies", "to": "kept"}),
        ]
        for name, arguments in refused:
            with pytest.raises(QueueExclusive, match="belongs to another connection"):
                await other.admin(name, **arguments)
        assert (await mine.admin("dlq.purge", queue="replies", ids=[1]))["count"] == 1
        assert (await mine.admin("dlq.replay", queue="replies", ids=[2], to="kept"))["count"] == 1
        assert (await mine.admin("dead.redrive", queue="replies", ids=[3], to="kept"))["redriven"] == 1
        assert (await mine.admin("message.remove", queue="replies", sequences=[4]))["count"] == 1
        assert (await mine.admin("queue.move", queue="replies", to="kept"))["count"] == 1


async def test_a_removal_is_logged_with_its_reason(broker: TimedBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vibemq.queues"):
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("mine", exclusive=True)
        await until(lambda: removed(broker) == {str(Departure.EXCLUSIVE): 1})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "vibemq.queues"]
    assert line == "queue 'mine' was deleted: the connection that it belonged to has ended (exclusive)"


@pytest.mark.parametrize("storage", ["lmdb", "sqlite"])
async def test_after_a_restart_only_what_may_still_be_wanted_is_there(tmp_path: Path, storage: str) -> None:
    async with TimedBroker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("reply", exclusive=True)
        await mq.create_queue("events", auto_delete=True)
        await mq.create_queue("waiting", auto_delete=True)
        await mq.create_queue("results", expires=60)
        await mq.publish("waiting", b"x")
        async with mq.subscribe("events"):
            names = {info.name for info in broker.list_queues()}
            assert names == {"reply", "events", "waiting", "results"}
            await broker.stop()
    async with TimedBroker(tmp_path / "data", storage=storage) as broker:
        await until(lambda: {info.name for info in broker.list_queues()} == {"waiting", "results"})
        info = broker.queue_info("waiting")
        assert info is not None
        assert info.ready == 1
        broker.advance(59)
        assert broker.queue_info("results") is not None
        broker.advance(1)
        await until(lambda: broker.queue_info("results") is None)


async def test_a_client_that_connects_again_has_its_queues_again(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data", storage="sqlite") as broker:
        async with vibemq.connect(broker.url, reconnect=QUICK) as mq:
            await mq.create_queue("reply", exclusive=True, max_attempts=7)
            await mq.create_queue("events", auto_delete=True, max_attempts=8)
            await mq.create_queue("forgotten", auto_delete=True)
            async with mq.subscribe("forgotten"):
                pass
            async with mq.subscribe("reply") as replies, mq.subscribe("events") as events:
                for connection in broker._running().connection_table:
                    connection.drop("the test cuts it")
                await until(lambda: removed(broker) == {"exclusive": 1, "auto_delete": 2})
                for queue, subscription, attempts in (("reply", replies, 7), ("events", events, 8)):
                    await mq.publish(queue, b"again")
                    message = await anext(subscription)
                    assert message.payload == b"again"
                    info = broker.queue_info(queue)
                    assert info is not None
                    assert info.options.max_attempts == attempts
                assert broker.queue_info("forgotten") is None
        await until(lambda: not broker.list_queues())


async def test_delayed_messages_go_with_their_queue(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url, reconnect=QUICK) as mq:
        await mq.create_queue("reply", exclusive=True)
        await mq.create_queue("events", auto_delete=True)
        await mq.create_queue("results", expires=30)
        async with mq.subscribe("events"):
            for queue in ("reply", "events", "results"):
                await mq.publish_many(queue, range(10), delay=50)
        for connection in broker._running().connection_table:
            connection.drop("the test cuts it")
        await until(lambda: removed(broker) == {"exclusive": 1, "auto_delete": 1} and broker.queue_info("reply"))
        # A connection that is silent for two minutes of the broker would end.
        broker.advance(30)
        await until(lambda: broker.queue_info("results") is None)
        await mq.publish("reply", "of the new one", delay=30)
        broker.advance(30)
        assert [message.body for message in await mq.fetch("reply", max=99, timeout=60)] == ["of the new one"]
    await until(lambda: not broker.list_queues() and not broker.waits)


async def test_a_queue_is_created_anew_with_the_options_that_it_was_given_last(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url, reconnect=QUICK) as mq:
        await mq.create_queue("replies", exclusive=True, max_messages=1_000, max_attempts=7)
        await mq.change_queue("replies", max_messages=5)
        await mq.create_queue("stays", expires=3600)
        await mq.change_queue("stays", expires=0, max_messages=6)
        await mq.declare("declared", exclusive=True)
        await mq.declare("declared", exclusive=True, max_messages=7, on_conflict="override")
        for connection in broker._running().connection_table:
            connection.drop("the test cuts it")
        await until(lambda: removed(broker) == {"exclusive": 2} and broker.queue_info("declared") is not None)
        assert mq._link.restored.passing.request_of("stays") is None
        infos = [await mq.queue_info(queue) for queue in ("replies", "stays", "declared")]
        assert [info and info.options.max_messages for info in infos] == [5, 6, 7]


async def test_a_client_remembers_no_dry_run(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url) as mq:
        remembered = mq._queues._link.restored.passing
        await mq.admin("queue.create", queue="tried", options={"exclusive": True}, dry_run=True)
        assert len(remembered) == 0
        await mq.create_queue("mine", exclusive=True)
        request = remembered.request_of("mine")
        await mq.admin("queue.change", queue="mine", changes={"max_attempts": 3}, dry_run=True)
        await mq.admin("queue.delete", queue="mine", dry_run=True)
        assert request is not None
        assert remembered.request_of("mine") == request


async def test_settings_declare_no_exclusive_queue(tmp_path: Path) -> None:
    for changes in ({"queue_defaults": {"exclusive": True}}, {"queues": {"q": {"exclusive": True}}}):
        with pytest.raises((ValidationError, ConfigInvalid), match="exclusive cannot be set here"):
            Settings(data_dir=tmp_path, **changes)  # type: ignore[arg-type]  # of one of them
    Settings(data_dir=tmp_path, queue_defaults={"expires_ms": 5, "auto_delete": True})


async def test_a_queue_cannot_be_made_exclusive_later(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        with pytest.raises(InvalidOptions, match="exclusive"):
            await mq.change_queue("q", exclusive=True)
        (found,) = await mq.declare("q", exclusive=True)
        assert (found.option, found.severity) == ("exclusive", "hard")
