"""Publishes in both forms, the refused ones, extras, and large messages."""

import random

import pytest

from tests.unit.protocols.native.native_peer import Peer, ValuesRead, bulk, frame, plain, publish_many
from vibemq.errors import Blocked, NotAuthorized, QueueFull, RemoteProtocolError
from vibemq.model import commands as c
from vibemq.model.effects import Published, Reply
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.protocols.native.codec import extensions, json_check
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.extra_columns import encode_extras
from vibemq.protocols.native.codec.frames import HEADER, encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import body_type, encode_body, str16
from vibemq.protocols.native.frame_parser import READ_UNITS
from vibemq.protocols.session import SessionLimits
from vibemq.testing.session_conformance import NOW, SESSION


def test_publish_is_acknowledged_in_both_forms() -> None:
    peer = plain()
    publish = peer.ask(T.PUBLISH, "m1", "q", b"1")
    ack = peer.answer(publish, Published("q", 1, 1))
    assert (ack.type, ack.id, ack.queue, ack.payload) == (T.PUBLISH_ACK, "m1", "q", None)
    assert ack.headers == {"messageId": "m1", "queueName": "q"}


def test_refused_messages_get_errors_and_never_acks() -> None:
    peer = plain()
    [publish] = peer.hear(b"".join(frame(T.PUBLISH, f"m{number}", "q", b"1") for number in range(4)))
    refused = {1: QueueFull("q", "2 messages"), 3: QueueFull("q", "2 messages")}
    peer.session.apply([Reply(SESSION, publish.token, Published("q", 5, 4, refused, {2: 1}))])  # type: ignore[union-attr]
    answers = {message.id: (message.type, message.error_code) for message in peer.frames()}
    assert answers == {
        "m0": (T.PUBLISH_ACK, None),
        "m1": (T.ERROR, "QUEUE_FULL"),
        "m2": (T.PUBLISH_ACK, None),
        "m3": (T.ERROR, "QUEUE_FULL"),
    }


def test_a_command_refused_whole_is_answered_for_each_message() -> None:
    peer = plain()
    [publish] = peer.hear(frame(T.PUBLISH, "a", "q", b"1") + frame(T.PUBLISH, "b", "q", b"1"))
    peer.session.refused(publish.token, NotAuthorized("not yours"))  # type: ignore[union-attr]
    assert [(message.id, message.error_code) for message in peer.frames()] == [
        ("a", "NOT_AUTHORIZED"),
        ("b", "NOT_AUTHORIZED"),
    ]


def test_relative_times_count_from_the_last_tick() -> None:
    peer = plain()
    peer.session.tick(NOW + 500)
    publish = peer.ask(T.PUBLISH, "m", "q", b"1", headers={"vibemq-delay-ms": "1000", "priority": "low"})
    assert isinstance(publish, c.Publish)
    assert publish.extras == {0: MessageExtra(0, 0, NOW + 1_500)}


@pytest.mark.parametrize("how", [Compression.GZIP, Compression.BROTLI])
def test_a_compressed_message_that_grows_too_large_is_refused_and_the_connection_stays(how: Compression) -> None:
    """The .NET broker takes it, and the program must hear more than that its connection is lost."""
    peer = plain()
    body = encode_body(T.PUBLISH, "large", "q", b'"' + random.Random(1).randbytes(600_000).hex().encode() + b'"')
    peer.hear(encode_frame(body, how, inflated_bytes_max=2 << 20))
    error = peer.one()
    assert (error.id, error.error_code, peer.session.closing) == ("large", "MESSAGE_TOO_LARGE", False)
    assert isinstance(peer.ask(T.PUBLISH, "small", "q", b"1"), c.Publish)
    bomb = encode_frame(encode_body(T.PUBLISH, "bomb", "q", bytes(1 << 20)), how, inflated_bytes_max=8 << 20)
    with pytest.raises(RemoteProtocolError, match="more than 100 times"):
        [peer.hear(bomb) for _ in range(40)]
    with pytest.raises(RemoteProtocolError, match="past the limit"):
        plain().hear(encode_frame(encode_body(T.SUBSCRIBE, "s", "q", bytes(2 << 20)), how, inflated_bytes_max=8 << 20))


