"""Posted messages to rows and rows to delivered messages; compression; GUIDs; features."""

import tracemalloc
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.selector import PropertyType
from vibemq.protocols.blazingmq.codec.events import EVENT_HEADER_BYTES, Event, EventType
from vibemq.protocols.blazingmq.codec.features import BROKER_FEATURES, has_new_style_properties, parse_features
from vibemq.protocols.blazingmq.codec.guid import GuidMaker, guid_of_message_id, guid_text, guids_of_message_ids
from vibemq.protocols.blazingmq.codec.options import sub_queue_ids_option
from vibemq.protocols.blazingmq.codec.properties import SCHEMA_NONE, SCHEMA_OLD, MessageProperty, build_area
from vibemq.protocols.blazingmq.codec.push import EVENT_BYTES_SOFT_MAX, build_pushes
from vibemq.protocols.blazingmq.codec.put import MESSAGE_PROPERTIES, PutMessage, PutReader, build_puts, put_message
from vibemq.protocols.blazingmq.codec.rows import (
    INPUT_BYTES,
    PIECE_BYTES,
    ROW_STEP_BYTES,
    STEP_WORK,
    PayloadInflater,
    PutLoader,
    alike_pushes_of_rows,
    pushes_of_rows,
    row_of_put,
)
from vibemq.protocols.blazingmq.session import MESSAGES_AT_ONCE

GUID = bytes.fromhex("400000000000003dd0b13e84bf23bf78")
OPTION = sub_queue_ids_option([3])
AREA = build_area([MessageProperty("n", PropertyType.INT64, 7), MessageProperty("k", PropertyType.STRING, "v")])
OLD_AREA = build_area(
    [MessageProperty("n", PropertyType.INT64, 7), MessageProperty("k", PropertyType.STRING, "v")], SCHEMA_OLD
)
HEADERS = {"n": "7", "k": "v", "vibemq-types": "n=int64"}


def load(message: PutMessage, data_bytes_max: int = 1 << 20) -> RowView:
    loader = PutLoader(message, message.guid, data_bytes_max)
    while (row := loader.step()) is None:
        pass
    return RowView(row)


def with_properties(data: bytes, schema_id: int, compression: int = 0) -> PutMessage:
    return put_message(0, GUID, data, flags=1 | MESSAGE_PROPERTIES, compression=compression, schema_id=schema_id)


def test_a_posted_message_is_a_row() -> None:
    row = RowView(row_of_put(put_message(0, GUID, b"hello"), GUID))
    assert (row.message_id, row.payload, row.headers) == ("400000000000003DD0B13E84BF23BF78", b"hello", {})


@pytest.mark.parametrize("schema_id", [1, 2, 3, 0xFFFF])
def test_its_properties_are_headers(schema_id: int) -> None:
    row = load(with_properties(AREA + b"hello", schema_id))
    assert (row.payload, row.headers) == (b"hello", HEADERS)


def test_old_style_properties_too() -> None:
    assert load(with_properties(OLD_AREA + b"hello", SCHEMA_OLD)).headers == HEADERS


def test_the_new_style_compresses_the_payload_only() -> None:
    row = load(with_properties(AREA + zlib.compress(b"A" * 3_000), 3, compression=1))
    assert (row.payload, row.headers) == (b"A" * 3_000, HEADERS)


def test_the_old_style_compresses_properties_and_payload_together() -> None:
    row = load(with_properties(zlib.compress(OLD_AREA + b"A" * 3_000), SCHEMA_OLD, compression=1))
    assert (row.payload, row.headers) == (b"A" * 3_000, HEADERS)


@pytest.mark.parametrize(
    "message",
    [
        put_message(0, GUID, b"x", compression=2),
        put_message(0, GUID, b"x", compression=7),
        put_message(0, GUID, b"no zlib", compression=1),
        put_message(0, GUID, b"", compression=1),
        put_message(0, GUID, zlib.compress(b"x" * 99)[:-1], compression=1),
        put_message(0, GUID, b"x")._replace(fault="its padding says 9 bytes"),
        with_properties(b"", 1),
        with_properties(b"no area here", 1),
        with_properties(AREA[:-1], 1),
        with_properties(OLD_AREA, 1),
        with_properties(b"no", 1, compression=1),
        with_properties(zlib.compress(b"no area here"), SCHEMA_OLD, compression=1),
    ],
)
def test_what_cannot_be_loaded_is_refused(message: PutMessage) -> None:
    with pytest.raises(InvalidMessage):
        load(message)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_payload_of_just_the_limit_passes(size: int) -> None:
    message = put_message(0, GUID, zlib.compress(b"x" * size), compression=1)
    assert load(message, size).payload == b"x" * size
    if size:
        with pytest.raises(InvalidMessage, match=f"more than {size - 1} bytes"):
            load(message, size - 1)


