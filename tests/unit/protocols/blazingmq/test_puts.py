"""Posts: what becomes one publish, what is large, and what waits for a flush."""

import gc
import random
import zlib
from typing import Any

import pytest

from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from tests.unit.protocols.blazingmq.session_room import QUEUE, SessionRoom, Share
from vibemq.errors import QueueNotFound
from vibemq.model.commands import (
    Publish,
)
from vibemq.model.effects import Published, Reply
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.rows import LargeRow
from vibemq.protocols.blazingmq.codec.acks import parse_acks
from vibemq.protocols.blazingmq.codec.events import (
    ControlCodec,
    EventReader,
)
from vibemq.protocols.blazingmq.codec.messages import (
    ClientLanguage,
)
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.testing.session_conformance import SESSION, context


def test_consecutive_puts_are_one_publish_with_their_guids_as_dedup_ids(room: SessionRoom) -> None:
    room.open()
    room.say(b"".join(room.sdk.post(0, b"%d" % number) for number in range(5)))
    publish = room.next(Publish)
    assert publish.rows.count == 5
    assert publish.extras is not None
    ids = publish.rows.ids()
    assert [publish.extras[index].dedup_id for index in range(5)] == ids
    assert [bytes.fromhex(text.decode()) for text in ids] == list(room.sdk.unacked)


def test_the_collector_looks_once_at_what_waits_for_its_acks(room: SessionRoom) -> None:
    room.open(WRITE)
    room.say(b"".join(room.sdk.post(0, b"%d" % number) for number in range(5)))
    publish = room.next(Publish)
    assert isinstance(publish.extras, ExtraColumns)
    (_, guids, _) = publish.token.then.args
    gc.collect()
    assert not gc.is_tracked(guids)
    assert not gc.is_tracked(publish.extras.dedup_ids)


def test_posts_to_a_deleted_queue_are_refused(room: SessionRoom) -> None:
    room.open(WRITE)
    room.say(room.sdk.post(0, b"b"))
    room.answer(room.next(Publish), QueueNotFound(QUEUE))
    assert [status for _, status in room.sdk.got.acks] == [5]


def test_a_refusal_has_the_correlation_id_of_a_java_client() -> None:
    room = SessionRoom(ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA))
    room.open(WRITE)
    posted = [put_message(0, bytes((0, 1, 2, number)) + bytes(12), b"x", flags=number & 1) for number in range(2)]
    room.session.receive_data(build_puts(posted))
    (publish,) = room.session.commands()
    assert isinstance(publish, Publish)
    room.session.apply([Reply(SESSION, publish.token, QueueNotFound(QUEUE))])
    reader = EventReader(event_bytes_max=1_000, control_bytes_max=1_000)
    reader.receive_data(room.session.data_to_send())
    (acks,) = reader.read()
    assert [ack.correlation_id for ack in parse_acks(acks)] == [0x010200, 0x010201]


def test_what_is_decompressed_in_one_turn_is_bounded(room: SessionRoom) -> None:
    room.open()
    body = zlib.compress(bytes(250_000))
    puts = build_puts([put_message(0, room.sdk.guid(), body, compression=1) for _ in range(20)])
    room.session.receive_data(puts)
    rows: list[int] = []
    while True:
        published = [request for request in room.session.commands() if isinstance(request, Publish)]
        if not published and not room.session.unread:
            break
        rows.append(sum(publish.rows.count for publish in published))
    assert sum(rows) == 20
    assert max(rows) <= 4


