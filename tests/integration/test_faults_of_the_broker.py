"""A bug that one connection meets ends that connection only; its peer is told, and the log has all of it."""

import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.test_server_broker import Peer, settings
from tests.waiting import until
from vibemq.auth.users import Accounts
from vibemq.config import Auth
from vibemq.errors import StorageFailed, VibeMQError
from vibemq.operations.registry import Call
from vibemq.protocols.native import NativeSession
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

CEILING_S = 60


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(settings=settings(tmp_path / "data", auth=Auth(token=SecretStr("secret")))) as broker:
        yield broker


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"", **headers: str) -> bytes:
    body = encode_body(kind, message_id, queue, payload, headers)
    return struct.pack("!IB", len(body), 0) + body


def bug(*arguments: Any) -> Any:
    raise ZeroDivisionError("a bug")


async def bug_later(*arguments: Any) -> Any:
    raise ZeroDivisionError("a bug")


async def check_told_and_closed(peer: Peer) -> None:
    message = decode_body(await peer.frame())
    assert (message.type, message.error_code) == (CommandType.ERROR, "SERVER_ERROR")
    await peer.until_closed()


def check_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert any(record.exc_info is not None for record in caplog.records), "with its traceback"


def connect(broker: Broker) -> Any:
    return vibemq.connect(broker.url, token="secret")


async def test_a_bug_in_the_check_of_credentials(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(broker) as mq:
        monkeypatch.setattr(Accounts, "authenticate", bug)
        async with Peer.to(broker, greet=False) as peer:
            await peer.send(frame(CommandType.CONNECT, "c", authToken="secret"))
            await check_told_and_closed(peer)
        await mq.publish("q", 1)
    check_logged(caplog)


@pytest.mark.parametrize("verb", ["apply", "commands", "next_deadline", "data_to_send"])
async def test_a_bug_in_a_session(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    async with connect(broker) as mq, Peer.to(broker, greet=False) as peer:
        await peer.send(frame(CommandType.CONNECT, "c", authToken="secret"))
        await peer.frame()
        sound: Callable[..., Any] = getattr(NativeSession, verb)
        unlucky = max(connection.number for connection in broker._running().connection_table)
        failed: list[str] = []

        def fail_once(session: NativeSession, *arguments: Any) -> Any:
            if session._state.session == unlucky and not failed:
                failed.append(verb)
                bug()
            return sound(session, *arguments)

        monkeypatch.setattr(NativeSession, verb, fail_once)
        await peer.send(frame(CommandType.PUBLISH, "m", "q", b"1"))
        message = decode_body(await peer.frame())
        if message.type == CommandType.PUBLISH_ACK:
            message = decode_body(await peer.frame())
        assert (message.type, message.error_code) == (CommandType.ERROR, "SERVER_ERROR")
        await peer.until_closed()
        await mq.publish("q", 1)
    check_logged(caplog)


async def test_a_bug_in_a_request_that_takes_its_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(broker) as mq:
        monkeypatch.setattr(Call, "run", bug_later)
        with pytest.raises(VibeMQError):
            await mq.admin("broker.info")
        await mq.publish("q", 1)


async def test_a_bug_in_the_housekeeping(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker._running().housekeeping, "_sweep", bug)
    await until(lambda: any("housekeeping" in record.message for record in caplog.records))
    async with connect(broker) as mq:
        await mq.publish("q", 1)
    check_logged(caplog)


async def test_storage_that_failed_in_a_task_of_a_connection_still_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*arguments: Any) -> Any:
        raise StorageFailed("the disk is gone")

    with pytest.raises(StorageFailed, match="the disk is gone"):  # noqa: PT012  # the context is what raises
        auth = Auth(superuser="root", superuser_password=SecretStr("secret"))
        async with Broker(settings=settings(tmp_path, auth=auth)) as broker:
            monkeypatch.setattr(Accounts, "authenticate", failed)
            async with Peer.to(broker, greet=False) as peer:
                await peer.send(frame(CommandType.CONNECT, "c", authUsername="root", authPassword="secret"))
                with anyio.fail_after(CEILING_S):
                    await anyio.sleep_forever()
