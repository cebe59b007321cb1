"""One HTTP connection, without a socket or a clock. Contract: `vibemq.protocols.session.Session`.

Requests are answered one after the other, in the order in which they came.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakMethod

from vibemq.errors import VibeMQError
from vibemq.model.effects import Deliver, Effect, Reply, Responded
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http import operations, uri_endpoints
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.http.fields import form_fields, read_form, read_json_fields
from vibemq.protocols.eventmesh.http.origin import FOREIGN, comes_from_elsewhere
from vibemq.protocols.eventmesh.http.publishing import is_event, media_type
from vibemq.protocols.eventmesh.http.replies import AnswerStyle, AnswerWriter, EventMeshAnswer, refusal_answer
from vibemq.protocols.eventmesh.http.request import HttpReader, HttpRequest
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Exchange, HttpCredentials, HttpState, Subscribers
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.http1 import Http1Error, RequestHead
from vibemq.protocols.session import Authenticate, OptionalVerbs, Principal, Request, SessionContext

REQUESTS_AT_ONCE = 8
"""Requests that are taken in about a millisecond."""
WORK_AT_ONCE = 40
"""The same of the messages of a batch."""
PIPELINED_BYTES_MAX = 262_144
"""Behind a request that is under way: when more has come, nothing is read until it is answered."""
VERSIONS = ("1.0", "2.0")
_JSON = "application/json"


class LoginAsked:
    """Token of an Authenticate."""


class EventMeshHttpSession(OptionalVerbs):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(
        self, context: SessionContext, settings: EventMeshHttpSettings, subscribers: Subscribers | None
    ) -> None:
        finish = WeakMethod(self._finish)

        def finish_it(answer: EventMeshAnswer) -> None:
            """What still waits for an answer must not keep a session whose connection has gone."""
            found = finish()
            if found is not None:
                found(answer)

        self._state = HttpState(context, settings, subscribers, context.now, finish=finish_it)
        self._out: list[bytes] = []
        self._reader = HttpReader(
            head_bytes_max=settings.head_bytes_max, body_bytes_max=settings.body_bytes_max, send=self._out.append
        )
        self._writer = AnswerWriter(settings)
        self._credentials: HttpCredentials | None = None
        """Of the principal."""
        self._last: tuple[Mapping[str, str], HttpCredentials] = {}, HttpCredentials()
        """The head that was looked at last, the same object for the same bytes, and who it says is there."""
        self._asked: HttpCredentials | None = None
        """Of a request with a large body, which is not read before they have been checked."""
        self._began_at = 0
        """When the first byte of a request came that is not whole; 0: there is none."""
        self._idle_since = context.now
        self._unread = False
        self._answered_at_once = 0
        """Since the last tick: what is answered as soon as it is asked would go on as long as requests are there."""
        self._closing = False
        self._name = ""

    @classmethod
    def alone(cls, context: SessionContext, settings: EventMeshHttpSettings) -> "EventMeshHttpSession":
        """Without subscribers: it cannot be asked to subscribe."""
        return cls(context, settings, None)

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if not self._closing:
            self._reader.receive_data(data)

    def commands(self) -> Sequence[Request]:
        state = self._state
        self._unread = False
        for _ in range(REQUESTS_AT_ONCE):
            if self._closing or not self._advance():
                break
            if state.requests:
                break
        else:
            self._unread = True
        if state.work is not None:
            self._unread = True
        if state.exchange is None and self._asked is None and self._reader.fresh:
            self._unread = True
        elif state.exchange is None and self._asked is None and not self._unread:
            self._note_time()
            if self._reader.ended:
                self._closing = True
        requests, state.requests = state.requests, []
        return requests

    def _advance(self) -> bool:
        """Take the next step with the request that is under way, or take the next request. False: nothing to do."""
        state = self._state
        if self._asked is not None:
            return False
        if state.work is not None:
            return self._work_on(state.work)
        if state.exchange is None:
            try:
                head = self._reader.next_head()
                if head is not None and self._is_too_large_for_strangers(head):
                    self._ask_for_login(self._credentials_of(head.headers))
                    return True
                request = self._reader.next_request(self._body_bytes_max(head))
            except Http1Error as refusal:
                self._reader.refuse(refusal)
                self._closing = True
                return False
            if request is None:
                return False
            self._hear(request)
            return True
        if state.exchange.admitted and not state.exchange.begun:
            self._begin(state.exchange)
            return state.work is None
        return bool(state.requests)

    def _work_on(self, work: Iterator[int]) -> bool:
        """False: it goes on in another turn."""
        state, exchange = self._state, self._state.exchange
        assert exchange is not None
        left = WORK_AT_ONCE
        try:
            while left > 0:
                cost = next(work, 0)
                if not cost:
                    state.work = None
                    if not exchange.begun:
                        self._identify(exchange)
                    return True
                left -= cost
        except VibeMQError as error:
            state.work = None
            otherwise = operations.otherwise(exchange) if exchange.begun else RetCode.PROTOCOL_BODY_ERR
            self._finish(refusal_answer(error, otherwise))
            return True
        return False

    def _knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the login of the request has been checked."""
        state = self._state
        if not state.context.authentication:
            return True
        return state.principal is not None and self._credentials_of(headers) == self._credentials

    def _credentials_of(self, headers: Mapping[str, str]) -> HttpCredentials:
        if self._last[0] is not headers:
            self._last = headers, _credentials_of(headers)
        return self._last[1]

    def _body_bytes_max(self, head: RequestHead | None) -> int:
        most = self._state.settings.body_bytes_max
        if head is None or self._knows(head.headers):
            return most
        return min(most, self._state.context.limits.handshake_bytes_max)

    def _is_too_large_for_strangers(self, head: RequestHead) -> bool:
        """In chunks, it may be."""
        large = head.length < 0 or head.length > self._state.context.limits.handshake_bytes_max
        if head.length > self._state.settings.body_bytes_max:
            return False
        return large and not self._knows(head.headers)

    def _ask_for_login(self, credentials: HttpCredentials) -> None:
        state = self._state
        self._asked = credentials
        state.principal, self._credentials = None, None
        state.requests.append(Authenticate(LoginAsked(), credentials.username, credentials.password, credentials.token))

    @property
    def reads_nothing_more(self) -> bool:
        """The login of a large body is checked first, or enough has come behind a request that waits: for a reply, for
        room in a queue."""
        if self._asked is not None:
            return True
        return self._state.exchange is not None and self._reader.buffered > PIPELINED_BYTES_MAX

    def _note_time(self) -> None:
        if not self._reader.begun:
            self._began_at = 0
        elif not self._began_at:
            self._began_at = self._state.now

    @property
    def unread(self) -> bool:
        return self._unread and not self._closing

    def _hear(self, request: HttpRequest) -> None:
        state = self._state
        self._began_at = 0
        style = AnswerStyle(request.headers.get("code", "0"), keep=self._reader.keeps)
        if request.method not in ("GET", "POST"):
            self._answer_bare(405, style)
            return
        if request.headers.get("version", "1.0") not in VERSIONS:
            self._answer_bare(400, style)
            return
        exchange = state.exchange = Exchange(request, {}, style, self._credentials_of(request.headers))
        if comes_from_elsewhere(request.headers):
            style.uri = uri_endpoints.handler_of(request.path) is not None
            self._finish(refusal_answer(EventMeshRefusal(RetCode.ACL_ERR, FOREIGN, status=403), RetCode.ACL_ERR))
            return
        state.work = self._read_fields(exchange)
        self._work_on(state.work)

    def _read_fields(self, exchange: Exchange) -> Steps[None]:
        request = exchange.request
        exchange.style.uri = uri_endpoints.handler_of(request.path) is not None
        fields = form_fields(request.query.encode("latin-1")) if request.query else {}
        body = request.body
        if body and not is_event(request.headers) and not uri_endpoints.takes_body(request):
            read = read_json_fields if media_type(request.headers) == _JSON else read_form
            fields = {**fields, **(yield from read(body))}
        exchange.fields = fields
        if "code" not in request.headers and "code" in fields:
            exchange.style.code = fields["code"]

    def _identify(self, exchange: Exchange) -> None:
        """Its sender is looked at, once it can be read."""
        state, credentials = self._state, exchange.credentials
        if state.principal is not None and credentials == self._credentials:
            exchange.admitted = True
            return
        state.principal, self._credentials = None, None
        state.requests.append(Authenticate(LoginAsked(), credentials.username, credentials.password, credentials.token))

    def _begin(self, exchange: Exchange) -> None:
        exchange.begun = True
        handler = uri_endpoints.handler_of(exchange.request.path)
        headers = exchange.request.headers
        self._name = f"{headers.get('sys', '')}-{headers.get('pid', '')}".strip("-")[:128]
        try:
            work = (handler or operations.begin)(self._state, exchange)
        except VibeMQError as error:
            self._finish(refusal_answer(error, operations.otherwise(exchange)))
            return
        if work is not None:
            self._state.work = work
            self._work_on(work)

    # -- out --------------------------------------------------------------------------------------------------------

    def _finish(self, answer: EventMeshAnswer) -> None:
        """Answer the request that is under way."""
        state, exchange = self._state, self._state.exchange
        if exchange is None or self._closing:
            return
        style = exchange.style
        headers = self._writer.headers(answer, style)
        self._reader.answer(answer.status, headers, self._writer.body(answer, style, state.now))
        self._answered(exchange.begun)

    def _answer_bare(self, status: int, style: AnswerStyle) -> None:
        self._reader.answer(status, b"connection: keep-alive\r\n" if style.keep else b"connection: close\r\n", b"")
        self._answered(begun=False)

    def _answered(self, begun: bool) -> None:
        state = self._state
        state.exchange = None
        self._idle_since = state.now
        self._answered_at_once += 1
        if self._answered_at_once >= REQUESTS_AT_ONCE and self._reader.has_more:
            self._unread = True
        if not self._reader.keeps:
            self._closing = True
        if begun and (self._reader.fresh or not state.telling):
            # What comes behind it has come, or the answer was decided elsewhere: the session has to be looked at.
            state.context.wake()

    def authenticated(self, token: Any, principal: Principal) -> None:
        state = self._state
        state.principal = principal
        if self._asked is not None:
            self._credentials, self._asked = self._asked, None
            state.context.wake()
            return
        if state.exchange is not None:
            self._credentials = state.exchange.credentials
            state.exchange.admitted = True

    def refused(self, token: Any, error: VibeMQError) -> None:
        if isinstance(token, LoginAsked) and self._asked is not None:
            credentials, self._asked = self._asked, None
            request = self._reader.without_body()
            style = AnswerStyle(request.headers.get("code", "0"), keep=False)
            style.uri = uri_endpoints.handler_of(request.path) is not None
            self._state.exchange = Exchange(request, {}, style, credentials)
            self._finish(refusal_answer(error, RetCode.ACL_ERR))
        elif isinstance(token, LoginAsked):
            self._finish(refusal_answer(error, RetCode.ACL_ERR))
        elif token is not None:
            token(error)
        elif self._state.exchange is None:
            # The connection itself is turned away.
            text = str(error).encode() + b"\n"
            head = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self._out.append(head + b"retry-after: 1\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
            self._closing = True

    def apply(self, effects: Sequence[Effect]) -> None:
        self._state.telling = True
        try:
            for effect in effects:
                if isinstance(effect, Reply | Responded) and effect.token is not None:
                    effect.token(effect.result)
        finally:
            self._state.telling = False

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        """It consumes nothing."""

    @property
    def rows_at_once(self) -> int:
        return 100

    def data_to_send(self) -> bytes:
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return data

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        self._state.now = max(self._state.now, now)
        self._answered_at_once = 0
        if self._reader.fresh or self._state.exchange is not None:
            return
        deadline = self.next_deadline()
        if deadline is not None and now >= deadline:
            self._closing = True

    def next_deadline(self) -> int | None:
        if self._closing or self._asked is not None or self._state.exchange is not None:
            return None
        settings = self._state.settings
        if self._began_at:
            return self._began_at + settings.request_timeout_ms
        return self._idle_since + settings.keep_alive_ms

    # -- the end ----------------------------------------------------------------------------------------------------

    def shutdown(self, reason: str) -> None:
        """HTTP has no goodbye: what was asked is answered, and the connection closed."""

    def fail(self, error: VibeMQError) -> None:
        self._closing = True

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def principal(self) -> Principal | None:
        return self._state.principal

    @property
    def client_name(self) -> str:
        return self._name


def _credentials_of(headers: Mapping[str, str]) -> HttpCredentials:
    whole = headers.get("authorization")
    kind, _, given = (whole or "").partition(" ")
    found = HttpCredentials()
    if kind.lower() == "bearer":
        found = HttpCredentials(token=given.strip())
    elif kind.lower() == "basic":
        # Or it is no base64, is not even ASCII, or holds no UTF-8.
        with suppress(ValueError):
            name, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
            found = HttpCredentials(name, password)
    else:
        found = HttpCredentials(headers.get("username", ""), headers.get("passwd", ""), headers.get("token", ""))
    if whole is not None and not (found.password or found.token):
        # A header that says nothing is a wrong token: where no credentials are sent, a certificate may log in.
        return HttpCredentials(token=f"Authorization: {whole}")
    return found
