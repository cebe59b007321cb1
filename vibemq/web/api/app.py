"""The API as an ASGI application: what every request passes, in this order.

route → host → origin → login → rate and slot → query → rights → content type, body → idempotency → endpoint → answer
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vibemq.errors import (
    AuthRequired,
    ErrorCode,
    InvalidMessage,
    InvalidPayload,
    ShuttingDown,
    StorageFull,
    VibeMQError,
    forget_frames,
)
from vibemq.web.api.answers import filters_of, json_answer, page_of, plain, problem_answer
from vibemq.web.api.arguments import RequestReader
from vibemq.web.api.contract import BASE, Contract, Endpoint, Exchange, was_tried
from vibemq.web.api.credentials import BROWSER_CHALLENGES, CHALLENGES
from vibemq.web.api.cursors import CursorSeal
from vibemq.web.api.errors import HttpCode, Problem, as_problem
from vibemq.web.api.guardrails.admission import check_rights
from vibemq.web.api.guardrails.bodies import BODY_BYTES_MAX, BodyBudget, read_body, read_json
from vibemq.web.api.guardrails.clients import OpenBrokerRules
from vibemq.web.api.guardrails.deadlines import in_time
from vibemq.web.api.guardrails.origin import check_content_type, check_origin
from vibemq.web.api.guardrails.rates import RequestRates, client_of
from vibemq.web.api.idempotency import (
    DIGESTED_AT_ONCE,
    HEADER,
    KeptAnswer,
    KeptAnswers,
    Key,
    checked_key,
    digest_of,
    is_kept,
    one_key,
    said_in_headers,
)
from vibemq.web.api.kinds import CHANGING, Kind
from vibemq.web.api.messages.hiding import check_filters, without_bodies
from vibemq.web.api.messages.leases import key_of
from vibemq.web.api.sessions import cookie_in
from vibemq.web.api.state import ApiState
from vibemq.web.limits import Receive, Scope, Send

log = logging.getLogger("vibemq.http")

URL_BYTES_MAX = 8_192
_BASE = BASE.split("/")
_INTERRUPTED = (
    "the first request with this key was interrupted, and may have been carried out: look at what is there, and use "
    "another key"
)


class HttpApi:
    """Args:
    rules: of an open broker.
    """

    def __init__(
        self,
        contract: Contract,
        state: ApiState,
        rates: RequestRates,
        rules: OpenBrokerRules,
    ) -> None:
        self.contract = contract
        self.state = state
        self.rates = rates
        self.rules = rules
        self._services = state.services
        self._reader = RequestReader(contract)
        self._seal = CursorSeal(os.urandom(32))
        self._kept = KeptAnswers()
        self._bodies = BodyBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive, send)
        request_id = os.urandom(12).hex()
        with ExitStack() as held:
            # Its slot is the request's until the last byte of the answer is out.
            response = await self._answered(request, request_id, held)
            response.headers["X-Request-Id"] = request_id
            response.headers["Server-Timing"] = f"app;dur={(time.perf_counter() - began) * 1000:.1f}"
            if request.method == "HEAD" and isinstance(response, StreamingResponse):
                # Nobody takes the body, which may be all that the broker has.
                response.body_iterator = _nothing()
            await response(scope, receive, send)

    async def _answered(self, request: Request, request_id: str, held: ExitStack) -> Response:
        try:
            return await self._answer(request, request_id, held)
        except (VibeMQError, Problem) as error:
            # What it was raised from may keep it, with the request's body: such a cycle would stay for long.
            forget_frames(error)
            return self._refusal(request, request_id, error if isinstance(error, Problem) else as_problem(error))
        except Exception:
            return self._fault(request, request_id)

    def _fault(self, request: Request, request_id: str) -> Response:
        """In the handler of an exception: a bug of ours ends one request, neither the broker nor the connection."""
        log.exception("%s of the HTTP API has failed", request.method, extra={"request": request_id})
        self._services.operations.failed()
        fault = "the broker could not carry out the request; its log has the reason"
        return self._refusal(request, request_id, Problem(ErrorCode.SERVER_ERROR, fault))

    def _refusal(self, request: Request, request_id: str, problem: Problem) -> Response:
        browser = "sec-fetch-site" in request.headers or "cookie" in request.headers
        return problem_answer(problem, request_id, BROWSER_CHALLENGES if browser else CHALLENGES)

    async def _answer(self, request: Request, request_id: str, held: ExitStack) -> Response:
        endpoint, path = self._route(request)
        if len(request.scope.get("raw_path", b"")) + len(request.scope.get("query_string", b"")) > URL_BYTES_MAX:
            raise InvalidMessage(f"the URL is longer than {URL_BYTES_MAX:,} bytes; send less in it")
        if self.state.credentials.open:
            self.rules.check(request.headers)
        has_cookie = bool(cookie_in(request.headers.get("cookie", "")))
        peer, proxies = request.client.host if request.client else "", self.state.proxies
        secure = proxies.is_secure(request.scope.get("scheme", "http"), peer, request.headers)
        check_origin(request.method, request.headers, has_cookie=has_cookie, secure=secure)
        host = proxies.client_of(peer, request.headers)
        asker = None
        if not endpoint.anybody:
            try:
                asker = await self.state.credentials.asker(request, host, request_id)
            except VibeMQError:
                self.rates.count(Kind.READ, client_of("", host))
                raise
        if endpoint.kind in CHANGING and not self._services.is_ready():
            raise ShuttingDown("the broker is stopping; ask again when it has started")
        # Where nobody logs in, all would be one user.
        user = asker.user if asker is not None and self._services.accounts.enabled else ""
        client = client_of(user, host)
        self.rates.count(endpoint.kind, client)
        held.enter_context(self.rates.slot(endpoint.kind, client))
        if endpoint.body_bytes_max > BODY_BYTES_MAX and endpoint.kind is not Kind.SETTLE:
            held.enter_context(self._bodies.hold(client, request, endpoint.body_bytes_max))
        return await self._exchange(Exchange(endpoint, request, asker, self.state, path, request_id, host, secure))

    def _route(self, request: Request) -> tuple[Endpoint, dict[str, str]]:
        found = self.contract.find(_segments(request.scope))
        if found is None:
            raise Problem(ErrorCode.UNKNOWN_COMMAND, f"there is nothing at this path; see {BASE}/openapi.json")
        methods, values = found
        method = "GET" if request.method == "HEAD" and "HEAD" not in methods else request.method
        if method not in methods:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise Problem(
                HttpCode.METHOD_NOT_ALLOWED, f"this resource has the methods {allowed}", headers={"Allow": allowed}
            )
        return methods[method], values

    async def _exchange(self, exchange: Exchange) -> Response:
        endpoint, request = exchange.endpoint, exchange.request
        exchange.query = self._reader.query(endpoint, request.scope.get("query_string", b"").decode("latin-1"))
        body = b""
        if request.method in ("POST", "PUT", "PATCH"):
            self._check_rights(exchange)
            body = await read_body(request, endpoint.body_bytes_max or BODY_BYTES_MAX)
            self._check_login(exchange)
            check_content_type(request.headers, endpoint.consumes, has_body=bool(body))
            exchange.body = body if endpoint.raw else read_json(body, endpoint.marks_max)
        elif request.method == "DELETE":
            if await read_body(request, BODY_BYTES_MAX):
                # It may have been meant as a dry run, or with a guard.
                raise InvalidPayload(
                    "DELETE takes no body, and what stands in this one would be passed over; the parameters of DELETE "
                    "stand in the query"
                )
            self._check_login(exchange)
        if exchange.asker is not None and self.state.hides_bodies(exchange.asker.principal):
            check_filters(endpoint.operation, exchange.query, exchange.body)
        if len(request.headers.getlist("if-match")) > 1:
            raise InvalidPayload("the header If-Match is given more than once; leave all but one out", "if-match")
        if not endpoint.reads and "If-Match" not in endpoint.from_headers and "if-match" in request.headers:
            # Whoever brings a tag does not want what would be done without looking at it.
            raise InvalidPayload(
                f"{endpoint.method} {endpoint.path} takes no If-Match and would pass it over; leave the header out",
                "if-match",
            )
        if (text := one_key(request.headers.getlist(HEADER))) is not None:
            if endpoint.keyless:
                raise InvalidPayload(
                    f"{endpoint.method} {endpoint.path} takes no Idempotency-Key, because {endpoint.keyless}; "
                    "leave the header out",
                    HEADER,
                )
            if endpoint.idempotent:
                return await self._once(exchange, checked_key(text), body)
        return await self._carry_out(exchange)

    def _check_rights(self, exchange: Exchange) -> None:
        """Those that do not depend on the body."""
        endpoint = exchange.endpoint
        if exchange.asker is not None:
            known = {endpoint.renamed.get(name, name): value for name, value in exchange.path.items()}
            row = self.contract.permissions(endpoint)
            check_rights(self._services, exchange.asker, endpoint.operation, row, {**known, **endpoint.fixed})

    def _check_login(self, exchange: Exchange) -> None:
        """It may have ended while the body came. Raises AuthRequired."""
        if exchange.asker is not None and (reason := self.state.why_ended(exchange.asker)):
            raise AuthRequired(reason)

    async def _once(self, exchange: Exchange, text: str, body: bytes) -> Response:
        endpoint, path = exchange.endpoint, exchange.path
        if endpoint.handler is None:
            arguments = self._reader.arguments(exchange)
            if arguments.get("dry_run") is True:
                # It uses up no key, nor holds one: the change itself may have the same one.
                return await self._carry_out(exchange)
            # An answer that is kept is for those who may still ask for it.
            self._services.operations.admit(exchange.user, endpoint.operation, arguments)
        key = (*key_of(exchange.user.principal), f"{endpoint.method} {endpoint.path}", text)
        said = said_in_headers(exchange.request.headers.items())
        asked = repr((sorted(path.items()), exchange.query, said)).encode()
        if len(body) > DIGESTED_AT_ONCE:
            digest = await anyio.to_thread.run_sync(digest_of, asked, body)
        else:
            digest = digest_of(asked, body)
        kept = self._kept.begin(key, digest, self._now_s())
        if kept is not None:
            return _again(kept)
        exchange.to_its_end = True
        async with in_time(exchange.request, endpoint.timeout_s, keeps_answer=True):
            return await asyncio.shield(self._services.operations.outcome_of(self._answer_once, exchange, key))

    async def _answer_once(self, exchange: Exchange, key: Key) -> Response:
        """Also when nobody waits for it any more: until then the key is busy, and then it has this answer."""
        refusal = partial(self._refusal, exchange.request, exchange.user.connection_id)
        try:
            response = await self._carry_out(exchange)
        except ShuttingDown as error:
            # Its session has ended meanwhile, with the rights that it was made for or with the broker.
            forget_frames(error)
            if exchange.passing:
                self._kept.forget(key)
            else:
                self._keep(key, refusal(Problem(ErrorCode.SERVER_ERROR, _INTERRUPTED)))
            return refusal(as_problem(error))
        except (VibeMQError, Problem) as error:
            if isinstance(error, StorageFull) and not error.may_hold:
                exchange.passing = True
            forget_frames(error)
            response = refusal(error if isinstance(error, Problem) else as_problem(error))
        except Exception:
            self._keep(key, refusal(Problem(ErrorCode.SERVER_ERROR, _INTERRUPTED)))
            return self._fault(exchange.request, exchange.user.connection_id)
        if exchange.passing or not is_kept(response.status_code):
            self._kept.forget(key)
        else:
            self._keep(key, response)
        return response

    def _keep(self, key: Key, response: Response) -> None:
        headers = tuple((name, value) for name, value in response.headers.items() if name != "content-length")
        self._kept.keep(key, KeptAnswer(response.status_code, headers, bytes(response.body)), self._now_s())

    async def _carry_out(self, exchange: Exchange) -> Response:
        endpoint = exchange.endpoint
        if endpoint.handler is not None:
            return await endpoint.handler(exchange)
        arguments = self._reader.arguments(exchange)
        if endpoint.items and "cursor" in exchange.query:
            arguments[endpoint.after] = self._seal.open(
                str(exchange.query["cursor"]), endpoint.path, filters_of(exchange), exchange.user.user
            )
        return json_answer(await self._ask(exchange, arguments), exchange)

    async def _ask(self, exchange: Exchange, arguments: Mapping[str, Any]) -> Any:
        endpoint = exchange.endpoint
        async with in_time(exchange.request, exchange.timeout_s):
            answered = await self._services.operations.ask(exchange.user, endpoint.operation, arguments)
        exchange.unchanged = answered.unchanged
        result = await plain(answered.result, endpoint.items)
        if endpoint.status == 201 and was_tried(result):
            exchange.status = 200
        if self.state.hides_bodies(exchange.user.principal):
            result = without_bodies(result)
        if endpoint.items:
            result = page_of(result, exchange, self._seal)
        return endpoint.shape(result, exchange) if endpoint.shape is not None else result

    def _now_s(self) -> float:
        return self._services.now_s


async def _nothing() -> AsyncIterator[bytes]:
    for part in list[bytes]():
        yield part


def _again(kept: KeptAnswer) -> Response:
    response = Response(kept.body, kept.status)
    for name, value in kept.headers:
        response.headers[name] = value
    response.headers["Idempotent-Replayed"] = "true"
    return response


def _segments(scope: Scope) -> list[str]:
    """Of the path below BASE: cut before it is decoded, so that no `%2F` makes one more. Raises InvalidMessage."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        decoded = [unquote_to_bytes(segment).decode() for segment in raw.partition(b"?")[0].split(b"/")]
    except UnicodeDecodeError:
        raise InvalidMessage("the path is no UTF-8") from None
    return decoded[len(_BASE) :] if decoded[: len(_BASE)] == _BASE else []
