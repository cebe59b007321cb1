"""Fuzz targets: BlazingMQ's wire without a session.

What decodes is encoded again and must come back the same; what stands for the same thing twice (BER and JSON, the short
and the long way from areas to headers) must agree.
"""

import json
import re
import zlib
from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.proof.fuzz_engine import Broken, Target
from vibemq.errors import InvalidMessage, ProtocolError, RemoteProtocolError
from vibemq.model.rows import Rows, RowView, header_pairs, pack_row
from vibemq.model.selector import Property, PropertyType, headers_of
from vibemq.protocols.blazingmq.codec import ber, json_codec
from vibemq.protocols.blazingmq.codec.acks import build_acks, build_confirms, parse_acks, parse_confirms
from vibemq.protocols.blazingmq.codec.control import decode_authentication, decode_control, decode_negotiation
from vibemq.protocols.blazingmq.codec.events import (
    EVENT_HEADER_BYTES,
    AlikeEvents,
    ControlCodec,
    Event,
    EventReader,
    EventType,
)
from vibemq.protocols.blazingmq.codec.messages import AUTHENTICATION, CONTROL, NEGOTIATION, Unserved
from vibemq.protocols.blazingmq.codec.options import parse_options, sub_queue_ids_option
from vibemq.protocols.blazingmq.codec.properties import SCHEMA_NONE, SCHEMA_OLD, MessageProperty, build_area, parse_area
from vibemq.protocols.blazingmq.codec.property_headers import area_of_headers, headers_of_area
from vibemq.protocols.blazingmq.codec.push import build_pushes, parse_pushes
from vibemq.protocols.blazingmq.codec.put import ACK_REQUESTED, PutMessage, PutReader, build_puts, put_message
from vibemq.protocols.blazingmq.codec.put_runs import AlikePuts, alike_in_event
from vibemq.protocols.blazingmq.codec.rows import PutLoader, pushes_of_rows, row_of_put, rows_of_run
from vibemq.protocols.blazingmq.codec.schema import Choice

VECTORS = Path(__file__).parents[1] / "vectors" / "blazingmq.json"
EVENT_BYTES_MAX, CONTROL_BYTES_MAX = 1 << 20, 1 << 18
LOADED_BYTES_MAX = 1 << 20
GUID = bytes.fromhex("400000000000003dd0b13e84bf23bf78")
WORDS = (
    *(
        bytes.fromhex(text)
        for text in ("3080", "a080", "a180", "aa80", "b080", "0000", "800101", "04000002", "16000000")
    ),
    *(bytes.fromhex(text) for text in ("41020000", "42020000", "43020000", "44020000", "45020000", "41022000")),
    *(b"\0\0\0\x08", b"\0\0\0\x30", b"\1", b"\2\2", b"\3\3\3", b"\4\4\4\4", b"\x1b\0\0\x08\0\x02", b"\x18\0\0\0\0\1"),
    *(
        b"\x84\xff\xff\xff\xff",
        b"\x9f\x87\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff",
        b"\x78\x9c",
        b"vibemq-types",
        b"=int64,",
    ),
)
JSON_WORDS = (
    *(f'"{name}":'.encode() for name in ("rId", "openQueue", "handleParameters", "subIdInfo", "flags", "status")),
    *(b'"E_SUCCESS"', b"null", b"true", b"1e9", b"-1", b"4294967296", b"18446744073709551616", b"[[[[", b"{}", b"\\/"),
)
SELECTOR_WORDS = (
    *(
        b"||",
        b"&&",
        b"==",
        b"!=",
        b"<=",
        b">=",
        b"!",
        b"~",
        b"-",
        b"+",
        b"*",
        b"/",
        b"%",
        b"(",
        b")",
        b"exists(",
        b"true",
    ),
    *(b"false", b'"eu"', b"9223372036854775807", b"-9223372036854775808", b" x ", b"total", b"_", b".", b'\\"', b"0"),
)


@cache
def recorded() -> list[tuple[str, bytes]]:
    vectors: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
    return [(vector["event"], bytes.fromhex(vector["hex"])) for vector in vectors]


# -- events -----------------------------------------------------------------------------------------------------------


def events(data: bytes) -> Hashable:
    """The first byte says how the stream is cut; however it is, the same events come out. Their messages survive."""
    if not data:
        return None
    stream = data[1:]
    found, failed = _cut(stream, len(stream) or 1)
    again, failed_again = _cut(stream, 1 + data[0] % 61)
    if (_joined(again), failed_again) != (_joined(found), failed):
        raise Broken("another cut of the stream, other events")
    if _cut(stream, len(stream) or 1, joins_alike=True) != (found, failed):
        raise Broken("events that are alike are others when they come together")
    kinds = []
    for one in found:
        event = Event(one[0], one[1], one[2], 0, len(one[2]))
        try:
            kinds.append((one[0], _content(event)))
        except RemoteProtocolError as error:
            kinds.append((one[0], re.sub(r"\d+", "", str(error))[:16]))
    return failed, frozenset(kinds)


