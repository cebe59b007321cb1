"""A broker outside a block: started by one task, used by others, stopped by another one."""

import asyncio
import logging
import os
import signal
import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from subprocess import run
from threading import Thread, Timer
from typing import Any

import anyio
import orjson
import pytest

import vibemq
from tests.waiting import WAIT_S
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.errors import ConfigInvalid, StorageFailed, StorageLocked
from vibemq.model.options import Durability
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


async def in_a_task(work: Any) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)


@pytest.mark.parametrize("storage", ["lmdb", "sqlite", "memory"])
async def test_one_task_starts_it_and_another_one_stops_it(tmp_path: Path, storage: str) -> None:
    broker = Broker(tmp_path / "data", storage=storage, http_port=0)

    async def use() -> None:
        async with vibemq.connect(broker.url) as mq:
            # Options that say nothing of the durability, as .NET clients, which have no word for it, give them.
            await mq.create_queue("q", max_attempts=5)
            await mq.publish("q", b"x")
            info = await mq.queue_info("q")
        assert info is not None
        durability = Durability.TRANSIENT if storage == "memory" else Durability.STRONG
        assert (info.options.max_attempts, info.options.durability) == (5, durability)

    async def stop() -> None:
        await broker.stop()

    for work in (broker.start, use, stop, stop):
        await in_a_task(work)
    assert broker.status.draining
    with pytest.raises(OSError, match="failed"):
        await anyio.connect_tcp("127.0.0.1", broker.port)
    if storage != "memory":
        async with Broker(tmp_path / "data", storage=storage) as again:
            info = again.queue_info("q")
            assert info is not None
            assert info.ready == 1


async def test_what_prevents_the_start_reaches_who_starts(tmp_path: Path) -> None:
    first = Broker(tmp_path / "data")
    await first.start()
    second = Broker(tmp_path / "data")
    with pytest.raises(StorageLocked):
        await second.start()
    await second.stop()
    third = Broker(tmp_path / "other", port=first.port)
    with pytest.raises(ConfigInvalid, match="port"):
        await third.start()
    # It has let go of its store.
    async with Broker(tmp_path / "other"):
        await first.stop()


DURABLE_TOPICS = {"durability": "strong"}
DURABLE_DOMAIN = {"domains": {"orders.*": {"durability": "weak"}}}


@pytest.mark.parametrize(
    ("protocol", "asked", "setting"),
    [
        ("eventmesh", DURABLE_TOPICS, "durability is strong"),
        ("eventmesh-http", DURABLE_TOPICS, "durability is strong"),
        ("blazingmq", DURABLE_DOMAIN, r"domains\.orders\.\*\.durability is weak"),
    ],
)
@pytest.mark.parametrize("place", ["listener", "protocol"])
async def test_a_durability_that_the_storage_cannot_have_prevents_the_start(
    tmp_path: Path, protocol: str, asked: dict[str, Any], setting: str, place: str
) -> None:
    def broker(asked: dict[str, Any], **storage: Any) -> Broker:
        own, shared = (asked, {}) if place == "listener" else ({}, {protocol: asked})
        return Broker(
            settings=Settings(
                storage=StorageChoice(provider="memory", settings=storage),
                listeners=(Listener(protocol=protocol, port=0, settings=own),),
                protocols=shared,
                http=Http(enabled=False),
                data_dir=tmp_path,
            )
        )

    with pytest.raises(ConfigInvalid, match=r"durability: .*'sure'"):
        await broker(orjson.loads(orjson.dumps(asked).replace(b"strong", b"sure").replace(b"weak", b"sure"))).start()
    with pytest.raises(ConfigInvalid, match=f"the {protocol} listener's setting {setting}.* 'memory' keeps nothing"):
        await broker(asked).start()
    async with broker(asked, allow_durable_queues=True):
        pass
    transient = {"domains": {"orders.*": {"durability": "transient"}, "x": {}}} if "domains" in asked else {}
    async with broker(transient or {"durability": "transient"}), broker({}):
        pass


