"""HTTP connections that cannot crowd each other out: how many there are, how long they may be silent, who gets a slot.

A connection costs a slot of the pool from its accept on. When the pool is full, an idle one makes room: the oldest of
the address that has the most. A request that takes long holds a slot of its class of routes, and probes are in a class
of their own; so there are always idle connections, and a probe is answered whatever the others do.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, cast

import h11
from h11._readers import ChunkedReader
from uvicorn.protocols.http.h11_impl import H11Protocol

from vibemq.web.chunks import ChunkReader
from vibemq.web.heads import HeadRefused, check_head

log = logging.getLogger("vibemq.connection")

CONNECTIONS_MAX = 256
HEAD_TIMEOUT_S = 10.0
"""From the accept, or from the last answer, to the end of a request's header."""
ANSWER_TIMEOUT_S = 60.0
"""From there to the last byte of the answer."""
PROBES = frozenset(("/livez", "/readyz", "/startupz"))
REPORTS_MAX = 8
EXTEND = "vibemq.extend"
"""In the scope of a request: `HttpConnection.extend`."""
LIVE = "vibemq.live"
"""In the scope of a request: `HttpConnection.hold_little`."""
UNSENT_BYTES = 65_536

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def extender(scope: Scope) -> Callable[[float], None]:
    """`HttpConnection.extend` of a request; of one that has come without a connection of ours, nothing."""
    extend: Callable[[float], None] = scope.get(EXTEND, _nothing)
    return extend


def _nothing(seconds: float) -> None: ...


class HttpPool:
    """The open connections, oldest first."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._max = connections_max
        self._open: dict[HttpConnection, str] = {}
        """With the address of each peer."""
        self.dropped = 0
        """Connections that were closed to make room for others, since the start."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: "HttpConnection", host: str) -> None:
        if len(self._open) >= self._max:
            self._make_room()
        self._open[connection] = host

    def remove(self, connection: "HttpConnection") -> None:
        self._open.pop(connection, None)

    def _make_room(self) -> None:
        by_host = Counter(self._open.values())
        candidates = [one for one in self._open if not one.busy] or list(self._open)
        # `max` takes the first of equals, which is the oldest.
        victim = max(candidates, key=lambda one: by_host[self._open[one]])
        self.remove(victim)
        self.dropped += 1
        victim.drop()


class HttpParser(h11.Connection):
    """Looks at each head before it is parsed, and reads chunks by itself. Lets go of the frames of an error: one of
    h11's own refers to the error, and would keep both for ever."""

    refused = (400, "this is no request of HTTP/1.1")
    """Status and sentence for a request that cannot be read."""

    @property
    def waits_for_turn(self) -> bool:
        """There may be more to read, in a later turn of the loop."""
        return isinstance(self._reader, ChunkReader) and self._reader.waits_for_turn

    def begin_turn(self) -> None:
        if isinstance(self._reader, ChunkReader):
            self._reader.begin_turn()

    def next_event(self) -> Any:
        if self.waits_for_turn:
            return h11.NEED_DATA
        try:
            if self.their_state is h11.IDLE:
                check_head(self.trailing_data[0])
            event = super().next_event()
            if isinstance(event, h11.Request) and isinstance(self._reader, ChunkedReader):
                self._reader = ChunkReader()
            return event
        except HeadRefused as refused:
            self.refused = refused.status, str(refused)
            refused.__traceback__ = None
            raise h11.RemoteProtocolError(str(refused), refused.status) from None
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.refused = error.error_status_hint, "a line of the request is too long"
            error.__traceback__ = None
            raise


