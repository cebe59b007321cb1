"""Operations as users meet them: lists in pages however long, in their place among other requests; dead letters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.cursor_peer import Peer as CursorPeer
from tests.integration.damage import damage
from tests.integration.test_server_broker import Peer, frame, settings
from tests.waiting import until
from vibemq.auth.passwords import hash_password
from vibemq.client.pages import every_item
from vibemq.config import Auth, Permission, User
from vibemq.errors import InvalidOptions, MessageNotFound, QueueNotFound, StorageDamaged
from vibemq.model.commands import CreateQueue, JoinCursor
from vibemq.model.stored import DeadPage, DeadPageWanted
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["lmdb", "sqlite"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", storage=request.param) as broker:
        yield broker


async def dead(mq: vibemq.Client, broker: Broker, queue: str, count: int) -> None:
    """Messages of a queue, all of them rejected."""
    await mq.create_queue(queue)
    info = broker.queue_info(queue)
    assert info is not None
    before = info.dead
    await mq.publish_many(queue, [{"n": n} for n in range(count)])
    left = count
    while left:
        messages = await mq.fetch(queue, max=left, timeout=30)
        left -= len(messages)
        for message in messages:
            await message.reject("bad")
    await until(lambda: (now := broker.queue_info(queue)) is not None and now.dead >= before + count)


async def make_queues(broker: Broker, names: list[str]) -> None:
    local_session = broker._running().local_session

    def make(name: str) -> Any:
        return lambda session, token: CreateQueue(session, token, name)

    await asyncio.gather(*(local_session.ask(make(name)) for name in names))


# -- lists ------------------------------------------------------------------------------------------------------------


async def test_a_list_asked_for_behind_a_create_in_one_write_has_the_queue(tmp_path: Path) -> None:
    rule = Permission(queues="mine*", actions=("create", "inspect", "delete"))
    users = {"ann": User(password_hash=SecretStr(hash_password("pw")), permissions=(rule,))}
    async with (
        Broker(settings=settings(tmp_path, auth=Auth(users=users))) as broker,
        Peer.to(broker, greet=False) as peer,
    ):
        await make_queues(broker, ["mine0", "yours"])
        headers = {"authUsername": "ann", "authPassword": "pw", "supported-extensions": "admin/1,cursor/1"}
        await peer.send(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=1 << 20))
        assert (await peer.frame())[1] == CommandType.CONNECT_ACK
        listing = orjson.dumps({"verb": "queue.list", "arguments": {"limit": 10}})
        whole = orjson.dumps({"verb": "queue.list"})
        await peer.send(
            frame(CommandType.CREATE_QUEUE, "1", "mine1")
            + frame(CommandType.LIST_QUEUES, "2")
            + frame(CommandType.ADMIN, "3", payload=listing)
            + frame(CommandType.CREATE_QUEUE, "4", "mine2")
            + frame(CommandType.ADMIN, "5", payload=whole)
            + frame(CommandType.DELETE_QUEUE, "6", "mine1")
            + frame(CommandType.ADMIN, "7", payload=listing)
        )
        answers = {message.id: message for message in [decode_body(await peer.frame()) for _ in range(7)]}
        # The whole list is long: a task of its own, behind what was asked before it.
        assert [name for name in answers if name != "5"] == ["1", "2", "3", "4", "6", "7"]
        shown = {name: orjson.loads(answers[name].payload or b"") for name in ("2", "3", "5", "7")}
        assert shown["2"] == ["mine0", "mine1"]
        assert [queue["name"] for queue in shown["3"]["queues"]] == ["mine0", "mine1"]
        assert [queue["name"] for queue in shown["7"]["queues"]] == ["mine0", "mine2"]
        assert {"mine0", "mine2"} <= {queue["name"] for queue in shown["5"]} <= {"mine0", "mine1", "mine2"}


async def test_many_queues_are_listed_in_pages_that_fit_a_frame(tmp_path: Path) -> None:
    names = sorted(f"q{number}" for number in range(3_000))
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await make_queues(broker, names)
        first = await mq.admin("queue.list", limit=3)
        assert ([queue["name"] for queue in first["queues"]], first["next"]) == (names[:3], names[2])
        assert [queue.name for queue in await mq.list_queues()] == names
        begun = await mq.admin("queue.list")
        found = [queue["name"] for queue in begun["queues"]]
        assert (found, begun["next"]) == (names[: len(found)], found[-1])
        last = await mq.admin("queue.list", after=names[-3])
        assert ([queue["name"] for queue in last["queues"]], last["next"]) == (names[-2:], None)


async def test_short_lists_come_to_old_clients_as_they_always_did(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("a")
        assert [queue["name"] for queue in await mq.admin("queue.list")] == ["a"]
        assert [connection["protocol"] for connection in await mq.admin("connections.list")] == ["native"]
        page = await mq.admin("connections.list", limit=10)
        assert (len(page["connections"]), page["next"]) == (1, None)


async def test_many_groups_are_listed_in_pages(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan_out_with_ack")
        local_session = broker._running().local_session
        names = [f"g{number}" for number in range(1_200)]

        def join(name: str) -> Any:
            return lambda session, token: JoinCursor(session, token, "q", name)

        await asyncio.gather(*(local_session.ask(join(name)) for name in names))
        found = await every_item(mq.admin, "group.list", "groups", queue="q")
        assert [group["group"] for group in found if group["cursor"]] == sorted(names)
        page = await mq.admin("group.list", queue="q")
        assert page["next"] == page["groups"][-1]["group"]
        assert len((await mq.admin("queue.list", limit=1))["queues"][0]["groups"]) == 100


async def test_connections_are_listed_in_pages(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(5):
            mq = await stack.enter_async_context(vibemq.connect(broker.url))
        first = await mq.admin("connections.list", limit=2)
        assert len(first["connections"]) == 2
        found = await every_item(mq.admin, "connections.list", "connections")
        rest = await mq.admin("connections.list", after=first["next"], limit=100)
        assert [one["connection_id"] for one in first["connections"] + rest["connections"]] == [
            one["connection_id"] for one in found
        ]
        assert (len(found), rest["next"]) == (5, None)


# -- backups ----------------------------------------------------------------------------------------------------------


async def test_a_backup_that_cannot_be_written_is_refused_and_the_broker_works_on(
    broker: Broker, tmp_path: Path
) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "other").touch()
    file.touch()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    async with vibemq.connect(broker.url) as mq:
        for target, why in (
            (Path("/proc/x"), "cannot be used"),
            (Path("/\0x"), "cannot be used: embedded null byte"),
            (file, "cannot be used"),
            (full, "not empty"),
            (tmp_path / "data", "in the data directory"),
            (tmp_path / "data" / "backup", "in the data directory"),
            (tmp_path / "link" / "backup", "in the data directory"),
        ):
            # What a system says of a folder that it makes up is known when one is made there.
            for dry_run in (True, False) if target != Path("/proc/x") else (False,):
                with pytest.raises(InvalidOptions, match=why):
                    await mq.admin("storage.backup", target=str(target), dry_run=dry_run)
        await mq.admin("storage.backup", target=str(tmp_path / "deep" / "copy"), dry_run=True)
        assert not (tmp_path / "deep").exists()
        await mq.admin("storage.backup", target=str(tmp_path / "copy"))
        await mq.publish("q", 1)


# -- dead letters -----------------------------------------------------------------------------------------------------


async def test_a_damaged_letter_behind_a_gap_of_ids_stops_nobody(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "other", 3)
        await dead(mq, broker, "jobs", 40)
        await dead(mq, broker, "other", 3)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list", queue="jobs", limit=1000))["letters"]]
        await mq.admin("dlq.purge", ids=ids[5:30])
        provider = broker._running().store.provider
        info = broker.queue_info("jobs")
        assert info is not None
        damage(provider, 31, info.queue_id)
        left = ids[:5] + ids[30:]
        pages: list[dict[str, Any]] = [{"next": 0}]
        while pages[-1]["next"] is not None:
            pages.append(await mq.admin("dlq.list", queue="jobs", limit=4, after=pages[-1]["next"]))
        shown = [letter["dead_id"] for page in pages[1:] for letter in page["letters"]]
        damaged = [letter for page in pages[1:] for letter in page["damaged"]]
        [bad] = damaged
        assert sorted([*shown, bad["dead_id"]]) == left
        assert (bad["queue"], "bad checksum" in bad["error"]) == ("jobs", True)
        with pytest.raises(StorageDamaged):
            await mq.admin("dlq.show", dead_id=bad["dead_id"])
        async with asyncio.timeout(30):
            sequences, gaps = await asyncio.to_thread(all_dead, broker.port, "jobs")
        assert len(sequences) == len(left) - 1
        assert gaps == [[bad["dead_id"], bad["dead_id"], "damaged"]]
        replayed = await mq.admin("dlq.replay", queue="jobs", limit=1000)
        assert (replayed["count"], [letter["dead_id"] for letter in replayed["damaged"]]) == (14, [bad["dead_id"]])
        assert (await mq.admin("dlq.purge", queue="jobs"))["count"] == 1
        info = broker.queue_info("jobs")
        assert info is not None
        assert info.dead == 0


async def test_redriving_tells_nothing_of_letters_of_other_queues(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "other", 3)
        await dead(mq, broker, "jobs", 2)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list", limit=1000))["letters"]]
        provider = broker._running().store.provider
        info = broker.queue_info("other")
        assert info is not None
        damage(provider, 2, info.queue_id)
        peer = await asyncio.to_thread(CursorPeer, broker.port)
        try:
            answer = await asyncio.to_thread(peer.ask, "dead.redrive", "jobs", ids=ids)
            assert answer == {"redriven": 2, "gone": 3}
            answer = await asyncio.to_thread(peer.ask, "dead.redrive", "other", ids=ids)
            assert (answer["redriven"], answer["gone"], len(answer["damaged"])) == (2, 2, 1)
        finally:
            peer.close()


@pytest.mark.parametrize("dead_id", [0, (1 << 63) - 1])
async def test_ids_that_no_letter_can_have_are_not_found(broker: Broker, dead_id: int) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "jobs", 2)
        with pytest.raises(MessageNotFound):
            await mq.admin("dlq.show", dead_id=dead_id)
        assert (await mq.admin("dlq.list", ids=[dead_id]))["letters"] == []
        assert (await mq.admin("dlq.replay", ids=[dead_id]))["count"] == 0
        assert (await mq.admin("dlq.purge", ids=[dead_id]))["count"] == 0
        peer = await asyncio.to_thread(CursorPeer, broker.port)
        try:
            answer = await asyncio.to_thread(peer.ask, "dead.redrive", "jobs", ids=[dead_id])
            assert answer == {"redriven": 0, "gone": 1}
        finally:
            peer.close()
        letters = (await mq.admin("dlq.list", queue="jobs"))["letters"]
        known = [letter["dead_id"] for letter in letters]
        assert (await mq.admin("dlq.purge", ids=[dead_id, *known]))["count"] == 2


@pytest.mark.parametrize("operation", ["dlq.replay", "dlq.purge"])
async def test_of_replays_or_purges_at_once_each_counts_what_it_took(broker: Broker, operation: str) -> None:
    async with vibemq.connect(broker.url) as mq, vibemq.connect(broker.url) as other:
        await dead(mq, broker, "jobs", 400)
        answers = await asyncio.gather(
            *(peer.admin(operation, queue="jobs", limit=1000) for peer in (mq, other, mq, other))
        )
        assert sum(answer["count"] for answer in answers) == 400
        info = broker.queue_info("jobs")
        assert info is not None
        assert (info.ready, info.dead) == (400 if operation == "dlq.replay" else 0, 0)


@pytest.mark.parametrize("door", ["dlq.replay", "dead.redrive"])
async def test_a_replay_into_a_queue_that_drops_its_oldest_messages_loses_nothing(broker: Broker, door: str) -> None:
    async def replay(ids: list[int]) -> Any:
        if door == "dlq.replay":
            return await mq.admin("dlq.replay", queue="jobs", limit=1000)
        peer = await asyncio.to_thread(CursorPeer, broker.port)
        try:
            return await asyncio.to_thread(peer.ask, "dead.redrive", "jobs", ids=ids)
        finally:
            peer.close()

    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "jobs", 400)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list", queue="jobs", limit=1000))["letters"]]
        await mq.change_queue("jobs", overflow="drop_oldest", max_messages=150)
        await mq.publish("jobs", {"n": "waits"})
        if door == "dlq.replay":
            answer = await replay(ids)
            assert (answer["count"], answer["left"], answer["next"], answer["done"]) == (149, 251, ids[100] - 1, False)
        else:
            with pytest.raises(Exception, match="149 dead letters went back and the others stay"):
                await replay(ids)
        with pytest.raises(Exception, match="'jobs' is full and drops its oldest messages, so all dead letters stay"):
            await replay(ids)
        info = broker.queue_info("jobs")
        assert info is not None
        assert (info.ready, info.dead, info.counters["dropped"]) == (150, 251, 0)
        await mq.change_queue("jobs", max_messages=1000)
        answer = await replay(ids)
        assert answer.get("count", answer.get("redriven")) == 251


def all_dead(port: int, queue: str) -> tuple[list[int], list[Any]]:
    """As Spark reads them: from the head to the tail."""
    peer = CursorPeer(port)
    offsets = peer.ask("dead.offsets", queue)
    sequences: list[int] = []
    gaps: list[Any] = []
    at = offsets["head"]
    while at < offsets["tail"]:
        part = peer.ask("dead.fetch", queue, from_=at, to=offsets["tail"], max_bytes=100)
        sequences += part.sequences
        gaps += part.meta["gaps"]
        assert part.meta["next"] > at
        at = part.meta["next"]
    peer.close()
    return sequences, gaps


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_a_letter_that_was_purged_before_a_restart_is_not_counted_again(provider: str, tmp_path: Path) -> None:
    async with Broker(tmp_path, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 3)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list"))["letters"]]
        assert (await mq.admin("dlq.purge", ids=ids[:1]))["count"] == 1
    async with Broker(tmp_path, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        assert (await mq.admin("dlq.purge", ids=ids[:1]))["count"] == 0
        assert (await mq.admin("dlq.purge", ids=ids[:2], dry_run=True))["count"] == 1
        info = broker.queue_info("q")
        assert info is not None
        assert info.dead == 2
        assert (await mq.admin("dlq.purge", ids=[*ids, 10**6]))["count"] == 2
        info = broker.queue_info("q")
        assert info is not None
        assert info.dead == 0


@pytest.mark.parametrize("operation", ["dlq.list", "dlq.replay", "dlq.purge"])
async def test_a_misspelt_queue_is_told_apart_from_an_empty_one(broker: Broker, operation: str) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        answer = await mq.admin(operation, queue="jobs")
        assert not answer.get("letters")
        assert not answer.get("count")
        with pytest.raises(QueueNotFound):
            await mq.admin(operation, queue="jbos")
        await dead(mq, broker, "jobs", 1)
        await mq.delete_queue("jobs")
        answer = await mq.admin("dlq.list", queue="jobs")
        assert len(answer["letters"]) == 1, "letters outlive their queue"


async def test_a_long_dead_letter_queue_is_read_in_small_pieces(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "other", 700)
        await dead(mq, broker, "q", 300)
        provider = broker._running().store.provider
        sound, asked = provider.dead_page, []

        def dead_page(wanted: DeadPageWanted) -> DeadPage:
            asked.append(wanted)
            return sound(wanted)

        provider.dead_page = dead_page  # type: ignore[method-assign]
        assert len((await mq.admin("dlq.list", queue="q", limit=1000))["letters"]) == 300
        assert max(wanted.limit for wanted in asked) <= 32
        assert max(wanted.scan for wanted in asked) <= 250
        places = list(dict.fromkeys(wanted.after for wanted in asked))
        assert places == sorted(set(places)), "each piece begins where the one before ended"


async def test_a_request_under_way_at_the_stop_is_answered_before_the_goodbye(tmp_path: Path) -> None:
    joined = orjson.dumps({"verb": "group.join", "arguments": {"group": "etl"}})
    waiting = orjson.dumps({"verb": "group.advance", "arguments": {"group": "etl", "from": 1, "wait_ms": 30_000}})
    headers = {"supported-extensions": "admin/1,cursor/1"}
    async with AsyncExitStack() as stack:
        async with Broker(settings=settings(tmp_path)) as broker:
            await make_queues(broker, ["q"])
            peer = await stack.enter_async_context(Peer.to(broker, greet=False))
            await peer.send(
                encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=1 << 20)
            )
            assert (await peer.frame())[1] == CommandType.CONNECT_ACK
            await peer.send(frame(CommandType.CURSOR_REQUEST, "1", "q", joined))
            assert decode_body(await peer.frame()).id == "1"
            await peer.send(frame(CommandType.CURSOR_REQUEST, "2", "q", waiting))
            await until(lambda: any(each.pending for each in broker._running().connection_table.peers()))
        answer, goodbye = decode_body(await peer.frame()), decode_body(await peer.frame())
        assert answer.id == "2"
        assert orjson.loads(answer.payload or b"")["messages"] == 0
        assert (goodbye.type, goodbye.headers) == (CommandType.DISCONNECT, {"reason": "server_shutdown"})


async def test_a_purge_of_an_empty_log_takes_nothing_and_harms_nobody(tmp_path: Path) -> None:
    """In one write with publishes to other queues, which are confirmed, read, and there after a restart."""
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("log", retention="log", mode="fan_out_with_ack")
        published = asyncio.gather(mq.publish("q", {"n": 1}), mq.publish("new", {"n": 1}))
        assert await mq.purge_queue("log") == 0
        await published
        await mq.publish("q", {"n": 2})
        for message in await mq.fetch("q", max=2):
            message.ack()
    async with Broker(settings=settings(tmp_path)) as broker:
        info = broker.queue_info("new")
        assert info is not None
        assert info.ready == 1
