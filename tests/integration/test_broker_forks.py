"""An embedded broker in a process that forks: the child keeps nothing of it open, and says so when it is used there."""

import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vibemq
from tests.waiting import exit_code_of, until

pytestmark = pytest.mark.anyio

PROVIDERS = ["lmdb", "sqlite"]


@contextmanager
def a_child_that_lives() -> Iterator[int]:
    """Forked now; it lives until the end of the block."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield child
    finally:
        os.close(writing)
        assert exit_code_of(child) == 0


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_child_that_lives_on_keeps_neither_the_directory_nor_the_port(tmp_path: Path, provider: str) -> None:
    broker = vibemq.Broker(data_dir=tmp_path / "queues", storage=provider, http_port=0)
    await broker.start()
    port, http = broker.port, broker.http_address
    assert http is not None
    async with vibemq.connect(broker.url) as mq:
        await mq.publish("orders", 1)
        with a_child_that_lives():
            assert (await mq.publish("orders", 2)).sequence == 2, "the parent's broker serves on"
            async with vibemq.connect(broker.url) as another:
                await another.publish("orders", 3)
            await mq.close()
            await broker.stop()
            for number in (port, http[1]):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", number))
            async with vibemq.Broker(data_dir=tmp_path / "queues", storage=provider, port=port) as again:
                assert [info.ready for info in again.list_queues()] == [3]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_child_has_no_file_of_the_store_open(tmp_path: Path, provider: str) -> None:
    """Of the program's own files in the directory, standard output and the like stay."""

    def held(process: int | str) -> list[str]:
        folder = Path("/proc", str(process), "fd")
        links = [os.readlink(each) for each in folder.iterdir() if os.path.lexists(each)]
        return [link for link in links if link.startswith(str(tmp_path))]

    async with vibemq.Broker(tmp_path / "queues", storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("orders", 1)
        assert held("self")
        with a_child_that_lives() as child:
            # It lets go before it runs anything, which may be after the parent goes on.
            await until(lambda: not held(child))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_child_is_told_whatever_it_asks_the_broker(tmp_path: Path, provider: str) -> None:
    async with (
        vibemq.Broker(tmp_path / "queues", storage=provider, http_port=0) as broker,
        vibemq.connect(broker.url) as mq,
    ):
        await mq.publish("orders", 1)
        child = os.fork()
        if not child:
            status = 1
            try:
                await refused_in_a_child(broker)
                # A block that is left there, as the client's, ends nothing.
                await mq.__aexit__(None, None, None)
                await broker.__aexit__(None, None, None)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                # Python's event loops cannot be left in a child that was forked in a coroutine.
                os._exit(status)
        assert exit_code_of(child) == 0
        assert (await mq.publish("orders", 2)).sequence == 2
        assert [info.ready for info in broker.list_queues()] == [2]
    async with vibemq.Broker(tmp_path / "queues", storage=provider) as again:
        assert [info.ready for info in again.list_queues()] == [2]


async def refused_in_a_child(broker: vibemq.Broker) -> None:
    assert broker.url.startswith("vibemq://127.0.0.1:")
    for refused in (
        broker.stop,
        broker.list_queues,
        broker.metrics,
        broker.health,
        lambda: broker.queue_info("orders"),
    ):
        with pytest.raises(RuntimeError, match="forked from"):
            refused()
    for refused_later in (broker.start, broker.run, broker.reload, broker.time_has_moved):
        with pytest.raises(RuntimeError, match="forked from"):
            await refused_later()
