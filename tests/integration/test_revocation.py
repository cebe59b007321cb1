"""Connections are looked at one after the other when users change; what one of them asks before its turn is refused."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

import pytest
from anyio import to_thread
from pydantic import SecretStr

import vibemq
from tests.integration.access import cheap_hash
from tests.integration.test_omq_broker import Door
from tests.integration.test_omq_broker import Peer as OmqPeer
from vibemq.cli.online import ONCE
from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import VibeMQError
from vibemq.protocols.omq.frames import ACCEPTED, Error, SubscribedFrame

pytestmark = pytest.mark.anyio
ROOT = Auth(superuser="root", superuser_password=SecretStr("pw"))
LATE = "late"
"""A queue that only those make who should not be there any more."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[vibemq.Broker]:
    settings = Settings(
        data_dir=tmp_path,
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0), Listener(port=0, protocol="omq")),
        http=Http(enabled=False),
        auth=ROOT,
    )
    async with vibemq.Broker(settings=settings) as running:
        async with vibemq.connect(running.url, username="root", password="pw") as root:
            await root.admin("user.add", user="ann", password_hash=cheap_hash("old"))
            await root.admin("user.grant", user="ann", queues="*", actions=["*"])
        # The turn of no connection comes.
        running._running().users._end_revoked = nobodys_turn
        yield running


async def nobodys_turn(names: Collection[str]) -> None:
    pass


async def removed(root: vibemq.Client, token_id: str) -> None:
    await root.admin("user.remove", user="ann")


async def password_changed(root: vibemq.Client, token_id: str) -> None:
    await root.admin("user.password", user="ann", password="new")


async def token_revoked(root: vibemq.Client, token_id: str) -> None:
    await root.admin("token.revoke", token_id=token_id)


Change = Callable[[vibemq.Client, str], Awaitable[None]]
BY_PASSWORD, BY_TOKEN = "old", ""
CASES: dict[str, tuple[str, Change, str]] = {
    "removed": (BY_PASSWORD, removed, "user 'ann' was removed"),
    "password changed": (BY_PASSWORD, password_changed, "the password of user 'ann' was changed"),
    "token revoked": (BY_TOKEN, token_revoked, "the token was revoked"),
}


@pytest.mark.parametrize(("secret", "change", "reason"), CASES.values(), ids=CASES)
async def test_a_request_before_its_turn_is_refused(
    broker: vibemq.Broker, secret: str, change: Change, reason: str
) -> None:
    async with vibemq.connect(broker.url, username="root", password="pw") as root:
        made = await root.admin("token.create", user="ann")
        secret = secret or made["token"]
        door = Door(broker.listening[1].port)
        omq = await to_thread.run_sync(OmqPeer, door, ACCEPTED + f'(Connect 1 "ann:{secret}")'.encode())
        with omq:
            await to_thread.run_sync(omq.subscribe, "early")
            async with vibemq.connect(broker.url, username="ann", password=secret, reconnect=ONCE) as mq:
                await mq.publish("early", 1)
                await change(root, made["token_id"])
                with pytest.raises(VibeMQError, match=reason):
                    await mq.publish(LATE, 1)
            frame = await to_thread.run_sync(_ask_for, omq, LATE)
            assert reason in frame.text
        assert [queue["name"] for queue in await root.admin("queue.list")] == ["early"]


def _ask_for(peer: OmqPeer, topic: str) -> Error:
    peer.say(f"(Subscribe {topic} From_current)\n".encode())
    while not isinstance(frame := peer.frame(), Error):
        assert not isinstance(frame, SubscribedFrame)
    return frame