class HttpConnection(H11Protocol):
    """uvicorn's own, with deadlines and a place in the pool."""

    pool: HttpPool
    head_timeout_s: float
    answer_timeout_s: float
    _deadline: asyncio.TimerHandle | None = None
    _answering: Any = None
    """The request that the deadline is for; None: for a header."""
    _next_turn: asyncio.Handle | None = None
    """In which it goes on with what it has received."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        head_bytes_max = self.config.h11_max_incomplete_event_size
        assert head_bytes_max is not None, "the server always names it"
        self.conn = HttpParser(h11.SERVER, head_bytes_max)

    @property
    def busy(self) -> bool:
        """A request has come whose answer is not out yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None:
            # Header and body are two writes: the second would wait until the client has acknowledged the first.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pool.add(self, self.client[0] if self.client is not None else "")
        self._set_deadline(self.head_timeout_s)

    def data_received(self, data: bytes) -> None:
        if self._next_turn is None:
            cast(HttpParser, self.conn).begin_turn()
        super().data_received(data)
        self._end_turn()
        self._look()

    def _go_on(self) -> None:
        """With what was received earlier."""
        self._next_turn = None
        cast(HttpParser, self.conn).begin_turn()
        self.handle_events()
        self._end_turn()
        if self._next_turn is None and not self.flow.read_paused:
            self.transport.resume_reading()
        self._look()

    def _end_turn(self) -> None:
        if self.transport.is_closing() or not cast(HttpParser, self.conn).waits_for_turn:
            return
        # Also when it is paused already: an application that wants more lets the transport read again.
        self.transport.pause_reading()
        if self._next_turn is None:
            self._next_turn = self.loop.call_soon(self._go_on)

    def send_400_response(self, msg: str) -> None:
        """With the parser's own status and sentence. uvicorn calls it for what cannot be read."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # It has an answer, or the beginning of one: of a request whose body went on.
            self.transport.close()
            return
        status, sentence = cast(HttpParser, self.conn).refused
        remote = self.client[0] if self.client is not None else ""
        log.info("an HTTP request was refused: %s", sentence, extra={"event": "conn.broken", "remote": remote})
        text = sentence.encode() + b"\n"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        reason = HTTPStatus(status).phrase.encode()
        for event in (h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=text)):
            self.transport.write(self.conn.send(event))
        self.transport.write(self.conn.send(h11.EndOfMessage()))
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _let_go(self) -> None:
        """What refers to this connection is taken out of the request: the two would hold each other."""
        if self._answering is not None:
            for name in (EXTEND, LIVE):
                cast(dict[str, Any], self._answering.scope).pop(name, None)
            self._answering = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self.pool.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        super().connection_lost(exc)

    def drop(self) -> None:
        self.transport.abort()

    def extend(self, seconds: float) -> None:
        """The answer that is under way may take so long from now on: a stream that is read."""
        if self._answering is not None:
            self._set_deadline(seconds)

    def hold_little(self) -> None:
        """No more than `UNSENT_BYTES` wait to be sent in the kernel, and as much in the process: what is live is not
        made for a client that does not read. Else the kernel takes some MiB; where the platform has no such option, it
        does."""
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES)
        opened = self.transport.get_extra_info("socket")
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if opened is not None and option is not None:
            with contextlib.suppress(OSError):  # the connection is gone
                opened.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)

    def _look(self) -> None:
        """Bytes that do not complete a header do not move its deadline."""
        answering = self.cycle if self.busy else None
        if answering is not self._answering:
            self._let_go()
            self._answering = answering
            if answering is not None:
                cast(dict[str, Any], answering.scope).update({EXTEND: self.extend, LIVE: self.hold_little})
            self._set_deadline(self.head_timeout_s if answering is None else self.answer_timeout_s)

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.drop)


def connections_of(pool: HttpPool) -> type[HttpConnection]:
    """The class that uvicorn makes its connections of."""
    limits = {"pool": pool, "head_timeout_s": HEAD_TIMEOUT_S, "answer_timeout_s": ANSWER_TIMEOUT_S}
    return type("HttpConnection", (HttpConnection,), limits)


class RouteSlots:
    """Refuses with 503 what its class of routes has no slot for. Paths of no class share one.

    Args:
        slots: path -> class, and how many requests of each class may be under way (None: any number).
    """

    def __init__(self, app: App, classes: Mapping[str, str], slots: Mapping[str, int | None], other: str) -> None:
        self._app = app
        self._classes = classes
        self._slots = slots
        self._other = other
        self._taken: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = self._classes.get(scope.get("path", ""), self._other)
        most = self._slots[kind]
        if most is not None and self._taken[kind] >= most:
            await _busy(send)
            return
        self._taken[kind] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._taken[kind] -= 1


async def _busy(send: Send) -> None:
    text = b"too many requests of this kind are under way; try again later\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def with_slots(app: App) -> RouteSlots:
    """Probes are answered always; they are short, and nothing else takes their place."""
    classes = dict.fromkeys(PROBES, "probe")
    return RouteSlots(app, classes, {"probe": None, "report": REPORTS_MAX}, "report")
