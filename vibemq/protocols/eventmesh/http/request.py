"""Requests of HTTP/1.1, read from bytes: one after the other, each whole before it is looked at. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

import h11

from vibemq.errors import RemoteProtocolError

ANSWERED_STATES = (h11.DONE, h11.MUST_CLOSE)
REASONS = {200: b"OK", 400: b"Bad Request", 405: b"Method Not Allowed", 413: b"Content Too Large"}


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case; of a name that comes twice the first value."""
    body: bytes = b""


class HttpRefusal(RemoteProtocolError):
    """What was sent is no request, or too large a one: it is answered with a status, and the stream ends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Parser(h11.Connection):
    """Lets go of the frames of an error, as `vibemq.web.limits.HttpParser`."""

    def next_event(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None
            raise


@dataclass(slots=True)
class _Partial:
    request: HttpRequest
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class HttpReader:
    """Args:
    head_bytes_max, body_bytes_max: of a request; what is longer is refused before it is read.
    """

    def __init__(self, *, head_bytes_max: int, body_bytes_max: int, send: Callable[[bytes], None]) -> None:
        self._parser = _Parser(h11.SERVER, head_bytes_max)
        self._body_bytes_max = body_bytes_max
        self._send = send
        self._partial: _Partial | None = None
        self._ended = False
        self.fresh = False
        """Bytes have come that `next_request` has not looked at."""

    def receive_data(self, data: bytes) -> None:
        """b"": end of stream."""
        if self._ended:
            return
        self._ended = not data
        self.fresh = True
        self._parser.receive_data(data)

    @property
    def begun(self) -> bool:
        """Some of a request has come, and not all of it."""
        return self._partial is not None or bool(self._parser.trailing_data[0])

    @property
    def ended(self) -> bool:
        """The peer has ended its stream, and nothing more can be made of it."""
        return self._ended and not self.fresh

    @property
    def keeps(self) -> bool:
        """Whether another request may follow the one that is answered."""
        return self._parser.our_state is not h11.MUST_CLOSE and self._parser.their_state is not h11.MUST_CLOSE

    def next_request(self) -> HttpRequest | None:
        """The next one that is whole; None: not yet, or the one before it is not answered.

        Raises:
            HttpRefusal
        """
        try:
            return self._read()
        except h11.RemoteProtocolError as error:
            raise HttpRefusal(error.error_status_hint, str(error)) from None

    def _read(self) -> HttpRequest | None:
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self.fresh = False
                self._go_ahead()
                return None
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                self.fresh = False
                return None
            if isinstance(event, h11.Request):
                self._partial = _Partial(_request_of(event))
                self._check_length(self._partial.request)
            elif isinstance(event, h11.Data):
                assert self._partial is not None
                self._partial.size += len(event.data)
                if self._partial.size > self._body_bytes_max:
                    raise self._too_large()
                self._partial.parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert self._partial is not None
                request = self._partial.request
                request.body = b"".join(self._partial.parts)
                self._partial = None
                return request

    def _go_ahead(self) -> None:
        if self._partial is not None and self._parser.they_are_waiting_for_100_continue:
            self._send(self._parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")

    def _check_length(self, request: HttpRequest) -> None:
        """A length is a number by now: the parser has looked at it."""
        text = request.headers.get("content-length", "0")
        if int(text.partition(",")[0]) > self._body_bytes_max:
            raise self._too_large()

    def _too_large(self) -> HttpRefusal:
        return HttpRefusal(413, f"the body of a request has at most {self._body_bytes_max:,} bytes here")

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """To the request that `next_request` has returned."""
        parser = self._parser
        fields = [*headers, ("content-length", str(len(body)))]
        head = parser.send(h11.Response(status_code=status, headers=fields, reason=REASONS.get(status, b"")))
        if body and parser.our_state is h11.SEND_BODY:
            head = (head or b"") + (parser.send(h11.Data(body)) or b"")
        self._send((head or b"") + (parser.send(h11.EndOfMessage()) or b""))
        if self.keeps and parser.our_state is h11.DONE and parser.their_state is h11.DONE:
            parser.start_next_cycle()
            self.fresh = True

    def refuse(self, refusal: HttpRefusal) -> None:
        """Say why in a line, as far as the stream still allows it."""
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = str(refusal).encode() + b"\n"
            fields = [("content-type", "text/plain"), ("connection", "close"), ("content-length", str(len(text)))]
            head = self._parser.send(
                h11.Response(status_code=refusal.status, headers=fields, reason=REASONS.get(refusal.status, b""))
            )
            self._send((head or b"") + (self._parser.send(h11.Data(text)) or b""))


def _request_of(event: h11.Request) -> HttpRequest:
    headers: dict[str, str] = {}
    for name, value in event.headers:
        headers.setdefault(name.decode("latin-1"), _header_text(value))
    path, _, query = event.target.decode("latin-1").partition("?")
    if path.startswith(("http://", "https://")):
        path = "/" + path.partition("//")[2].partition("/")[2]
    return HttpRequest(event.method.decode("latin-1"), unquote(path), query, headers)


def _header_text(value: bytes) -> str:
    """Clients write names and passwords in UTF-8, and some in Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
