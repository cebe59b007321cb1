"""What has come is put aside each time, as behind very many others: everything is carried out in a later turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.interop.eventmesh import MeshWire
from tests.waiting import until
from vibemq.config import Http, Listener, Settings
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.broker import Broker
from vibemq.server.commit import backpressure
from vibemq.server.net.transport import Connection

pytestmark = pytest.mark.anyio


async def test_nothing_is_lost_or_passed_that_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "WORK_SHARE_S", 0.0)
    listeners = (Listener(port=0), Listener(protocol="eventmesh", port=0))
    settings = Settings(data_dir=tmp_path, listeners=listeners, http=Http(enabled=False))
    sent = [b"%d" % number for number in range(200)]
    # More than may be put aside of one connection.
    sent[100] = b"x" * (8 * backpressure.ASIDE_BYTES)
    async with Broker(settings=settings) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        with MeshWire(broker.listening[1].port):
            await mq.publish_many("q", sent[:50])
            for payload in sent[50:150]:
                await mq.publish("q", payload)
            await until(lambda: broker.connection_count == 2)
        await until(lambda: broker.connection_count == 1)
        await mq.publish_many("q", sent[150:])
        got = []
        async with mq.subscribe("q", prefetch=10) as messages:
            async for message in messages:
                got.append(message.payload)
                await message.ack()
                if len(got) == len(sent):
                    break
        assert got == sent


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that have been accepted, in order."""
    accepted: list[Connection] = []
    begin = Connection._begin

    def note(connection: Connection) -> None:
        accepted.append(connection)
        begin(connection)

    monkeypatch.setattr(Connection, "_begin", note)
    return accepted


def put_aside(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> None:
    """What comes of it from now on waits as behind very many others."""
    aside = connection._services.put_aside

    def later(receive: Callable[..., Any]) -> Callable[..., Any]:
        def received(one: Connection, *data: bytes) -> Any:
            if one is not connection:
                return receive(one, *data)
            with monkeypatch.context() as patched:
                patched.setattr(aside, "has_time", lambda: False)
                patched.setattr(aside, "add", lambda *_: None)
                return receive(one, *data)

        return received

    monkeypatch.setattr(Connection, "data_received", later(Connection.data_received))
    monkeypatch.setattr(Connection, "eof_received", later(Connection.eof_received))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = Settings(data_dir=tmp_path, listeners=(Listener(port=0),), http=Http(enabled=False))
    async with Broker(settings=settings) as broker:
        yield broker


async def test_what_was_put_aside_of_a_connection_that_is_lost_is_carried_out(
    broker: Broker, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish("q", b"one")
        async with vibemq.connect(broker.url) as other:
            theirs = connections[1]
            async with other.subscribe("q") as messages:
                message = await anext(messages)
                put_aside(monkeypatch, theirs)
                await message.ack()
                await until(lambda: theirs.peer.kept)
                theirs.transport.abort()
                await until(lambda: theirs._closed)
        # As long as its session lasts, the message is in flight.
        await until(lambda: broker.connection_count == 1)
        assert await mq.fetch("q", timeout=0.2) == []
        info = await mq.admin("queue.info", queue="q")
    assert (info["ready"], info["in_flight"], info["dead"]) == (0, 0, 0)


async def test_no_more_is_put_aside_of_a_connection_that_hears_answers(
    broker: Broker, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"\xff" * 60_000] * 100
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        (ours,) = connections
        put_aside(monkeypatch, ours)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mq.publish_many, "q", bodies)
            await until(lambda: not ours.is_read)
            before = ours.bytes_received
            for _ in range(50):
                # As each answer and each hand-out does.
                ours.wake()
                await asyncio.sleep(0)
            assert ours.peer.kept
            assert not ours.is_read
            assert ours.bytes_received - before < 2 * backpressure.SHARE_BYTES
            monkeypatch.undo()
            ours.work_off()
        info = await mq.admin("queue.info", queue="q")
    assert info["ready"] == len(bodies)


async def test_the_end_of_a_stream_waits_behind_what_was_put_aside_before(
    broker: Broker, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd that sends something and ends its side at once does not hold the loop either; all of it is answered."""
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(encode_frame(encode_body(CommandType.CONNECT, "c")))
        await reader.read(1)
        theirs = connections[1]
        put_aside(monkeypatch, theirs)
        writer.write(encode_frame(encode_body(CommandType.PUBLISH, "p", "q", b"1")))
        writer.write_eof()
        await until(lambda: theirs._peer_has_ended)
        assert theirs.peer.kept
        assert (await mq.admin("queue.info", queue="q"))["ready"] == 0
        monkeypatch.undo()
        theirs.work_off()
        assert await reader.read(), "the confirm, before the end"
        writer.close()
        assert (await mq.admin("queue.info", queue="q"))["ready"] == 1
