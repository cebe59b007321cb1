from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from vibemq.client.publishing.outgoing import Outgoing, RowPacker, extra_of, header_block, priority_number
from vibemq.errors import InvalidOptions, LocalProtocolError, MessageTooLarge
from vibemq.model.rows import RowView, header_pairs


def test_ids_are_32_hex_digits_and_differ() -> None:
    packer = RowPacker()
    ids = {RowView(packer.plain_row(1)).message_id for _ in range(100)} | {packer.new_id()}
    assert len(ids) == 101
    assert all(len(i) == 32 and int(i, 16) for i in ids)


def test_a_row_reads_back() -> None:
    row = RowView(RowPacker().row(Outgoing({"a": 1}, id="x", headers={"k": "v"}, priority="high")))
    assert (row.message_id, row.payload, row.headers) == ("x", b'{"a":1}', {"k": "v", "priority": "2"})


def test_a_named_content_type_is_left_alone() -> None:
    packer = RowPacker()
    row = RowView(packer.row(Outgoing(b"{no json", headers={"content-type": "application/x"})))
    assert (row.payload, row.headers) == (b"{no json", {"content-type": "application/x"})
    text = RowView(packer.row(Outgoing("hi", headers={"content-type": "text/plain"})))
    assert text.payload == b"hi"


def test_extras_in_the_words_of_the_wire() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert extra_of(Outgoing(1)) is None
    assert extra_of(Outgoing(1, priority=3, ttl=1.5, delay=timedelta(minutes=1), dedup_id="d")) == {
        "priority": 3,
        "ttl_ms": 1_500,
        "delay_ms": 60_000,
        "dedup_id": "d",
    }
    assert extra_of(Outgoing(1, deliver_at=moment)) == {"deliver_at": 1_893_456_000_000}
    assert extra_of(Outgoing(1, deliver_at=2.5)) == {"deliver_at": 2_500}


@pytest.mark.parametrize(
    "message",
    [
        Outgoing(1, ttl=-1),
        Outgoing(1, delay=1, deliver_at=2.0),
        Outgoing(1, deliver_at=-1.0),
        Outgoing(1, deliver_at=datetime(2030, 1, 1)),  # without a zone on purpose
        Outgoing(1, dedup_id=""),
        Outgoing(1, dedup_id="x" * 257),
        Outgoing(1, dedup_id="a\nb"),
        Outgoing(1, ttl=float("nan")),
    ],
)
def test_impossible_extras_are_refused(message: Outgoing) -> None:
    with pytest.raises(LocalProtocolError):
        extra_of(message)


def test_priorities() -> None:
    assert [priority_number(p) for p in ("low", "NORMAL", 2, "Critical", 31)] == [0, 1, 2, 3, 31]
    with pytest.raises(InvalidOptions):
        priority_number(32)
    with pytest.raises(InvalidOptions):
        priority_number("urgent")


def test_headers_of_the_allowed_size_pass() -> None:
    headers = {f"k{n}": "v" * 4_096 for n in range(50)}
    assert dict(header_pairs(header_block(headers), 0)) == headers


@pytest.mark.parametrize(
    "headers",
    [
        {f"k{n}": "v" for n in range(51)},
        {"k": "v" * 4_097},
        {"k": "\U0001f600" * 2_049},
        {"k": ""},
        {"": "v"},
        {"k": 3},
        {"k" * 65_536: "v"},
    ],
)
def test_headers_that_cannot_travel_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        header_block(headers)


def test_sizes() -> None:
    packer = RowPacker()
    assert packer.plain_row(b"x" * 1_044_000)
    with pytest.raises(MessageTooLarge):
        packer.plain_row(b"x" * 1_045_000)
    with pytest.raises(LocalProtocolError):
        packer.row(Outgoing(1, id=""))


@pytest.mark.parametrize(
    "common",
    [
        Outgoing(None),
        Outgoing(None, delay=5),
        Outgoing(None, headers={"k": "v"}),
        Outgoing(None, priority="high"),
        Outgoing(None, headers={"content-type": "text/plain", "priority": "7"}, priority=3),
    ],
    ids=str,
)
def test_bodies_are_packed_like_whole_messages(common: Outgoing) -> None:
    packer = RowPacker()
    row = packer.packing(common)
    for body in ({"a": 1}, b"raw \xff", b'{"a": 1}', "text", None, b""):
        one, other = RowView(row(body)), RowView(packer.row(replace(common, body=body)))
        assert (one.payload, one.headers) == (other.payload, other.headers)
    with pytest.raises(MessageTooLarge):
        packer.packing(Outgoing(None, priority=3))("x" * 1_048_576)
