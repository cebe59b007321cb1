"""Users that the broker keeps: made, changed and removed while it runs, through a client and through .NET's frames."""

import base64
import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.integration.access import cheap_hash, connected
from tests.integration.cursor_peer import Peer, Refusal
from tests.integration.served import Served
from tests.waiting import wait_until
from vibemq.cli.online import ONCE
from vibemq.errors import (
    AuthFailed,
    Forbidden,
    InvalidPayload,
    NotAuthorized,
    TokenNotFound,
    UserExists,
    UserNotFound,
    VibeMQError,
)
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.net.operation_runner import OWN_CHANGES_AT_ONCE


class Service:
    """A broker with a superuser of the settings, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start()

    def start(self) -> None:
        self.process = Served(
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


@pytest.fixture
def hang_up() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


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


def test_the_frames_of_dotnet_clients(service: Service, hang_up: ExitStack) -> None:
    root = hang_up.enter_context(closing(Peer(service.port, headers={"authUsername": "root", "authPassword": "pw"})))
    create, grant = CommandType.ADMIN_CREATE_USER, CommandType.ADMIN_GRANT_PERMISSION
    assert asked(root, create, username="alice", password="secret") == {"username": "alice"}
    assert asked(root, create, username="alice", password="secret") == "USER_EXISTS"
    assert asked(root, create, username="a b", password="secret") == "INVALID_PAYLOAD"
    credentials = {"authUsername": "alice", "authPassword": "secret"}
    alice = hang_up.enter_context(closing(Peer(service.port, headers=credentials)))
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


def test_some_actions_are_taken_away_and_others_stay(service: Service) -> None:
    with service.connect() as root:
        root.admin("user.add", user="ann", password="secret")
        root.admin("user.grant", user="ann", queues="orders.*", actions=["publish", "create", "inspect"])
        assert root.admin("user.revoke", user="ann", queues="orders.*", actions=["inspect", "purge"])["revoked"] is True
        assert root.admin("user.revoke", user="ann", queues="orders.*", actions=["inspect"])["revoked"] is False
        assert root.admin("user.show", user="ann")["permissions"] == [
            {"queues": "orders.*", "actions": ["create", "publish"]}
        ]
        with pytest.raises(InvalidPayload, match="'dance' is not an action"):
            root.admin("user.revoke", user="ann", queues="orders.*", actions=["dance"])
        allowed = root.admin("user.allowed", action="publish", queues="orders.eu")["users"]
        assert [user["user"] for user in allowed] == ["ann", "root"]
        with service.connect("ann", "secret") as ann, pytest.raises(NotAuthorized):
            ann.admin("user.allowed", action="publish", queues="orders.eu")


def test_no_password_is_taken_for_a_token(service: Service) -> None:
    with service.connect() as root:
        with pytest.raises(InvalidPayload, match="form of an access token"):
            root.admin("user.add", user="ann", password=f"vmq_{'0' * 12}_{'0' * 64}")
        root.admin("user.add", user="ann", password="vmq_")
    with service.connect("ann", "vmq_") as ann:
        ann.ping()


def test_a_superuser_needs_no_name_to_revoke_a_token(service: Service) -> None:
    with service.connect() as root:
        for name in ("ann", "bob"):
            root.admin("user.add", user=name, password="secret")
        token = root.admin("token.create", user="ann")
        with service.connect("bob", "secret") as bob:
            for arguments in ({}, {"user": "ann"}):
                with pytest.raises(NotAuthorized):
                    bob.admin("token.revoke", token_id=token["token_id"], **arguments)
            with pytest.raises(TokenNotFound):
                bob.admin("token.revoke", token_id=token["token_id"], user="bob")
        with pytest.raises(TokenNotFound):
            root.admin("token.revoke", token_id="0" * 12)
        assert root.admin("token.revoke", token_id=token["token_id"])["user"] == "ann"
        with pytest.raises(AuthFailed):
            service.connect("", "", token=token["token"])


def test_changes_of_oneself_are_limited_by_every_door_together(tmp_path: Path) -> None:
    broker = Served(tmp_path / "data", VIBEMQ_AUTH__SUPERUSER="root", VIBEMQ_AUTH__SUPERUSER_PASSWORD="pw")
    try:
        with connected(broker.ports["native"], "root", password="pw") as root:
            root.admin("user.add", user="ann", password_hash=cheap_hash("secret"))
        with connected(broker.ports["native"], "ann", password="secret") as ann:
            for _ in range(OWN_CHANGES_AT_ONCE):
                made = ann.admin("token.create", user="ann")
                ann.admin("token.revoke", user="ann", token_id=made["token_id"])
            with pytest.raises(Refusal, match="RATE_LIMITED"):
                ann.admin("token.create", user="ann")
        basic = base64.b64encode(b"ann:secret").decode()
        status, _, answer = broker.get("/api/v1/users/ann/tokens", Authorization=f"Basic {basic}")
        assert (status, json.loads(answer)["items"]) == (200, [])
        request = urllib.request.Request(
            f"http://127.0.0.1:{broker.ports['http']}/api/v1/users/ann/tokens",
            data=b"{}",
            headers={"Authorization": f"Basic {basic}", "Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as error:
            assert (error.code, error.headers["Retry-After"]) == (429, "10")
            assert json.load(error)["code"] == "RATE_LIMITED"
        with connected(broker.ports["native"], "root", password="pw") as root:
            assert root.admin("token.create", user="ann")["user"] == "ann"
    finally:
        broker.end(signal.SIGTERM)


def call_for_ever(client: Any) -> None:
    while True:
        client.ping()


def test_a_closed_client_is_told_why(service: Service) -> None:
    with service.connect() as root:
        root.admin("user.add", user="ann", password="secret")
        with service.connect("ann", "secret", reconnect=ONCE) as ann:
            with pytest.raises(NotAuthorized):
                ann.admin("connections.close", user="root")
            assert root.admin("connections.close", user="ann", reason="maintenance")["closed"] == 1
            with pytest.raises(VibeMQError, match="operator closed this connection: maintenance"):
                call_for_ever(ann)
        [mine] = root.admin("connections.list")
        assert mine["user"] == "root", "which has gone on"
        with pytest.raises(Forbidden, match="the connection that asks"):
            root.admin("connections.close", connection_id=mine["connection_id"])
        with service.connect("ann", "secret") as ann:
            [closed] = [each for each in root.admin("connections.list") if each["user"] == "ann"]
            assert root.admin("connections.close", connection_id=closed["connection_id"])["closed"] == 1
            assert ann.admin("queue.list") == [], "it has connected again"


def test_users_see_and_close_their_own_connections_and_no_others(service: Service) -> None:
    with service.connect() as root:
        for user in ("ann", "ben"):
            root.admin("user.add", user=user, password="secret")
        foreign = root.admin("connections.list")[0]["connection_id"]
        with service.connect("ann", "secret") as ann, service.connect("ann", "secret", reconnect=ONCE) as other:
            for wanted in ({}, {"user": "root"}, {"user": "ben"}):
                with pytest.raises(NotAuthorized):
                    ann.admin("connections.list", **wanted)
            with pytest.raises(NotAuthorized):
                ann.admin("connections.close", connection_id=foreign)
            assert ann.admin("connections.close", connection_id=foreign, user="ann")["closed"] == 0
            assert {each["user"] for each in ann.admin("connections.list", user="ann", limit=9)["connections"]} == {
                "ann"
            }
            assert ann.admin("connections.close", user="ann")["closed"] == 1
            with pytest.raises(VibeMQError, match="closed this connection"):
                call_for_ever(other)
        token = root.admin("token.create", user="ann")["token"]
        with service.connect("ann", token) as narrow, pytest.raises(NotAuthorized, match="not with a token"):
            narrow.admin("connections.list", user="ann")


def test_who_has_not_logged_in_is_closed_too(service: Service) -> None:
    with service.connect() as root, socket.create_connection(("127.0.0.1", service.port), timeout=60) as stranger:

        def close() -> bool:
            unknown = [each["connection_id"] for each in root.admin("connections.list") if each["user"] is None]
            return bool(unknown) and root.admin("connections.close", connection_id=unknown[0])["closed"] == 1

        wait_until(close)
        told = b""
        while data := stranger.recv(4096):
            told += data
        assert b"the broker ends this connection (the broker's operator closed this connection)" in told
