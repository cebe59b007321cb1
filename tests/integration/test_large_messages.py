"""Messages above 1 MiB through a whole broker, with each provider."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.conditions import BIN, broker_on, running
from vibemq import sync
from vibemq.errors import MessageTooLarge, VibeMQError
from vibemq.protocols.native.codec.extensions import publish_one
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LIMITS = "[limits]\nmessage_memory_bytes = 33554432\n"


def dead_letters(url: str) -> list[dict[str, Any]]:
    command = [BIN / "vibemq-admin", "dlq", "ls", "--json", "--url", url]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="lmdb")
async def test_messages_of_all_sizes_in_order_and_after_a_crash(tmp_path: Path, provider: str) -> None:
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider, toml=LIMITS)
    sizes = [5, 3 * MIB, 70, 16 * MIB, MIB - 4_200, MIB + 1, 9]
    bodies = [bytes((index,)) + os.urandom(size) for index, size in enumerate(sizes)]
    with running(broker):
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            for body in bodies[:4]:
                await mq.publish("q", body)
            report = await mq.publish_many("q", bodies[4:])
            assert report.accepted == 3
        broker.kill()
        broker.wait()
    with running(broker):
        received = []
        async with vibemq.connect(broker.url) as mq:
            with anyio.fail_after(60):
                while len(received) < len(bodies):
                    for message in await mq.fetch("q", max=3, timeout=5):
                        received.append(message.body)
                        message.ack()
        assert [len(body) for body in received] == [len(body) for body in bodies]
        assert received == bodies
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.parametrize("large_first", [True, False])
async def test_a_large_message_keeps_its_place_among_priorities(
    tmp_path: Path, provider: str, large_first: bool
) -> None:
    bodies = [bytes(2 * MIB), b"small", b"third"]
    normal, high, lowest = bodies if large_first else (bodies[1], bodies[0], bodies[2])
    with running(broker_on(tmp_path / "data", tmp_path, provider=provider)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q", mode="priority_based")
            await mq.publish("q", normal, priority="normal")
            await mq.publish("q", lowest, priority="low")
            await mq.publish("q", high, priority="high")
            received = []
            with anyio.fail_after(30):
                async with mq.subscribe("q", prefetch=10) as messages:
                    async for message in messages:
                        received.append((message.sequence, message.body))
                        if len(received) == 3:
                            break
            assert received == [(3, high), (1, normal), (2, lowest)]


async def test_a_large_message_that_falls_due_first_comes_first(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish("q", b"second", delay=3600)
        await mq.publish("q", bytes(2 * MIB), delay=1800)
        broker.advance(7200)
        received = []
        with anyio.fail_after(30):
            async with mq.subscribe("q") as messages:
                async for message in messages:
                    received.append((message.sequence, len(message.body)))
                    message.ack()
                    if len(received) == 2:
                        break
        assert received == [(2, 2 * MIB), (1, 6)]


async def test_a_large_message_that_was_checkpointed_is_read_from_the_store(tmp_path: Path) -> None:
    body = os.urandom(5 * MIB)
    broker = broker_on(tmp_path / "data", tmp_path, toml="[storage.settings]\ncheckpoint_ms = 100\n")
    with running(broker):
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            await mq.publish("q", body)
        assert broker.stop() == 0
    with running(broker):
        async with vibemq.connect(broker.url) as mq:
            [message] = await mq.fetch("q", max=1, timeout=30)
            assert message.body == body
            await message.reject(reason="for the dead letters")
        [letter] = await anyio.to_thread.run_sync(dead_letters, broker.url)
        assert letter["error"] == "for the dead letters"


async def test_the_client_refuses_what_was_not_agreed(tmp_path: Path) -> None:
    limits = f"[limits]\nmessage_bytes_max = {2 * MIB}\n"
    with running(broker_on(tmp_path / "data", tmp_path, toml=limits)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            await mq.publish("q", bytes(2 * MIB))
            with pytest.raises(MessageTooLarge, match=r"2,\d+,\d+ bytes.*limits.message_bytes_max.*max_message_bytes"):
                await mq.publish("q", bytes(2 * MIB + 70_000))
        async with vibemq.connect(broker.url, max_message_bytes=MIB // 2) as small:
            with pytest.raises(MessageTooLarge):
                await small.publish("q", bytes(MIB))


async def test_a_consumer_with_a_smaller_limit_has_the_message_dead_lettered(tmp_path: Path) -> None:
    with running(broker_on(tmp_path / "data", tmp_path)) as broker:
        async with vibemq.connect(broker.url) as mq, vibemq.connect(broker.url, max_message_bytes=MIB) as small:
            await mq.create_queue("q")
            await mq.publish("q", bytes(3 * MIB))
            await mq.publish("q", b"next")
            with anyio.fail_after(30):
                async with small.subscribe("q") as messages:
                    async for message in messages:
                        assert message.body == b"next"
                        message.ack()
                        break
        [letter] = await anyio.to_thread.run_sync(dead_letters, broker.url)
        assert letter["error"] == f"too large for this protocol: this consumer takes frames of {MIB + 65_536:,} bytes"


async def test_a_message_above_the_limit_is_answered_before_the_end(tmp_path: Path) -> None:
    limits = f"[limits]\nmessage_bytes_max = {2 * MIB}\n"
    with running(broker_on(tmp_path / "data", tmp_path, toml=limits)) as broker:
        with Peer(broker.port, 1 << 40) as peer:
            assert peer.agreed == 2 * MIB + 65_536
            peer.socket.sendall(HEADER.pack(2 * MIB + 65_537, 0))
            assert "2,162,688" in str(peer.last().error_message)
        with Peer(broker.port, 0) as peer:
            assert peer.agreed == 0
            peer.socket.sendall(HEADER.pack(MIB + 1, 0))
            assert "1,048,576" in str(peer.last().error_message)


async def test_who_stops_in_the_middle_gives_its_memory_to_others(tmp_path: Path) -> None:
    """The memory has room for one of them: the second waits, is told that it does, and gets it."""
    limits = f"[limits]\nmessage_memory_bytes = {6 * MIB}\nmessage_timeout_ms = 3000\n"
    row = b"\0\1a" + (2 * MIB).to_bytes(4, "big") + bytes(2 * MIB) + b"\0\0"
    head = publish_one("r", "q", len(row), None)
    frame = HEADER.pack(len(head) + len(row), 0) + head + row
    with running(broker_on(tmp_path / "data", tmp_path, toml=limits)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")

            def talk() -> tuple[WireMessage, list[int]]:
                with Peer(broker.port, 1 << 30) as slow, Peer(broker.port, 1 << 30) as other:
                    slow.socket.sendall(frame[: 2 * MIB])
                    slow.ping()
                    sending = threading.Thread(target=other.socket.sendall, args=(frame,))
                    sending.start()
                    kinds = other.kinds_until(CommandType.PUBLISH_MANY_ACK)
                    sending.join()
                    return slow.last(), kinds

            with anyio.fail_after(60):
                told, kinds = await anyio.to_thread.run_sync(talk)
            assert "limits.message_timeout_ms" in str(told.error_message)
            assert kinds[0] == CommandType.PONG
            # Others are not held up by it.
            await mq.publish("q", b"small")


class Peer:
    """A socket that has shaken hands."""

    def __init__(self, port: int, max_body_bytes: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        headers = {"supported-extensions": "batch/1"}
        if max_body_bytes:
            headers["max-body-bytes"] = str(max_body_bytes)
        self._reader = NativeFrameReader()
        self._messages = self._read()
        self.socket.sendall(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers)))
        self.agreed = int(next(self._messages).headers.get("max-body-bytes", 0))

    def _read(self) -> Iterator[WireMessage]:
        while data := self.socket.recv(65_536):
            self._reader.receive_data(data)
            for body in self._reader.bodies():
                if body[1] == CommandType.PUBLISH_MANY_ACK:
                    yield WireMessage(body[1], "")
                else:
                    yield decode_body(body)

    def ping(self) -> None:
        """Nothing can be asked in the middle of a frame; give the broker the time to read what was sent."""
        threading.Event().wait(0.3)

    def kinds_until(self, kind: int) -> list[int]:
        kinds = []
        for message in self._messages:
            kinds.append(message.type)
            if message.type == kind:
                break
        return kinds

    def last(self) -> WireMessage:
        return list(self._messages)[-1]

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def test_the_blocking_client_carries_them_too(tmp_path: Path) -> None:
    body = os.urandom(3 * MIB)
    with running(broker_on(tmp_path / "data", tmp_path)) as broker, sync.connect(broker.url) as mq:
        mq.create_queue("q")
        mq.publish("q", body)
        [message] = mq.fetch("q", max=1, timeout=30)
        assert message.body == body
        message.ack()


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_what_was_confirmed_survives_kills_in_the_middle(tmp_path: Path, provider: str) -> None:
    """Killed while a message of 6 MiB is on its way into the journal, four times at other places."""
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider, toml=LIMITS)
    confirmed: set[int] = set()
    noise = os.urandom(6 * MIB)

    async def publish(number: int) -> None:
        async with vibemq.connect(broker.url, reconnect=vibemq.ReconnectPolicy(max_attempts=1)) as mq:
            await mq.create_queue("q")
            while True:
                await mq.publish("q", number.to_bytes(4, "big") + noise)
                confirmed.add(number)
                number += 1

    async def publish_until_killed(first: int, seconds: float) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, first)
            while max(confirmed, default=-1) < first:
                await anyio.sleep(0.001)
            await anyio.sleep(seconds)
            broker.kill()

    for kill in range(4):
        with running(broker):
            with anyio.fail_after(60):
                with pytest.raises(BaseExceptionGroup) as ended:
                    await publish_until_killed(kill * 1_000, 0.02 + 0.03 * kill)
            assert ended.group_contains(VibeMQError)
            broker.wait()
    with running(broker):
        received: set[int] = set()
        async with vibemq.connect(broker.url) as mq:
            with anyio.fail_after(60):
                while messages := await mq.fetch("q", max=2, timeout=1):
                    for message in messages:
                        assert message.body[4:] == noise
                        received.add(int.from_bytes(message.body[:4], "big"))
                        message.ack()
        assert confirmed <= received
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()


async def test_what_was_published_before_a_large_message_stays_before_it(tmp_path: Path) -> None:
    """Also when both come with one read."""
    async with vibemq.Broker(tmp_path) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        for _ in range(5):
            async with anyio.create_task_group() as tasks:
                for body in (b"1", b"2" * (1 << 20), b"3"):
                    tasks.start_soon(mq.publish_many, "q", [body])
            received = []
            with anyio.fail_after(60):
                while len(received) < 3:
                    for message in await mq.fetch("q", max=3, timeout=5):
                        received.append(message.payload[:1])
                        await message.ack()
            assert received == [b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [1_044_500, 1_046_000, 1_048_000, 1_060_000])
async def test_a_message_just_above_an_ordinary_frame_and_others_behind_it(tmp_path: Path, size: int) -> None:
    async with vibemq.Broker(tmp_path) as broker, vibemq.connect(broker.url) as mq:
        bodies = {"large": os.urandom(size), "other": b"small", "third": os.urandom(size)}
        for queue in bodies:
            await mq.create_queue(queue)
        async with anyio.create_task_group() as tasks:
            for queue, body in bodies.items():
                tasks.start_soon(mq.publish, queue, body)
        for queue, body in bodies.items():
            [message] = await mq.fetch(queue)
            assert message.payload == body
        assert mq.reconnects == 0


async def test_a_large_message_that_has_failed_comes_again_with_its_attempts(tmp_path: Path) -> None:
    async with vibemq.Broker(tmp_path) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("q", bytes(2 * MIB))
        seen = []
        for verb in ("retry", "release", "retry", "ack"):
            [message] = await mq.fetch("q")
            assert len(message.payload) == 2 * MIB
            seen.append((message.attempt, message.failures))
            if verb == "retry":
                message.retry(delay=0)
            else:
                getattr(message, verb)()
        assert seen == [(1, 0), (2, 1), (3, 1), (4, 2)]
        assert mq.reconnects == 0
