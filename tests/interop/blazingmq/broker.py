"""A broker with a BlazingMQ listener, and its clients: the model SDK on a socket."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.interop.blazingmq.model_sdk import ModelSdk
from tests.interop.configured import ConfiguredBroker
from tests.waiting import WAIT_S
from vibemq.protocols.blazingmq.codec.control import decode_authentication, encode_authentication
from vibemq.protocols.blazingmq.codec.events import ControlCodec, EventReader
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    AuthenticationResponse,
    ControlChoice,
    StatusCategory,
)

PRIORITY, FANOUT, BROADCAST = "bmq.test.mmap.priority", "bmq.test.mmap.fanout", "bmq.test.mem.broadcast"
DOMAINS = f"""
[protocols.blazingmq.domains."{PRIORITY}"]
mode = "priority"

[protocols.blazingmq.domains."{FANOUT}"]
mode = "fanout"
app_ids = ["foo", "bar", "baz"]

[protocols.blazingmq.domains."{BROADCAST}"]
mode = "broadcast"
"""
"""Those that the test suites of BlazingMQ's SDKs expect."""
APPS = ("foo", "bar", "baz")


class BlazingmqBroker(ConfiguredBroker):
    """`vibemq serve` with native and BlazingMQ listeners."""

    def __init__(self, folder: Path, *, toml: str = "", domains: str = DOMAINS) -> None:
        super().__init__(folder, ["blazingmq"], toml=toml, last=domains)

    @property
    def bmq_port(self) -> int:
        return self.ports["blazingmq"]

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.bmq_port}"


class ModelClient:
    """A model SDK with a blocking socket. What it is sent is judged as it is read."""

    def __init__(self, port: int, sdk: ModelSdk | None = None, *, hello: bool = True) -> None:
        self.sdk = sdk or ModelSdk()
        self._port = port
        self.socket = self._connect()
        if hello:
            self.greet()

    def _connect(self) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def greet(self) -> None:
        self.say(self.sdk.hello())
        self.until(lambda: self.sdk.welcome)

    def log_in(self, user: str, password: str) -> None:
        """Before it greets."""
        request = AuthenticationRequest(mechanism="basic", data=f"{user}:{password}".encode())
        self.say(encode_authentication(ControlCodec.BER, request))
        reader = EventReader(event_bytes_max=10_000, control_bytes_max=10_000)
        while not (events := reader.read()):
            reader.receive_data(self.socket.recv(10_000))
        answer = decode_authentication(events[0])
        assert isinstance(answer, AuthenticationResponse)
        assert answer.status.category is StatusCategory.E_SUCCESS

    def reconnect(self) -> None:
        self.socket.close()
        self.sdk.reconnected()
        self.socket = self._connect()
        self.greet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, holds: Callable[[], Any]) -> Any:
        """Read until the condition holds; return what it is then."""
        while not (found := holds()):
            self.read_once()
        return found

    def read_once(self) -> None:
        data = self.socket.recv(1 << 18)
        assert data, "the broker has closed the connection"
        self.sdk.hear(data)
        while self.sdk.replies:
            self.say(self.sdk.replies.pop(0))

    def ask(self, request: tuple[int, bytes]) -> ControlChoice:
        """Send a request and wait for its answer."""
        r_id, data = request
        self.say(data)
        answer: ControlChoice = self.until(lambda: self.sdk.got.responses.get(r_id))
        return answer

    def at_its_end(self) -> bytes:
        """What comes until the broker closes the connection."""
        parts = []
        while data := self.socket.recv(1 << 16):
            parts.append(data)
        return b"".join(parts)

    # -- what tests say often -----------------------------------------------------------------------------------------

    def open_reader(self, uri: str, q_id: int = 0, *, flags: int = 2, sub_id: int | None = None, **how: Any) -> None:
        """Open and configure. `how`: of `ModelSdk.configure`."""
        app_id = how.get("app_id", "")
        self.ask(self.sdk.open(uri, q_id, flags=flags, sub_id=sub_id, app_id=app_id))
        self.ask(self.sdk.configure(q_id, **how))

    def pushed(self, count: int) -> list[bytes]:
        """Wait until so many messages have been pushed in all; return the payloads of all of them."""
        self.until(lambda: len(self.sdk.got.pushes) >= count)
        return self.payloads()

    def payloads(self) -> list[bytes]:
        return [push.data for push in self.sdk.got.pushes]

    def post_and_wait(self, q_id: int, *payloads: bytes, **how: Any) -> None:
        self.say(self.sdk.post(q_id, *payloads, **how))
        self.until(lambda: not self.sdk.unacked)

    def disconnect(self) -> None:
        self.ask(self.sdk.disconnect())
        self.socket.close()