def _cut(stream: bytes, step: int, *, joins_alike: bool = False) -> tuple[list[tuple[int, int, bytes]], bool]:
    reader = EventReader(event_bytes_max=EVENT_BYTES_MAX, control_bytes_max=CONTROL_BYTES_MAX, joins_alike=joins_alike)
    found: list[tuple[int, int, bytes]] = []
    try:
        for at in range(0, len(stream), step):
            reader.receive_data(stream[at : at + step])
            while got := reader.read(100):
                found += [(event.type, event.codec, event.body) for some in got for event in _apart(some)]
    except RemoteProtocolError:
        return found, True
    return found, False


def _apart(event: Event) -> list[Event]:
    """The events of a run. What is read of them together is what is read of each."""
    if not isinstance(event, AlikeEvents):
        return [event]
    if event.type == EventType.PUT:
        _same_rows(event.puts, [message for one in event.events for message in _taken(one)])
    else:
        _same_confirms(event)
    return event.events


def _same_confirms(event: AlikeEvents) -> None:
    try:
        alone = list(parse_confirms(event.events))
    except RemoteProtocolError:
        return
    if list(parse_confirms([event])) != alone:
        raise Broken("confirms that come together are others")


def _same_rows(run: AlikePuts, messages: list[PutMessage]) -> None:
    queue_id = run.plain_queue_id(ACK_REQUESTED)
    columns = None if queue_id is None else run.columns()
    if columns is None:
        return
    if {(message.queue_id, message.flags, message.compression) for message in messages} != {(queue_id, 1, 0)}:
        raise Broken("messages are taken for what they are not")
    if rows_of_run(*columns)[0] != Rows.of([row_of_put(message, message.guid) for message in messages]):
        raise Broken("the rows of messages that are alike are not theirs")


