"""The parts that every message passes: publishes in, acks in, rows checked, deliveries out."""

import struct

import pytest

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.model.commands import Settlement
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import runs_by_consumer
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.extensions import parse_deliver_many
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.headers import HeaderReader
from vibemq.protocols.native.codec.json_check import JsonCheck, as_json
from vibemq.protocols.native.codec.row_check import check_rows
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body, str16
from vibemq.protocols.native.deliver import PlainDeliveries, bulk_bodies
from vibemq.protocols.native.delivery_index import AckIntake, DeliveryIndex
from vibemq.protocols.native.outbox import FrameQueue, send_publish_acks
from vibemq.protocols.native.publish import NativeRefused, PublishIntake

LIMIT = 1_048_576


def json_check(depth_max: int = 64) -> JsonCheck:
    return JsonCheck(depth_max=depth_max, nonce="n" * 32)


def header_reader() -> HeaderReader:
    return HeaderReader(headers_max=50, value_units_max=4096)


def block(*pairs: tuple[str, str]) -> bytes:
    return struct.pack("!H", len(pairs)) + b"".join(str16(key) + str16(value) for key, value in pairs)


# -- JSON ---------------------------------------------------------------------------------------------------------

GOOD = [b"1", b"null", b'"x"', b'{"a":[1,2,{"b":null}]}', b" [ ] ", b"-1.5e10", '"🌍"'.encode(), b"1e999", b'"\\ud800"']
BAD = [
    b"{x}",
    b"",
    b"1,2",
    b'{"a":1',
    b"[1",
    b"2]",
    b'"a',
    b"NaN",
    b"01",
    b"\xff",
    b'"\xff"',
    b"\xef\xbb\xbf1",
    b'"a\nb"',
    b"// 1",
]


@pytest.mark.parametrize("payload", GOOD)
def test_json_is_json(payload: bytes) -> None:
    assert json_check().is_json(payload)
    assert json_check().bad([b"1", payload, b"2"]) == []


@pytest.mark.parametrize("payload", BAD)
def test_what_is_not_json_is_found_in_a_batch(payload: bytes) -> None:
    assert not json_check().is_json(payload)
    assert json_check().bad([b"1", payload, b"2"]) == [1]


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"a":1', b'"b":2}'],
        [b"[1", b"2]"],
        [b"1,2", b'{"a":1', b'"b":2}'],
        [b"1,2", b"[1", b"2]"],
        [b'["', b'"]'],
        [b"1],[1"],
    ],
)
def test_payloads_that_are_json_only_together_do_not_pass(payloads: list[bytes]) -> None:
    assert json_check().bad(payloads) == list(range(len(payloads)))


@pytest.mark.parametrize("depth", [63, 64, 65, 66, 900, 5_000])
def test_depth_is_bounded(depth: int) -> None:
    payload = b"[" * depth + b"1" + b"]" * depth
    assert json_check().is_json(payload) is (depth <= 64)
    assert json_check().bad([b"1", payload]) == ([] if depth <= 64 else [1])
    flat = b'["' + b"[" * depth + b'",' + b",".join([b"{}"] * 200) + b"]"
    assert json_check().is_json(flat), "brackets in strings and beside each other are not depth"
    assert json_check().bad([flat, b"1"]) == []


def test_any_bytes_become_a_json_string() -> None:
    assert as_json('a"ü'.encode()) == ('"a\\"ü"'.encode(), False)
    assert as_json(b"\xff\x00") == (b'"/wA="', True)


# -- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("priority", "high")], MessageExtra(2)),
        ([("priority", "CRITICAL")], MessageExtra(3)),
        ([("priority", "7")], MessageExtra(7)),
        ([("priority", "99")], MessageExtra(31)),
        ([("priority", "-5")], MessageExtra(0)),
        ([("vibemq-ttl-ms", "50")], MessageExtra(expires_at=1_050)),
        ([("vibemq-delay-ms", "70")], MessageExtra(deliver_at=1_070)),
        ([("vibemq-deliver-at-ms", "5000"), ("vibemq-delay-ms", "1")], MessageExtra(deliver_at=5_000)),
        ([("vibemq-dedup-id", "é")], MessageExtra(dedup_id="é".encode())),
        ([("priority", "low"), ("priority", "high")], MessageExtra(2)),
    ],
)
def test_headers_with_a_meaning(pairs, expected: MessageExtra) -> None:
    reader = header_reader()
    for _ in range(2):
        size, meaning = reader.read(block(("x", "y"), *pairs))
        assert size == len(block(("x", "y"), *pairs))
        assert meaning is not None
        assert meaning.at(1_000) == expected


