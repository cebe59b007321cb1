"""Requests of a connection: one after the other, each whole before it is looked at. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

from vibemq.protocols.http1 import END_OF_HEAD, BodyReader, Http1Error, RequestHead, request_head

_LF_ALONE = "the lines of a head end with CR and LF here, and one of these ends with LF alone"
EMPTY_LINES_MAX = 4
"""Before a request: some clients send one behind a body."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case; of a name that comes twice the first value. Shared: not to be changed."""
    body: bytes = b""


class HttpReader:
    """Args:
    head_bytes_max, body_bytes_max: of a request; what is longer is refused before it is read.
    """

    def __init__(self, *, head_bytes_max: int, body_bytes_max: int, send: Callable[[bytes], None]) -> None:
        self._head_bytes_max = head_bytes_max
        self._body_bytes_max = body_bytes_max
        self._send = send
        self._buffer = bytearray()
        self._searched = 0
        self._empty_lines = 0
        """Before the next request."""
        self._head: RequestHead | None = None
        self._body: BodyReader | None = None
        self._continues = False
        """The client waits for a word before it sends the body."""
        self._answering = False
        """The request that was returned last is not answered."""
        self._last: tuple[bytes, RequestHead] | None = None
        """Clients often send the same head again and again."""
        self._ended = False
        self.keeps = True
        """Another request may follow the one that was returned last."""
        self.fresh = False
        """Bytes have come that `next_request` has not looked at."""

    def receive_data(self, data: bytes) -> None:
        """b"": end of stream."""
        self.fresh = True
        if data:
            self._buffer += data
        else:
            self._ended = True

    @property
    def begun(self) -> bool:
        """Some of a request has come, and not all of it."""
        return not self._answering and (self._head is not None or bool(self._buffer))

    @property
    def buffered(self) -> int:
        """Bytes that have come and belong to no head or body that was taken."""
        return len(self._buffer)

    @property
    def has_more(self) -> bool:
        """Bytes have come behind the request that was returned last."""
        return bool(self._buffer)

    @property
    def ended(self) -> bool:
        """The peer has ended its stream, and nothing more can be made of it."""
        return self._ended and not self.fresh

    def next_head(self) -> RequestHead | None:
        """That of the request which `next_request` is going to return. None: not yet. Raises Http1Error."""
        if self._answering or not self.keeps:
            self.fresh = False
            return None
        if self._head is None and not self._read_head():
            self.fresh = False
            return None
        return self._head

    def next_request(self, body_bytes_max: int | None = None) -> HttpRequest | None:
        """The next one that is whole; None: not yet, or the one before it is not answered.

        Args:
            body_bytes_max: of this request, if it is less.

        Raises:
            Http1Error: what came is no request, or too large a one; the stream ends.
        """
        if self.next_head() is None:
            return None
        assert self._head is not None
        if self._body is None:
            self._body = BodyReader(self._head, body_bytes_max or self._body_bytes_max)
            if self._continues and not self._buffer:
                self._send(CONTINUE)
        if not self._body.take(self._buffer, ended=self._ended):
            self.fresh = self._body.more
            return None
        head, body = self._head, self._body.body
        self._head = self._body = None
        self._answering, self.keeps = True, head.keeps and not (self._ended and not self._buffer)
        return request_of(head, body)

    def without_body(self) -> HttpRequest:
        """The request whose head came last, to be refused: the connection ends with its answer."""
        assert self._head is not None
        head, self._head, self._body = self._head, None, None
        self._answering, self.keeps = True, False
        return request_of(head, b"")

    def _read_head(self) -> bool:
        buffer = self._buffer
        self._pass_over_empty_lines()
        if buffer.startswith(b"\n"):
            raise Http1Error(_LF_ALONE)
        searched = max(0, self._searched - 3)
        end = buffer.find(END_OF_HEAD, searched, self._head_bytes_max + len(END_OF_HEAD))
        if end < 0:
            self._searched = len(buffer)
            most = self._head_bytes_max
            # However much has come beyond it.
            if buffer.find(b"\n\n", searched, most) >= 0 or buffer.find(b"\n\r\n", searched, most) >= 0:
                raise Http1Error(_LF_ALONE)
            if len(buffer) > most:
                raise Http1Error(f"the head of a request has at most {most:,} bytes here", 431)
            if self._ended and buffer:
                raise Http1Error("the stream ended within the head of a request")
            return False
        self._searched = self._empty_lines = 0
        head = bytes(buffer[:end])
        del buffer[: end + len(END_OF_HEAD)]
        if self._last is None or self._last[0] != head:
            self._last = head, request_head(head)
        self._head = self._last[1]
        self._body = None
        self._continues = bool(self._head.length) and self._head.headers.get("expect", "").lower() == "100-continue"
        return True

    def _pass_over_empty_lines(self) -> None:
        while self._buffer.startswith(b"\r\n"):
            if self._empty_lines == EMPTY_LINES_MAX:
                raise Http1Error(f"more than {EMPTY_LINES_MAX} empty lines before a request")
            self._empty_lines += 1
            del self._buffer[:2]

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """To the request that `next_request` has returned. `headers`: whole lines."""
        self._answering = False
        self.fresh = self.has_more or self._ended
        head = b"HTTP/1.1 %d %s\r\n%scontent-length: %d\r\n\r\n" % (status, _reason(status), headers, len(body))
        self._send(head + body)

    def refuse(self, error: Http1Error) -> None:
        """Say why, and nothing more."""
        self.keeps = False
        text = str(error).encode(errors="replace") + b"\n"
        lines = b"content-type: text/plain; charset=UTF-8\r\nconnection: close\r\n"
        self.answer(error.status, lines, text)


def request_of(head: RequestHead, body: bytes) -> HttpRequest:
    path, _, query = head.target.partition("?")
    if not path.startswith("/"):
        path = "/" + path.partition("://")[2].partition("/")[2]
    return HttpRequest(head.method, unquote(path) if "%" in path else path, query, head.headers, body)


def _reason(status: int) -> bytes:
    return _REASONS.get(status, b"Unknown")


_REASONS = {int(status): status.phrase.encode() for status in HTTPStatus}