def _joined(found: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """The messages of a large PUT event come in groups as they have arrived."""
    joined: list[tuple[int, int, bytes]] = []
    for kind, codec, body in found:
        if kind == EventType.PUT and joined and joined[-1][0] == kind:
            joined[-1] = kind, codec, joined[-1][2] + body
        else:
            joined.append((kind, codec, body))
    return joined


def _content(event: Event) -> Hashable:
    match event.type:
        case EventType.PUT:
            return _puts(event)
        case EventType.PUSH:
            pushed = list(parse_pushes(event))
            for message in pushed:
                parse_options(message.options)
            _same([b"".join(build_pushes(pushed))] if pushed else [], pushed, parse_pushes)
            return min(len(pushed), 3)
        case EventType.ACK:
            acks = parse_acks(event)
            _same([build_acks(acks)], acks, parse_acks)
            return min(len(acks), 3)
        case EventType.CONFIRM:
            confirms = list(parse_confirms([event]))
            _same([build_confirms(confirms)], confirms, lambda one: parse_confirms([one]))
            return min(len(confirms), 3)
        case EventType.CONTROL:
            return type(decode_control(event).choice).__name__
        case EventType.AUTHENTICATION:
            return type(decode_authentication(event)).__name__
    return None


def _puts(event: Event) -> Hashable:
    reader = PutReader()
    reader.add([event])
    messages: list[PutMessage] = []
    while reader:
        messages += reader.take(2)
    if (run := alike_in_event(event.data, event.start, event.end)) is not None:
        _same_rows(run, messages[: (run.end - run.start) // run.each])
    # What is behind a checksum that is wrong shall be looked at, too.
    messages = [_with_checksum(message) if "checksum" in message.fault else message for message in messages]
    sound = [message for message in messages if not message.fault]
    if sound:
        _same([build_puts(sound)], sound, _taken)
    return min(len(messages), 3), len(sound) == len(messages), tuple(sorted({_loaded(message) for message in messages}))


def _with_checksum(message: PutMessage) -> PutMessage:
    flags, compression, schema_id = message.flags, message.compression, message.schema_id
    return put_message(*message[:2], message.data, flags=flags, compression=compression, schema_id=schema_id)


def _taken(event: Event) -> list[PutMessage]:
    reader = PutReader()
    reader.add([event])
    return reader.take(1 << 30)


def _same(built: list[bytes], messages: list[Any], parse: Any) -> None:
    again = [message for one in built for message in parse(Event(0, 0, one, EVENT_HEADER_BYTES, len(one)))]
    if again != messages:
        raise Broken("messages do not survive their event")


def _loaded(message: PutMessage) -> str:
    try:
        loader = PutLoader(message, GUID, LOADED_BYTES_MAX)
        while (row := loader.step()) is None:
            pass
    except InvalidMessage as error:
        return re.sub(r"\d+", "", str(error))[:12]
    view = RowView(row)
    if len(row) != view.headers_at + 2 + sum(4 + len(k) + len(v) for k, v in _raw_pairs(row, view.headers_at)):
        raise Broken("a row that is not whole")
    [push] = pushes_of_rows(Rows.of([row]), 0, b"")
    if push.guid != GUID or not push.data.endswith(view.payload):
        raise Broken("a row is not delivered as it was posted")
    return "loaded"


def _raw_pairs(data: bytes, at: int) -> list[tuple[bytes, bytes]]:
    count, at = int.from_bytes(data[at : at + 2], "big"), at + 2
    texts = []
    for _ in range(2 * count):
        size = int.from_bytes(data[at : at + 2], "big")
        texts.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return list(zip(texts[::2], texts[1::2], strict=True))


# -- control messages -------------------------------------------------------------------------------------------------


_CHOICES = (NEGOTIATION, AUTHENTICATION)


def ber_messages(data: bytes) -> Hashable:
    return _control(ControlCodec.BER, data)


def json_messages(data: bytes) -> Hashable:
    return _control(ControlCodec.JSON, data)


def _control(codec: ControlCodec, data: bytes) -> Hashable:
    """The first byte says what kind of message it is."""
    if not data:
        return None
    kind, body = data[0] % 4, data[1:]
    if kind > 1:
        message = decode_control(Event(1, codec, body + b"\1", 0, len(body) + 1))
        if isinstance(message.choice, Unserved):
            return message.choice.category, message.choice.reason[:10]
        r_id, choice = message.r_id, message.choice
        for one in (ber, json_codec):
            if one.decode_request(CONTROL, one.encode_request(CONTROL, r_id, choice)) != (r_id, choice):
                raise Broken("a request does not survive its codec")
        return r_id is None, type(choice).__name__
    decode = decode_negotiation if kind == 0 else decode_authentication
    found = decode(Event(1, codec, body + b"\1", 0, len(body) + 1))
    for one in (ber, json_codec):
        _survives(one, _CHOICES[kind], found)
    return type(found).__name__


def _survives(codec: Any, of: Choice, message: Any) -> None:
    if codec.decode_choice(of, codec.encode_choice(of, message)) != message:
        raise Broken("a message does not survive its codec")


def _control_seeds(codec: ControlCodec) -> Iterable[bytes]:
    encode: Any = ber if codec is ControlCodec.BER else json_codec
    for event, data in recorded():
        if event != "CONTROL":
            continue
        one = Event(1, data[6] >> 5, data, EVENT_HEADER_BYTES, len(data))
        try:
            negotiation = decode_negotiation(one)
        except RemoteProtocolError:
            message = decode_control(one)
            yield b"\2" + encode.encode_request(CONTROL, message.r_id, message.choice)
        else:
            yield b"\0" + encode.encode_choice(NEGOTIATION, negotiation)
    if codec is ControlCodec.BER:
        yield b"\1" + bytes.fromhex("3080 a080 a080 80 05 4261736963 81 03 613a62 0000 0000 0000")
        yield b"\2" + bytes.fromhex("30 0c 80 01 01 a1 07 ad 80 84 00 00 00 00 00")
    else:
        yield b'\1{"authenticationRequest":{"mechanism":"Basic","data":"YTpi"}}'
        yield b'\1{"authenticationResponse":{"status":{"category":"E_SUCCESS","code":0},"lifetimeMs":7}}'


# -- properties -------------------------------------------------------------------------------------------------------


def properties(data: bytes) -> Hashable:
    """The first byte says which style. Both ways to the headers agree, and what they keep comes out again."""
    if not data:
        return None
    style, area = (SCHEMA_OLD, SCHEMA_NONE, 2)[data[0] % 3], data[1:]
    found, at = parse_area(area, style)
    block, also_at = headers_of_area(area, style)
    expected = headers_of((name, Property(kind, value)) for name, kind, value in found)
    if block != pack_row("i", b"", expected)[7:] or at != also_at:
        raise Broken("the short way to the headers is another than the long one")
    for delivered in (SCHEMA_OLD, SCHEMA_NONE):
        if parse_area(area_of_headers(block, delivered), delivered)[0] != found:
            raise Broken("properties do not survive the headers")
    return min(len(found), 3), frozenset(kind for _, kind, _ in found)


def _property_seeds() -> Iterable[bytes]:
    listed = [
        MessageProperty("b", PropertyType.BOOL, True),
        MessageProperty("c", PropertyType.CHAR, 65),
        MessageProperty("i", PropertyType.INT32, -3),
        MessageProperty("priority", PropertyType.INT64, 1 << 40),
        MessageProperty("s", PropertyType.SHORT, -2),
        MessageProperty("t", PropertyType.STRING, "naïve"),
        MessageProperty("e", PropertyType.STRING, ""),
        MessageProperty("x", PropertyType.BINARY, b"\0\1\2"),
    ]
    for style in range(3):
        for count in (1, 3, len(listed)):
            yield bytes((style,)) + build_area(listed[:count], style) + b"payload"


def headers(data: bytes) -> Hashable:
    """Whatever pairs a row holds, its area can be read."""
    pieces = [piece[:60_000] for piece in data.split(b"\xfe")]
    pairs = list(zip(pieces[::2], pieces[1::2], strict=False))
    block = len(pairs).to_bytes(2, "big") + b"".join(
        len(text).to_bytes(2, "big") + text for pair in pairs for text in pair
    )
    header_pairs(block, 0)
    found: list[MessageProperty] = []
    for style in (SCHEMA_OLD, SCHEMA_NONE):
        area = area_of_headers(block, style)
        other = parse_area(area, style)[0] if area else []
        if style == SCHEMA_NONE and other != found:
            raise Broken("the old style has other properties than the new one")
        found = other
    if found:
        try:
            block, _ = headers_of_area(area, SCHEMA_NONE)
        except InvalidMessage:
            return "a value that is too long once it is in base64"
        if area_of_headers(block, SCHEMA_NONE) != area:
            raise Broken("an area is not the same after another turn")
    return min(len(found), 3), frozenset(kind for _, kind, _ in found)


def _header_seeds() -> Iterable[bytes]:
    yield b"\xfe".join((b"region", b"eu", b"n", b"7", b"flag", b"true", b"vibemq-types", b"n=int64,flag=bool"))
    yield b"\xfe".join((b"x", b"AAEC", b"s", b"/w==", b"vibemq-types", b"x=binary,s=string-base64,e=string"))
    yield b"\xfe".join((b"region", b"eu", b"customer", b"na\xc3\xafve", b"bad", b"\xff\x80"))
    yield b"\xfe".join((b"vibemq-property-a%2Fb", b"1", b"vibemq-ttl-ms", b"5", b"", b"v", b"k", b""))


def _event_seeds() -> Iterable[bytes]:
    for _, data in recorded():
        yield b"\7" + data
    yield b"\1" + b"".join(data for kind, data in recorded() if kind in ("PUT", "CONFIRM"))
    yield b"\3" + b"".join(build_puts([put_message(1, bytes([64] * 15 + [n]), b"body%d" % n)]) for n in range(8))
    yield b"\4" + b"".join(build_confirms([(1, bytes([64] * 15 + [n]), 2)]) for n in range(8))
    yield b"\3" + build_puts([put_message(1, bytes([64] * 15 + [n]), b"body%d" % n) for n in range(8)])
    area = build_area([MessageProperty("k", PropertyType.STRING, "v")])
    old = build_area([MessageProperty("k", PropertyType.STRING, "v")], SCHEMA_OLD)
    flags = 3
    yield b"\5" + build_puts(
        [
            put_message(1, GUID, area + zlib.compress(b"A" * 999), flags=flags, compression=1, schema_id=2),
            put_message(1, GUID, zlib.compress(old + b"A" * 999), flags=flags, compression=1),
        ]
    )
    yield (
        b"\2"
        + build_pushes(pushes_of_rows(Rows.of([pack_row("1", b"p", [("a", "b")])]), 3, sub_queue_ids_option([4])))[0]
    )


TARGETS = [
    Target("bmq-events", "events of BlazingMQ, and the messages in them", events, (), _event_seeds, WORDS, 600),
    Target(
        "bmq-ber",
        "control messages in BER",
        ber_messages,
        (RemoteProtocolError,),
        lambda: _control_seeds(ControlCodec.BER),
        WORDS,
        600,
    ),
    Target(
        "bmq-json",
        "control messages in JSON",
        json_messages,
        (RemoteProtocolError,),
        lambda: _control_seeds(ControlCodec.JSON),
        JSON_WORDS,
        600,
    ),
    Target("bmq-properties", "areas of message properties", properties, (ProtocolError,), _property_seeds, WORDS, 400),
    Target("bmq-headers", "headers as message properties", headers, (), _header_seeds, WORDS, 400),
]
