"""Posts in a row that are alike: taken together, they are what they are when each comes alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from tests.unit.protocols.blazingmq.session_room import QUEUE, SessionRoom
from vibemq.errors import RemoteProtocolError
from vibemq.model.commands import Publish
from vibemq.model.effects import Published
from vibemq.protocols.blazingmq.codec.acks import build_confirms, parse_confirms
from vibemq.protocols.blazingmq.codec.events import AlikeEvents, ControlCodec, EventReader
from vibemq.protocols.blazingmq.codec.messages import ClientLanguage
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area
from vibemq.protocols.blazingmq.codec.put import PutMessage, PutReader, build_puts, put_message
from vibemq.protocols.blazingmq.codec.put_runs import RUN_MAX, RUN_MIN

AREA = build_area([MessageProperty("n", PropertyType.INT64, 7)])
KINDS: dict[str, Any] = {
    "plain": {},
    "silent": {"flags": 0},
    "properties": {"data": AREA + b"body", "flags": 3, "schema_id": 1},
    "longer": {"data": b"seven b"},
    "as long in words": {"data": b"five!"},
    "compressed": {"compression": 1},
    "elsewhere": {"queue_id": 7},
    "zero": {"guid": bytes(16)},
    "schema": {"schema_id": 9},
}
WRONG = {"checksum": 1, "none": 0}
"""Checksums that are not those of the data; 0 is not looked at."""


def message(kind: str, number: int) -> PutMessage:
    how = {"queue_id": 0, "guid": (1 << 126 | number).to_bytes(16, "big"), "data": b"body%02d" % (number % 100)}
    how |= KINDS.get(kind, {})
    made = put_message(how.pop("queue_id"), how.pop("guid"), how.pop("data"), **how)
    return made._replace(crc32c=WRONG[kind]) if kind in WRONG else made


def reader() -> EventReader:
    return EventReader(event_bytes_max=1 << 20, control_bytes_max=1 << 16, joins_alike=True)


def events_of(kinds: list[str]) -> list[bytes]:
    return [build_puts([message(kind, number)]) for number, kind in enumerate(kinds, 1)]


def outcome(chunks: list[bytes], sdk: ModelSdk | None = None) -> tuple[list[bytes], list[bytes], bytes]:
    """(rows, dedup ids, what the client is sent) of posts that come in these pieces."""
    room = SessionRoom(sdk)
    room.open(WRITE)
    for chunk in chunks:
        if chunk:
            room.session.receive_data(chunk)
        room.session.tick(room.now)
        while (requests := room.session.commands()) or room.session.unread:
            room.asked += requests
    rows: list[bytes] = []
    ids: list[bytes] = []
    sent = room.session.data_to_send()
    for publish in room.asked:
        assert isinstance(publish, Publish)
        rows += publish.rows
        if publish.extras:
            ids += [publish.extras[index].dedup_id for index in range(publish.rows.count)]
        publish.token.then(Published(QUEUE, 1, publish.rows.count))
    return rows, ids, sent + room.session.data_to_send()


def acks_in(sent: bytes) -> set[bytes]:
    """Without the events' headers, which depend on what was answered together."""
    found = EventReader(event_bytes_max=1 << 24, control_bytes_max=1 << 16)
    found.receive_data(sent)
    bodies = [event.body[4:] for event in found.read()]
    return {body[at : at + 24] for body in bodies for at in range(0, len(body), 24)}


def test_posts_of_one_size_come_as_a_run() -> None:
    chunks = events_of(["plain"] * 10)
    puts = reader()
    puts.receive_data(b"".join(chunks))
    (run,) = puts.read()
    assert isinstance(run, AlikeEvents)
    assert [event.data[event.start - 8 : event.end] for event in run.events] == chunks


def test_who_has_not_asked_for_runs_gets_events() -> None:
    puts = EventReader(event_bytes_max=1 << 20, control_bytes_max=1 << 16)
    puts.receive_data(b"".join(events_of(["plain"] * 10)))
    assert len(puts.read()) == 10


def test_a_run_has_an_end() -> None:
    puts = reader()
    puts.receive_data(b"".join(events_of(["plain"] * (RUN_MAX + RUN_MIN))))
    assert [len(run.events) for run in puts.read() if isinstance(run, AlikeEvents)] == [RUN_MAX, RUN_MIN]


