"""Peeks by state, and one message with its body: nothing is taken, counted or written."""

import base64
import gzip
import hashlib
import random
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import brotli
import pytest

import vibemq
from tests.waiting import until
from vibemq.errors import InvalidPayload, MessageNotFound, QueueNotFound, WrongIncarnation
from vibemq.operations.reading import decoding, peeks
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["lmdb", "memory"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with TimedBroker(tmp_path / "data", storage=request.param) as broker:
        yield broker


@pytest.fixture
async def mq(broker: Broker) -> AsyncIterator[vibemq.Client]:
    async with vibemq.connect(broker.url) as mq:
        durability = {} if broker.settings.storage.provider != "memory" else {"durability": "transient"}
        await mq.create_queue("q", **durability)
        yield mq


def figures(broker: Broker, queue: str = "q") -> Any:
    info = broker.queue_info(queue)
    assert info is not None
    return info


async def test_each_state_has_its_messages(broker: Broker, mq: vibemq.Client) -> None:
    for n in range(6):
        await mq.publish("q", f"m{n}".encode(), id=f"id{n}", headers={"n": str(n)})
    await mq.publish("q", b"later", delay=60)
    held = await mq.fetch("q", max=2)
    await until(lambda: (figures(broker).in_flight, figures(broker).consumers) == (2, 0))
    before, records = figures(broker), broker._running().committer._flushes.appends

    ready = await mq.admin("queue.peek", queue="q", state="ready", limit=3)
    assert [m["id"] for m in ready["messages"]] == ["id2", "id3", "id4"]
    assert ready["messages"][0] == {
        "sequence": 3,
        "id": "id2",
        "published_at": ready["messages"][0]["published_at"],
        "priority": 1,
        "expires_at": None,
        "deliver_at": None,
        "attempts": 0,
        "headers": {"n": "2", "content-type": "application/octet-stream"},
        "payload_size": 2,
        "state": "ready",
        "payload": "m2",
        "offset": 0,
        "size": 2,
        "truncated": False,
    }
    rest = await mq.admin("queue.peek", queue="q", state="ready", limit=3, **{"from": ready["next"]})
    assert [m["id"] for m in rest["messages"]] == ["id5"]
    assert rest["next"] is None

    delayed = await mq.admin("queue.peek", queue="q", state="delayed")
    assert [(m["payload"], m["due_at"], m["deliver_at"]) for m in delayed["messages"]] == [
        ("later", delayed["messages"][0]["published_at"] + 60_000, delayed["messages"][0]["published_at"] + 60_000)
    ]
    flying = await mq.admin("queue.peek", queue="q", state="in_flight")
    assert [m["id"] for m in flying["messages"]] == ["id0", "id1"]
    holder = flying["messages"][0]["holders"][0]
    assert (holder["protocol"], holder["attempts"], holder["user"]) == ("native", 1, "anonymous")
    assert holder["deadline_at"] == flying["messages"][0]["published_at"] + 30_000
    one = await mq.admin("queue.peek", queue="q", state="in_flight", limit=1)
    two = await mq.admin("queue.peek", queue="q", state="in_flight", limit=1, **{"from": one["next"]})
    assert [m["id"] for m in one["messages"] + two["messages"]] == ["id0", "id1"]

    assert figures(broker) == before
    assert broker._running().committer._flushes.appends == records, "looking writes nothing"
    for message in held:
        await message.ack()
    assert (await mq.admin("queue.peek", queue="q", state="in_flight"))["messages"] == []


async def test_pages_of_what_several_groups_hold_go_to_the_end(broker: Broker, mq: vibemq.Client) -> None:
    durability = {} if broker.settings.storage.provider != "memory" else {"durability": "transient"}
    await mq.create_queue("fan", mode="fan_out_with_ack", **durability)
    for group in ("a", "b"):
        assert await mq.fetch("fan", group=group, max=1, timeout=0) == []
    await mq.publish_many("fan", [b"x"] * 5)
    for group in ("a", "b"):
        assert len(await mq.fetch("fan", group=group, max=5)) == 5
    seen: list[tuple[int, int]] = []
    after: int | None = 0
    while after is not None:
        page = await mq.admin("queue.peek", queue="fan", state="in_flight", limit=4, **{"from": after})
        seen += [(m["sequence"], len(m["holders"])) for m in page["messages"]]
        after = page["next"]
    assert seen == [(sequence, 2) for sequence in range(1, 6)]


async def test_a_search_by_id_and_by_headers_goes_through_all_states(
    broker: Broker, mq: vibemq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(8):
        await mq.publish("q", b"x" * 50, id=f"id{n % 4}", headers={"n": str(n), "even": str(n % 2 == 0)})
    await mq.publish("q", b"later", id="id1", headers={"n": "8"}, delay=60)
    await mq.fetch("q", max=2)
    await until(lambda: figures(broker).in_flight == 2)

    async def found(**wanted: Any) -> list[tuple[int, str]]:
        page = await mq.admin("queue.peek", queue="q", **wanted)
        assert (page["next"], page["examined"]) == (None, 9 - max(0, wanted.get("from", 1) - 1))
        return [(one["sequence"], one["state"]) for one in page["messages"]]

    assert await found(message_id="id1") == [(2, "in_flight"), (6, "ready"), (9, "delayed")]
    assert await found(message_id="id1", state="delayed") == [(9, "delayed")]
    assert await found(message_id="id1", header={"n": "5"}) == [(6, "ready")]
    assert await found(header={"even": "True"}, **{"from": 4}) == [(5, "ready"), (7, "ready")]
    assert await found(message_id="id") == await found(header={"even": "no"}) == []
    page = await mq.admin("queue.peek", queue="q", message_id="id1", preview_bytes=2)
    assert page["messages"][0]["holders"][0]["user"] == "anonymous"
    assert page["messages"][2]["due_at"] == page["messages"][2]["published_at"] + 60_000
    assert (page["messages"][1]["payload"], page["messages"][1]["truncated"]) == ("xx", True)
    # In pages, by the limit, and by what may be looked at in one request.
    one = await mq.admin("queue.peek", queue="q", message_id="id1", limit=1)
    assert ([each["sequence"] for each in one["messages"]], one["next"], one["examined"]) == ([2], 3, 2)
    monkeypatch.setattr("vibemq.operations.reading.peeks.SEARCH_S", -1)
    monkeypatch.setattr("vibemq.operations.reading.peeks.SEARCH_LEAST", 1)
    monkeypatch.setattr("vibemq.operations.reading.peeks.SEARCHED_BYTES", 1)
    sequences, after, pages = [], 0, 0
    while after is not None:
        page = await mq.admin("queue.peek", queue="q", header={"even": "True"}, **{"from": after})
        sequences += [each["sequence"] for each in page["messages"]]
        after, pages = page["next"], pages + 1
    assert (sequences, pages > 3) == ([1, 3, 5, 7], True)


async def test_what_a_log_keeps_is_settled_when_no_group_wants_it_any_more(broker: Broker, mq: vibemq.Client) -> None:
    durability = {} if broker.settings.storage.provider != "memory" else {"durability": "transient"}
    await mq.create_queue("log", mode="fan_out_with_ack", retention="log", **durability)
    for group in ("early", "late"):
        assert await mq.fetch("log", group=group, max=1, timeout=0) == []
    for n in range(6):
        await mq.publish("log", f"{n}", headers={"k": "v"})

    async def states() -> list[str]:
        found = (await mq.admin("queue.peek", queue="log", header={"k": "v"}))["messages"]
        for one in found:
            shown = await mq.admin("message.show", queue="log", sequence=one["sequence"])
            assert shown["state"] == one["state"]
        return [one["state"] for one in found]

    assert await states() == ["ready"] * 6
    await mq.fetch("log", group="late", max=1)
    for message in await mq.fetch("log", group="early", max=4):
        await message.ack()
    assert await states() == ["in_flight"] + ["ready"] * 5
    for message in await mq.fetch("log", group="late", max=2):
        await message.ack()
    assert await states() == ["in_flight", "settled", "settled", "ready", "ready", "ready"]
    found = await mq.admin("queue.peek", queue="log", header={"k": "v"}, state="ready")
    assert [one["sequence"] for one in found["messages"]] == [4, 5, 6]


async def test_a_preview_ends_between_characters(mq: vibemq.Client) -> None:
    await mq.publish("q", "aéz".encode())
    await mq.publish("q", b"\xff\xfe\xfd")
    await mq.publish("q", b"")
    page = await mq.admin("queue.peek", queue="q", state="ready", preview_bytes=2)
    shown = [(m.get("payload"), m.get("payload_base64"), m["size"], m["truncated"]) for m in page["messages"]]
    assert shown == [
        ("a", None, 1, True),
        (None, base64.b64encode(b"\xff\xfe").decode(), 2, True),
        ("", None, 0, False),
    ]


async def test_a_failed_message_is_delayed_and_tells_how_often(broker: TimedBroker, mq: vibemq.Client) -> None:
    await mq.publish("q", b"x")
    (message,) = await mq.fetch("q")
    (held,) = (await mq.admin("queue.peek", queue="q", state="in_flight"))["messages"]
    assert (held["attempts"], held["holders"][0]["attempts"]) == (1, 1), "the first delivery counts"
    assert (await mq.admin("message.show", queue="q", sequence=1))["attempts"] == 1
    await message.retry(delay=5)
    await until(lambda: figures(broker).delayed == 1)
    (shown,) = (await mq.admin("queue.peek", queue="q", state="delayed"))["messages"]
    assert shown["attempts"] == 1
    assert shown["due_at"] - shown["published_at"] == 5_000
    assert (await mq.admin("message.show", queue="q", sequence=1))["state"] == "delayed"


async def test_a_look_begins_at_a_time(broker: TimedBroker, mq: vibemq.Client) -> None:
    for body in (b"old", b"middle", b"new"):
        await mq.publish("q", body)
        broker.advance(60)
    for state in ("ready", None):
        found = await mq.admin("queue.peek", queue="q", state=state, newer_than_ms=130_000)
        shown = found["messages"] if state else found
        assert [message["payload"] for message in shown] == ["middle", "new"]
    page = await mq.admin("queue.peek", queue="q", state="ready", newer_than_ms=130_000, limit=1)
    assert (page["messages"][0]["payload"], page["next"]) == ("middle", 3)
    assert await mq.admin("queue.peek", queue="q", newer_than_ms=1_000) == []
    assert len(await mq.admin("queue.peek", queue="q", newer_than_ms=1 << 60)) == 3
    with pytest.raises(QueueNotFound):
        await mq.admin("queue.peek", queue="none", newer_than_ms=1)


async def test_a_body_in_parts(mq: vibemq.Client) -> None:
    body = ("é" * 100_000).encode()
    await mq.publish("q", body)
    at, text = 0, ""
    while True:
        shown = await mq.admin("message.show", queue="q", sequence=1, offset=at, length=65_535, digest=True)
        text += shown["payload"]
        at += shown["size"]
        if not shown["truncated"]:
            break
    assert text.encode() == body
    assert shown["sha256"] == hashlib.sha256(body).hexdigest()
    assert (shown["payload_size"], shown["state"], shown["holders"]) == (len(body), "ready", [])


@pytest.mark.parametrize(("how", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)], ids=["gzip", "brotli"])
async def test_the_packed_body_of_a_dead_letter_is_opened(
    broker: Broker, mq: vibemq.Client, how: str, pack: Any
) -> None:
    body = b'{"id":9007199254740993}' * 20_000
    packed = pack(body)
    await mq.publish_many("q", [packed, pack(b"short"), b"plain"])
    for message in await mq.fetch("q", max=3):
        await message.reject("no")
    await until(lambda: figures(broker).dead == 3)
    large, short, plain = (letter["dead_id"] for letter in (await mq.admin("dlq.list"))["letters"])
    shown = await mq.admin("dlq.show", dead_id=large, decode=how, digest=True)
    assert (shown["payload"].encode(), shown["truncated"], shown["decoded_size"]) == (body[:262_144], True, None)
    assert shown["sha256"] == hashlib.sha256(packed).hexdigest()
    shown = await mq.admin("dlq.show", dead_id=short, decode=how)
    assert (shown["payload"], shown["truncated"], shown["decoded_size"]) == ("short", False, 5)
    assert "payload_base64" in await mq.admin("dlq.show", dead_id=short)
    with pytest.raises(InvalidPayload, match="load it without decode"):
        await mq.admin("dlq.show", dead_id=plain, decode=how)


@pytest.mark.parametrize(("how", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)], ids=["gzip", "brotli"])
async def test_a_packed_body_is_opened(mq: vibemq.Client, how: str, pack: Any) -> None:
    body = b'{"id":9007199254740993}' * 10_000
    await mq.publish("q", pack(body))
    part = await mq.admin("message.show", queue="q", sequence=1, decode=how, length=23)
    assert (part["payload"], part["truncated"], part["decoded_size"]) == ('{"id":9007199254740993}', True, None)
    end = await mq.admin("message.show", queue="q", sequence=1, decode=how, offset=len(body) - 23, length=100)
    assert (end["payload"], end["truncated"], end["decoded_size"]) == ('{"id":9007199254740993}', False, len(body))
    await mq.publish("q", pack(body)[:-5])
    with pytest.raises(InvalidPayload, match="load it without decode"):
        await mq.admin("message.show", queue="q", sequence=2, decode=how, offset=len(body) - 23)
    await mq.publish("q", b"plain")
    with pytest.raises(InvalidPayload, match="load it without decode"):
        await mq.admin("message.show", queue="q", sequence=3, decode=how)


