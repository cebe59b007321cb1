"""HTTP/1.1 messages, read from bytes by llhttp (httptools): heads and bodies. Pure; strict where readers could differ.

llhttp reads with every leniency off. What is added here: a head is looked at once it is whole and a body is kept only
within its limit; a connection is neither upgraded nor a tunnel; no transfer coding but chunked. Every message has a
parser of its own, which is given its bytes and none behind them. A request that would rather go on in another protocol
(Java's client asks for HTTP/2 so) is read as one that has not said so, as RFC 9110, 7.8, allows.
"""

import re
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.pieces import keep_piece

HEADERS_MAX = 128
END_OF_HEAD = b"\r\n\r\n"
CHUNKED, UNTIL_END = -1, -2
"""Instead of a length: in chunks, and until the stream ends."""
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")
_UPGRADE_PASSED_OVER = b"\r\nupgrade-passed-over:"
_VERSIONS = ("1.0", "1.1")
_ONCE = ("host", "transfer-encoding")
_FRAMING_BYTES_MAX = 8_192
"""Sizes of chunks and trailers; beyond it, half of what the body may have."""
_PIECE_BYTES = 16_384
_PIECE_WORK = 128
"""What it costs to hand over a piece, in bytes that could be read meanwhile."""


class Http1Error(RemoteProtocolError):
    """What came is not HTTP/1.1. `status`: what a server answers."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RequestHead(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case; of a name that comes twice the first value."""
    length: int
    keeps: bool
    """The connection goes on after it."""
    raw: bytes


class ResponseHead(NamedTuple):
    status: int
    headers: dict[str, str]
    length: int
    keeps: bool
    raw: bytes


class _HeadHeard:
    """What a parser tells of a head."""

    __slots__ = ("complete", "headers", "target", "whole")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = self.whole = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True

    def on_message_complete(self) -> None:
        """It has no body."""
        self.whole = True


def request_head(head: bytes) -> RequestHead:
    """`head`: without its empty line. Raises Http1Error."""
    heard, raw = _HeadHeard(), _UPGRADE.sub(_UPGRADE_PASSED_OVER, head) + END_OF_HEAD
    parser = HttpRequestParser(heard)
    version = _read_head(parser, heard, raw)
    headers = _headers(heard.headers)
    length = _length(headers, heard, version)
    method = parser.get_method().decode()
    return RequestHead(method, heard.target.decode("latin-1"), headers, length, _keeps(headers, version), raw)


def response_head(head: bytes) -> ResponseHead:
    """`head`: without its empty line. Raises Http1Error."""
    heard, raw = _HeadHeard(), head + END_OF_HEAD
    parser = HttpResponseParser(heard)
    version = _read_head(parser, heard, raw)
    status = parser.get_status_code()
    if status < 100 or not head.startswith(b"HTTP/"):
        raise Http1Error("the first line is not that of an HTTP/1.1 answer")
    headers = _headers(heard.headers)
    length = _length(headers, heard, version)
    return ResponseHead(status, headers, length, _keeps(headers, version) and length != UNTIL_END, raw)


def _read_head(parser: HttpRequestParser | HttpResponseParser, heard: _HeadHeard, raw: bytes) -> str:
    """The version."""
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade:
        why = "the protocol is not changed and nothing is tunnelled here; leave out CONNECT and Upgrade"
        raise Http1Error(why) from None
    except HttpParserError as error:
        # A first line without a version counts as a complete head of HTTP/0.9.
        if heard.complete and parser.get_http_version() in _VERSIONS:
            raise Http1Error("the transfer coding is not chunked", 501) from None
        raise Http1Error(f"the head is not that of HTTP/1.1: {error}") from None
    version = parser.get_http_version()
    if not heard.complete or version not in _VERSIONS:
        raise Http1Error("the first line is not that of HTTP/1.1")
    return version


def _headers(found: list[tuple[bytes, bytes]]) -> dict[str, str]:
    if len(found) > HEADERS_MAX:
        raise Http1Error(f"more than {HEADERS_MAX} headers", 431)
    headers: dict[str, str] = {}
    for name, value in found:
        key = name.decode().lower()
        if key not in headers:
            headers[key] = _text(value.strip(b" \t"))
        elif key in _ONCE:
            raise Http1Error(f"the header {key} comes twice")
        elif key == "connection":
            headers[key] += "," + _text(value)
    return headers


