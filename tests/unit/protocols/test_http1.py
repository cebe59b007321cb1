"""HTTP/1.1 as it is read from bytes: the same message however it is cut, and nothing that readers take differently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.protocols.eventmesh.http.request import HttpReader, HttpRequest
from vibemq.protocols.http1 import CHUNKED, UNTIL_END, BodyReader, Http1Error, request_head, response_head

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


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"POST  / HTTP/1.1", 400),
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
        (b"POST / HTTP/1.1\r\ncontent-length: 1_0", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1", 400),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked", 501),
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


def test_bodies_that_are_refused() -> None:
    for length, data in (
        (CHUNKED, b"x\r\n"),
        (CHUNKED, b"-1\r\n"),
        (CHUNKED, b"1\r\nab\r\n"),
        (CHUNKED, b"65\r\n"),
        (CHUNKED, b"1" * 2_000),
        (CHUNKED, b"0\r\n" + b"x" * 9_000),
        (UNTIL_END, b"x" * 101),
        (101, b""),
    ):
        with pytest.raises(Http1Error):
            BodyReader(length, 100).take(bytearray(data))
    with pytest.raises(Http1Error, match="ended before"):
        BodyReader(3, 100).take(bytearray(b"ab"), ended=True)


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
