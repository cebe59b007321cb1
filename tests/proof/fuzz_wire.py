"""Fuzz targets: what peers send. Bytes of the native protocol to values and back, without a session."""

import gzip
import json
from collections.abc import Hashable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import brotli

from tests.proof.fuzz_engine import Broken, Target
from vibemq.errors import InvalidOptions, LocalProtocolError, RemoteProtocolError, VibeMQError
from vibemq.model.options import QueueOptions
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.native.bulk import message_extras
from vibemq.protocols.native.codec import extensions as ext
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.extra_columns import WireColumns
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.headers import HeaderReader
from vibemq.protocols.native.codec.json_check import JsonCheck, as_json
from vibemq.protocols.native.codec.options import options_of
from vibemq.protocols.native.codec.row_check import check_rows
from vibemq.protocols.native.codec.timespan import format_timespan, parse_timespan
from vibemq.protocols.native.codec.wire import WireMessage, decode_body, encode_body, encode_message, str16
from vibemq.protocols.native.deliver import PlainDeliveries, bulk_bodies
from vibemq.protocols.native.outbox import FrameQueue

VECTORS = Path(__file__).parents[1] / "vectors" / "native.json"
BODY_BYTES_MAX = 16_384
NOW = 1_700_000_000_000
PAYLOADS_MAX = 2_000
"""As many as one read of a socket may hold; each is looked at four times."""
WORDS = (
    *(str16(name) for name in ("priority", "vibemq-ttl-ms", "vibemq-delay-ms", "vibemq-dedup-id", "messageId")),
    *(str16(name) for name in ("subscription-id", "supported-extensions", "batch/1,settle/1,admin/1", "authToken")),
    *(str16(name) for name in ("prefetch", "credit", "start", "sequence:5", "verb", "retry", "high", "q", "m1")),
    b"\0\0",
    b"\0\x01",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x0c\0\x01",
    b"\xef\xbf\xbd",
    b"\xed\xa0\x80",
)
JSON_WORDS = (
    *(
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"[",
        b"]",
        b"{}",
        b"null",
        b"true",
        b"1e999",
        b"-0",
        b"NaN",
        b"18446744073709551616",
    ),
    *(
        f'"{name}":'.encode()
        for name in ("mode", "messageTtl", "maxQueueSize", "overflowStrategy", "verb", "arguments")
    ),
    *(
        f'"{name}"'.encode()
        for name in ("RoundRobin", "1.02:03:04.5", "queue.create", "queue.remove", "runs", "extras")
    ),
    *(b'"refused":{"0":["A","b"]}', b'"priority":', b'"ttl_ms":', b'"delay_ms":', b'"dedup_id":', b'{"1":', b"[[1,2]]"),
)


@cache
def recorded_streams() -> list[bytes]:
    """Frames of real clients and brokers, sound and broken ones."""
    vectors: dict[str, list[dict[str, Any]]] = json.loads(VECTORS.read_text())
    return [bytes.fromhex(vector["hex"]) for group in vectors.values() for vector in group]


@cache
def recorded_bodies() -> list[bytes]:
    return [stream[HEADER.size :] for stream in recorded_streams() if len(stream) > 7 and stream[4] == 0]


# -- frames -------------------------------------------------------------------------------------------------------


def frames(data: bytes) -> Hashable:
    """The first byte says how the stream is cut; however it is, the same bodies come out."""
    if not data:
        return None
    stream = data[1:]
    whole = _bodies(stream, [0, len(stream)])
    step = 1 + data[0] % 61
    if _bodies(stream, [*range(0, len(stream), step), len(stream)]) != whole:
        raise Broken("another cut of the stream, other bodies")
    bodies, failed = whole
    how = Compression(data[0] % 3)
    if bodies and _bodies(encode_frame(bodies[-1], how, 0), None) != (bodies[-1:], False):
        raise Broken("a body does not survive its frame")
    return min(len(bodies), 9), failed, tuple({min(len(body), 3) for body in bodies})