@pytest.mark.parametrize("kind", [T.PING, T.SUBSCRIBE, T.REQUEST, T.RESPONSE, T.PUBLISH_MANY])
def test_an_id_that_grows_too_long_for_an_answer_ends_the_connection(kind: T) -> None:
    """Bytes that are no UTF-8 read as characters of three bytes each."""
    peer = bulk("batch/1,request/1")
    rest = {T.REQUEST: bytes((0, 0, 0, 9, 0)) + bytes(4), T.RESPONSE: bytes(6), T.PUBLISH_MANY: bytes(5)}
    body = bytes((1, kind)) + str16(b"\xff" * 21_846) + str16("q") + rest.get(kind, bytes(6))
    with pytest.raises(RemoteProtocolError, match="no UTF-8"):
        peer.hear(encode_frame(body))
    assert peer.one().error_code == "INVALID_MESSAGE"


def test_an_error_about_a_publish_has_its_id_whatever_bytes_it_is_of() -> None:
    peer = plain()
    message_id = b"\xff" * 65_535
    body = bytes((1, T.PUBLISH)) + str16(message_id) + bytes(2) + bytes(6)
    peer.hear(encode_frame(body))
    [error] = peer.bodies()
    assert error[2 : 4 + len(message_id)] == str16(message_id)
    body = bytes((1, T.PUBLISH)) + str16(message_id) + str16("q") + bytes(6)
    [publish] = peer.hear(encode_frame(body))
    assert isinstance(publish, c.Publish)
    peer.session.refused(publish.token, NotAuthorized("no"))
    [error] = peer.bodies()
    assert error[2 : 4 + len(message_id)] == str16(message_id)


@pytest.mark.parametrize("last", [pack_row("last", b"1"), b"no row"])
def test_very_many_headers_that_are_all_different_are_looked_at_in_steps(last: bytes) -> None:
    peer = bulk("batch/1")
    rows = [pack_row("m", b"1", [(f"k{number}-{key}", "v") for key in range(40)]) for number in range(200)]
    turns = [peer.hear(publish_many(*rows, last) + frame(T.QUEUE_INFO, "behind", "q"))]
    while peer.session.unread:
        turns.append(peer.session.commands())
    assert len(turns) > 2
    asked = [type(request) for requests in turns for request in requests]
    if last == b"no row":
        assert asked == [c.DescribeQueue]
        assert peer.one().error_code == "INVALID_MESSAGE"
    else:
        assert asked == [c.Publish, c.DescribeQueue], "in their order"


@pytest.mark.parametrize("by_columns", [True, False])
def test_digests_of_long_dedup_ids_are_made_in_steps(by_columns: bool) -> None:
    peer = bulk("batch/1,extras/1", body_bytes_max=2_000_000)
    extras = {index: {"dedup_id": "short" if index == 3 else f"{index}" * 30_000} for index in range(30)}
    rows = Rows.of([pack_row(f"{index}", b"1") for index in range(30)])
    columns = encode_extras(30, extras, None) if by_columns else None
    body = extensions.publish_many("r", "q", rows, None if by_columns else extras, columns=columns)
    turns = [peer.hear(encode_frame(body, body_bytes_max=2_000_000) + frame(T.QUEUE_INFO, "behind", "q"))]
    while peer.session.unread:
        turns.append(peer.session.commands())
    assert len(turns) > 5
    publish, behind = (request for requests in turns for request in requests)
    assert isinstance(publish, c.Publish)
    assert isinstance(behind, c.DescribeQueue), "in their order"
    assert publish.extras is not None
    whole = ExtraColumns(range(30), dedup_ids=[extras[index]["dedup_id"].encode() for index in range(30)])
    assert publish.extras == whole.with_short_ids()
    assert publish.extras[3].dedup_id == b"short"


def test_headers_that_were_never_seen_are_more_work_than_others() -> None:
    counts = []
    for value in ("the same", "{}"):
        peer = plain()
        headers = [{"trace": value.format(number)} for number in range(600)]
        [publish] = peer.hear(b"".join(frame(T.PUBLISH, f"{n:03}", "q", b"1", each) for n, each in enumerate(headers)))
        assert isinstance(publish, c.Publish)
        counts.append(publish.rows.count)
    assert counts[0] > 550
    assert counts[1] <= READ_UNITS


