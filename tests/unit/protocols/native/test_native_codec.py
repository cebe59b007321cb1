"""Frames, bodies, compression and extension frames."""

import zlib
from typing import Any

import brotli
import orjson
import pytest

from bench.guard.counting import instructions
from vibemq.errors import LocalProtocolError, RemoteProtocolError
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.compression import Compression, Inflater, choose, compress
from vibemq.protocols.native.codec.frames import BODY_BYTES_MAX, ByteBuffer, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import (
    CommandType,
    WireMessage,
    body_type,
    decode_body,
    encode_body,
    encode_message,
    str16,
)

PACKED = [Compression.GZIP, Compression.BROTLI]


def read(data: bytes) -> list[bytes]:
    reader = NativeFrameReader()
    reader.receive_data(data)
    return reader.bodies()


def test_all_types_of_the_protocol_have_their_numbers() -> None:
    assert [int(kind) for kind in CommandType] == [
        *(
            0,
            1,
            2,
            10,
            11,
            *range(20, 27),
            30,
            31,
            32,
            *range(40, 44),
            *range(50, 57),
            *range(60, 70),
            *range(70, 75),
            99,
        )
    ]


def test_headers_with_an_empty_side_are_dropped_and_the_last_of_equals_wins() -> None:
    body = encode_body(20, "m", "q", b"1", [("a", ""), ("", "b"), ("k", "1"), ("k", "2")])
    assert decode_body(body).headers == {"k": "2"}


def test_invalid_utf8_reads_as_replacement_characters() -> None:
    body = b"\x01\x14" + str16(b"\xff\xfe") + str16("q") + bytes(6)
    assert decode_body(body).id == "\ufffd\ufffd"


@pytest.mark.parametrize("cut", range(30))
def test_every_cut_body_is_refused(cut: int) -> None:
    body = encode_body(CommandType.ERROR, "m", "q", b"1", {"k": "v"}, error_code="C", error_message="M")
    with pytest.raises(RemoteProtocolError):
        decode_body(body[: min(cut, len(body) - 1)])


def test_strings_too_long_are_refused_instead_of_wrapping_the_length() -> None:
    encode_body(20, "i" * 65_535)
    for arguments in (("i" * 65_536,), ("i", "q" * 65_536), ("i", "q", b"", {"k": "é" * 32_768})):
        with pytest.raises(LocalProtocolError):
            encode_body(20, *arguments)
    with pytest.raises(LocalProtocolError):
        encode_body(20, "")


def test_message_keeps_its_version() -> None:
    assert decode_body(encode_message(WireMessage(10, "p", version=2))).version == 2
    with pytest.raises(RemoteProtocolError):
        body_type(b"\1")


def test_the_reader_returns_good_frames_before_it_raises_again_and_again() -> None:
    reader = NativeFrameReader()
    good = encode_frame(b"ok")
    reader.receive_data(good + b"\0\0\0\3\x09abc")
    assert reader.bodies() == [b"ok"]
    for _ in range(3):
        with pytest.raises(RemoteProtocolError, match="flag 0x09"):
            reader.bodies()


def test_a_lying_length_is_refused_before_its_bytes_come() -> None:
    reader = NativeFrameReader(body_bytes_max=100)
    reader.receive_data(b"\0\0")
    assert reader.bodies() == []
    reader.receive_data(b"\0\x65")
    with pytest.raises(RemoteProtocolError, match="101"):
        reader.bodies()


def test_buffer_copies_a_slow_frame_once() -> None:
    buffer = ByteBuffer()
    frame = encode_frame(bytes(50_000))
    for at in range(0, len(frame) - 1, 100):
        buffer.append(frame[at : min(at + 100, len(frame) - 1)])
        first = buffer.take(BODY_BYTES_MAX)
        if at == 0:
            buffer.put_back(first)
        else:
            assert first == b"", "nothing is handed out while the frame is incomplete"
    buffer.append(frame[-1:] + b"xy")
    assert buffer.take(BODY_BYTES_MAX) == frame + b"xy"