def test_a_run_ends_where_the_network_has_cut_it() -> None:
    chunks = events_of(["plain"] * 10)
    puts = reader()
    stream = b"".join(chunks)
    puts.receive_data(stream[: 5 * len(chunks[0]) + 30])
    (run,) = puts.read()
    assert isinstance(run, AlikeEvents)
    assert len(run.events) == 5
    puts.receive_data(stream[5 * len(chunks[0]) + 30 :])
    first, rest = puts.read()
    assert not isinstance(first, AlikeEvents)
    assert isinstance(rest, AlikeEvents)
    assert len(rest.events) == 4


def test_short_runs_are_looked_for_a_few_times_only() -> None:
    """A look costs as much as many events."""
    chunks = events_of((["plain"] * 4 + ["longer"] * 4) * 100)
    puts = reader()
    puts.receive_data(b"".join(chunks))
    found = puts.read()
    runs = [event for event in found if isinstance(event, AlikeEvents)]
    assert len(runs) == 32
    apart = [one for event in found for one in (event.events if isinstance(event, AlikeEvents) else [event])]
    assert [event.data[event.start - 8 : event.end] for event in apart] == chunks


def test_a_run_is_one_publish_without_a_look_at_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PutReader, "take", None)
    rows, ids, sent = outcome([b"".join(events_of(["plain"] * 10))])
    assert [row[-12:] for row in rows] == [b"\0\0\0\6body%02d\0\0" % number for number in range(1, 11)]
    assert ids == [b"%032X" % (1 << 126 | number) for number in range(1, 11)]
    assert len(acks_in(sent)) == 10


def test_messages_of_one_event_are_a_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PutReader, "take", None)
    event = build_puts([message("plain", number) for number in range(1, RUN_MAX + 2 * RUN_MIN)])
    rows, _, sent = outcome([event])
    assert len(rows) == len(acks_in(sent)) == RUN_MAX + 2 * RUN_MIN - 1


@given(st.lists(st.tuples(st.sampled_from(["plain", *KINDS, *WRONG]), st.integers(1, 7)), max_size=6), st.booleans())
def test_runs_are_what_their_messages_are_one_by_one(groups: list[tuple[str, int]], in_one_event: bool) -> None:
    kinds = [kind for kind, count in groups for _ in range(count)]
    chunks = events_of(kinds)
    messages = [message(kind, number) for number, kind in enumerate(kinds, 1)]
    rows, ids, sent = outcome([build_puts(messages) if in_one_event and messages else b"".join(chunks)])
    alone_rows, alone_ids, alone_sent = outcome(chunks)
    assert (rows, ids, acks_in(sent)) == (alone_rows, alone_ids, acks_in(alone_sent))


def test_a_client_without_guids_gets_its_correlation_ids() -> None:
    sdk = ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA)
    posts = [put_message(0, bytes((0, 0, 0, number)) + bytes(12), b"x") for number in range(1, 9)]
    rows, ids, sent = outcome([b"".join(build_puts([post]) for post in posts)], sdk)
    assert len(rows) == 8
    assert not ids
    assert {ack[:4] for ack in acks_in(sent)} == {number.to_bytes(4, "big") for number in range(1, 9)}


def test_posts_to_a_queue_that_is_read_only_are_refused() -> None:
    room = SessionRoom()
    room.open(READ)
    room.say(b"".join(room.sdk.post(0, b"%d" % number) for number in range(8)))
    assert [status for _, status in room.sdk.got.acks] == [5] * 8


def confirmed(chunks: list[bytes]) -> list[tuple[int, bytes, int]]:
    puts = reader()
    found: list[tuple[int, bytes, int]] = []
    for chunk in chunks:
        puts.receive_data(chunk)
        found += parse_confirms(puts.read())
    return found


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(min_size=16, max_size=16), st.integers(0, 300)), max_size=40))
def test_confirms_in_a_row_are_what_each_is(confirms: list[tuple[int, bytes, int]]) -> None:
    chunks = [build_confirms([confirm]) for confirm in confirms]
    assert confirmed([b"".join(chunks)] if chunks else []) == confirmed(chunks) == confirms


def test_confirms_of_one_stream_come_together() -> None:
    puts = reader()
    puts.receive_data(b"".join(build_confirms([(3, bytes([number]) * 16, 1)]) for number in range(20)))
    (together,) = puts.read()
    assert isinstance(together, AlikeEvents)
    assert [guid[0] for _, guid, _ in parse_confirms([together])] == list(range(20))


def test_confirms_in_a_row_that_cannot_be_end_the_stream() -> None:
    broken = bytearray(build_confirms([(3, bytes(16), 1)]))
    broken[8] = 0x05
    puts = reader()
    puts.receive_data(bytes(broken) * 8)
    with pytest.raises(RemoteProtocolError):
        list(parse_confirms(puts.read()))
