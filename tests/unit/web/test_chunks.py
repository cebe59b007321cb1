"""Bodies in chunks: what the two sides of a proxy could read in two ways is refused, however it is cut."""

import h11
import pytest

from vibemq.web.chunks import CHUNKS_PER_TURN, EXTRA_BYTES_MAX, FRAMING_BYTES_MAX
from vibemq.web.limits import HttpParser

HEAD = b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nhost: h\r\n\r\n"


def read(*parts: bytes) -> tuple[bytes, bytes]:
    """The body, and what is left behind it. Raises RemoteProtocolError."""
    parser = HttpParser(h11.SERVER, 16_384)
    body = b""
    for part in parts:
        parser.receive_data(part)
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED) or parser.waits_for_turn:
            body += bytes(event.data) if isinstance(event, h11.Data) else b""
            parser.begin_turn()
    assert parser.their_state is h11.DONE
    return body, parser.trailing_data[0]


@pytest.mark.parametrize(
    "body",
    [
        b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        b'0002 ; a="b"\r\nab\r\n1;x\r\nc\r\n000;y\r\n\r\n',
        b"3\r\nabc\r\n0\r\nx-sum: 1\r\nother:\r\n\r\n",
    ],
)
def test_a_body_in_chunks_ends_where_it_says_however_it_is_cut(body: bytes) -> None:
    whole = HEAD + body + NEXT
    for cut in range(1, len(HEAD + body)):
        assert read(whole[:cut], whole[cut:]) == (b"abc", NEXT)
    assert read(*(whole[at : at + 1] for at in range(len(whole)))) == (b"abc", NEXT)


@pytest.mark.parametrize(
    "body",
    [
        b"3\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"00000000000000003\r\nabc\r\n0\r\n\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n",
        b"3;a\nb\r\nabc\r\n0\r\n\r\n",
        b"3;a\x00\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y\r\n z\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx : y\r\n\r\n",
        b"3\r\nabc\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
        b"3;" + b"a" * EXTRA_BYTES_MAX + b"\r\nabc\r\n0\r\n\r\n",
        b"1;aaaaaaaaaaaaaaa\r\na\r\n" * (EXTRA_BYTES_MAX // 16 + 1),
        b"0\r\n" + b"a: b\r\n" * (EXTRA_BYTES_MAX // 6 + 1) + b"\r\n",
        b"1\r\na\r\n" * (FRAMING_BYTES_MAX // 4 + 1) + b"0\r\n\r\n",
        b"3" + b" " * 17_000,
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read(HEAD + body + NEXT)


def test_a_refused_body_says_what_is_wrong_with_it() -> None:
    parser = HttpParser(h11.SERVER, 16_384)
    parser.receive_data(HEAD + b"3\r\nabc0")
    assert isinstance(parser.next_event(), h11.Request)
    with pytest.raises(h11.RemoteProtocolError):
        parser.next_event()
    assert parser.refused == (400, "a chunk of the body is longer than its size says")


def test_a_turn_takes_some_chunks_as_one_piece_of_data_and_then_waits() -> None:
    parser = HttpParser(h11.SERVER, 16_384)
    parser.receive_data(HEAD + b"a\r\n0123456789\r\n" * 10_000 + b"0\r\n\r\n")
    assert isinstance(parser.next_event(), h11.Request)
    for _ in range(10_000 // CHUNKS_PER_TURN):
        parser.begin_turn()
        event = parser.next_event()
        assert isinstance(event, h11.Data)
        assert event.data == b"0123456789" * CHUNKS_PER_TURN
        assert parser.next_event() is h11.NEED_DATA, "its turn is over"
    parser.begin_turn()
    assert isinstance(parser.next_event(), h11.EndOfMessage)


def read_on(parser: HttpParser) -> None:
    """Turn after turn, until the body is refused."""
    for _ in range(100):
        parser.begin_turn()
        parser.next_event()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"1\r\na\r\n" * 5_000, "the chunks of the body are too small for their number; send larger ones"),
        (b"1;" + b"a" * 17_000, "a line of the request is too long"),
    ],
)
def test_a_body_with_too_much_beside_its_data_is_too_large(body: bytes, sentence: str) -> None:
    parser = HttpParser(h11.SERVER, 16_384)
    parser.receive_data(HEAD + body)
    with pytest.raises(h11.RemoteProtocolError):
        read_on(parser)
    assert parser.refused == (431, sentence)
