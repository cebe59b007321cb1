"""A whole broker in this process, real sockets, real storage."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import orjson
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.damage import damage
from tests.waiting import until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Http, Limits, Listener, Permission, Settings, StorageChoice, User
from vibemq.errors import (
    AuthError,
    ConfigInvalid,
    NotAuthorized,
    QueueNotFound,
    StorageFailed,
    StorageLocked,
    VibeMQError,
)
from vibemq.model.rows import Rows
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["lmdb", "sqlite"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", storage=request.param) as broker:
        yield broker


def settings(data_dir: Path, *, auth: Auth | None = None, limits: Limits | None = None) -> Settings:
    return Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider="sqlite"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auth=auth or Auth(),
        limits=limits or Limits(),
    )


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"") -> bytes:
    body = encode_body(kind, message_id, queue, payload)
    return struct.pack("!IB", len(body), 0) + body


class Peer:
    """A client that speaks the bytes itself."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    @classmethod
    @asynccontextmanager
    async def to(cls, broker: Broker, *, greet: bool = True) -> "AsyncIterator[Peer]":
        async with await anyio.connect_tcp("127.0.0.1", broker.port) as stream:
            peer = cls(stream)
            if greet:
                await peer.send(frame(CommandType.CONNECT, "hello"))
                assert (await peer.frame())[1] == CommandType.CONNECT_ACK
            yield peer

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def frame(self) -> bytes:
        """The next body. Raises anyio.EndOfStream."""
        with anyio.fail_after(60):
            while len(self._buffer) < 5 or len(self._buffer) < 5 + int.from_bytes(self._buffer[:4]):
                self._buffer += await self._stream.receive()
        end = 5 + int.from_bytes(self._buffer[:4])
        body, self._buffer = self._buffer[5:end], self._buffer[end:]
        return body

    async def until_closed(self) -> None:
        """Return when the broker has hung up."""
        try:
            while True:
                await self.frame()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


async def test_messages_survive_a_restart(tmp_path: Path) -> None:
    for storage in ("lmdb", "sqlite"):
        async with Broker(tmp_path / storage, storage=storage) as broker, vibemq.connect(broker.url) as mq:
            await mq.publish_many("q", [{"n": n} for n in range(100)])
        async with Broker(tmp_path / storage, storage=storage) as broker, vibemq.connect(broker.url) as mq:
            messages = await mq.fetch("q", max=100, timeout=60)
            assert [message.json()["n"] for message in messages] == list(range(100))
            info = broker.queue_info("q")
            assert info is not None
            assert info.in_flight == 100


async def test_what_is_held_at_the_end_is_released_without_counting_as_failed(tmp_path: Path) -> None:
    async with AsyncExitStack() as clients:
        async with Broker(tmp_path, storage="sqlite") as broker:
            mq = await clients.enter_async_context(vibemq.connect(broker.url))
            await mq.create_queue("q", max_attempts=1)
            await mq.publish("q", {"n": 1})
            assert await mq.fetch("q", max=1, timeout=60)
        # It ends before its client, which holds the message.
        assert broker.status.draining
    async with Broker(tmp_path, storage="sqlite") as broker, vibemq.connect(broker.url) as mq:
        (message,) = await mq.fetch("q", max=1, timeout=60)
        assert message.json() == {"n": 1}
        assert (message.attempt, message.failures) == (2, 0)