def test_a_bomb_is_stopped_at_the_limit_piece_by_piece() -> None:
    bomb = zlib.compress(bytes(1 << 25), 1)
    inflater = PayloadInflater(bomb, 1 << 20)
    tracemalloc.start()
    try:
        for step in range(1, 5):
            assert not inflater.step()
            assert inflater.size == PIECE_BYTES * step
        with pytest.raises(InvalidMessage, match="more than 1048576 bytes"):
            inflater.step()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_stream_that_says_nothing_is_taken_piece_by_piece() -> None:
    empty_blocks = b"\x78\x9c" + b"\0\0\0\xff\xff" * (4 * INPUT_BYTES // 5)
    inflater = PayloadInflater(empty_blocks, 1 << 20)
    for _ in range(4):
        assert not inflater.step()
    with pytest.raises(InvalidMessage, match="cut short"):
        inflater.step()


def test_bytes_behind_the_stream_are_not_looked_at() -> None:
    message = put_message(0, GUID, zlib.compress(b"x" * 99) + b"more", compression=1)
    assert load(message).payload == b"x" * 99


# -- deliveries -------------------------------------------------------------------------------------------------------


def test_rows_of_a_posted_message_are_delivered_as_posted() -> None:
    plain, typed = put_message(0, GUID, b"hello"), with_properties(AREA + b"hello", 2)
    rows = Rows.of([row_of_put(message, GUID) for message in (plain, typed)])
    first, second = pushes_of_rows(rows, 4, OPTION)
    assert first == (4, GUID, 0, 0, 0, OPTION, b"hello")
    assert second == (4, GUID, MESSAGE_PROPERTIES, 0, SCHEMA_NONE, OPTION, AREA + b"hello")


def test_a_consumer_without_the_new_style_gets_the_old_one() -> None:
    rows = Rows.of([row_of_put(with_properties(AREA + b"hello", 2), GUID)])
    [message] = pushes_of_rows(rows, 4, OPTION, new_style=False)
    assert message == (4, GUID, MESSAGE_PROPERTIES, 0, SCHEMA_OLD, OPTION, OLD_AREA + b"hello")


def test_rows_with_one_block_of_headers_for_all() -> None:
    rows = Rows.of([row_of_put(with_properties(AREA + b"hello", 2), GUID) for _ in range(5)])
    assert {message.data for message in pushes_of_rows(rows, 4, OPTION)} == {AREA + b"hello"}


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=9))
def test_rows_of_other_protocols_are_delivered_too(message_id: bytes, payload: bytes) -> None:
    rows = Rows.of([pack_row(message_id, payload, [("region", "eu")])])
    [message] = pushes_of_rows(rows, 0, OPTION)
    assert message.data == build_area([MessageProperty("region", PropertyType.STRING, "eu")]) + payload
    assert message.guid == guid_of_message_id(message_id) != bytes(16)


# -- GUIDs and features -----------------------------------------------------------------------------------------------


@given(st.binary(min_size=16, max_size=16).filter(any))
def test_a_guid_is_found_again_in_the_id_of_its_row(guid: bytes) -> None:
    text = guid_text(guid)
    assert text == text.upper()
    assert guid_of_message_id(text.encode()) == guid


def test_other_ids_have_guids_of_their_own() -> None:
    ids = [b"order-1", b"order-2", b"0" * 32, b"g" * 32, b"\xff" * 32]
    guids = [guid_of_message_id(message_id) for message_id in ids]
    assert len(set(guids)) == len(ids)
    assert guids == [guid_of_message_id(message_id) for message_id in ids]
    assert all(guid[0] >> 6 == 1 for guid in guids)


def test_made_guids_are_of_version_one_and_unique() -> None:
    maker = GuidMaker("0123456789abcdef0123456789abcdef", now=1_000)
    made = [maker.make(now) for now in (1_000, 1_000, 1_001, 1_001, 5_000)]
    assert len(set(made)) == 5
    assert made[0].hex() == "40000000000000000000" + "0123456789ab"
    assert made[3].hex() == "400003" + f"{1_000_000:014x}" + "0123456789ab"


def test_very_many_features_are_not_looked_at() -> None:
    """Anybody may send 64 KiB of them, before its login."""
    assert len(parse_features(";".join(f"{number}:x" for number in range(9_000)))) < 1_000
    assert has_new_style_properties("MPS:MESSAGE_PROPERTIES_EX" + ";A:b" * 9_000)


