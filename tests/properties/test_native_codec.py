"""The native protocol under any input: round trips, any cut of the stream, garbage, and time that grows with size."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vibemq.errors import RemoteProtocolError
from vibemq.model.commands import Extend, Publish, Settle, Subscribe
from vibemq.model.effects import Deliver, Reply, Subscribed
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.steps import at_once
from vibemq.model.stored import Slice
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions, json_check, json_parts
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.json_check import JsonCheck
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body, encode_message
from vibemq.protocols.session import Authenticate, Principal, Request
from vibemq.testing.session_conformance import NOW, SESSION, context

T = TypeVar("T")
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
headers = st.dictionaries(texts, texts, max_size=4)
messages = st.builds(
    WireMessage,
    type=st.integers(0, 98),
    id=texts,
    queue=st.text(st.characters(codec="utf-8"), max_size=12),
    payload=st.none() | st.binary(min_size=1, max_size=60),
    headers=headers,
    version=st.integers(0, 255),
)
errors = st.builds(
    WireMessage,
    type=st.just(99),
    id=texts,
    headers=headers,
    error_code=st.text(st.characters(codec="utf-8"), max_size=9),
    error_message=st.text(st.characters(codec="utf-8"), max_size=9),
)
rows = st.lists(
    st.builds(pack_row, texts, st.binary(max_size=40), headers.map(lambda pairs: tuple(pairs.items()))), max_size=8
).map(Rows.of)
runs = st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 2**31)).map(lambda run: (run[0], sum(run))), max_size=5)
how = st.sampled_from(Compression)


@given(messages | errors)
def test_messages_round_trip(message: WireMessage) -> None:
    assert decode_body(encode_message(message)) == message


@given(st.lists(st.tuples(messages, how), max_size=6), st.data())
def test_cutting_the_stream_anywhere_changes_nothing(
    sent: list[tuple[WireMessage, Compression]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(encode_message(message), compression, 0) for message, compression in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = NativeFrameReader()
    got: list[bytes] = []
    for start, end in pairwise([0, *cuts, len(stream)]):
        reader.receive_data(stream[start:end])
        got += reader.bodies()
    assert [decode_body(body) for body in got] == [message for message, _ in sent]
    assert reader.buffered == 0


@given(rows, st.dictionaries(st.integers(0, 7), st.fixed_dictionaries({"priority": st.integers(0, 31)}), max_size=3))
def test_bulk_frames_round_trip(sent: Rows, extras: dict[int, dict[str, int]]) -> None:
    publish = extensions.parse_publish_many(extensions.publish_many("r", "q", sent, extras))
    assert (publish.rows, publish.extras or {}) == (sent, extras)
    deliver = extensions.parse_deliver_many(extensions.deliver_many("s", "q", 5, 6, sent, {5: 2}))
    assert (deliver.rows, deliver.acquired) == (sent, {5: 2})


@given(runs, st.integers(0, 3), st.none() | st.integers(0, 2**40), st.text(st.characters(codec="utf-8"), max_size=20))
def test_settlements_round_trip(sent: list[tuple[int, int]], verb: int, delay_ms: int | None, reason: str) -> None:
    settle = extensions.parse_settle(extensions.settle("s", verb, sent, delay_ms=delay_ms, reason=reason))
    assert (settle.verb, settle.delay_ms, settle.reason, settle.runs) == (verb, delay_ms, reason, sent)


DECODERS = [
    decode_body,
    extensions.parse_publish_many,
    extensions.parse_publish_many_ack,
    extensions.parse_deliver_many,
    extensions.parse_settle,
    extensions.parse_extend_many,
    extensions.parse_flow,
    extensions.parse_subscription_ended,
    extensions.parse_request,
    extensions.parse_response,
]
BODIES = [
    encode_body(99, "m", "q", b"1", {"k": "v"}, error_code="C", error_message="M"),
    extensions.publish_many("r", "q", Rows.of([pack_row("a", b"1")]), {0: {"priority": 1}}),
    extensions.publish_many("r", "q", Rows.of([pack_row("a", b"1")]), columns=b"\2\2\0" + bytes(8) + b"\4\1\0\1d"),
    extensions.publish_many_ack("r", "q", 1, 3, {0: ("A", "b")}, {1: 5}),
    extensions.request("r", "q", pack_row("a", b"1"), 2_000, {"priority": 1}),
    extensions.response("r", "a" * 32, pack_row("a", b"1")),
    extensions.deliver_many("s", "q", 9, 1, Rows.of([pack_row("a", b"1")]), {10: 2}),
    extensions.settle("s", 1, [(1, 2)], reason="why"),
]


def damaged(bodies: list[bytes]) -> st.SearchStrategy[bytes]:
    """Sound bytes with a few of them changed, some cut."""
    return st.builds(
        _damage,
        st.sampled_from(bodies),
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
        st.integers(0, 6),
    )


def _damage(body: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    changed = bytearray(body)
    for place, value in changes:
        changed[2 + place % (len(body) - 2)] = value
    return bytes(changed[: max(2, len(body) - cut)] if cut % 2 else changed)


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@given(body=st.binary(min_size=2, max_size=80) | damaged(BODIES))
def test_decoders_raise_nothing_else_on_garbage(decode: Callable[[bytes], object], body: bytes) -> None:
    try:
        decode(body)
    except RemoteProtocolError:
        return


# -- sessions -------------------------------------------------------------------------------------------------------


def session(names: str = "") -> NativeSession:
    made = NativeSession(context(), NativeSettings())
    made.receive_data(encode_frame(encode_body(0, "c", headers={"supported-extensions": names} if names else {})))
    [request] = made.commands()
    assert isinstance(request, Authenticate)
    made.authenticated(request.token, Principal("anonymous"))
    made.receive_data(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", "q")))
    [subscribe] = made.commands()
    assert isinstance(subscribe, Subscribe)
    made.apply([Reply(SESSION, subscribe.token, Subscribed("q", "", subscribe.consumer, 1))])
    held = Rows.of([pack_row(f"h{number}", b"1") for number in range(9)])
    made.deliver(Deliver(SESSION, subscribe.consumer, "q", 1, 0, [(1, 9)]), [Slice(1, NOW, held)])
    made.data_to_send()
    return made


queues = st.sampled_from(["q", "other", "очередь"])
payloads = st.sampled_from([b"", b"1", b'{"a":[1,2]}', b'"text"'])
publishes = st.builds(
    lambda message_id, queue, payload, pairs: encode_body(CommandType.PUBLISH, message_id, queue, payload, pairs),
    st.sampled_from(["m1", "m2", "a-longer-id"]),
    queues,
    payloads,
    st.sampled_from([{}, {"k": "v"}, {"priority": "high"}, {"vibemq-delay-ms": "5"}]),
)
acks = st.integers(0, 9).map(lambda number: encode_body(CommandType.ACK, f"h{number}"))
others = st.sampled_from(
    [
        encode_body(CommandType.PING, "p"),
        encode_body(CommandType.CREATE_QUEUE, "c", "q", b"{}"),
        encode_body(CommandType.ACK, "x", headers={"messageId": "h3"}),
        encode_body(CommandType.SUBSCRIBE, "s2", "other"),
        encode_body(77, "u"),
    ]
)
frames = st.tuples(publishes | acks | others, how).map(lambda pair: encode_frame(pair[0], pair[1], 0))


def told(made: NativeSession, stream: bytes, cuts: list[int]) -> tuple[list[Request], bytes]:
    asked: list[Request] = []
    sent = b""
    for start, end in pairwise([0, *cuts, len(stream)]):
        made.receive_data(stream[start:end])
        asked += made.commands()
        sent += made.data_to_send()
    return asked, sent


def content(asked: list[Request]) -> tuple[dict[str, list[tuple[bytes, object]]], set[int], list[str]]:
    """What requests ask for, however they are grouped: rows by queue, settled sequences, the rest by type. Without
    what a session extends of its own accord, which it does once for each read that has acknowledgements."""
    published: dict[str, list[tuple[bytes, object]]] = {}
    settled: set[int] = set()
    rest: list[str] = []
    for request in asked:
        if isinstance(request, Publish):
            extras = request.extras or {}
            published.setdefault(request.queue, []).extend(
                (row, extras.get(index)) for index, row in enumerate(request.rows)
            )
        elif isinstance(request, Settle):
            settled.update(sequence for first, last in request.runs for sequence in range(first, last + 1))
        elif not (isinstance(request, Extend) and request.token is None):
            rest.append(type(request).__name__)
    return published, settled, rest


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames, max_size=12), st.data())
def test_cutting_a_sessions_stream_anywhere_changes_nothing(sent: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=15)))
    whole, pieces = told(session(), stream, []), told(session(), stream, cuts)
    assert content(pieces[0]) == content(whole[0])
    assert pieces[1] == whole[1]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["", "batch/1,settle/1,admin/1"]),
    st.lists(frames | st.binary(max_size=30) | damaged(BODIES).map(encode_frame), max_size=8),
)
def test_a_session_raises_nothing_else_on_garbage(names: str, sent: list[bytes]) -> None:
    made = session(names)
    try:
        for data in sent:
            made.receive_data(data)
            for request in made.commands():
                if isinstance(request, Publish):
                    for row in request.rows:
                        assert RowView(row).message_id
                        assert RowView(row).headers is not None
        made.commands()
    except RemoteProtocolError:
        assert made.closing
    made.data_to_send()


@given(st.lists(st.binary(max_size=12) | st.text('[]{}",:1 \\n', max_size=12).map(str.encode), max_size=6))
def test_the_batch_check_of_json_agrees_with_the_single_one(payloads: list[bytes]) -> None:
    check = JsonCheck(depth_max=64, nonce="n" * 32)
    assert check.bad(payloads) == [index for index, payload in enumerate(payloads) if not _is_json(payload)]


def _is_json(payload: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(payload.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


_NESTED = st.recursive(
    st.sampled_from([0, -1.5, None, "a", '"', "[", "\\", '\\"]', "{[", "é\n"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", "[", '"', "\\"]), inner, max_size=3)
    ),
)


@given(_NESTED, st.integers(0, 4))
def test_the_depth_is_that_of_the_brackets_outside_of_texts(value: object, depth_max: int) -> None:
    payload = json.dumps(value).encode()
    assert JsonCheck(depth_max=depth_max, nonce="n" * 32).is_json(payload) is (_depth(value) <= depth_max)


_PIECES = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    '"',
    "\\",
    '"a"',
    '"a":',
    '\\"',
    "1",
    "1e999",
    " ",
    '"\\ud800"',
    "[]",
    "é",
    "[1,2]",
]


@given(
    _NESTED.map(json.dumps) | st.lists(st.sampled_from(_PIECES), max_size=24).map("".join),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(["", *_PIECES])), max_size=2),
    st.integers(1, 20),
)
def test_json_in_parts_is_what_it_is_in_one(text: str, changes: list[tuple[int, int, str]], size: int) -> None:
    for at, gone, new in changes:
        text = text[:at] + new + text[at + gone :]
    payload = text.encode()
    check = JsonCheck(depth_max=4, nonce="n" * 32)
    with _parts_of(size):
        assert at_once(check.is_json_in_steps(payload)) is check.is_json(payload)


@given(st.lists(_NESTED.map(json.dumps) | st.sampled_from(_PIECES), max_size=8), st.integers(0, 8), st.integers(1, 9))
def test_payloads_are_checked_in_steps_as_at_once(texts: list[str], values: int, size: int) -> None:
    payloads = [text.encode() for text in texts]
    check = JsonCheck(depth_max=4, nonce="n" * 32)
    with _parts_of(size), patch.object(json_check, "VALUES_AT_ONCE", values):
        assert at_once(check.bad_in_steps(payloads)) == check.bad(payloads)


@contextmanager
def _parts_of(size: int) -> Iterator[None]:
    with patch.object(json_parts, "PART_BYTES", size), patch.object(json_parts, "STEP_BYTES", 2 * size):
        yield


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


# -- time -------------------------------------------------------------------------------------------------------------


ATTEMPTS = 4


def cost(feed: Callable[[], None]) -> float:
    """Best of three, in seconds of this thread."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        feed()
        best = min(best, time.thread_time() - start)
    return best


