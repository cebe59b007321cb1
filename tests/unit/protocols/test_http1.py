"""HTTP/1.1 as it is read from bytes: the same message however it is cut, and nothing that readers take differently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.protocols.eventmesh.http.request import HttpReader, HttpRequest
from vibemq.protocols.http1 import UNTIL_END, BodyReader, Http1Error, request_head, response_head

REQUESTS = (
    b"POST /a%20b?c=d HTTP/1.1\r\nCode: 104\r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nGET http://host/x HTTP/1.1\r\nHost: h\r\n\r\n"
    b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
)


def reader(sent: list[bytes], *, body_bytes_max: int = 100) -> HttpReader:
    return HttpReader(head_bytes_max=200, body_bytes_max=body_bytes_max, send=sent.append)


def taken(pieces: list[bytes]) -> list[HttpRequest]:
    found, sent = list[HttpRequest](), list[bytes]()
    made = reader(sent)
    for piece in pieces:
        made.receive_data(piece)
        while (request := made.next_request()) is not None:
            found.append(request)
            made.answer(200, b"", b"ok")
    assert sent == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"] * len(found)
    return found


def test_requests_cut_anywhere_are_the_same() -> None:
    whole = taken([REQUESTS])
    assert [(each.method, each.path, each.query, each.body) for each in whole] == [
        ("POST", "/a b", "c=d", b"hello"),
        ("GET", "/x", "", b""),
        ("POST", "/", "", b"abcde"),
    ]
    assert whole[0].headers == {"code": "104", "content-length": "5"}
    for at in range(1, len(REQUESTS)):
        assert taken([REQUESTS[:at], REQUESTS[at:]]) == whole
    assert taken([REQUESTS[at : at + 1] for at in range(len(REQUESTS))]) == whole


@pytest.mark.parametrize("before", [b"", b"\r\n"])
def test_a_head_that_begins_with_lf_alone_is_refused_however_it_is_cut(before: bytes) -> None:
    stream = before + b"\n\r\nPOST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n"
    for step in range(1, len(stream) + 1):
        with pytest.raises(Http1Error, match="LF alone") as refused:
            taken([stream[at : at + step] for at in range(0, len(stream), step)])
        assert refused.value.status == 400


def test_a_request_that_would_rather_go_on_in_another_protocol_is_read_as_any_other() -> None:
    """As Java's client asks by default."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    stream = b"POST /a HTTP/1.1\r\n" + wish + b"Content-Length: 2\r\n\r\nhi" + REQUESTS
    first, *others = taken([stream])
    assert (first.path, first.body) == ("/a", b"hi")
    assert others == taken([REQUESTS])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"\r\n", 400),
        (b"POST /", 400),
        (b"POST x HTTP/1.1", 400),
        (b"POST / HTTP/2.0", 400),
        (b"POST / HTTP/1.1 ", 400),
        (b"POST /\xff HTTP/1.1", 400),
        (b"PUBLISH / HTTP/1.1", 400),
        (b"CONNECT host:1 HTTP/1.1", 400),
        (b"POST / HTTP/1.1\nx: y", 400),
        (b"POST / HTTP/1.1\r\nx: y\n", 400),
        (b"POST / HTTP/1.1\r\n: y", 400),
        (b"POST / HTTP/1.1\r\n x: y", 400),
        (b"POST / HTTP/1.1\r\nx: \x00", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nhost: a", 400),
        (b"POST / HTTP/1.2", 400),
        (b"POST /a b HTTP/1.1", 400),
        (b"P\x00ST / HTTP/1.1", 400),
        (b"POST / HTTP/1.1\r\nno colon", 400),
        (b"POST / HTTP/1.1\r\nname : x", 400),
        (b"POST / HTTP/1.1\r\nn\xc3me: x", 400),
        (b"POST / HTTP/1.1\r\nx: a\nb: c", 400),
        (b"POST / HTTP/1.1\r\nx: a\rb", 400),
        (b"POST / HTTP/1.1\r\nx: y\r\n folded", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1, 1", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: +1", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 30, 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1_0", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1", 400),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked", 501),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: xchunked", 501),
        (b"POST /\n\r\n3\r\nabc\r\n0", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\n" + b"\r\n".join([b"x: y"] * 129), 431),
    ],
)
def test_heads_that_are_refused(head: bytes, status: int) -> None:
    with pytest.raises(Http1Error) as refused:
        request_head(head)
    assert refused.value.status == status


def test_what_keeps_a_connection() -> None:
    assert request_head(b"POST / HTTP/1.1").keeps
    assert not request_head(b"POST / HTTP/1.1\r\nConnection: Close").keeps
    assert not request_head(b"POST / HTTP/1.1\r\nconnection: x\r\nconnection: close").keeps
    assert not request_head(b"POST / HTTP/1.0").keeps
    assert request_head(b"POST / HTTP/1.0\r\nconnection: keep-alive").keeps
    assert response_head(b"HTTP/1.1 200 OK").length == UNTIL_END
    assert not response_head(b"HTTP/1.1 200 OK").keeps
    assert response_head(b"HTTP/1.1 204 No Content\r\ncontent-length: 7").length == 0


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/2.0 200 OK",
        b"RTSP/1.0 200 OK",
        b"HTTP/1.1 200 OK\nx: y",
        b"HTTP/1.1 200 OK\r\nx: y\r\n folded",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c",
        b"HTTP/1.1 101 Switching",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1",
    ],
)
def test_answers_that_are_refused(head: bytes) -> None:
    with pytest.raises(Http1Error):
        response_head(head)