@pytest.mark.parametrize("how", PACKED)
def test_compressed_frames_round_trip_and_keep_the_smaller_form(how: Compression) -> None:
    body = encode_body(20, "m", "q", b'"' + b"x" * 5_000 + b'"')
    packed = encode_frame(body, how)
    assert packed[4] == how
    assert len(packed) < 500
    assert read(packed) == [body]
    below = b"\x01\x0a" + b"x" * 1_021
    assert encode_frame(below, how)[4] == 0, "below the threshold"
    assert encode_frame(below, how, 0)[4] == how, "threshold 0 means always"
    noise = brotli.compress(bytes(range(256)) * 8, quality=11) * 40
    assert encode_frame(noise, how)[4] in (0, how)
    assert encode_frame(b"ab", how, 0)[4] == 0, "what does not shrink goes plain"


def test_a_body_over_the_limit_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="1,048,576"):
        encode_frame(bytes(BODY_BYTES_MAX + 1))
    with pytest.raises(LocalProtocolError, match="1,048,576"):
        encode_frame(bytes(BODY_BYTES_MAX + 1), Compression.GZIP)
    large = encode_frame(bytes(BODY_BYTES_MAX + 1), Compression.GZIP, inflated_bytes_max=2 * BODY_BYTES_MAX)
    assert len(large) < 10_000, "the size as sent counts where the peer inflates more"


@pytest.mark.parametrize("how", PACKED)
def test_bombs_cost_no_more_than_the_limit(how: Compression) -> None:
    inflater = Inflater(body_bytes_max=1_000)
    assert inflater.inflate(compress(bytes(1_000), how), how) == bytes(1_000)
    with pytest.raises(RemoteProtocolError, match="past the limit of 1,000"):
        inflater.inflate(compress(bytes(1_001), how), how)
    with pytest.raises(RemoteProtocolError, match="past the limit"):
        inflater.inflate(compress(bytes(100_000_000), how), how)


@pytest.mark.parametrize("how", PACKED)
def test_a_stream_of_bombs_runs_out_of_credit(how: Compression) -> None:
    inflater = Inflater(body_bytes_max=1_000_000, ratio=10, allowance_bytes=3_000_000)
    bomb = compress(bytes(1_000_000), how)
    for _ in range(3):
        inflater.inflate(bomb, how)
    with pytest.raises(RemoteProtocolError, match="10 times"):
        inflater.inflate(bomb, how)