@pytest.mark.parametrize(
    "pairs", [[], [("a", "b")], [("priority", "normal")], [("priority", "urgent!")], [("Priority", "high")]]
)
def test_ordinary_headers_mean_nothing(pairs) -> None:
    assert header_reader().read(block(*pairs))[1] is None


@pytest.mark.parametrize(
    "pairs",
    [
        [(f"k{number}", "v") for number in range(51)],
        [("k", "v" * 4_097)],
        [("k", "é" * 4_097)],
        [("k", "🌍" * 2_049)],
        [("vibemq-ttl-ms", "0")],
        [("vibemq-ttl-ms", "soon")],
        [("vibemq-delay-ms", "-1")],
        [("vibemq-deliver-at-ms", "9" * 19)],
    ],
)
def test_forbidden_headers(pairs) -> None:
    reader = header_reader()
    for _ in range(2):
        with pytest.raises(InvalidMessage):
            reader.read(block(*pairs))


def test_header_limits_count_utf16_units() -> None:
    assert header_reader().read(block(("k", "é" * 4_096)))[1] is None
    assert header_reader().read(block(("k" * 60_000, "🌍" * 2_048)))[1] is None


def test_cut_header_blocks() -> None:
    whole = block(("key", "value"), ("k", "v"))
    for cut in range(len(whole)):
        with pytest.raises(IndexError):
            header_reader().read(whole[:cut])
    with pytest.raises(IndexError, match="behind"):
        header_reader().check(whole + b"x")


# -- publishes ------------------------------------------------------------------------------------------------------


def frame_parser(*, any_payload: bool = False) -> PublishIntake:
    made = PublishIntake(body_bytes_max=LIMIT, headers=header_reader(), json=json_check())
    made.any_payload = any_payload
    return made


def publish(message_id: str, queue: str = "q", payload: bytes = b"1", headers=()) -> bytes:
    return encode_frame(encode_body(CommandType.PUBLISH, message_id, queue, payload, headers))


def feed(into: PublishIntake, data: bytes) -> int:
    """Publish frames the way the session gives them: fast where expected, else one by one. How many went slowly."""
    at = slow = 0
    while (at := into.take(data, at, 1_000)[0]) < len(data):
        end = at + 5 + int.from_bytes(data[at : at + 4], "big")
        into.add(data, at + 5, end)
        at, slow = end, slow + 1
    return slow


def test_frames_alike_are_taken_in_one_go() -> None:
    into = frame_parser()
    messages = [(f"{number:032x}", b'{"n":%d}' % number) for number in range(100)]
    assert feed(into, b"".join(publish(message_id, payload=payload) for message_id, payload in messages)) == 1
    [batch] = into.flush()
    assert list(batch.rows()) == [pack_row(message_id, payload) for message_id, payload in messages]
    assert batch.extras(0) is None
    assert list(into.flush()) == []


def test_queues_keep_their_own_batches_in_order() -> None:
    into = frame_parser()
    feed(into, b"".join(publish(f"m{number}", f"q{number % 3}") for number in range(9)))
    batches = list(into.flush())
    assert [batch.queue for batch in batches] == ["q0", "q1", "q2"]
    assert [[RowView(row).message_id for row in batch.rows()] for batch in batches] == [
        ["m0", "m3", "m6"],
        ["m1", "m4", "m7"],
        ["m2", "m5", "m8"],
    ]


def test_headers_travel_verbatim_and_known_blocks_are_fast() -> None:
    into = frame_parser()
    frames = [publish(f"m{number}", headers=[("priority", "high"), ("e", "")]) for number in range(5)]
    assert feed(into, b"".join(frames)) == 1
    [batch] = into.flush()
    assert batch.rows()[4].endswith(block(("priority", "high"), ("e", "")))
    assert batch.extras(0) == {number: MessageExtra(2) for number in range(5)}


def test_bytes_after_the_last_field_are_left_behind() -> None:
    into = frame_parser()
    for headers in ((), [("k", "v")]):
        body = encode_body(CommandType.PUBLISH, "m", "q", b"1", headers)
        feed(into, encode_frame(body + b"\0\0\0\0"))
    [batch] = into.flush()
    assert list(batch.rows()) == [pack_row("m", b"1"), pack_row("m", b"1", [("k", "v")])]


