"""Connections are looked at one after the other when users change; what one of them asks before its turn is refused."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from pydantic import SecretStr

import vibemq
from tests.integration import test_long_work as long_work
from tests.integration.access import cheap_hash
from tests.integration.test_omq_broker import Door
from tests.integration.test_omq_broker import Peer as OmqPeer
from tests.waiting import WAIT_S, until
from vibemq.cli.online import ONCE
from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import NotAuthorized, VibeMQError
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.omq.frames import ACCEPTED, Error, SubscribedFrame
from vibemq.server.net import pacer

pytestmark = pytest.mark.anyio
ROOT = Auth(superuser="root", superuser_password=SecretStr("pw"))
LATE = "late"
"""A queue that only those make who should not be there any more."""


def settings(folder: Path) -> Settings:
    return Settings(
        data_dir=folder,
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0), Listener(port=0, protocol="omq")),
        http=Http(enabled=False),
        auth=ROOT,
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[vibemq.Broker]:
    async with vibemq.Broker(settings=settings(tmp_path)) as running:
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


async def test_a_subscription_that_is_made_behind_the_look_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands behind a long settlement of the same batch, and was admitted when its user still had the right."""
    count = 1_000
    async with (
        vibemq.Broker(settings=settings(tmp_path)) as broker,
        vibemq.connect(broker.url, username="root", password="pw") as root,
    ):
        # With a hash that is not made anew at the login, behind which users are looked at again.
        await root.admin("user.add", user="ann", password="pw")
        await root.admin("user.grant", user="ann", queues="held", actions=["*"])
        await root.admin("user.grant", user="ann", queues=LATE, actions=["subscribe"])
        await root.create_queue(LATE, durability="transient")
        async with long_work.Peer.connect(broker.port, authUsername="ann", authPassword="pw") as peer:
            await peer.receive("held", count)
            with monkeypatch.context() as patched:
                patched.setattr(pacer, "SHARE_S", 0.0)
                every_other = [(sequence, sequence) for sequence in range(1, count, 2)]
                subscribe = encode_body(CommandType.SUBSCRIBE, "late", LATE, b"", {})
                peer.send(extensions.settle("s", 0, every_other), subscribe)
                await until(lambda: any(driver.busy for driver in broker._running().connection_table.peers()))
                await root.admin("user.revoke", user="ann", queues=LATE)
            with anyio.fail_after(WAIT_S):
                told = await peer.answer(CommandType.SUBSCRIPTION_ENDED)
            assert b"'subscribe' on queue 'late'" in told
            [queue] = [queue for queue in await root.admin("queue.list") if queue["name"] == LATE]
            assert queue["consumers"] == 0


async def test_a_reader_that_has_waited_without_its_right_hears_nothing_of_what_came(broker: vibemq.Broker) -> None:
    async with (
        vibemq.connect(broker.url, username="root", password="pw") as root,
        vibemq.connect(broker.url, username="ann", password="old", reconnect=ONCE) as mq,
        anyio.create_task_group() as waiting,
    ):
        await root.admin("queue.create", queue="orders")
        polls = broker._running().long_polls
        refused: list[VibeMQError] = []

        async def read() -> None:
            with pytest.raises(NotAuthorized) as caught:
                await mq.admin("group.advance", queue="orders", wait_ms=30_000, **{"from": 1})
            refused.append(caught.value)

        waiting.start_soon(read)
        await until(lambda: bool(polls._waiting))
        await root.admin("user.revoke", user="ann", queues="*")
        assert not refused
        await root.publish("orders", 1)
    assert len(refused) == 1
