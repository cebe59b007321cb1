"""Peers that read nothing, send garbage, or send it one byte at a time: whoever behaves is not disturbed."""

import socket
import struct
import threading
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.integration.conditions import Book, broker_on, resident_mib, running
from vibemq.protocols.native.codec.compression import Compression, compress
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TIMEOUT_S = 60
MIB = 1 << 20


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def answers(peer: socket.socket) -> list[WireMessage]:
    """Everything that comes until the broker hangs up."""
    reader, found = NativeFrameReader(), []
    while True:
        try:
            data = peer.recv(65_536)
        except ConnectionResetError:
            break
        if not data:
            break
        reader.receive_data(data)
        found += [decode_body(body) for body in reader.bodies()]
    return found


def connect_frame() -> bytes:
    return encode_frame(encode_body(CommandType.CONNECT, "c1"))


def subscribe_frame(queue: str) -> bytes:
    return encode_frame(encode_body(CommandType.SUBSCRIBE, "s1", queue=queue))


GARBAGE: dict[str, bytes] = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a frame of 4 GiB": HEADER.pack(0xFFFFFFFF, 0) + b"x",
    "a frame of 0 bytes": HEADER.pack(0, 0) + b"x",
    "an unknown flag": HEADER.pack(2, 77) + b"xx",
    "broken gzip": HEADER.pack(100, Compression.GZIP) + b"\x1f\x8b" + b"\xff" * 98,
    "a body that is none": HEADER.pack(64, 0) + b"\xff" * 64,
    "zeros": bytes(4096),
}


def garbage() -> dict[str, bytes]:
    """Also a bomb, which takes a while to pack."""
    bomb = compress(bytes(64 * MIB), Compression.GZIP)
    return {**GARBAGE, "a gzip bomb": HEADER.pack(len(bomb), Compression.GZIP) + bomb}


async def test_garbage_and_bombs_disturb_nobody(tmp_path: Path) -> None:
    """Each is sent before and after the handshake; each ends its own connection and no other."""
    limits = "[limits]\nhandshake_timeout_ms = 3000\n"
    with running(broker_on(tmp_path / "data", tmp_path, toml=limits)) as broker:
        book = Book()
        before = resident_mib(broker.pid)

        def attack() -> dict[str, list[WireMessage]]:
            heard = {}
            everything = garbage()
            for greeting in (b"", connect_frame()):
                for what, data in everything.items():
                    with dial(broker.port) as peer:
                        peer.sendall(greeting + data)
                        heard[f"{what}, {'greeted' if greeting else 'unknown'}"] = answers(peer)
            return heard

        def creep() -> float:
            """A frame that never ends, byte by byte; how it is cut off."""
            with dial(broker.port) as peer:
                frame = connect_frame()
                for byte in frame[:-1]:
                    try:
                        peer.sendall(bytes((byte,)))
                    except OSError:
                        return 0.0
                    threading.Event().wait(0.05)
                return float(len(answers(peer)))

        async with vibemq.connect(broker.url) as mq, anyio.create_task_group() as tasks:
            await mq.create_queue("q")
            worst = 0.0
            done = anyio.Event()

            async def work() -> None:
                nonlocal worst
                while not done.is_set():
                    began = anyio.current_time()
                    await book.publish(mq, "q", 20)
                    worst = max(worst, anyio.current_time() - began)
                    for message in await mq.fetch("q", max=20, timeout=1):
                        book.received.add(message.json()["n"])
                        message.ack()

            tasks.start_soon(work)
            heard = await anyio.to_thread.run_sync(attack)
            assert await anyio.to_thread.run_sync(creep) <= 1
            done.set()
        for what, messages in heard.items():
            errors = [m for m in messages if m.type == CommandType.ERROR]
            assert len(errors) <= 1, (what, messages)
            assert len(messages) <= 2, (what, messages)
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")
        assert book.lost == set()
        assert len(book.confirmed) > 100
        assert worst < 30
        assert resident_mib(broker.pid) - before < 100
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()


async def test_a_client_that_never_reads_harms_no_other(tmp_path: Path) -> None:
    """Both take a group of the same fan-out; the slow one's backlog waits on disk, not in memory."""
    with running(broker_on(tmp_path / "data", tmp_path)) as broker:
        book = Book()
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("news", mode="FAN_OUT_WITH_ACK", durability="weak")
            with dial(broker.port) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.sendall(connect_frame() + subscribe_frame("news"))
                async with mq.subscribe("news", prefetch=1000) as messages:
                    before = resident_mib(broker.pid)

                    async def publish() -> None:
                        for _ in range(80):
                            await book.publish(mq, "news", 100, size=10_000)

                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(publish)
                        with anyio.fail_after(60):
                            async for batch in messages.batches():
                                book.received.update(message.json()["n"] for message in batch)
                                batch.ack_all()
                                if len(book.received) == 8000:
                                    break
                    grown = resident_mib(broker.pid) - before
                info = await mq.queue_info("news")
                assert info is not None
                assert max(group.waiting + group.in_flight for group in info.groups) == 8000
            assert grown < 80, f"{grown} MiB more while 80 MiB waited for a client that never reads"
        assert broker.stop() == 0


async def test_half_a_frame_and_a_reset_are_only_their_senders_problem(tmp_path: Path) -> None:
    with running(broker_on(tmp_path / "data", tmp_path)) as broker:
        for _ in range(50):
            peer = dial(broker.port)
            peer.sendall(connect_frame() + encode_frame(encode_body(CommandType.PUBLISH, "p", queue="q"))[:-3])
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        async with vibemq.connect(broker.url) as mq:
            await mq.publish("q", {"n": 1})
            (message,) = await mq.fetch("q", max=10, timeout=60)
            message.ack()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()