def dribble(size: int) -> None:
    """One frame of `size` in pieces of 16 bytes."""
    made = session("batch/1")
    data = encode_frame(encode_body(CommandType.PUBLISH, "m", "q", b"x" * size))
    for at in range(0, len(data), 16):
        made.receive_data(data[at : at + 16])
        made.commands()


def hostile_headers(size: int) -> None:
    made = session()
    body = encode_body(CommandType.PUBLISH, "m", "q", b"1", {f"k{number}": "é" * 4_000 for number in range(40)})
    for _ in range(size // 100_000):
        made.receive_data(encode_frame(body))
        made.commands()


def unclosed_strings(size: int) -> None:
    check = JsonCheck(depth_max=64, nonce="n" * 32)
    check.is_json(b'"\\"' * (size // 3))
    check.is_json(b"[" * size)
    check.is_json(b'["' + b'\\"[' * (size // 3) + b'"]')


@pytest.mark.parametrize("work", [dribble, hostile_headers, unclosed_strings])
def test_time_grows_with_size_and_no_faster(work: Callable[[int], None]) -> None:
    work(1_000)
    for _ in range(ATTEMPTS):
        # A machine may become slower in between.
        small, large = cost(lambda: work(200_000)), cost(lambda: work(800_000))
        if large < 4 * 2.3 * small + 0.02:
            return
    raise AssertionError(f"{small:.4f} s for a quarter of what took {large:.4f} s")