def _bodies(stream: bytes, cuts: list[int] | None) -> tuple[list[bytes], bool]:
    reader = NativeFrameReader(body_bytes_max=BODY_BYTES_MAX)
    bodies: list[bytes] = []
    try:
        for start, end in pairwise(cuts or [0, len(stream)]):
            reader.receive_data(stream[start:end])
            while found := reader.bodies():
                bodies += found
    except RemoteProtocolError:
        return bodies, True
    if any(len(body) > BODY_BYTES_MAX for body in bodies):
        raise Broken("a body over the limit")
    return bodies, False


def _frame_seeds() -> Iterable[bytes]:
    for stream in recorded_streams():
        yield b"\x05" + stream
    body = encode_body(20, "m1", "q", b'{"a":[1,2,3]}' * 9)
    for packed, flag in ((gzip.compress(body, mtime=0), 1), (brotli.compress(body, quality=1), 2)):
        yield b"\x03" + HEADER.pack(len(packed), flag) + packed
    for packed, flag in ((gzip.compress(bytes(99_000), mtime=0), 1), (brotli.compress(bytes(99_000)), 2)):
        yield b"\x07" + HEADER.pack(len(packed), flag) + packed
    yield b"\0" + b"".join(encode_frame(encode_body(10, f"p{n}")) for n in range(5))


# -- plain bodies -------------------------------------------------------------------------------------------------


def body(data: bytes) -> Hashable:
    """Decoded, printed and decoded again it is the same message."""
    message = decode_body(data)
    try:
        printed = encode_message(message)
    except LocalProtocolError:
        # Bytes that were no UTF-8 have grown, each to the three of U+FFFD.
        return "too long"
    if decode_body(printed) != message:
        raise Broken("a message changes when it is printed and read again")
    return message.type, bool(message.queue), message.payload is None, min(len(message.headers), 5)


# -- extension bodies ---------------------------------------------------------------------------------------------


def bulk(data: bytes) -> Hashable:
    """The second byte is the type. Decoded, printed and decoded again it is the same."""
    kind = data[1] if len(data) > 1 else 0
    if kind not in _BULK:
        return None
    parse, write = _BULK[kind]
    frame = parse(data)
    try:
        printed = write(frame)
    except LocalProtocolError:
        return kind, "too long"
    if parse(printed) != frame:
        raise Broken(f"a frame of type {kind} changes when it is printed and read again")
    return kind, getattr(getattr(frame, "rows", None), "count", -1) > 0


def _write_publish_many(frame: ext.PublishMany) -> bytes:
    if isinstance(frame.extras, WireColumns):
        return ext.publish_many(frame.id, frame.queue, frame.rows, columns=frame.extras.block)
    frame.extras = frame.extras or None
    return ext.publish_many(frame.id, frame.queue, frame.rows, frame.extras)


def _write_ack(frame: ext.PublishManyAck) -> bytes:
    return ext.publish_many_ack(
        frame.id, frame.queue, frame.first_sequence, frame.count, frame.refused, frame.duplicates
    )


def _write_deliver(frame: ext.DeliverMany) -> bytes:
    return ext.deliver_many(frame.id, frame.queue, frame.first_sequence, frame.published_at, frame.rows, frame.acquired)


def _write_scattered(frame: ext.DeliverMany) -> bytes:
    return ext.deliver_scattered(frame.id, frame.queue, frame.sequences, frame.instants, frame.rows, frame.acquired)


def _write_settle(frame: ext.SettleMany) -> bytes:
    return ext.settle(frame.id, frame.verb, frame.runs, delay_ms=frame.delay_ms, reason=frame.reason, queue=frame.queue)


def _write_extend(frame: ext.ExtendMany) -> bytes:
    return ext.extend_many(frame.id, frame.runs, ack_timeout_ms=frame.ack_timeout_ms, queue=frame.queue)


def _write_flow(frame: ext.Flow) -> bytes:
    return ext.flow(frame.id, frame.capacity_messages, frame.capacity_bytes, frame.add_credit, queue=frame.queue)