@pytest.mark.parametrize("how", PACKED)
def test_damaged_and_cut_compressed_bodies_are_refused(how: Compression) -> None:
    packed = compress(bytes(range(256)) * 20, how)
    inflater = Inflater(body_bytes_max=1_000_000)
    for broken in (packed[: len(packed) // 2], packed[:-1], b"\xff" * 40, b"", compress(b"", how), compress(b"x", how)):
        with pytest.raises(RemoteProtocolError):
            inflater.inflate(broken, how)


def test_gzip_frames_do_not_depend_on_the_clock() -> None:
    assert zlib.decompress(compress(b"abc", Compression.GZIP), 31) == b"abc"
    assert compress(b"abc", Compression.GZIP)[4:8] == bytes(4)


@pytest.mark.parametrize(
    ("offer", "chosen"),
    [
        ("brotli,gzip", Compression.BROTLI),
        (" GZIP , brotli", Compression.GZIP),
        ("zstd,,gzip", Compression.GZIP),
        ("", Compression.NONE),
        ("lz4", Compression.NONE),
    ],
)
def test_the_first_known_name_of_the_offer_is_chosen(offer: str, chosen: Compression) -> None:
    assert choose(offer, ("gzip", "brotli")) is chosen
    assert choose("brotli", ("gzip",)) is Compression.NONE


ROWS = Rows.of([pack_row("a", b"1"), pack_row("b", b"", [("k", "v")]), pack_row("c", b"x" * 300)])


def test_publish_many_round_trip() -> None:
    extras = {1: {"priority": 3, "dedup_id": "d"}}
    frame = extensions.parse_publish_many(extensions.publish_many("r", "orders", ROWS, extras))
    assert (frame.id, frame.queue, frame.rows, frame.extras) == ("r", "orders", ROWS, extras)
    assert extensions.parse_publish_many(extensions.publish_many("r", "q", ROWS)).extras is None


def test_publish_many_ack_round_trip() -> None:
    body = extensions.publish_many_ack("r", "q", 2**40, 3, {1: ("QUEUE_FULL", "full")}, {2: 17})
    ack = extensions.parse_publish_many_ack(body)
    assert (ack.id, ack.queue, ack.first_sequence, ack.count) == ("r", "q", 2**40, 3)
    assert (ack.refused, ack.duplicates) == ({1: ("QUEUE_FULL", "full")}, {2: 17})
    assert extensions.parse_publish_many_ack(extensions.publish_many_ack("r", "q", 1, 3)).refused == {}


def test_deliver_many_round_trip() -> None:
    frame = extensions.parse_deliver_many(extensions.deliver_many("s", "q", 9, 1_700_000_000_000, ROWS, {10: 2}))
    assert (frame.id, frame.queue, frame.first_sequence, frame.published_at) == ("s", "q", 9, 1_700_000_000_000)
    assert (frame.rows, frame.acquired, frame.failed) == (ROWS, {10: 2}, {})
    frame = extensions.parse_deliver_many(extensions.deliver_many("s", "q", 9, 1, ROWS, {9: 3, 10: (7, 2)}))
    assert (frame.rows, frame.acquired, frame.failed) == (ROWS, {9: 3, 10: 7}, {10: 2})


def test_scattered_deliveries_round_trip() -> None:
    sequences, instants = range(2**62, 2**62 - 7 * ROWS.count, -7), range(ROWS.count)
    told = {sequences[0]: 3, sequences[1]: (7, 2)}
    body = extensions.deliver_scattered("s", "q", sequences, instants, ROWS, told)
    frame = extensions.parse_deliver_scattered(body)
    assert (frame.id, frame.queue, frame.rows) == ("s", "q", ROWS)
    assert (list(frame.sequences), list(frame.instants)) == (list(sequences), list(instants))
    assert (frame.first_sequence, frame.published_at) == (sequences[0], 0)
    assert (frame.acquired, frame.failed) == ({sequences[0]: 3, sequences[1]: 7}, {sequences[1]: 2})
    with pytest.raises(RemoteProtocolError, match="no rows"):
        extensions.parse_deliver_scattered(extensions.deliver_scattered("s", "q", [], [], Rows.of([])))


@pytest.mark.parametrize("told", [[1], [1, 2, 3], ["1", 2], [1, 2.5], [1, True], {"a": 1}, "2", None, []])
def test_attempts_that_are_no_numbers_are_refused(told: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="acquired"):
        extensions.parse_deliver_many(extensions.deliver_many("s", "q", 9, 1, ROWS, {9: 2, 10: told}))


def test_settlement_frames_round_trip() -> None:
    runs = [(1, 5), (9, 2**64 - 1)]
    settle = extensions.parse_settle(extensions.settle("s", 1, runs, delay_ms=250, reason="why"))
    assert (settle.id, settle.verb, settle.delay_ms, settle.reason, settle.runs) == ("s", 1, 250, "why", runs)
    assert extensions.parse_settle(extensions.settle("s", 0, [])).delay_ms is None
    extend = extensions.parse_extend_many(extensions.extend_many("s", runs, ack_timeout_ms=7))
    assert (extend.id, extend.ack_timeout_ms, extend.runs) == ("s", 7, runs)
    assert extensions.parse_extend_many(extensions.extend_many("s", runs)).ack_timeout_ms is None
    flow = extensions.parse_flow(extensions.flow("s", 100, 2**40, 5))
    assert (flow.id, flow.capacity_messages, flow.capacity_bytes, flow.add_credit) == ("s", 100, 2**40, 5)
    ended = extensions.parse_subscription_ended(extensions.subscription_ended("s", "q", "QUEUE_NOT_FOUND", "gone"))
    assert (ended.id, ended.queue, ended.code, ended.message) == ("s", "q", "QUEUE_NOT_FOUND", "gone")


def test_requests_and_responses_round_trip() -> None:
    asked = extensions.parse_request(extensions.request("r", "q", b"row", 2**32 - 1, {"priority": 2}))
    assert (asked.id, asked.queue, asked.timeout_ms, asked.row) == ("r", "q", 2**32 - 1, b"row")
    assert asked.extra == {"priority": 2}
    assert extensions.parse_request(extensions.request("r", "q", b"row", 1)).extra is None
    said = extensions.parse_response(extensions.response("r", "address", b"row"))
    assert (said.id, said.address, said.row) == ("r", "address", b"row")


BODIES = {
    extensions.parse_publish_many: extensions.publish_many("r", "q", ROWS, {0: {"priority": 1}}),
    extensions.parse_publish_many_ack: extensions.publish_many_ack("r", "q", 1, 3, {0: ("A", "b")}),
    extensions.parse_deliver_many: extensions.deliver_many("s", "q", 9, 1, ROWS, {10: 2}),
    extensions.parse_deliver_scattered: extensions.deliver_scattered("s", "q", range(3), range(3), ROWS, {2: 2}),
    extensions.parse_settle: extensions.settle("s", 1, [(1, 2)], reason="why"),
    extensions.parse_extend_many: extensions.extend_many("s", [(1, 2)]),
    extensions.parse_flow: extensions.flow("s", 1, 2, 3),
    extensions.parse_subscription_ended: extensions.subscription_ended("s", "q", "C", "m"),
    extensions.parse_request: extensions.request("r", "q", b"row", 2_000, {"priority": 2}),
    extensions.parse_response: extensions.response("r", "address", b"row"),
}


@pytest.mark.parametrize("parse", BODIES, ids=lambda parse: parse.__name__)
def test_cut_extension_frames_are_refused(parse) -> None:
    body = BODIES[parse]
    parse(body)
    parse(body + b"trailing")
    for cut in range(2, len(body)):
        with pytest.raises(RemoteProtocolError):
            parse(body[:cut])


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (extensions.parse_publish_many, extensions.publish_many("r", "q", ROWS, {"x": 1})),  # type: ignore[dict-item]
        (extensions.parse_publish_many_ack, extensions.publish_many_ack("r", "q", 1, 1, {0: "no pair"})),  # type: ignore[dict-item]
        (extensions.parse_publish_many_ack, extensions.publish_many_ack("r", "q", 1, 1, None, {0: "no number"})),  # type: ignore[dict-item]
        (extensions.parse_deliver_many, extensions.deliver_many("s", "q", 1, 1, ROWS, {1: "two"})),  # type: ignore[dict-item]
        (extensions.parse_settle, extensions.settle("s", 0, [(5, 4)])),
        (extensions.parse_flow, b"\x01\x41" + bytes(30)),
        (extensions.parse_request, extensions.request("r", "q", b"row", 1, [1])),  # type: ignore[arg-type]
    ],
)
def test_extension_frames_of_wrong_content_are_refused(parse, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse(body)


@pytest.mark.parametrize("said", [{"a": [[]] * 2_000}, {"a": [{}] * 2_000}, {str(n): n for n in range(2_000)}])
def test_what_a_stage_or_request_is_described_with_is_not_read_when_it_is_large(
    said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = extensions.stage("r", "q", said, ROWS, None)
    request = extensions.request("r", "q", b"row", 1, said)
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("it was read"))
    for parse, body in ((extensions.parse_stage, stage), (extensions.parse_request, request)):
        with pytest.raises(RemoteProtocolError, match=r"more than 1,024 values"):
            parse(body)


@pytest.mark.parametrize("size", [0, 1, BODY_BYTES_MAX + 1])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_an_impossible_length_is_refused_as_soon_as_it_is_there_however_it_came(size: int, step: int) -> None:
    reader = NativeFrameReader()
    head = size.to_bytes(4, "big")
    for at in range(0, 4 - step, step):
        reader.receive_data(head[at : at + step])
        assert reader.bodies() == []
    reader.receive_data(head[4 - step :])
    with pytest.raises(RemoteProtocolError):
        reader.bodies()


@pytest.mark.parametrize(
    ("make", "parse"),
    [
        (lambda runs: extensions.settle("s", 0, runs), extensions.parse_settle),
        (lambda runs: extensions.extend_many("s", runs), extensions.parse_extend_many),
    ],
)
def test_very_many_runs_become_tuples_as_they_are_worked_off(make: Any, parse: Any) -> None:
    runs = [(first, first + first % 3) for first in range(1, 240_000, 4)]
    body, found = make(runs), []
    taken = sum(instructions(lambda: found.append(parse(body))).values())
    assert taken < 2_000, "at once"
    [frame] = found
    assert list(frame.runs) == runs
    assert (len(frame.runs), frame.runs[7], list(frame.runs[7:9])) == (len(runs), runs[7], runs[7:9])
    with pytest.raises(RemoteProtocolError, match="ends before it begins"):
        parse(make([*runs, (5, 4)]))