def chunked() -> BodyReader:
    return BodyReader(request_head(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked"), 100)


def take_all(made: BodyReader, data: bytes, step: int) -> None:
    buffer = bytearray()
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        made.take(buffer)
        while made.more:
            made.take(buffer)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"x\r\n\r\n.", 400),
        (b"-1\r\n...", 400),
        (b"0x1\r\n...", 400),
        (b"1 \r\na\r\n...", 400),
        (b"1\r\nab\r\n...", 400),
        (b"1\na\r\n...", 400),
        (b"1\r\na\n...", 400),
        (b"1;a\nb\r\na\r\n...", 400),
        (b"0\r\n\n...", 400),
        (b"0\r\nx y\r\n\r\n", 400),
        (b"0\r\ncontent-length: 5\r\n\r\n", 400),
        (b"1" * 2_000, 400),
        (b"65\r\n" + b"x" * 101 + b"...", 413),
        (b"0\r\nx: " + b"y" * 9_000, 431),
        (b"1;" + b"y" * 9_000, 431),
        (b"1\r\na\r\n" * 2_000, 413),
    ],
)
def test_chunks_that_are_refused(data: bytes, status: int) -> None:
    for step in (len(data), 1):
        with pytest.raises(Http1Error) as refused:
            take_all(chunked(), data, step)
        assert refused.value.status == status


def test_bodies_that_are_refused() -> None:
    until_end = response_head(b"HTTP/1.1 200 OK")
    with pytest.raises(Http1Error, match="longer"):
        BodyReader(until_end, 100).take(bytearray(b"x" * 101))
    with pytest.raises(Http1Error, match="longer"):
        BodyReader(request_head(b"POST / HTTP/1.1\r\ncontent-length: 101"), 100)
    with pytest.raises(Http1Error, match="ended before"):
        BodyReader(request_head(b"POST / HTTP/1.1\r\ncontent-length: 3"), 100).take(bytearray(b"ab"), ended=True)
    with pytest.raises(Http1Error, match="ended before"):
        chunked().take(bytearray(b"0\r\n\r"), ended=True)


def test_a_body_takes_its_bytes_and_no_others() -> None:
    for head, data in (
        (b"content-length: 3", b"abc"),
        (b"transfer-encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"transfer-encoding: chunked", b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n"),
    ):
        buffer = bytearray(data + b"GET / HTTP/1.1\r\n\r\n")
        made = BodyReader(request_head(b"POST / HTTP/1.1\r\n" + head), 100)
        assert made.take(buffer)
        assert (made.body, bytes(buffer)) == (b"abc", b"GET / HTTP/1.1\r\n\r\n")
    until_end, buffer = BodyReader(response_head(b"HTTP/1.1 200 OK"), 100), bytearray(b"abc")
    assert not until_end.take(buffer)
    assert until_end.take(buffer, ended=True)
    assert until_end.body == b"abc"


@pytest.mark.parametrize("length", [b"content-length: 50000", b"transfer-encoding: chunked"])
def test_parts_of_a_few_bytes_are_kept_together(length: bytes) -> None:
    """A client that sends its body so would take many times its size in memory."""
    body = BodyReader(request_head(b"POST / HTTP/1.1\r\nhost: h\r\n" + length), 100_000)
    few = b"ab" * 5
    pieces = [few] * 5_000 if b"50000" in length else [b"a\r\n%b\r\n" % few] * 5_000 + [b"0\r\n\r\n"]
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        whole = body.take(buffer)
        assert len(body._heard.parts) < 10
    assert whole
    assert body.body == few * 5_000


def test_a_body_of_many_chunks_is_taken_in_turns() -> None:
    buffer = bytearray(b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n")
    made = BodyReader(request_head(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked"), 1_000_000)
    turns, before = 0, len(buffer)
    while not made.take(buffer):
        assert made.more
        assert before - len(buffer) <= 32_768
        turns, before = turns + 1, len(buffer)
    assert turns >= 6
    assert made.body == b"a" * 20_000


def test_a_body_is_never_kept_beyond_its_limit() -> None:
    sent: list[bytes] = []
    made = reader(sent)
    made.receive_data(b"POST / HTTP/1.1\r\ncontent-length: 101\r\nexpect: 100-continue\r\n\r\n")
    with pytest.raises(Http1Error) as refused:
        made.next_request()
    assert refused.value.status == 413
    assert sent == [], "it is not asked to go on"
    made = reader(sent)
    made.receive_data(b"POST / HTTP/1.1\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n")
    assert made.next_request() is None
    assert sent == [b"HTTP/1.1 100 Continue\r\n\r\n"]


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_any_bytes_are_read_or_refused(data: bytes, cuts: list[int]) -> None:
    made, at = reader([]), 0
    try:
        for size in [*cuts, 300]:
            made.receive_data(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + data if not at else data[at:])
            at += size
            while made.next_request() is not None:
                made.answer(200, b"", b"")
    except Http1Error as error:
        status = error.status
    else:
        status = 400
    assert status in (400, 413, 431, 501)
