"""The life of a user as a .NET client sees it, byte by byte, and the same life through the Python client."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_users import Service
from vibemq.cli.online import ONCE
from vibemq.errors import AuthFailed, NotAuthorized, VibeMQError
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body

VECTORS = json.loads(Path(__file__).parents[1].joinpath("vectors/dotnet-users.json").read_text())
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("dotnet") / "data")
    yield service
    service.kill()


class Wire:
    """Sends bytes as they are, and reads one frame at a time."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S))
        self._reader = NativeFrameReader()
        self._bodies: list[bytes] = []

    def ask(self, data: bytes) -> bytes:
        """The body of the answer."""
        self._socket.sendall(data)
        return self.receive()

    def receive(self) -> bytes:
        while not self._bodies:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._reader.receive_data(data)
            self._bodies += self._reader.bodies()
        return self._bodies.pop(0)


def test_the_recorded_life_of_a_user(service: Service) -> None:
    with ExitStack() as stack:
        wires: dict[str, Wire] = {}
        for step in VECTORS["steps"]:
            who, note = step["from"], step["note"]
            wire = wires.get(who) or wires.setdefault(who, Wire(service.port, stack))
            body = wire.ask(bytes.fromhex(step["send"]))
            answer = decode_body(body)
            assert answer.id == decode_body(bytes.fromhex(step["send"])[5:]).id, note
            if "receive" in step:
                assert encode_frame(body, body_bytes_max=1 << 20).hex() == step["receive"], (note, answer)
            elif "error" in step:
                assert (answer.type, answer.error_code) == (CommandType.ERROR, step["error"]), (note, answer)
                assert answer.error_message, note
            else:
                assert answer.type == step["type"], (note, answer)
                if "payload" in step:
                    assert without_instants(answer.payload) == step["payload"], note
        for who in ("alice", "old"):
            goodbye = decode_body(wires[who].receive())
            assert goodbye.type == CommandType.DISCONNECT
            assert "user 'alice' was removed" in goodbye.headers["reason"]


def without_instants(payload: bytes | None) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(payload or b"")
    for user in listed:
        created_at = user.pop("createdAt")
        assert isinstance(created_at, int)
        assert created_at > 1_700_000_000 or user["username"] == "root", "seconds; 0 for a user of the settings"
    return listed


def test_the_same_life_through_the_python_client(service: Service) -> None:
    with service.connect() as root:
        root.admin("user.add", user="bob", password="first")
        with service.connect("bob", "first", reconnect=ONCE) as bob:
            with pytest.raises(NotAuthorized):
                bob.publish("jobs.eu", 1)
            root.admin("user.grant", user="bob", queues="jobs.*", actions=["publish", "create"])
            bob.publish("jobs.eu", 1)
            with pytest.raises(NotAuthorized):
                bob.publish("other", 1)
            assert [user["user"] for user in root.admin("user.list")["users"]] == ["bob", "root"]
            shown = bob.admin("user.show", user="bob")["permissions"]
            assert shown == [{"queues": "jobs.*", "actions": ["create", "publish"]}]
            bob.admin("user.password", user="bob", password="second")
            with pytest.raises(AuthFailed):
                service.connect("bob", "first")
            with service.connect("bob", "second") as again:
                again.publish("jobs.eu", 2)
            root.admin("user.revoke", user="bob", queues="jobs.*")
            with pytest.raises(NotAuthorized):
                bob.publish("jobs.eu", 3)
            root.admin("user.remove", user="bob")
            with pytest.raises(VibeMQError):
                bob.publish("jobs.eu", 4)
        with pytest.raises(AuthFailed):
            service.connect("bob", "second")