_BULK: dict[int, tuple[Any, Any]] = {
    60: (ext.parse_publish_many, _write_publish_many),
    61: (ext.parse_publish_many_ack, _write_ack),
    62: (ext.parse_deliver_many, _write_deliver),
    63: (ext.parse_settle, _write_settle),
    64: (ext.parse_extend_many, _write_extend),
    65: (ext.parse_flow, _write_flow),
    67: (ext.parse_subscription_ended, lambda f: ext.subscription_ended(f.id, f.queue, f.code, f.message)),
    68: (ext.parse_request, lambda f: ext.request(f.id, f.queue, f.row, f.timeout_ms, f.extra or None)),
    74: (ext.parse_deliver_scattered, _write_scattered),
    69: (ext.parse_response, lambda f: ext.response(f.id, f.address, f.row)),
}

_ROWS = Rows.of([pack_row("a", b"1"), pack_row("bb", b'{"x":2}', [("k", "v")]), pack_row("c", b"")])


def _bulk_seeds() -> Iterable[bytes]:
    yield ext.publish_many("r", "q", _ROWS)
    yield ext.publish_many("r", "q", _ROWS, {0: {"priority": 2, "ttl_ms": 5}, 2: {"delay_ms": 9, "dedup_id": "d"}})
    yield ext.publish_many("r", "q", _ROWS, columns=b"\2\2\0" + bytes(8) + b"\0\1" + bytes(_ROWS.count))
    yield ext.publish_many("r", "q", Rows.of([pack_row(f"{n:04}", b"12345") for n in range(40)]))
    yield ext.publish_many_ack("r", "q", 7, 3)
    yield ext.publish_many_ack("r", "q", 1, 3, {0: ("QUEUE_FULL", "why")}, {1: 5})
    yield ext.deliver_many("s", "q", 9, NOW, _ROWS, {10: 2})
    yield ext.deliver_scattered("s", "q", [9, 3, 7], [NOW] * 3, _ROWS, {3: 2})
    yield ext.settle("s", 1, [(1, 2), (9, 9)], delay_ms=5, reason="why")
    yield ext.extend_many("s", [(1, 4)], ack_timeout_ms=9)
    yield ext.flow("s", 5, 100, 3)
    yield ext.subscription_ended("s", "q", "QUEUE_NOT_FOUND", "gone")
    yield ext.request("r", "q", pack_row("a", b"1", [("k", "v")]), 2_000)
    yield ext.request("r", "q", pack_row("a", b"1"), 2_000, {"priority": 2})
    yield ext.response("r", "a" * 32, pack_row("a", b"1"))


# -- rows ---------------------------------------------------------------------------------------------------------


def rows(data: bytes) -> Hashable:
    """Rows that are accepted from a publisher reach plain and bulk consumers as they are."""
    frame = ext.parse_publish_many(b"\x01\x3c" + data)
    try:
        check_rows(frame.rows, HeaderReader(headers_max=50, value_units_max=4096))
        extras = message_extras(frame.extras or {}, frame.rows.count, NOW)
    except VibeMQError as error:
        if isinstance(error, RemoteProtocolError):
            raise
        return type(error).__name__
    piece = Slice(5, NOW, frame.rows)
    _check_plain(piece)
    _check_bulk(piece)
    return min(frame.rows.count, 4), bool(extras)


def _check_plain(piece: Slice) -> None:
    outbox = FrameQueue(body_bytes_max=BODY_BYTES_MAX, threshold=1024)
    json_check = JsonCheck(depth_max=64, nonce="n" * 32)
    ids, sequences, too_large = PlainDeliveries(outbox, json_check).send(piece, str16("q"), {6: 3})
    sent, failed = _bodies(outbox.take(), None)
    if failed or len(sent) != len(ids) or len(sequences) + len(too_large) != piece.rows.count:
        raise Broken("deliveries that cannot be read")
    views = [RowView(row) for row in piece.rows]
    for told, sequence in zip(map(decode_body, sent), sequences, strict=True):
        view = views[sequence - piece.first_sequence]
        if told.id != view.message_id or not told.headers.items() >= _kept(view).items():
            raise Broken("a plain delivery differs from what was published")
        if told.payload is not None and not json_check.is_json(told.payload):
            raise Broken("a plain consumer got a payload that is not JSON")


def _kept(view: RowView) -> dict[str, str]:
    """Headers that no delivery header overwrites."""
    ours = ("deliveryAttempts", "content-encoding")
    return {key: value for key, value in view.headers.items() if key not in ours}


