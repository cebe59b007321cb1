"""A broker in a thread, and both generations of native clients on raw sockets."""

import asyncio
import contextlib
import json
import socket
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from vibemq.config import Settings
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import WireMessage, decode_body, encode_body
from vibemq.testing.timed_broker import TimedBroker

WAIT_S = 60
TOKEN = "the-shared-secret"
ONE_MIB = 1_048_576


class RunningBroker:
    """A broker in a thread of its own, so that the tests can be plain blocking sockets. Its time stands still."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._failure: BaseException | None = None
        self.port = 0
        self.http_port = 0

    async def _run(self) -> None:
        try:
            async with TimedBroker(settings=self._settings) as broker:
                self.broker, self._loop = broker, asyncio.get_running_loop()
                self.port = broker.port
                if broker.http_address is not None:
                    self.http_port = broker.http_address[1]
                self._ready.set()
                await broker.run()
        except BaseException as error:
            self._failure = error
            self._ready.set()
            raise

    def __enter__(self) -> "RunningBroker":
        self._thread.start()
        assert self._ready.wait(60), "the broker does not start"
        assert self._failure is None, self._failure
        return self

    def advance(self, seconds: float) -> None:
        """Let so much time pass; what is due then has been done when this returns."""

        async def advance() -> None:
            self.broker.advance(seconds)

        asyncio.run_coroutine_threadsafe(advance(), self._loop).result(WAIT_S)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.broker.stop)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the broker does not stop"

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert self._failure is None, self._failure


class Wire:
    """One raw connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = NativeFrameReader()
        self._waiting: list[bytes] = []
        self._received = b""

    def send(self, kind: int, message_id: str, queue: str = "", payload: bytes = b"", headers: Any = ()) -> None:
        self.socket.sendall(encode_frame(encode_body(kind, message_id, queue, payload, headers)))

    def receive_body(self) -> bytes | None:
        """The next body; None when nothing comes. Raises ConnectionError at the end of the stream."""
        while not self._waiting:
            try:
                data = self.socket.recv(262_144)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionError("closed by the broker")
            self._received += data
            self._reader.receive_data(data)
            self._waiting += self._reader.bodies()
        return self._waiting.pop(0)

    def receive(self) -> WireMessage | None:
        body = self.receive_body()
        return None if body is None else decode_body(body)

    def expect(self, kind: int, message_id: str | None = None) -> WireMessage:
        message = self.receive()
        assert message is not None, f"no {T(kind).name} came"
        assert message.type == kind, message
        assert message_id is None or message.id == message_id, message
        return message

    def ask(self, kind: int, message_id: str, queue: str = "", payload: bytes = b"", headers: Any = ()) -> WireMessage:
        """Send, and return the answer with that id; deliveries that come in between are not lost."""
        self.send(kind, message_id, queue, payload, headers)
        between: list[bytes] = []
        while True:
            body = self.receive_body()
            assert body is not None, f"no answer to {message_id}"
            message = decode_body(body)
            if message.id == message_id and message.type != T.DELIVER:
                self._waiting = between + self._waiting
                return message
            between.append(body)

    def flags(self) -> list[int]:
        """How each frame so far was compressed."""
        flags, at = [], 0
        while at + HEADER.size <= len(self._received):
            size, flag = HEADER.unpack_from(self._received, at)
            flags.append(flag)
            at += HEADER.size + size
        return flags

    def expect_any(self) -> WireMessage:
        message = self.receive()
        assert message is not None, "nothing came"
        return message

    def is_closed(self) -> bool:
        """Whether the broker hangs up; its last words are read over."""
        with contextlib.suppress(ConnectionError):
            while self.receive() is not None:
                pass
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Form:
    """How one generation of clients says the same things."""

    name: str
    connect_headers: dict[str, str]
    acks: int = field(default=0)

    def __str__(self) -> str:
        return self.name

    def connect(self, port: int, **headers: str) -> Wire:
        wire = Wire(port)
        try:
            wire.send(T.CONNECT, "connect-1", headers=self.connect_headers | headers)
            wire.expect(T.CONNECT_ACK)
        except BaseException:
            wire.close()
            raise
        return wire

    def ack(self, wire: Wire, message_id: str) -> None:
        if self.name == "dotnet":
            wire.send(T.ACK, message_id)
        else:
            self.acks += 1
            wire.send(T.ACK, f"ack-{self.acks}", headers={"messageId": message_id})

    def create(self, wire: Wire, queue: str, **options: Any) -> None:
        """Options under .NET's names."""
        if self.name == "dotnet":
            answer = wire.ask(T.CREATE_QUEUE, f"create-{queue}", queue, json.dumps(options).encode())
        else:
            names = {"mode": "deliveryMode"}
            texts = {names.get(key, key): self._text(key, value) for key, value in options.items()}
            answer = wire.ask(T.CREATE_QUEUE, f"create-{queue}", queue, headers=texts)
        assert (answer.type, answer.queue) == (T.CREATE_QUEUE, queue), answer

    @staticmethod
    def _text(key: str, value: Any) -> str:
        modes = ("RoundRobin", "FanOutWithAck", "FanOutWithoutAck", "PriorityBased")
        overflows = ("DropOldest", "DropNewest", "BlockPublisher", "RedirectToDlq")
        if key == "mode":
            return modes[value]
        if key == "overflowStrategy":
            return overflows[value]
        return str(value).lower() if isinstance(value, bool) else str(value)


def dotnet() -> Form:
    return Form("dotnet", {"authUsername": "alice", "authPassword": "alices-password"})


def seed() -> Form:
    return Form("seed", {"authToken": TOKEN, "clientVersion": "1.0.0"})


def publish(wire: Wire, queue: str, message_id: str, payload: bytes = b"1", headers: Any = ()) -> WireMessage:
    return wire.ask(T.PUBLISH, message_id, queue, payload, headers)


def subscribe(wire: Wire, queue: str, message_id: str = "subscribe-1") -> WireMessage:
    answer = wire.ask(T.SUBSCRIBE, message_id, queue)
    assert answer.type == T.SUBSCRIBE_ACK, answer
    return answer


def is_silent(wire: Wire, form: Form, queue: str) -> bool:
    """Whether this subscriber of the queue gets nothing: the next message on it is the first that he hears of."""
    wire.send(T.PUBLISH, "marker", queue)
    heard = sorted((message.type, message.id) for message in (wire.expect_any(), wire.expect_any()))
    form.ack(wire, "marker")
    pong = wire.ask(T.PING, "after-the-marker")
    return heard == sorted([(T.PUBLISH_ACK, "marker"), (T.DELIVER, "marker")]) and pong.type == T.PONG


def info(wire: Wire, queue: str) -> dict[str, Any] | None:
    answer = wire.ask(T.QUEUE_INFO, f"info-{uuid4()}", queue)
    assert answer.type == T.QUEUE_INFO, answer
    return None if answer.payload is None else json.loads(answer.payload)