def test_a_publish_that_may_have_to_make_its_queue_is_more_work_than_others() -> None:
    peer = plain()
    asked = peer.hear(b"".join(frame(T.PUBLISH, f"{n:03}", f"q{n:03}", b"1") for n in range(200)))
    assert len(asked) == READ_UNITS // 6
    assert peer.session.unread


def test_very_many_headers_are_not_looked_at() -> None:
    """To read all that fit into a frame would hold up everybody for tens of milliseconds."""
    peer = plain()
    many = (65_535).to_bytes(2, "big") + b"\0\1k\0\1v" * 1_025

    def with_many(kind: T, message_id: str) -> bytes:
        return encode_frame(encode_body(kind, message_id)[:-2] + many)

    peer.hear(with_many(T.LIST_QUEUES, "m1") + with_many(T.ACK, "m2") + with_many(T.PUBLISH_ACK, "m3"))
    refused = peer.frames()
    assert [(message.id, message.error_code) for message in refused] == [
        ("m1", "INVALID_MESSAGE"),
        ("m3", "INVALID_MESSAGE"),
    ]
    assert refused[0].error_message == "65535 headers; a message may have 50"


def test_invalid_content_is_refused_with_the_frames_id_and_the_connection_stays() -> None:
    peer = plain()
    peer.hear(
        frame(T.PUBLISH, "m1", "", b"1")
        + frame(T.PUBLISH, "m2", "bad name", b"1")
        + frame(T.SUBSCRIBE, "m3")
        + frame(T.SUBSCRIBE, "m4", "bad name")
        + frame(T.LIST_QUEUES, "m5", headers=[(f"k{number}", "v") for number in range(51)])
        + frame(T.LIST_QUEUES, "m6", headers={"k": "v" * 4_097})
        + frame(77, "m7")
        + frame(T.ADMIN_CREATE_USER, "m8")
        + frame(T.NACK, "m9")
        + frame(T.ADMIN, "m10", payload=b"{}")
        + frame(T.PUBLISH_MANY, "m11")
        + frame(T.PUBLISH_ACK, "m12")
    )
    assert [(message.id, message.error_code) for message in peer.frames()] == [
        ("m1", "INVALID_QUEUE"),
        ("m2", "INVALID_MESSAGE"),
        ("m3", "INVALID_QUEUE"),
        ("m4", "INVALID_MESSAGE"),
        ("m5", "INVALID_MESSAGE"),
        ("m6", "INVALID_MESSAGE"),
        ("m7", "UNKNOWN_COMMAND"),
        ("m8", "INVALID_PAYLOAD"),
        ("m9", "UNKNOWN_COMMAND"),
        ("m10", "UNKNOWN_COMMAND"),
        ("m11", "UNKNOWN_COMMAND"),
        ("m12", "UNKNOWN_COMMAND"),
    ]
    assert not peer.session.closing


def test_what_came_before_a_broken_frame_counts_and_the_peer_is_told_why() -> None:
    peer = plain()
    [publish] = peer.hear(frame(T.PUBLISH, "m", "q", b"1") + b"\0\0\0\1\0")
    assert not peer.session.closing
    assert peer.session.next_deadline() == NOW, "there is something to be done at once"
    assert peer.answer(publish, Published("q", 1, 1)).type == T.PUBLISH_ACK
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            peer.session.commands()
    assert peer.session.closing
    assert peer.one().error_code == "INVALID_MESSAGE", "said once, last"


MANY_VALUES = b"[" + b"[]," * 100_000 + b"[]]"
VALUES_OF_A_TURN = 24_000


def in_turns(peer: Peer, data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[int]]:
    """What is asked for, as types with ids, and how many values of JSON were read in each turn."""
    read = ValuesRead()
    monkeypatch.setattr(json_check, "orjson", read)
    asked: list[str] = []
    peer.session.receive_data(data)
    while peer.session.unread or not asked:
        try:
            requests = peer.session.commands()
        except RemoteProtocolError:
            return [*asked, "broken"], read.of_turns
        for request in requests:
            ids = [RowView(row).message_id for row in request.rows] if isinstance(request, c.Publish) else []
            asked += [f"{type(request).__name__} {each}".rstrip() for each in ids or [""]]
        read.turn()
    return asked, read.of_turns