def _check_bulk(piece: Slice) -> None:
    got: list[bytes] = []
    for first, encoded in bulk_bodies(piece, "s", "q", {6: 3}, BODY_BYTES_MAX):
        if encoded is None:
            continue
        delivered = ext.parse_deliver_many(encoded)
        if delivered.first_sequence != first or len(encoded) > BODY_BYTES_MAX:
            raise Broken("a bulk delivery is too large or counts wrongly")
        got += delivered.rows
    if b"".join(got) != piece.rows.data and len(piece.rows.data) < BODY_BYTES_MAX - 200:
        raise Broken("a bulk delivery differs from what was published")


def _row_seeds() -> Iterable[bytes]:
    for seed in list(_bulk_seeds())[:3]:
        yield seed[2:]
    odd = [pack_row("x", b"\xff\xfe"), pack_row("y", b"[" * 70 + b"]" * 70), pack_row("z", b"1", [("é", "ü" * 9)])]
    yield ext.publish_many("r", "q", Rows.of(odd))[2:]
    yield ext.publish_many("r", "q", Rows.of([pack_row("big", b"0" * 5_000)] * 4))[2:]


# -- JSON ---------------------------------------------------------------------------------------------------------


def json_forms(data: bytes) -> Hashable:
    """Zero bytes part payloads: the check of the batch agrees with that of each and with Python's own reader."""
    payloads = [payload for payload in data.split(b"\0", PAYLOADS_MAX) if payload]
    check = JsonCheck(depth_max=64, nonce="n" * 32)
    singly = [index for index, payload in enumerate(payloads) if not check.is_json(payload)]
    if check.bad(payloads) != singly:
        raise Broken("payloads are judged otherwise together than alone")
    refused = set(singly)
    for index, payload in enumerate(payloads):
        if index not in refused and not _is_json(payload):
            raise Broken("what is no JSON passed for JSON")
        if not check.is_json(as_json(payload)[0]):
            raise Broken("bytes made JSON are no JSON")
    return len(singly) > 0, len(payloads) > 1, *map(_options, payloads[:1]), *map(_timespan, payloads[:1])


def _is_json(payload: bytes) -> bool:
    try:
        json.loads(payload.decode(), parse_int=str)
    except ValueError:
        return False
    return True


def _options(payload: bytes) -> Hashable:
    try:
        options = options_of(payload, {}, QueueOptions())
    except InvalidOptions as error:
        return str(error)[:24]
    return options is None


def _timespan(payload: bytes) -> Hashable:
    try:
        span_ms = parse_timespan(payload.decode(errors="replace"))
    except ValueError:
        return False
    if parse_timespan(format_timespan(span_ms)) != span_ms:
        raise Broken(f"a time span of {span_ms} ms changes when it is printed and read again")
    return True


def _json_seeds() -> Iterable[bytes]:
    yield from (found.payload for found in map(_message, recorded_bodies()) if found is not None and found.payload)
    yield b'{"mode":"FanOutWithAck","messageTtl":"00:00:05","maxQueueSize":5,"overflowStrategy":2}'
    yield b'{"mode":0,"messageTtl":1500,"enableDeadLetterQueue":true,"deadLetterQueueName":"d","maxRetryAttempts":"3"}'
    yield b'[1,2]\0"a"\0{"k":[true,null]}\0-1.5e3'
    yield b"1.02:03:04.5670000"
    yield b"[" * 65 + b"]" * 65
    yield b'"\\ud800"\x001e999\x00123456789012345678901234567890'


def _message(data: bytes) -> WireMessage | None:
    try:
        return decode_body(data)
    except RemoteProtocolError:
        return None


REMOTE = (RemoteProtocolError,)
TARGETS = [
    Target("frames", "frame reader, gzip and brotli", frames, REMOTE, _frame_seeds, WORDS),
    Target("native-body", "plain bodies, every type", body, REMOTE, recorded_bodies, WORDS),
    Target("native-bulk", "bodies of batch/1", bulk, REMOTE, _bulk_seeds, WORDS + JSON_WORDS),
    Target("native-rows", "rows, in and out again", rows, REMOTE, _row_seeds, WORDS + JSON_WORDS),
    Target("native-json", "payloads, queue options", json_forms, (), _json_seeds, JSON_WORDS),
]