async def test_publishes_to_one_queue_are_confirmed_in_their_order(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("strong", durability="strong")
        await mq.create_queue("quick", durability="transient")
    async with Peer.to(broker) as peer:
        asked = [(f"id{n}", "strong" if n % 3 == 0 else "quick") for n in range(90)]
        await peer.send(b"".join(frame(CommandType.PUBLISH, name, queue, b"1") for name, queue in asked))
        answered = []
        for _ in asked:
            body = await peer.frame()
            assert body[1] == CommandType.PUBLISH_ACK
            answered.append(body[4 : 4 + body[3]].decode())
        for queue in ("strong", "quick"):
            names = [name for name, its_queue in asked if its_queue == queue]
            assert [name for name in answered if name in names] == names


async def test_a_peer_that_never_reads_harms_nobody(tmp_path: Path) -> None:
    limits = Limits(write_high_water_bytes=65_536, write_timeout_ms=1_500)
    async with Broker(settings=settings(tmp_path, limits=limits)) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan_out_with_ack", durability="transient")
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", broker.port))
        sleeper.sendall(frame(CommandType.CONNECT, "c") + frame(CommandType.SUBSCRIBE, "s", "q"))
        async with mq.subscribe("q", prefetch=1000) as messages:
            text = "x" * 50_000
            for n in range(200):
                await mq.publish("q", [n, text])
            seen = 0
            with anyio.fail_after(60):
                async for message in messages:
                    await message.ack()
                    seen += 1
                    if seen == 200:
                        break
            await until(lambda: broker.metrics_counters.slow_readers_dropped)
        sleeper.close()


async def test_garbage_closes_its_own_connection_only(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq, Peer.to(broker, greet=False) as peer:
        await peer.send(b"GET / HTTP/1.1\r\n\r\n")
        await peer.until_closed()
        await mq.publish("q", 1)


async def test_permissions_are_asked_for_every_command(tmp_path: Path) -> None:
    users = {
        "root": User(password_hash=SecretStr(hash_password("pw")), superuser=True),
        "ann": User(
            password_hash=SecretStr(hash_password("pw")),
            permissions=(Permission(queues="mine*", actions=("publish", "create")),),
        ),
    }
    async with Broker(settings=settings(tmp_path, auth=Auth(users=users))) as broker:
        place = broker.url.removeprefix("vibemq://")
        async with vibemq.connect(f"vibemq://root:pw@{place}") as root:
            await root.create_queue("other")
        async with vibemq.connect(f"vibemq://ann:pw@{place}") as ann:
            await ann.create_queue("mine1")
            await ann.publish("mine1", 1)
            assert [queue.name for queue in await ann.list_queues()] == ["mine1"]
            refusals = []
            for name in ("other", "missing"):
                with pytest.raises(NotAuthorized) as refused:
                    await ann.publish(name, 1)
                refusals.append(str(refused.value).replace(name, "…"))
            assert refusals[0] == refusals[1], "the same words whether the queue exists or not"
            with pytest.raises(NotAuthorized):
                await ann.delete_queue("mine1")
            with pytest.raises(NotAuthorized):
                await ann.admin("broker.info")
        with pytest.raises(AuthError):
            async with vibemq.connect(f"vibemq://ann:wrong@{place}") as nobody:
                await nobody.ping()
        assert broker.metrics_counters.auth_failures >= 1


async def test_dead_letters_can_be_listed_shown_and_replayed_once(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        await mq.publish_many("jobs", [{"n": n} for n in range(5)])
        for message in await mq.fetch("jobs", max=5, timeout=60):
            await message.reject("bad")
        await until(lambda: (info := broker.queue_info("jobs")) is not None and info.dead >= 5)
        letters = (await mq.admin("dlq.list", queue="jobs"))["letters"]
        assert {letter["reason"] for letter in letters} == {"rejected"}
        shown = await mq.admin("dlq.show", dead_id=letters[0]["dead_id"])
        assert shown["payload"] == '{"n":0}'
        assert (await mq.admin("dlq.replay", queue="jobs", dry_run=True))["count"] == 5
        first = await mq.admin("dlq.replay", queue="jobs", limit=2)
        rest = await mq.admin("dlq.replay", queue="jobs")
        assert (first["count"], first["done"], rest["count"], rest["done"]) == (2, False, 3, True)
        assert (await mq.admin("dlq.replay", queue="jobs"))["count"] == 0
        again = await mq.fetch("jobs", max=10, timeout=60)
        assert sorted(message.json()["n"] for message in again) == list(range(5))
        assert {message.headers["vibemq-replay-count"] for message in again} == {"1"}
        assert sorted(int(message.headers["vibemq-replay-of"]) for message in again) == [
            letter["dead_id"] for letter in letters
        ]


async def test_a_replay_to_a_missing_queue_says_so(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        await mq.publish("jobs", 1)
        (message,) = await mq.fetch("jobs", max=1, timeout=60)
        await message.reject("bad")
        await mq.delete_queue("jobs")
        with pytest.raises(QueueNotFound):
            await mq.admin("dlq.replay")
        await mq.create_queue("elsewhere")
        assert (await mq.admin("dlq.replay", to="elsewhere"))["count"] == 1
        (message,) = await mq.fetch("elsewhere", max=1, timeout=60)
        assert message.json() == 1


async def test_a_damaged_row_goes_to_the_dlq_and_its_neighbours_are_delivered(broker: Broker) -> None:
    damage(broker._running().store.provider, 2)
    async with vibemq.connect(broker.url) as mq:
        await mq.publish_many("q", [1, 2, 3])
        messages: list[Any] = []
        while len(messages) < 2:
            messages += await mq.fetch("q", max=3, timeout=60)
        assert [message.json() for message in messages] == [1, 3]
        await until(lambda: (info := broker.queue_info("q")) is not None and info.dead)
        # Its row cannot be shown, which must not hide the others or stop a listing; by number it can be removed.
        assert (await mq.admin("dlq.list", queue="q"))["letters"] == []
        assert (await mq.admin("dlq.purge", ids=[1]))["count"] == 1
    assert broker.metrics_counters.damaged_messages == 1
    assert broker.health()["alarms"]


async def test_operators_can_look_without_consuming(broker: Broker, tmp_path: Path) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.publish_many("q", [{"n": n} for n in range(10)])
        peeked = await mq.admin("queue.peek", queue="q", limit=3)
        assert [(message["sequence"], message["payload"]) for message in peeked] == [
            (1, '{"n":0}'),
            (2, '{"n":1}'),
            (3, '{"n":2}'),
        ]
        later = await mq.admin("queue.peek", queue="q", limit=2, **{"from": 9})
        assert [message["sequence"] for message in later] == [9, 10]
        info = await mq.admin("broker.info")
        assert info["storage"]["provider"] == info["provider"]
        (connection,) = await mq.admin("connections.list")
        assert connection["protocol"] == "native"
        await mq.admin("storage.backup", target=str(tmp_path / "backup"))
        with pytest.raises(VibeMQError, match="unknown operation"):
            await mq.admin("no.such.verb")
    provider = info["provider"]
    async with Broker(tmp_path / "backup", storage=provider) as copy, vibemq.connect(copy.url) as mq:
        assert len(await mq.fetch("q", max=20, timeout=60)) == 10


async def test_too_many_connections_are_told_so(tmp_path: Path) -> None:
    async with (
        Broker(settings=settings(tmp_path, limits=Limits(max_connections=1))) as broker,
        Peer.to(broker),
        Peer.to(broker, greet=False) as second,
    ):
        body = await second.frame()
        assert body[1] == CommandType.ERROR
        assert b"CONNECTION_LIMIT" in body
        await second.until_closed()
        assert broker.metrics_counters.connections_rejected == 1
        assert broker.listening[0].endpoint.troubles.refused == 1


async def test_a_silent_stranger_is_sent_away(tmp_path: Path) -> None:
    async with (
        Broker(settings=settings(tmp_path, limits=Limits(handshake_timeout_ms=100))) as broker,
        Peer.to(broker, greet=False) as stranger,
    ):
        await stranger.until_closed()


async def test_a_rate_limit_answers_the_request_it_refuses(tmp_path: Path) -> None:
    async with (
        Broker(settings=settings(tmp_path, limits=Limits(messages_per_client_per_second=5))) as broker,
        Peer.to(broker) as peer,
    ):
        for n in range(12):
            await peer.send(frame(CommandType.PUBLISH, f"id{n}", "q", b"1"))
        kinds = {}
        for _ in range(12):
            body = await peer.frame()
            kinds[body[4 : 4 + body[3]].decode()] = body[1]
        assert len(kinds) == 12, "every publish has its own answer"
        assert CommandType.ERROR in kinds.values()
        assert CommandType.PUBLISH_ACK in kinds.values()


async def test_a_rate_limit_counts_operations_of_every_kind(tmp_path: Path) -> None:
    async with (
        Broker(settings=settings(tmp_path, limits=Limits(messages_per_client_per_second=1))) as broker,
        Peer.to(broker) as peer,
    ):
        for verb in ("dlq.list", "queue.list", "broker.info") * 10:
            payload = orjson.dumps({"verb": verb, "arguments": {}})
            await peer.send(frame(CommandType.ADMIN, verb, "", payload))
        kinds = [(await peer.frame())[1] for _ in range(30)]
        assert kinds.count(CommandType.ERROR) >= 15


async def test_a_round_of_housekeeping_that_ends_behind_the_store_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is stopped soon after its start, with its first round under way."""

    class Slow:
        """Maintenance is over when the store is closed, and nothing can be cancelled then any more."""

        provider = property(lambda self: store.provider)

        async def maintain(self) -> None:
            maintaining.set()
            with anyio.CancelScope(shield=True):
                await closed.wait()

        async def call(self, work: Any, *arguments: Any) -> Any:
            return await store.call(work, *arguments)

    async def close_first() -> None:
        await close()
        closed.set()
        await over

    maintaining, closed = anyio.Event(), anyio.Event()
    async with Broker(tmp_path, storage="lmdb") as broker:
        parts = broker._running()
        store, close = parts.store, parts.store.close
        monkeypatch.setattr(parts.housekeeping, "_store", Slow())
        over = asyncio.create_task(parts.housekeeping.round())
        await maintaining.wait()
        monkeypatch.setattr(store, "close", close_first)
    assert broker.status.failed is False


async def test_one_broker_owns_a_directory(tmp_path: Path) -> None:
    async with Broker(tmp_path, storage="lmdb"):
        with pytest.raises(StorageLocked):
            async with Broker(tmp_path, storage="lmdb"):
                raise AssertionError("a second broker got in")


@pytest.mark.parametrize("storage", ["lmdb", "sqlite"])
async def test_the_data_directory_stays_where_it_was_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with Broker("data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await broker._running().housekeeping.round()
        await mq.publish("q", 1)
        assert not broker.status.failed
        # It writes a copy, by its own process, of what is in the data directory.
        await mq.admin("storage.backup", target=str(tmp_path / "backup"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data", "elsewhere"]


async def test_a_port_that_is_taken_is_one_clear_sentence(tmp_path: Path) -> None:
    async with Broker(tmp_path / "a", storage="sqlite") as first:
        with pytest.raises(ConfigInvalid, match=f"cannot listen on 127.0.0.1:{first.port}"):
            async with Broker(tmp_path / "b", storage="sqlite", port=first.port):
                raise AssertionError("two listeners on one port")


async def test_when_storage_fails_the_body_is_cancelled_and_told(tmp_path: Path) -> None:
    survived = False

    async def body() -> None:
        nonlocal survived
        async with Broker(tmp_path, storage="sqlite") as broker:
            broker._fatal(StorageFailed("the disk is gone"))
            with anyio.fail_after(60):
                await anyio.sleep_forever()
            survived = True

    with pytest.raises(StorageFailed, match="the disk is gone"):
        await body()
    assert not survived


def test_it_runs_in_a_plain_asyncio_program_too(tmp_path: Path) -> None:
    """Without anyio's runner the callbacks of the loop know no anyio; everything begun from them must still work."""

    async def main() -> None:
        auth = Auth(superuser="root", superuser_password=SecretStr("pw"))
        async with Broker(settings=settings(tmp_path, auth=auth)) as broker:
            place = broker.url.removeprefix("vibemq://")
            async with vibemq.connect(f"vibemq://root:pw@{place}") as mq:
                await mq.publish("q", 1)
                assert (await mq.admin("broker.info"))["provider"] == "sqlite"

    asyncio.run(main())


async def test_an_error_of_the_body_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Broker(tmp_path, storage="sqlite"):
            raise ZeroDivisionError


async def test_the_answer_to_a_frame_of_many_rows_names_every_refused_one(tmp_path: Path) -> None:
    """An Error in its place would let the publisher take the accepted rows for refused, and publish them again."""
    rows = Rows.of([b"\0\1x\0\0\0\0\0\0"] * 70_000)
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("full", overflow="drop_newest", max_messages=10)
        async with Peer.to(broker, greet=False) as peer:
            body = encode_body(CommandType.CONNECT, "hello", headers={"supported-extensions": "batch/1"})
            await peer.send(struct.pack("!IB", len(body), 0) + body)
            assert (await peer.frame())[1] == CommandType.CONNECT_ACK
            body = extensions.publish_many("many", "full", rows)
            await peer.send(struct.pack("!IB", len(body), 0) + body)
            answer = await peer.frame()
        assert answer[1] == CommandType.PUBLISH_MANY_ACK
        ack = extensions.parse_publish_many_ack(answer)
        info = await mq.queue_info("full")
        assert info is not None
        assert info.ready == 10
        assert (ack.first_sequence, ack.count) == (1, 70_000)
        assert ack.refused == dict.fromkeys(range(10, 70_000), ("QUEUE_FULL", ""))
