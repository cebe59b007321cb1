"""What a quiet connection carries is read by shorter ways; they say the same as the general ones of every body."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import RemoteProtocolError
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.extensions import decoding
from vibemq.protocols.native.codec.frames import encode_frame

ROW = pack_row("id", b'{"n": 1}', [("a", "b")])
LONE = extensions.deliver_many("s1", "orders", 7, 1_000, Rows.of([ROW]))
ACK = extensions.publish_many_ack("1f", "orders", 7, 1)
DELIVERIES = [
    LONE,
    extensions.deliver_many("s1", "orders", 7, 1_000, Rows.of([ROW, ROW])),
    extensions.deliver_many("s1", "orders", 7, 1_000, Rows.of([ROW]), {7: 2}),
    extensions.deliver_many("s1", "", 7, 1_000, Rows.of([b""])),
]
ACKS = [
    ACK,
    extensions.publish_many_ack("1f", "orders", 0, 1, {0: ("QUEUE_FULL", "no room")}),
    extensions.publish_many_ack("1f", "orders", 0, 1, None, {0: 3}),
]
REQUEST = extensions.request("1f", "orders", ROW, 2_000)
RESPONSE = extensions.response("1f", "address", ROW)
SETTLEMENT = extensions.settle("s1", 0, [(7, 9)])
OF_REQUESTS = [
    (extensions.parse_request, decoding._plain_request, decoding._general_request, REQUEST),
    (extensions.parse_response, decoding._plain_response, decoding._general_response, RESPONSE),
    (extensions.parse_settle, decoding._plain_settlement, decoding._general_settlement, SETTLEMENT),
]


def broken(body: bytes) -> Iterator[bytes]:
    """The body, cut short at every place, with more behind it, and with every byte another one."""
    yield body
    yield body + b"x"
    for at in range(2, len(body)):
        yield body[:at]
        for value in {0, 1, body[at] ^ 1, 255} - {body[at]}:
            yield body[:at] + bytes((value,)) + body[at + 1 :]


def outcome(parse: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return parse(body)
    except RemoteProtocolError as error:
        return type(error), str(error)


@pytest.mark.parametrize("body", DELIVERIES)
def test_a_delivery_is_read_as_by_the_general_way(body: bytes) -> None:
    for each in broken(body):
        assert outcome(extensions.parse_deliver_many, each) == outcome(decoding._general_delivery, each), each


@pytest.mark.parametrize("body", ACKS)
def test_a_confirm_is_read_as_by_the_general_way(body: bytes) -> None:
    for each in broken(body):
        assert outcome(extensions.parse_publish_many_ack, each) == outcome(decoding._detailed_ack, each), each


@pytest.mark.parametrize(("parse", "plain", "general", "body"), OF_REQUESTS)
def test_a_request_its_reply_and_its_settlement_are_read_as_by_the_general_way(
    parse: Callable[[bytes], Any], plain: Callable[[bytes], Any], general: Callable[[bytes], Any], body: bytes
) -> None:
    assert plain(body) == general(body)
    for each in broken(body):
        assert outcome(parse, each) == outcome(general, each), each


@pytest.mark.parametrize(
    "body", [extensions.request("1f", "orders", ROW, 2_000, {"priority": 2}), extensions.give_up("1f")]
)
def test_other_requests_are_too(body: bytes) -> None:
    for each in broken(body):
        assert outcome(extensions.parse_request, each) == outcome(decoding._general_request, each), each


@pytest.mark.parametrize(
    "body",
    [
        extensions.settle("s1", 1, [(7, 9)], delay_ms=5),
        extensions.settle("s1", 1, [(7, 9)], delay_ms=5, reason="why"),
        extensions.settle("s1", 1, [(7, 9), (11, 11)], delay_ms=5),
    ],
)
def test_other_settlements_are_too(body: bytes) -> None:
    for each in broken(body):
        assert outcome(extensions.parse_settle, each) == outcome(decoding._general_settlement, each), each


def test_the_shorter_ways_are_taken() -> None:
    assert decoding._lone_delivery(LONE) == decoding._general_delivery(LONE)
    assert decoding._plain_ack(ACK) == decoding._detailed_ack(ACK)


def test_a_publish_of_one_row_is_the_same_frame() -> None:
    extras = {0: {"dedup_id": "x1", "priority": 3}}
    for given in (None, extras):
        alone = extensions.publish_lone("1f", "orders", ROW, given)
        assert alone == extensions.publish_many("1f", "orders", Rows.of([ROW]), given)


def test_frames_are_the_same_however_they_are_cut() -> None:
    data = b"".join(map(encode_frame, [ACK, LONE, ACK, LONE]))
    whole = list(ClientProtocol(ClientSettings()).receive_data(data))
    for size in range(1, len(data)):
        protocol = ClientProtocol(ClientSettings())
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [frame for piece in pieces for frame in protocol.receive_data(piece)] == whole, size
