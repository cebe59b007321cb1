"""Requests that are answered by a reply."""

from collections.abc import Sequence

import pytest

from tests.unit.protocols.native.native_peer import ALL, Peer, bulk, frame
from vibemq.errors import NoReply, QueueFull
from vibemq.model import commands as c
from vibemq.model.effects import Published, Reply, Responded
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.session import Request
from vibemq.testing.session_conformance import SESSION

REQUESTING = ALL + ",request/1"


def asking(peer: Peer, message_id: str = "r1", timeout_ms: int = 2_000, **more) -> Sequence[Request]:
    row = pack_row("m", b"1", more.pop("headers", ()))
    return peer.hear(encode_frame(extensions.request(message_id, "q", row, timeout_ms, more.pop("extra", None))))


def test_a_request_is_published_with_the_address_of_its_reply() -> None:
    peer = bulk(REQUESTING)
    [first] = asking(peer, headers=[("a", "b"), ("reply-to", "forged")], extra={"priority": 3})
    [second] = asking(peer, "r2")
    assert isinstance(first, c.Publish)
    assert isinstance(second, c.Publish)
    assert (first.requester is not None, second.requester is not None) == (True, True)
    assert first.requester.address != second.requester.address
    assert RowView(first.rows[0]).headers == {
        "a": "b",
        "reply-to": first.requester.address,
        "correlation-id": "r1",
    }
    assert (first.extras, second.extras) == ({0: MessageExtra(3)}, None)
    assert first.requester.timeout_ms == 2_000


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"timeout_ms": 0}, "timeout_ms of a Request is 0"),
        ({"extra": {"ttl_ms": 5}}, "may have priority; not"),
        ({"extra": {"priority": -1}}, "priority of row 0"),
        ({"headers": [(f"h{n}", "x") for n in range(49)]}, "49 headers; a request may have 48"),
        ({"message_id": "r" * 257}, "257 characters"),
    ],
)
def test_a_request_that_cannot_be_is_refused(wrong: dict[str, object], words: str) -> None:
    peer = bulk(REQUESTING)
    assert asking(peer, **wrong) == []
    answer = peer.one()
    assert (answer.type, answer.error_code) == (T.ERROR, "INVALID_MESSAGE")
    assert words in str(answer.error_message)


def test_a_request_without_time_and_row_takes_the_one_with_its_id_back() -> None:
    peer = bulk(REQUESTING)
    [asked] = asking(peer)
    assert isinstance(asked, c.Publish)
    assert asked.requester is not None
    [given_up] = peer.hear(encode_frame(extensions.give_up("r1")))
    assert isinstance(given_up, c.GiveUp)
    assert given_up.address == asked.requester.address
    peer.session.apply([Reply(SESSION, asked.token, Published("q", 0, 1, {0: QueueFull("q", "max_messages 1")}))])
    peer.session.apply([Responded(SESSION, asked.requester.token, NoReply("late"))])
    assert list(peer.frames()) == []
    for unknown in ("r1", "r2"):
        assert peer.hear(encode_frame(extensions.give_up(unknown))) == []
    [ended] = asking(peer, "r3")
    assert isinstance(ended, c.Publish)
    peer.session.apply([Responded(SESSION, ended.requester.token, NoReply("late"))])  # type: ignore[union-attr]
    assert peer.hear(encode_frame(extensions.give_up("r3"))) == []


def test_a_broken_row_of_a_request_or_reply_is_refused() -> None:
    peer = bulk(REQUESTING)
    assert peer.hear(encode_frame(extensions.request("r", "q", b"no row", 5))) == []
    assert peer.hear(encode_frame(extensions.request("r", "", pack_row("m", b"1"), 5))) == []
    assert peer.hear(encode_frame(extensions.response("r", "a", b"no row"))) == []
    assert [answer.error_code for answer in peer.frames()] == ["INVALID_MESSAGE", "INVALID_QUEUE", "INVALID_MESSAGE"]


def test_requests_exist_where_they_were_agreed_on() -> None:
    peer = bulk()
    assert peer.hear(frame(T.REQUEST, "x", "q")) == []
    assert peer.one().error_code == "UNKNOWN_COMMAND"


def test_a_reply_that_does_not_fit_is_an_error_of_the_request() -> None:
    peer = bulk(REQUESTING)
    [request] = asking(peer)
    assert isinstance(request, c.Publish)
    assert request.requester is not None
    large = Rows.of([pack_row("m", b"x" * 1_048_576)])
    peer.session.apply([Responded(SESSION, request.requester.token, large)])
    answer = peer.one()
    assert (answer.id, answer.error_code) == ("r1", "MESSAGE_TOO_LARGE")