@pytest.mark.parametrize("size", range(2, 25))
def test_cut_publish_bodies(size: int) -> None:
    body = encode_body(CommandType.PUBLISH, "mm", "qqq", b"1", [("k", "v")])
    for into in (frame_parser(), frame_parser()):
        feed(into, publish("aa", "qqq", b"1", [("k", "v")]))
        with pytest.raises(RemoteProtocolError):
            feed(into, encode_frame(body[: min(size, len(body) - 1)]))


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (publish("m", ""), "INVALID_QUEUE"),
        (publish("m", "no blanks"), "INVALID_MESSAGE"),
        (publish("m", "q" * 257), "INVALID_MESSAGE"),
        (publish("m", headers=[("k", "v" * 5_000)]), "INVALID_MESSAGE"),
        (publish("m", headers=[("vibemq-delay-ms", "x")]), "INVALID_MESSAGE"),
    ],
)
def test_refused_publishes_name_their_id(frame: bytes, code: str) -> None:
    into = frame_parser()
    with pytest.raises(NativeRefused) as refused:
        feed(into, frame)
    assert (refused.value.message_id, refused.value.error.code) == (b"\0\1m", code)


def test_a_payload_that_is_not_json_ends_its_batch() -> None:
    into = frame_parser()
    payloads = (b"1", b"", b"{x}", b"2")
    feed(into, b"".join(publish(f"m{number}", payload=payload) for number, payload in enumerate(payloads)))
    flushed = into.flush()
    batch = next(flushed)
    assert list(batch.rows()) == [pack_row("m0", b"1"), pack_row("m1", b"")]
    with pytest.raises(RemoteProtocolError, match="message 3 for queue 'q'"):
        next(flushed)


def test_with_batch_any_payload_passes() -> None:
    into = frame_parser(any_payload=True)
    feed(into, publish("a", payload=b"\xff") + publish("b", payload=b"{x}"))
    [batch] = into.flush()
    assert [RowView(row).payload for row in batch.rows()] == [b"\xff", b"{x}"]


# -- acks -----------------------------------------------------------------------------------------------------------


def ack(message_id: str) -> bytes:
    return encode_frame(encode_body(CommandType.ACK, message_id))


def test_acks_become_runs_for_each_consumer() -> None:
    delivery_index = DeliveryIndex(entries_max=100)
    ids = [b"%02d" % number for number in range(10)]
    delivery_index.note(ids, 1, 1, range(100, 110))
    delivery_index.note([b"xx"], 2, 1, [7])
    acks = AckIntake(delivery_index)
    acks.expect(2)
    data = b"".join(ack(message_id) for message_id in ("03", "01", "02", "xx", "09", "no"))
    assert acks.take(data, 0, 1_000)[0] == len(data)
    first, second = acks.flush(5)
    assert (first.session, first.token, first.consumer, first.verb) == (5, None, 1, Settlement.ACK)
    assert (first.runs, second.runs) == ([(101, 103), (109, 109)], [(7, 7)])
    assert acks.flush(5) == []
    assert len(delivery_index) == 6


def test_other_frames_stop_the_run_of_acks() -> None:
    acks = AckIntake(DeliveryIndex(entries_max=10))
    assert acks.take(ack("aa"), 0, 1_000) == (0, 0), "nothing is expected yet"
    acks.expect(2)
    assert acks.take(ack("aa") + ack("aaa"), 0, 1_000) == (len(ack("aa")), 1)
    assert acks.take(ack("aa")[:-1], 0, 1_000) == (0, 0)


def test_equal_ids_are_settled_oldest_first() -> None:
    delivery_index = DeliveryIndex(entries_max=100)
    delivery_index.note([b"a", b"a", b"b"], 1, 1, [1, 2, 3])
    delivery_index.note([b"a"], 2, 1, [9])
    assert len(delivery_index) == 4
    taken = [delivery_index.take(b"a") for _ in range(4)]
    assert [held and held[:3] for held in taken] == [(1, 1, 1), (1, 2, 1), (2, 9, 1), None]


def test_a_redelivery_needs_one_ack() -> None:
    delivery_index = DeliveryIndex(entries_max=100)
    delivery_index.note([b"a"], 1, 1, [1])
    delivery_index.note([b"a"], 1, 1, [1])
    assert delivery_index.find(b"a") == (1, 1, 1, 1)
    assert [delivery_index.take(b"a"), delivery_index.take(b"a")] == [(1, 1, 1, 1), None]