class Memory:
    """Of a broker: grants what the test lets it grant."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.granted = False

    def reserve(self, size: int) -> object:
        self.asked.append(size)
        return Share(size) if self.granted else None


def large_room(memory: Memory) -> SessionRoom:
    room = SessionRoom(reserve_memory=memory.reserve)
    room.open(WRITE)
    return room


@pytest.mark.parametrize("flags", [1, 3])
def test_a_large_message_waits_for_memory_and_holds_it(flags: int) -> None:
    memory = Memory()
    room = large_room(memory)
    area = build_area([MessageProperty("n", PropertyType.INT64, 7)]) if flags & 2 else b""
    body = bytes(range(256)) * 8_192
    message = put_message(0, room.sdk.guid(), area + body, flags=flags, schema_id=flags >> 1)
    room.sdk.unacked[message.guid] = message
    data = build_puts([message])
    room.say(data[:1_000])
    assert not room.session.unread
    assert room.session.large_left == 0, "nobody is to blame while it waits"
    memory.granted = True
    room.take()
    assert memory.asked == [len(data) - 8] * 2
    assert room.session.large_left == len(data) - 1_000
    room.say(data[1_000:])
    publish = room.next(Publish)
    assert isinstance(publish.rows, LargeRow)
    assert publish.rows.payloads() == [body]
    assert publish.rows.memory.size == len(data) - 8
    assert room.session._puts._memory is None
    room.answer(publish, Published(QUEUE, 1, 1))
    assert [status for _, status in room.sdk.got.acks] == [0]


def test_what_is_large_once_it_is_decompressed_waits_for_memory() -> None:
    memory = Memory()
    room = large_room(memory)
    body = bytes(3 << 20)
    room.say(build_puts([put_message(0, room.sdk.guid(), zlib.compress(body), flags=0, compression=1)]))
    room.say(room.sdk.post(0, b"behind it"))
    assert not room.session.unread
    assert set(memory.asked) == {len(body)}
    assert not room.asked
    memory.granted = True
    room.take()
    first, second = room.next(Publish), room.next(Publish)
    assert isinstance(first.rows, LargeRow)
    assert first.rows.payloads() == [body]
    assert first.rows.memory.size == len(body)
    assert second.rows.payloads() == [b"behind it"]


def test_a_large_compressed_message_asks_for_all_of_its_memory_at_once() -> None:
    memory = Memory()
    memory.granted = True
    room = large_room(memory)
    body = random.Random(1).randbytes(2 << 20)
    room.say(build_puts([put_message(0, room.sdk.guid(), zlib.compress(body), flags=0, compression=1)]))
    assert room.next(Publish).rows.payloads() == [body]
    (asked,) = memory.asked
    assert asked > len(body) + context().limits.message_bytes_max


def publishes(room: SessionRoom) -> list[int]:
    """How many rows each of those has that were not looked at."""
    return [request.rows.count for request in room.asked if isinstance(request, Publish)]


def test_what_is_posted_while_a_flush_is_under_way_becomes_one_publish(room: SessionRoom) -> None:
    room.open(WRITE)
    room.flushing = True
    room.say(room.sdk.post(0, b"0"))
    assert publishes(room) == [1], "nothing that is under way keeps this one waiting"
    for number in range(1, 10):
        room.say(room.sdk.post(0, b"%d" % number))
    assert publishes(room) == [1]
    assert not room.session.unread, "the broker would ask again at once, over and over"
    room.flushing = False
    room.take()
    assert publishes(room) == [1, 9]
    room.answer_all()
    assert not room.sdk.unacked


def test_nobody_keeps_back_more_than_a_little_nor_the_last_posts_of_a_client() -> None:
    def posted(length: int, *, end: bool = False, flags: int = WRITE, **domain: Any) -> list[int]:
        room = SessionRoom(**domain)
        room.open(flags)
        room.flushing = True
        room.say(room.sdk.post(0, b"first"))
        room.say(room.sdk.post(0, bytes(length)))
        if end:
            room.say(b"")
        return publishes(room)

    assert posted(1_000) == [1]
    assert posted(270_000) == [1, 1]
    assert posted(1_000, end=True) == [1, 1]
    assert posted(1_000, flags=READ | WRITE) == [1, 1], "its confirms would wait, too"
    assert posted(1_000, durability="weak") == [1, 1], "its ACKs wait for no flush"
