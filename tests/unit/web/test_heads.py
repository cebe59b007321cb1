"""Heads of requests that two readers could read in two ways are refused before they are parsed."""

import pytest

from vibemq.web.heads import HEAD_BYTES_MAX, HeadRefused, check_head

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HT",
        GET,
        GET + b"\r\n",
        GET + b"content-length: 2\r\n\r\n{}",
        GET + b"content-length: 3\r\n\r\n\n\x00\r",
        GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        GET + b"note: \xc3\xa4\tb\r\n\r\n",
        GET + b"x: " + b"a" * (HEAD_BYTES_MAX - len(GET) - 7) + b"\r\n\r\n",
        GET + b"content-length: 100000\r\n\r\n" + b"a" * 100_000,
    ],
)
def test_what_can_be_read_in_one_way(head: bytes) -> None:
    check_head(head)


@pytest.mark.parametrize(
    "line",
    [
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n",
        b"TRANSFER-encoding : chunked\r\nContent-Length:2\r\n",
        b"content-length: 2\r\ncontent-length: 2\r\n",
        b"content-length: 2, 2\r\n",
        b"content-length: +2\r\n",
        b"content-length:\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        b"x: a\r\n b: c\r\n",
        b"x: a\r\n\tb\r\n",
        b"x: a\n",
        b"x: a\ny: b\r\n",
        b"x: a\rb\r\n",
        b"x: a\x00b\r\n",
        b"x: a\x7fb\r\n",
    ],
)
def test_what_can_be_read_in_two_ways(line: bytes) -> None:
    with pytest.raises(HeadRefused) as refused:
        check_head(GET + line + b"\r\n")
    assert refused.value.status == 400


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\nhost: a\n\n", b"GET / HTTP/1.1\nhost: a\n\r\n"])
def test_a_head_of_line_feeds(head: bytes) -> None:
    with pytest.raises(HeadRefused):
        check_head(head)


def test_an_older_version_has_no_transfer_coding() -> None:
    with pytest.raises(HeadRefused):
        check_head(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n")


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [HEAD_BYTES_MAX, 100_000])
def test_a_long_head(size: int, end: bytes) -> None:
    with pytest.raises(HeadRefused) as refused:
        check_head(GET + b"x: " + b"a" * size + end)
    assert refused.value.status == 431


def test_many_small_headers_are_long_together() -> None:
    with pytest.raises(HeadRefused) as refused:
        check_head(GET + b"x: a\r\n" * 5_000 + b"\r\n")
    assert refused.value.status == 431