@pytest.mark.parametrize(
    "payloads",
    [[MANY_VALUES], [b"1", MANY_VALUES, b"2", b'"x"'], [b"[" + b"1," * 190 + b"2]"] * 2_000, [b"{}"] * 50_000],
    ids=["one", "among others", "many small ones", "many short ones"],
)
def test_json_of_many_values_is_checked_in_turns_and_keeps_its_place(
    payloads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    publishes = [frame(T.PUBLISH, f"m{number}", "q", payload) for number, payload in enumerate(payloads)]
    asked, turns = in_turns(plain(), b"".join(publishes) + frame(T.DELETE_QUEUE, "d", "other"), monkeypatch)
    assert asked == [*(f"Publish m{number}" for number in range(len(payloads))), "DeleteQueue"]
    assert max(turns) <= VALUES_OF_A_TURN, turns


@pytest.mark.parametrize(
    "rest", [frame(T.PUBLISH, "bad", "q", MANY_VALUES + b"]"), bytes(5)], ids=["no JSON", "an impossible length"]
)
def test_what_came_before_broken_bytes_counts_however_long_it_takes(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = plain()
    good = frame(T.PUBLISH, "m0", "q", b"1") + frame(T.PUBLISH, "m1", "q", MANY_VALUES)
    asked, turns = in_turns(peer, good + rest, monkeypatch)
    assert asked == ["Publish m0", "Publish m1", "broken"]
    assert max(turns) <= VALUES_OF_A_TURN, turns
    assert (peer.one().error_code, peer.session.closing) == ("INVALID_MESSAGE", True)


@pytest.mark.parametrize("payload", [MANY_VALUES, MANY_VALUES[:-1]], ids=["JSON", "no JSON"])
def test_many_values_in_the_payload_of_another_command_are_checked_in_turns(
    payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = plain()
    data = frame(T.DELETE_QUEUE, "d", "q", payload) + frame(T.PUBLISH, "m", "q", b"1")
    asked, turns = in_turns(peer, data, monkeypatch)
    assert asked == (["DeleteQueue", "Publish m"] if payload == MANY_VALUES else ["broken"])
    assert max(turns) <= VALUES_OF_A_TURN, turns


def test_an_uncalled_for_error_ends_with_the_next_tick_at_the_latest() -> None:
    peer = plain()
    peer.hear(frame(T.PUBLISH, "m", "q", b"1") + b"\0\0\0\1\0")
    peer.session.tick(NOW)
    assert (peer.session.closing, peer.one().error_code) == (True, "INVALID_MESSAGE")


def test_publish_many_passes_rows_through() -> None:
    peer = bulk()
    rows = [pack_row("a", b"\xff"), pack_row("b", b"1", [("priority", "high")])]
    extras = {1: {"priority": 3, "ttl_ms": 5, "delay_ms": 6, "dedup_id": "d"}}
    [publish] = peer.hear(publish_many(*rows, extras=extras))
    assert isinstance(publish, c.Publish)
    assert list(publish.rows) == rows
    assert publish.extras == {1: MessageExtra(3, NOW + 5, NOW + 6, b"d")}
    peer.session.apply([Reply(SESSION, publish.token, Published("q", 9, 2, {0: QueueFull("q", "x")}, {1: 4}))])
    [body] = peer.bodies()
    ack = extensions.parse_publish_many_ack(body)
    assert (ack.id, ack.first_sequence, ack.count, ack.duplicates) == ("r", 9, 2, {1: 4})
    assert ack.refused[0][0] == "QUEUE_FULL"


def test_extras_by_columns_are_offered_and_read() -> None:
    peer = bulk("batch/1,extras/1")
    assert peer.ack.headers["negotiated-extensions"] == "batch/1,extras/1"
    rows = Rows.of([pack_row(f"{number}", b"1") for number in range(8)])
    columns = encode_extras(8, {}, {"delay_ms": 6})
    [publish] = peer.hear(encode_frame(extensions.publish_many("r", "q", rows, columns=columns)))
    assert isinstance(publish, c.Publish)
    assert publish.extras == dict.fromkeys(range(8), MessageExtra(deliver_at=NOW + 6))


@pytest.mark.parametrize(
    "data",
    [
        publish_many(pack_row("a", b"1"), b"broken"),
        publish_many(pack_row("a", b"1"), queue=""),
        publish_many(pack_row("a", b"1"), queue="bad name"),
        publish_many(pack_row("a", b"1"), extras={1: {}}),
        publish_many(pack_row("a", b"1"), extras={0: 5}),
        publish_many(pack_row("a", b"1"), extras={0: {"colour": 1}}),
        publish_many(pack_row("a", b"1"), extras={0: {"ttl_ms": 0}}),
        publish_many(pack_row("a", b"1"), extras={0: {"dedup_id": 5}}),
    ],
)
def test_a_bad_publish_many_is_refused_whole_and_the_connection_stays(data: bytes) -> None:
    peer = bulk()
    assert list(peer.hear(data)) == []
    error = peer.one()
    assert (error.type, error.id) == (T.ERROR, "r")
    assert not peer.session.closing


def test_an_empty_publish_many_is_confirmed() -> None:
    peer = bulk()
    assert list(peer.hear(publish_many())) == []
    [body] = peer.bodies()
    assert body_type(body) == T.PUBLISH_MANY_ACK


# All refused; and the worst that fits into a frame of 1 MiB, where every other row is a known one with a dedup id.
@pytest.mark.parametrize(("count", "known"), [(20_000, 0), (80_000, 0), (40_000, 20_000)])
def test_more_refusals_than_fit_are_told_without_sentences_or_as_runs(count: int, known: int) -> None:
    duplicates = {2 * index: 2**63 + index for index in range(known)}
    peer = bulk()
    [publish] = peer.hear(publish_many(pack_row("a", b"1")))
    indexes = [index for index in range(count) if index not in duplicates]
    refused = dict.fromkeys(indexes, QueueFull("q", "the limit is some number of messages"))
    result = Published("q", 0, count, refused, duplicates)
    peer.session.apply([Reply(SESSION, publish.token, result)])  # type: ignore[arg-type,union-attr]
    [body] = peer.bodies()
    assert body_type(body) == T.PUBLISH_MANY_ACK
    ack = extensions.parse_publish_many_ack(body)
    assert (list(ack.refused), ack.duplicates) == (indexes, duplicates)


@pytest.mark.parametrize(
    "data",
    [
        encode_frame(extensions.settle("s", 9, [(1, 1)])),
        encode_frame(extensions.settle("s", 0, [(2, 1)])),
        encode_frame(extensions.flow("s", 1)[:-1]),
        encode_frame(extensions.publish_many("r", "q", Rows.of([pack_row("a", b"1")]))[:-1]),
    ],
)
def test_broken_extension_frames_end_the_connection(data: bytes) -> None:
    peer = bulk()
    with pytest.raises(RemoteProtocolError):
        peer.hear(data)
    assert peer.session.closing


@pytest.mark.parametrize("how", ["cut off", "stalled"])
def test_what_comes_of_a_large_message_behind_its_end_is_no_command(how: str) -> None:
    peer = Peer(connect={"supported-extensions": "batch/1", "max-body-bytes": "16777216"})
    hidden = encode_frame(extensions.publish_many("x", "other", Rows.of([pack_row("x", b"hidden")])))
    body = extensions.publish_many("r", "q", Rows.of([pack_row("m", bytes(1_100_000) + hidden + bytes(2_000_000))]))
    sent = HEADER.pack(len(body), 0) + body
    at = sent.index(hidden)
    assert peer.hear(sent[:at]) == []
    assert peer.session.large_left
    if how == "cut off":
        peer.session.fail(Blocked("others wait"))
        assert peer.hear(sent[at : at + len(hidden)]) == []
    else:
        peer.session.tick(NOW + 1)
        peer.session.receive_data(sent[at : at + len(hidden)])
        peer.session.tick(NOW + SessionLimits().message_timeout_ms + 1_000)
        assert peer.session.commands() == []
    assert (peer.session.closing, peer.session.large_left, peer.session.unread) == (True, 0, False)
    assert peer.hear(hidden) == []