@pytest.mark.parametrize(("how", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)], ids=["gzip", "brotli"])
@pytest.mark.parametrize("size", [0, 1, decoding.PIECE_BYTES, 3 * decoding.PIECE_BYTES + 1])
def test_a_body_is_opened_from_pieces(how: str, pack: Any, size: int) -> None:
    for body in (bytes(size), random.Random(size).randbytes(size)):
        packed = pack(body)
        for most in (0, size - 1, size, size + 1):
            if most >= 0:
                assert decoding.decoded(packed, how, most, lambda: 0.0) == (body[:most], size <= most)
        for other in (packed[:-1], packed[: len(packed) // 2], packed + b"more"):
            with pytest.raises(InvalidPayload, match="cannot be opened"):
                decoding.decoded(other, how, size + 1, lambda: 0.0)
    if how == "gzip":
        members = [pack(bytes(part)) for part in (size, 0, 1, size)]
        assert decoding.decoded_whole(b"".join(members), how, lambda: 0.0) == bytes(2 * size + 1)


@pytest.mark.parametrize(("how", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)], ids=["gzip", "brotli"])
def test_a_bomb_is_opened_as_far_as_is_asked_for(how: str, pack: Any) -> None:
    bomb = pack(bytes(64 << 20))
    assert len(bomb) < 1 << 20
    found = decoding.decoded(bomb, how, 1_000, lambda: 0.0)
    assert (len(found.data), found.whole) == (1_000, False)
    tracemalloc.start()
    try:
        with pytest.raises(vibemq.errors.MessageTooLarge, match="load it without decode"):
            decoding.decoded_whole(bomb, how, lambda: 0.0)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * decoding.DECODED_BYTES_MAX
    finally:
        tracemalloc.stop()
    instants = iter([0.0, 1.0, 2.5])
    with pytest.raises(InvalidPayload, match="within 2 s"):
        decoding.decoded(bomb, how, 16 << 20, lambda: next(instants))


async def test_what_is_not_there_is_told(mq: vibemq.Client) -> None:
    with pytest.raises(MessageNotFound, match="message 7"):
        await mq.admin("message.show", queue="q", sequence=7)
    with pytest.raises(QueueNotFound):
        await mq.admin("message.show", queue="nowhere", sequence=7)
    for state in ("ready", "delayed", "in_flight"):
        with pytest.raises(QueueNotFound):
            await mq.admin("queue.peek", queue="nowhere", state=state)
        with pytest.raises(WrongIncarnation):
            await mq.admin("queue.peek", queue="q", state=state, incarnation="another")
    with pytest.raises(InvalidPayload, match="state"):
        await mq.admin("queue.peek", queue="q", state="gone")


async def test_a_search_ends_its_page_behind_many_holders(
    broker: Broker, mq: vibemq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeks, "HOLDERS_PER_ANSWER", 5)
    durability = (await mq.queue_info("q")).options.durability
    await mq.create_queue("all", mode="fan_out_with_ack", durability=durability)
    async with AsyncExitStack() as stack:
        for group in range(3):
            await stack.enter_async_context(mq.subscribe("all", group=f"g{group}", prefetch=100))
        await mq.publish_many("all", [vibemq.Outgoing(b"x", headers={"a": "b"})] * 7)
        await until(lambda: figures(broker, "all").in_flight == 21)
        seen: list[int] = []
        pages, after = 0, 1
        while after is not None:
            page = await mq.admin("queue.peek", queue="all", header={"a": "b"}, **{"from": after})
            assert sum(len(message["holders"]) for message in page["messages"]) <= 6
            assert page["examined"] == 8 - after
            seen += [message["sequence"] for message in page["messages"]]
            pages, after = pages + 1, page["next"]
        assert (seen, pages) == ([1, 2, 3, 4, 5, 6, 7], 4)
