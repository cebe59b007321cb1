"""An access token is taken wherever a password or a token is, by every protocol and client; a revoked one by none.

Spark's is in tests/unit/spark, the command line's in test_cli_access.
"""

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import vibemq
import vibemq.sync
from tests.integration.conditions import running
from tests.integration.cursor_peer import Peer, Refusal
from tests.integration.test_omq_broker import Peer as OmqPeer
from tests.interop.omq import OmqBroker
from vibemq.cli.online import ONCE
from vibemq.errors import AuthFailed, VibeMQError
from vibemq.protocols.omq.frames import ACCEPTED, Error, SubscribedFrame

TOML = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    with running(OmqBroker(tmp_path_factory.mktemp("tokens"), toml=TOML)) as process:
        with root(process) as admin:
            admin.admin("user.add", user="ann", password="secret")
            admin.admin("user.grant", user="ann", queues="*", actions=["*"])
        yield process


def root(broker: OmqBroker) -> Any:
    return vibemq.sync.connect(broker.url, username="root", password="pw")


@pytest.fixture
def token(broker: OmqBroker) -> Iterator[str]:
    with root(broker) as admin:
        made = admin.admin("token.create", user="ann")
        yield made["token"]
        admin.admin("token.revoke", token_id=made["token_id"])


def blocking(**given: str) -> Callable[[OmqBroker, str], str]:
    """Connects with arguments, and says as whom. TOKEN stands for the token."""

    def who(broker: OmqBroker, token: str) -> str:
        arguments = {name: value.replace("TOKEN", token) for name, value in given.items()}
        address = arguments.pop("address", "vibemq://PLACE").replace("PLACE", f"127.0.0.1:{broker.port}")
        with vibemq.sync.connect(address, reconnect=ONCE, **arguments) as client:
            return str(client.admin("user.self")["user"])

    return who


def awaited(broker: OmqBroker, token: str) -> str:
    async def ask() -> str:
        async with vibemq.connect(broker.url, token=token, reconnect=ONCE) as client:
            return str((await client.admin("user.self"))["user"])

    return anyio.run(ask)


def frames(**headers: str) -> Callable[[OmqBroker, str], str]:
    def who(broker: OmqBroker, token: str) -> str:
        filled = {name: value.replace("TOKEN", token) for name, value in headers.items()}
        try:
            peer = Peer(broker.port, headers=filled)
        except Refusal as refusal:
            if refusal.code == "AUTH_FAILED":
                raise AuthFailed(str(refusal)) from None
            raise
        try:
            return str(peer.admin("user.self")["user"])
        finally:
            peer.close()

    return who


def ocaml(broker: OmqBroker, token: str) -> str:
    name = "ann"
    with OmqPeer(broker, ACCEPTED + f'(Connect 1 "{name}:{token}")'.encode()) as peer:
        peer.say(b"(Subscribe anything From_current)")
        frame = peer.frame()
        if isinstance(frame, Error):
            assert frame.text.startswith("authentication failed: ")
            raise AuthFailed(frame.text)
        assert isinstance(frame, SubscribedFrame)
    return name


WAYS: dict[str, Callable[[OmqBroker, str], str]] = {
    "argument token": blocking(token="TOKEN"),
    "argument token, asynchronous": awaited,
    "argument password": blocking(username="ann", password="TOKEN"),
    "url, token=": blocking(address="vibemq://PLACE?token=TOKEN"),
    "url, password": blocking(address="vibemq://ann:TOKEN@PLACE"),
    "url, password of nobody": blocking(address="vibemq://:TOKEN@PLACE"),
    "url, user and token=": blocking(address="vibemq://ann@PLACE?token=TOKEN"),
    "header authToken": frames(authToken="TOKEN"),
    "header authPassword": frames(authUsername="ann", authPassword="TOKEN"),
    "headers of both": frames(authUsername="ann", authToken="TOKEN"),
    "OCaml": ocaml,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_token_is_taken_and_a_wrong_one_is_not(
    way: Callable[[OmqBroker, str], str], broker: OmqBroker, token: str
) -> None:
    assert way(broker, token) == "ann"
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    with pytest.raises(AuthFailed):
        way(broker, wrong)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_revoked_token_is_refused(way: Callable[[OmqBroker, str], str], broker: OmqBroker) -> None:
    with root(broker) as admin:
        made = admin.admin("token.create", user="ann")
        admin.admin("token.revoke", token_id=made["token_id"])
    with pytest.raises(AuthFailed):
        way(broker, made["token"])


def test_connections_of_a_revoked_token_end_and_say_why(broker: OmqBroker) -> None:
    with root(broker) as admin:
        made, kept = (admin.admin("token.create", user="ann") for _ in range(2))
        hello = ACCEPTED + f'(Connect 1 "ann:{made["token"]}")'.encode()
        with (
            vibemq.sync.connect(broker.url, token=made["token"], reconnect=ONCE) as client,
            vibemq.sync.connect(broker.url, token=kept["token"]) as other,
            OmqPeer(broker, hello) as ocaml_peer,
        ):
            client.ping()
            ocaml_peer.subscribe("anything")
            admin.admin("token.revoke", token_id=made["token_id"])
            *_, last = ocaml_peer.rest()
            assert isinstance(last, Error)
            assert "the token was revoked" in last.text
            with pytest.raises(VibeMQError, match="the token was revoked"):
                call_for_ever(client)
            assert other.admin("user.self")["user"] == "ann", "who has come with another token stays"


def call_for_ever(client: Any) -> None:
    while True:
        client.ping()