def test_what_is_behind_the_newest_ack_has_not_been_begun() -> None:
    delivery_index = DeliveryIndex(entries_max=100)
    delivery_index.note([b"a", b"b", b"c", b"d", b"d"], 1, 1, [5, 6, 2, 8, 9])
    delivery_index.take(b"b")
    assert runs_by_consumer(delivery_index.behind()) == {1: [(2, 2), (8, 9)]}, "a was passed over"
    delivery_index.note([b"a", b"c"], 1, 1, [5, 2])
    assert [held[1] for held in delivery_index.behind()] == [2, 8, 9, 5], "a comes once more, c has not come yet"


def test_the_index_forgets_the_oldest() -> None:
    delivery_index = DeliveryIndex(entries_max=3)
    for number in range(10):
        delivery_index.note([b"%d" % number, b"same"], 1, 1, [number, 100 + number])
    assert len(delivery_index) <= 6
    assert delivery_index.find(b"0") is None
    assert delivery_index.find(b"9") is not None


# -- rows -----------------------------------------------------------------------------------------------------------


def broken_rows() -> list[bytes]:
    good = pack_row("ab", b"payload", [("k", "v")])
    plain = pack_row("ab", b"payload")
    return [
        b"",
        b"\0",
        good[:-1],
        good + b"x",
        plain[:-2],
        plain + b"\0",
        b"\0\0" + plain[4:],
        b"\xff\xff" + plain[2:],
        plain[:4] + b"\0\0\0\x08" + plain[8:],
        plain[:4] + b"\0\0\0\x06" + plain[8:],
        plain[:4] + b"\xff\xff\xff\xff" + plain[8:],
        plain[:-2] + b"\0\1",
        pack_row("ab", b"payload", [("k", "v" * 4_097)]),
        pack_row("ab", b"payload", [(str(number), "v") for number in range(51)]),
    ]


@pytest.mark.parametrize("broken", broken_rows())
@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_one_broken_row_is_found_among_good_ones(broken: bytes, place: int) -> None:
    rows = [pack_row("ab", b"payload")] * 5
    rows.insert(place, broken)
    with pytest.raises(InvalidMessage, match=f"row {place}"):
        check_rows(Rows.of(rows), header_reader())


@pytest.mark.parametrize("broken", broken_rows())
def test_rows_all_broken_alike_are_found(broken: bytes) -> None:
    with pytest.raises(InvalidMessage, match="row 0"):
        check_rows(Rows.of([broken] * 4), header_reader())


def test_sound_rows_pass() -> None:
    for rows in (
        [],
        [pack_row("a", b"")],
        [pack_row(f"{number:04}", b"x" * 50) for number in range(100)],
        [pack_row("a" * number, b"x" * number) for number in range(1, 50)],
        [pack_row("a", b"x", [("k", "v")]), pack_row("a", b"x", [("vibemq-ttl-ms", "nonsense")])],
    ):
        check_rows(Rows.of(rows), header_reader())


def test_a_row_that_borrows_from_its_neighbour_is_found() -> None:
    data = b"".join([pack_row("ab", b"payload")] * 2)
    size = len(data) // 2
    for cut in (size - 1, size + 1, 0, 3):
        with pytest.raises(InvalidMessage):
            check_rows(Rows(2, struct.pack("!II", cut, len(data) - cut), data), header_reader())


# -- deliveries -------------------------------------------------------------------------------------------------------


def frames_in(data: bytes) -> list[WireMessage]:
    reader = NativeFrameReader()
    reader.receive_data(data)
    return [decode_body(body) for body in reader.bodies()]


def deliver_plain(rows: list[bytes], acquired: dict[int, int] | None = None, limit: int = LIMIT):
    outbox = FrameQueue(body_bytes_max=limit, threshold=1024)
    result = PlainDeliveries(outbox, json_check()).send(Slice(10, 0, Rows.of(rows)), str16("q"), acquired or {})
    return frames_in(outbox.take()), result


def test_plain_deliveries_carry_the_row_and_the_attempts() -> None:
    rows = [pack_row("a", b"1"), pack_row("bb", b"", [("k", "v")]), pack_row("c", b"[2]")]
    frames, (ids, sequences, too_large) = deliver_plain(rows, {11: 3})
    assert [(frame.type, frame.id, frame.queue, frame.payload) for frame in frames] == [
        (26, "a", "q", b"1"),
        (26, "bb", "q", None),
        (26, "c", "q", b"[2]"),
    ]
    assert [frame.headers for frame in frames] == [
        {"deliveryAttempts": "1"},
        {"k": "v", "deliveryAttempts": "3"},
        {"deliveryAttempts": "1"},
    ]
    assert (ids, sequences, too_large) == ([b"a", b"bb", b"c"], [10, 11, 12], [])


