"""HTTP/1.1 messages, read from bytes: heads and bodies. Pure; strict where two readers could differ.

A head is read whole, once its empty line has come. Lines end with CRLF, header names are tokens, nothing is folded,
a length is given once and never beside a transfer coding: what is read here is what any other reader reads.
"""

import re
from typing import NamedTuple

from vibemq.errors import RemoteProtocolError

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([!-~\x80-\xff]+) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})( .*)?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(;.*)?")
_CHUNK_LINE_MAX = 1_024
_TRAILER_BYTES_MAX = 8_192
HEADERS_MAX = 128
END_OF_HEAD = b"\r\n\r\n"
CHUNKED, UNTIL_END = -1, -2
"""Instead of a length: in chunks, and until the stream ends."""


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


class ResponseHead(NamedTuple):
    status: int
    headers: dict[str, str]
    length: int
    keeps: bool


def request_head(head: bytes) -> RequestHead:
    """`head`: without its empty line. Raises Http1Error."""
    line, _, rest = head.partition(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise Http1Error("the first line is not that of an HTTP/1.1 request")
    headers = _headers(rest)
    method, target, minor = found.groups()
    length = _length(headers, old=minor == b"0", otherwise=0)
    return RequestHead(method.decode(), target.decode("latin-1"), headers, length, _keeps(headers, minor))


def response_head(head: bytes) -> ResponseHead:
    """`head`: without its empty line. Raises Http1Error."""
    line, _, rest = head.partition(b"\r\n")
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise Http1Error("the first line is not that of an HTTP/1.1 answer")
    headers = _headers(rest)
    minor, status = found.group(1), int(found.group(2))
    if status < 200 or status in (204, 304):
        length = 0
    else:
        length = _length(headers, old=minor == b"0", otherwise=UNTIL_END)
    return ResponseHead(status, headers, length, _keeps(headers, minor) and length != UNTIL_END)


def _headers(block: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    lines = block.split(b"\r\n") if block else []
    if len(lines) > HEADERS_MAX:
        raise Http1Error(f"more than {HEADERS_MAX} headers", 431)
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _TOKEN.fullmatch(name) is None or _UNPRINTABLE.search(value) is not None:
            raise Http1Error("a header cannot be read")
        key = name.decode().lower()
        if key not in headers:
            headers[key] = _text(value.strip(b" \t"))
        elif key in ("content-length", "transfer-encoding", "host"):
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


def _length(headers: dict[str, str], *, old: bool, otherwise: int) -> int:
    coding, text = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if text is not None or old:
            raise Http1Error("a length beside a transfer coding, or a transfer coding of HTTP/1.0")
        if coding.lower() != "chunked":
            raise Http1Error("the transfer coding is not chunked", 501)
        return CHUNKED
    if text is None:
        return otherwise
    if _LENGTH.fullmatch(text) is None:
        raise Http1Error("the length is not a number")
    return int(text)


def _keeps(headers: dict[str, str], minor: bytes) -> bool:
    connection = headers.get("connection", "").lower()
    words = {word.strip() for word in connection.split(",")}
    return "close" not in words and (minor == b"1" or "keep-alive" in words)


class BodyReader:
    """Takes a body out of a buffer.

    Args:
        most: bytes; a longer body is refused before it is kept.
    """

    def __init__(self, length: int, most: int) -> None:
        if length > most:
            raise Http1Error(f"the body is longer than {most:,} bytes", 413)
        self._length = length
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._left = 0
        """Of a chunk, with its CRLF; -1: its CRLF and nothing else has to come."""
        self._trailing = 0
        self._ends = False
        """The last chunk has come, and trailers may follow."""

    @property
    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def take(self, buffer: bytearray, *, ended: bool = False) -> bool:
        """Whether the body is whole; what belongs to it leaves the buffer. `ended`: nothing more comes. Raises
        Http1Error."""
        if self._length >= 0:
            missing = self._length - self._size
            self._add(buffer, missing)
            whole = self._size == self._length
        elif self._length == UNTIL_END:
            self._add(buffer, len(buffer))
            whole = ended
        else:
            whole = self._take_chunks(buffer)
        if ended and not whole:
            raise Http1Error("the stream ended before the body was whole")
        return whole

    def _add(self, buffer: bytearray, size: int) -> None:
        if size and buffer:
            part = bytes(buffer[:size])
            del buffer[: len(part)]
            self._size += len(part)
            if self._size > self._most:
                raise Http1Error(f"the body is longer than {self._most:,} bytes", 413)
            self._parts.append(part)

    def _take_chunks(self, buffer: bytearray) -> bool:
        while buffer:
            if self._ends:
                return self._take_trailer(buffer)
            if self._left > 0:
                before = self._size
                self._add(buffer, self._left)
                self._left -= self._size - before
                if not self._left:
                    self._left = -1
            elif self._left == -1:
                if len(buffer) < 2:
                    return False
                if buffer[:2] != b"\r\n":
                    raise Http1Error("a chunk does not end where it should")
                del buffer[:2]
                self._left = 0
            elif not self._take_size(buffer):
                return False
        return False

    def _take_size(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\r\n", 0, _CHUNK_LINE_MAX)
        if end < 0:
            if len(buffer) >= _CHUNK_LINE_MAX:
                raise Http1Error("the size of a chunk cannot be read")
            return False
        found = _CHUNK.fullmatch(bytes(buffer[:end]))
        if found is None or _UNPRINTABLE.search(found.group()) is not None:
            raise Http1Error("the size of a chunk cannot be read")
        del buffer[: end + 2]
        self._left = int(found.group(1), 16)
        if self._size + self._left > self._most:
            raise Http1Error(f"the body is longer than {self._most:,} bytes", 413)
        self._ends = self._left == 0
        return True

    def _take_trailer(self, buffer: bytearray) -> bool:
        """Nobody reads what stands there."""
        while (end := buffer.find(b"\r\n")) >= 0:
            del buffer[: end + 2]
            self._trailing += end + 2
            if not end:
                return True
        if self._trailing + len(buffer) > _TRAILER_BYTES_MAX:
            raise Http1Error("the trailers are too long", 431)
        return False