def test_features() -> None:
    assert parse_features(BROKER_FEATURES)["HA"] == {"GRACEFUL_SHUTDOWN", "GRACEFUL_SHUTDOWN_V2"}
    assert parse_features("A:x, y;B:;:z;A:w;;C") == {"A": {"x", "y", "w"}}
    assert has_new_style_properties("PROTOCOL_ENCODING:JSON;MPS:MESSAGE_PROPERTIES_EX")
    assert not has_new_style_properties("PROTOCOL_ENCODING:BER,JSON")


def taken(message: PutMessage) -> PutMessage:
    """As the reader takes it out of an event."""
    reader = PutReader()
    stream = build_puts([message])
    reader.add([Event(EventType.PUT, 0, stream, EVENT_HEADER_BYTES, len(stream))])
    (got,) = reader.take(10)
    return got


LARGE = array("I", range(1 << 20)).tobytes()


@pytest.mark.parametrize(
    ("data", "flags", "schema_id", "headers"),
    [(LARGE, 1, 0, {}), (AREA + LARGE, 3, 1, HEADERS), (OLD_AREA + LARGE, 3, SCHEMA_OLD, HEADERS)],
    ids=["plain", "new style", "old style"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_row_is_made_in_many_steps(
    data: bytes, flags: int, schema_id: int, headers: dict[str, str], compressed: bool
) -> None:
    if compressed:
        # Of the new style only the payload is compressed.
        front = len(data) - len(LARGE) if schema_id else 0
        data = data[:front] + zlib.compress(data[front:], 1)
    posted = put_message(0, GUID, data, flags=flags, schema_id=schema_id, compression=int(compressed))
    loader = PutLoader(taken(posted), GUID, 8 << 20, has_memory=True)
    steps, work = 1, 0
    while (row := loader.step()) is None:
        steps += 1
        work = max(work, loader.work)
    view = RowView(row)
    assert (view.message_id, view.payload, view.headers) == (guid_text(GUID), LARGE, headers)
    assert steps >= len(LARGE) // ROW_STEP_BYTES + len(data) // ROW_STEP_BYTES
    assert work <= 2 * STEP_WORK


@pytest.mark.parametrize("compression", [0, 1])
def test_large_data_without_its_checksum_is_refused(compression: int) -> None:
    data = taken(put_message(0, GUID, LARGE)._replace(crc32c=7, compression=compression))
    assert not data.fault
    loader = PutLoader(data, GUID, 8 << 20, has_memory=True)
    with pytest.raises(InvalidMessage, match="checksum"):
        list(iter(loader.step, b""))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("headers", [(), (("n", "7"), ("k", "v"), ("vibemq-types", "n=int64"))])
@pytest.mark.parametrize("new_style", [True, False])
def test_rows_that_are_alike_are_the_event_that_their_messages_make(
    size: int, headers: tuple[tuple[str, str], ...], new_style: bool
) -> None:
    rows = Rows.of([pack_row(b"%032X" % number, bytes([number]) * size, headers) for number in range(1, 9)])
    guids = guids_of_message_ids(rows.ids())
    (expected,) = build_pushes(pushes_of_rows(rows, -5, OPTION, new_style=new_style))
    assert alike_pushes_of_rows(rows, guids, -5, OPTION, new_style=new_style) == expected


@pytest.mark.parametrize(
    "rows",
    [
        [pack_row(b"%032X" % 1, b"a"), pack_row(b"%032X" % 2, b"ab")],
        [pack_row(b"%032X" % 1, b"a", [("k", "v")]), pack_row(b"%032X" % 2, b"a", [("k", "w")])],
        [pack_row(b"%032X" % number, bytes(EVENT_BYTES_SOFT_MAX // 4)) for number in (1, 2, 3, 4)],
    ],
)
def test_rows_that_differ_or_are_too_much_for_one_event_are_encoded_one_by_one(rows: list[bytes]) -> None:
    run = Rows.of(rows)
    assert alike_pushes_of_rows(run, guids_of_message_ids(run.ids()), 0, OPTION) is None


@given(st.lists(st.sampled_from([b"0" * 32, b"%032X" % 7, b"%032x" % 0xABC, b"G" * 32, b"a", b"x" * 40])))
def test_guids_of_several_ids_are_those_of_each(ids: list[bytes]) -> None:
    assert guids_of_message_ids(ids) == [guid_of_message_id(one) for one in ids]


def test_two_pieces_of_what_is_decompressed_are_the_work_of_a_turn() -> None:
    loader = PutLoader(put_message(0, GUID, zlib.compress(bytes(4 * PIECE_BYTES)), compression=1), GUID, 8 << 20)
    assert loader.step() is None
    assert 2 * loader.work >= MESSAGES_AT_ONCE