def test_our_attempts_win_over_the_publishers() -> None:
    frames, _ = deliver_plain([pack_row("a", b"1", [("deliveryAttempts", "77")])])
    assert frames[0].headers == {"deliveryAttempts": "1"}


def test_payloads_that_are_not_json_become_json_strings() -> None:
    frames, _ = deliver_plain(
        [pack_row("a", b"1"), pack_row("b", "grüß".encode()), pack_row("c", b"\xff", [("k", "v")])]
    )
    assert [frame.payload for frame in frames] == [b"1", '"grüß"'.encode(), b'"/w=="']
    assert frames[2].headers == {"k": "v", "content-encoding": "base64", "deliveryAttempts": "1"}
    assert "content-encoding" not in frames[1].headers


def test_a_row_too_large_is_reported_and_one_that_just_fits_goes_without_attempts() -> None:
    limit = 100
    overhead = 2 + len(str16("q"))
    fits = pack_row("a", b"1" * (limit - overhead - len(pack_row("a", b""))))
    frames, (_, sequences, too_large) = deliver_plain(
        [fits, fits + b"", pack_row("b", b"1" * 200), pack_row("c", b"1")], limit=limit
    )
    assert [frame.id for frame in frames] == ["a", "a", "c"]
    assert [frame.headers for frame in frames] == [{}, {}, {"deliveryAttempts": "1"}]
    assert (sequences, too_large) == ([10, 11, 13], [12])


def bulk(rows: list[bytes], limit: int, acquired: dict[int, int] | None = None):
    piece = Slice(10, 99, Rows.of(rows))
    return list(bulk_bodies(piece, "sub", "q", acquired or {}, limit))


def test_bulk_deliveries_pass_rows_through() -> None:
    rows = [pack_row(f"m{number}", b"x" * number) for number in range(20)]
    [(first, body)] = bulk(rows, LIMIT, {12: 2, 500: 9})
    assert body is not None
    frame = parse_deliver_many(body)
    assert (first, frame.id, frame.queue, frame.first_sequence, frame.published_at) == (10, "sub", "q", 10, 99)
    assert frame.rows == Rows.of(rows)
    assert frame.acquired == {12: 2}


@pytest.mark.parametrize("limit", [150, 200, 333, 1_000])
def test_bulk_deliveries_are_split_at_the_limit(limit: int) -> None:
    rows = [pack_row(f"m{number}", b"x" * (number % 60)) for number in range(50)]
    acquired = dict.fromkeys(range(10, 60), 2)
    bodies = bulk(rows, limit, acquired)
    frames = [parse_deliver_many(body) for _, body in bodies if isinstance(body, bytes)]
    assert all(len(body) <= limit for _, body in bodies if isinstance(body, bytes))
    assert [row for frame in frames for row in frame.rows] == rows
    assert [frame.first_sequence for frame in frames] == [first for first, _ in bodies]
    if limit > 200:
        assert {k: v for frame in frames for k, v in frame.acquired.items()} == acquired


def test_a_bulk_row_that_fits_nowhere_is_reported() -> None:
    rows = [pack_row("a", b"1"), pack_row("b", b"x" * 500), pack_row("c", b"1")]
    bodies = bulk(rows, 200)
    assert [(first, not isinstance(body, bytes)) for first, body in bodies] == [(10, False), (11, True), (12, False)]


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.parametrize("ids", [["a"], ["aa", "bb", "cc"], ["a", "bb", "a" * 300]])
@pytest.mark.parametrize("threshold", [0, 1024])
def test_publish_acks(ids: list[str], with_headers: bool, threshold: int) -> None:
    outbox = FrameQueue(body_bytes_max=LIMIT, threshold=threshold)
    outbox.compression = Compression.GZIP
    send_publish_acks(outbox, [str16(message_id) for message_id in ids], str16("q"), with_headers=with_headers)
    frames = frames_in(outbox.take())
    assert [(frame.type, frame.id, frame.queue, frame.payload) for frame in frames] == [
        (21, message_id, "q", None) for message_id in ids
    ]
    for frame in frames:
        assert frame.headers == ({"messageId": frame.id, "queueName": "q"} if with_headers else {})