def _text(value: bytes) -> str:
    """Clients write names and passwords in UTF-8, and some in Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _length(headers: dict[str, str], heard: _HeadHeard, version: str) -> int:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if version == "1.0":
            raise Http1Error("a transfer coding of HTTP/1.0")
        if coding.lower() != "chunked":
            raise Http1Error("the transfer coding is not chunked", 501)
    if heard.whole:
        return 0
    if coding is not None:
        return CHUNKED
    # The parser has seen that it is a number, given once and not beside a transfer coding.
    return int(headers.get("content-length", UNTIL_END))


def _keeps(headers: dict[str, str], version: str) -> bool:
    """llhttp knows it, too, but only within a callback, which does not know its parser."""
    connection = headers.get("connection", "").lower()
    words = {word.strip() for word in connection.split(",")}
    return "close" not in words and (version == "1.1" or "keep-alive" in words)


class _BodyHeard:
    """What a parser tells of a body. It is not told of headers: it would collect those of trailers."""

    __slots__ = ("most", "parts", "size", "whole")

    def __init__(self, most: int) -> None:
        self.most = most
        self.parts: list[bytes | bytearray] = []
        self.size = 0
        self.whole = False

    def on_body(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > self.most:
            return
        keep_piece(self.parts, part)

    def on_message_complete(self) -> None:
        self.whole = True


class BodyReader:
    """Takes a body out of a buffer.

    Args:
        most: bytes; a longer body is refused before it is kept.
    """

    def __init__(self, head: RequestHead | ResponseHead, most: int) -> None:
        self._length = head.length
        self._too_long = f"the body is longer than {most:,} bytes"
        if self._length > most:
            raise Http1Error(self._too_long, 413)
        self._heard = _BodyHeard(most)
        self._fed = 0
        self.more = False
        """`take` has stopped because of its time, and can go on."""
        if self._length < 0:
            kind = HttpRequestParser if isinstance(head, RequestHead) else HttpResponseParser
            self._parser = kind(self._heard)
            self._parser.feed_data(head.raw)

    @property
    def body(self) -> bytes:
        parts = self._heard.parts
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def take(self, buffer: bytearray, *, ended: bool = False) -> bool:
        """Whether the body is whole; what belongs to it leaves the buffer. `ended`: nothing more comes. Raises
        Http1Error."""
        if not self._length:
            return True
        if self._length == CHUNKED:
            self._take_chunks(buffer)
        elif self._length == UNTIL_END:
            if buffer:
                self._feed(buffer, len(buffer))
        elif buffer:
            self._take_known(buffer)
        if self._heard.whole or not ended or self.more:
            return self._heard.whole
        if self._length == UNTIL_END:
            return True
        raise Http1Error("the stream ended before the body was whole")

    def _take_known(self, buffer: bytearray) -> None:
        """A body whose length is known needs no parser."""
        heard = self._heard
        left = self._length - heard.size
        if len(buffer) <= left:
            piece = bytes(buffer)
            buffer.clear()
        else:
            piece = bytes(memoryview(buffer)[:left])
            del buffer[:left]
        heard.on_body(piece)
        if heard.size == self._length:
            heard.on_message_complete()

    def _take_chunks(self, buffer: bytearray) -> None:
        """A body in chunks ends with an empty line; what is fed behind it would begin the next message."""
        work, self.more = 0, False
        while buffer and not self._heard.whole:
            if work >= _PIECE_BYTES:
                self.more = True
                return
            end = buffer.find(END_OF_HEAD, 0, _PIECE_BYTES)
            # The last three could be the beginning of an empty line.
            size = end + len(END_OF_HEAD) if end >= 0 else min(len(buffer), _PIECE_BYTES) - len(END_OF_HEAD) + 1
            if size <= 0:
                return
            self._feed(buffer, size)
            work += size + _PIECE_WORK
            if self._fed - self._heard.size > _FRAMING_BYTES_MAX + self._heard.most // 2:
                raise Http1Error("the body comes in too small chunks, or with too long trailers", 431)

    def _feed(self, buffer: bytearray, size: int) -> None:
        piece = buffer if size >= len(buffer) else bytes(memoryview(buffer)[:size])
        self._fed += len(piece)
        broken = ""
        try:
            self._parser.feed_data(piece)
        except HttpParserError as error:
            broken = f"the body cannot be read: {error}"
        del buffer[: len(piece)]
        if self._heard.size > self._heard.most:
            raise Http1Error(self._too_long, 413)
        if broken:
            raise Http1Error(broken)
