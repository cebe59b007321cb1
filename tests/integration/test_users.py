"""Users that the broker keeps: made, changed and removed while it runs, through a client and through .NET's frames."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.integration.cursor_peer import Peer
from tests.integration.test_server_process import Process
from vibemq.errors import AuthFailed, Forbidden, NotAuthorized, UserExists, UserNotFound
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body


class Service:
    """A broker with a superuser of the settings, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start()

    def start(self) -> None:
        self.process = Process(
            self._folder,
            VIBEMQ_LISTENERS=json.dumps([{"protocol": "native", "port": 0}]),
            VIBEMQ_AUTH__SUPERUSER="root",
            VIBEMQ_AUTH__SUPERUSER_PASSWORD="pw",
        )
        self.port = next(event["port"] for event in self.process.events if event.get("protocol") == "native")

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)

    def connect(self, user: str = "root", password: str = "pw", **more: Any) -> Any:
        return vibemq.sync.connect(f"vibemq://127.0.0.1:{self.port}", username=user, password=password, **more)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "data")
    yield service
    service.kill()


def test_what_was_answered_holds_after_a_kill(service: Service) -> None:
    with service.connect() as root:
        root.admin("user.add", user="ann", password="secret")
        with pytest.raises(UserExists):
            root.admin("user.add", user="ann", password="other")
        root.admin("user.grant", user="ann", queues="orders.*", actions=["publish", "create"])
        token = root.admin("token.create", user="ann", label="nightly")["token"]
        root.admin("user.add", user="bob", password="secret")
        root.admin("user.remove", user="bob")
    service.kill()
    service.start()
    with service.connect("ann", "secret") as ann:
        ann.publish("orders.eu", 1)
        with pytest.raises(NotAuthorized):
            ann.publish("jobs", 1)
        with pytest.raises(NotAuthorized):
            ann.admin("user.list")
    with service.connect("", "", token=token) as ann:
        assert ann.admin("user.self")["user"] == "ann"
    with pytest.raises(AuthFailed):
        service.connect("bob", "secret")
    with service.connect() as root:
        assert [user["user"] for user in root.admin("user.list")["users"]] == ["ann", "root"]
        with pytest.raises(Forbidden, match="stands in the broker's settings"):
            root.admin("user.remove", user="root")
        with pytest.raises(UserNotFound):
            root.admin("user.remove", user="bob")


def test_a_revocation_counts_for_the_next_command(service: Service) -> None:
    with service.connect() as root:
        root.admin("user.add", user="ann", password="secret")
        root.admin("user.grant", user="ann", queues="*", actions=["*"])
        with service.connect("ann", "secret") as ann:
            ann.publish("q", 1)
            root.admin("user.revoke", user="ann", queues="*")
            with pytest.raises(NotAuthorized):
                ann.publish("q", 2)


def asked(peer: Peer, kind: CommandType, **fields: Any) -> Any:
    peer.send(encode_body(kind, "u1", payload=json.dumps(fields).encode()))
    reply = decode_body(peer.receive())
    if reply.type == CommandType.ERROR:
        return reply.error_code
    assert (reply.type, reply.id) == (kind, "u1")
    return json.loads(reply.payload)


def test_the_frames_of_dotnet_clients(service: Service) -> None:
    with ExitStack() as ends:
        speak_as_dotnet(service, ends)


def speak_as_dotnet(service: Service, ends: ExitStack) -> None:
    root = Peer(service.port, headers={"authUsername": "root", "authPassword": "pw"})
    ends.callback(root.close)
    create, grant = CommandType.ADMIN_CREATE_USER, CommandType.ADMIN_GRANT_PERMISSION
    assert asked(root, create, username="alice", password="secret") == {"username": "alice"}
    assert asked(root, create, username="alice", password="secret") == "USER_EXISTS"
    assert asked(root, create, username="a b", password="secret") == "INVALID_PAYLOAD"
    alice = Peer(service.port, headers={"authUsername": "alice", "authPassword": "secret"})
    ends.callback(alice.close)
    assert asked(alice, create, username="eve", password="x") == "NOT_AUTHORIZED"
    some = ["Publish", "Nonsense", "ListQueues"]
    granted = asked(root, grant, username="alice", queuePattern="orders.*", operations=some)
    assert granted == {"username": "alice", "queuePattern": "orders.*", "operations": ["Publish", "ListQueues"]}
    assert asked(root, grant, username="alice", queuePattern="q", operations=["Nonsense"]) == "INVALID_PAYLOAD"
    shown = asked(alice, CommandType.ADMIN_GET_USER_PERMISSIONS, username="alice")
    assert shown == [{"queuePattern": "orders.*", "operations": ["Publish", "ListQueues"]}]
    assert asked(root, CommandType.ADMIN_GET_USER_PERMISSIONS, username="nobody") == []
    assert asked(alice, CommandType.ADMIN_GET_USER_PERMISSIONS, username="root") == "NOT_AUTHORIZED"
    users = asked(root, CommandType.ADMIN_LIST_USERS)
    assert [(user["username"], user["isSuperuser"]) for user in users] == [("alice", False), ("root", True)]
    assert asked(alice, CommandType.ADMIN_CHANGE_PASSWORD, username="alice", newPassword="new") == {"username": "alice"}
    with pytest.raises(AuthFailed):
        service.connect("alice", "secret")
    revoked = asked(root, CommandType.ADMIN_REVOKE_PERMISSION, username="alice", queuePattern="orders.*")
    assert revoked == {"username": "alice", "queuePattern": "orders.*"}
    assert asked(root, CommandType.ADMIN_DELETE_USER, username="root") == "FORBIDDEN"
    assert asked(root, CommandType.ADMIN_DELETE_USER, username="alice") == {"username": "alice"}
    assert asked(root, CommandType.ADMIN_DELETE_USER, username="alice") == "USER_NOT_FOUND"
    assert asked(root, CommandType.ADMIN_DELETE_USER) == "INVALID_PAYLOAD"