async def test_a_broker_that_has_no_address_says_why(tmp_path: Path) -> None:
    listeners = (Listener(protocol="omq", port=0),)
    settings = Settings(
        storage=StorageChoice(provider="memory"), listeners=listeners, http=Http(enabled=False), data_dir=tmp_path
    )
    broker = Broker(settings=settings)
    for address in (lambda: broker.port, lambda: broker.url):
        with pytest.raises(RuntimeError, match="is not running"):
            address()
    async with broker:
        assert broker.port > 0
        with pytest.raises(RuntimeError, match="no native listener"):
            assert broker.url


async def test_who_gives_up_starting_lets_go_of_the_store(tmp_path: Path) -> None:
    for turns in (0, 1, 3, 10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Broker(tmp_path / "data").start)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    async with Broker(tmp_path / "data"):
        pass


async def test_whoever_waits_is_told_that_the_broker_has_ended_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path / "data")
    await broker.start()
    heard: list[StorageFailed] = []

    async def wait() -> None:
        try:
            await broker.run()
        except StorageFailed as error:
            heard.append(error)

    with caplog.at_level(logging.CRITICAL + 1):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            broker._fatal(StorageFailed("the disk is gone"))
    assert [str(error) for error in heard] == ["the disk is gone"] * 2
    with pytest.raises(StorageFailed, match="gone"):
        await broker.stop()


async def test_stopping_in_a_block_ends_it_there(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data") as broker:
        await broker.stop()
        await broker.run()
        async with Broker(tmp_path / "data"):
            pass


def test_a_program_that_forgets_to_stop_loses_nothing_and_ends(tmp_path: Path) -> None:
    program = """
import asyncio, sys, vibemq

async def main():
    broker = vibemq.Broker(sys.argv[1])
    await broker.start()
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", durability="async")
        await mq.publish_many("q", [{"n": n} for n in range(100)])

asyncio.run(main())
"""
    for _ in range(2):
        ended = run([sys.executable, "-c", program, tmp_path / "data"], capture_output=True, timeout=120, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")

    async def look() -> int:
        async with Broker(tmp_path / "data") as broker:
            info = broker.queue_info("q")
            assert info is not None
            return info.ready

    assert asyncio.run(look()) == 200


@pytest.mark.parametrize("who", ["thread", "signal"])
def test_another_thread_or_the_handler_of_a_signal_stops_it(who: str) -> None:
    started: Future[Broker] = Future()

    async def live() -> None:
        broker = Broker(storage="memory")
        await broker.start()
        if who == "signal":
            signal.signal(signal.SIGUSR1, lambda *_: broker.stop())
            Timer(0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        started.set_result(broker)
        await broker.run()

    # asyncio tells of what is not safe among threads only when it is asked to.
    run_broker = partial(asyncio.run, live(), debug=True)
    if who == "signal":
        before = signal.getsignal(signal.SIGUSR1)
        try:
            run_broker()
        finally:
            signal.signal(signal.SIGUSR1, before)
    else:
        thread = Thread(target=run_broker)
        thread.start()
        started.result(WAIT_S).stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
    started.result().stop()


async def test_only_its_own_thread_looks_into_it() -> None:
    """A look counts what has come since the last one, which the loop may be doing at the same time."""
    async with Broker(storage="memory") as broker:
        looks = (broker.list_queues, partial(broker.queue_info, "q"), broker.metrics, broker.health)
        for look in looks:
            with pytest.raises(RuntimeError, match=r"thread.*vibemq\.sync\.connect"):
                await asyncio.to_thread(look)
            look()


def test_between_two_runs_of_its_loop_it_may_be_looked_into() -> None:
    with asyncio.Runner() as runner:
        broker = Broker(storage="memory")
        runner.run(broker.start())
        assert broker.list_queues() == []
        runner.run(_stopped(broker))


async def _stopped(broker: Broker) -> None:
    await broker.stop()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_trio_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="asyncio"):
        await Broker(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


async def test_it_is_started_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", storage="sqlite")
    await broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        await broker.run()
    await broker.start()
    with pytest.raises(RuntimeError, match="started once"):
        await broker.start()
    await broker.stop()
    with pytest.raises(RuntimeError, match="started once"):
        await broker.start()
