"""HTTP pages: health, metrics and probes. Read-only, so nothing here needs protection against forged requests.

/health/              JSON, 200 or 503             /livez      200 while the event loop answers
/metrics/             JSON                         /readyz     200 when new work is welcome
/metrics              JSON or Prometheus text      /startupz   200 once recovery is over
/metrics/prometheus   Prometheus text
/queues/{name}        JSON: what waits in one queue, for scalers
"""

import hmac
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from vibemq.errors import AuthFailed, QueueNotFound, VibeMQError
from vibemq.web.proxies import Proxies

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus' text format."""
QUEUE_NAME_SHOWN_MAX = 64
"""Characters of a missing queue's name in the answer."""


SecretCheck = Callable[[str, str, Callable[[], bool], str], None]
"""As `vibemq.web.api.services.LoginChecks.check_secret`."""


class Reports(Protocol):
    """What monitoring tells this door (`vibemq.server.monitoring.health.Report`)."""

    def is_started(self) -> bool: ...

    def is_ready(self) -> bool: ...

    def alarms(self) -> Sequence[str]: ...

    async def latest_health(self) -> dict[str, Any]: ...

    async def latest_metrics(self) -> dict[str, Any]: ...

    async def queue_depth(self, name: str) -> dict[str, int | float] | None: ...

    async def prometheus(self) -> bytes: ...


def make_app(pages: "Pages") -> Starlette:
    return Starlette(
        routes=[
            Route("/livez", pages.live),
            Route("/readyz", pages.ready),
            Route("/startupz", pages.started),
            *(Route(path, pages.health) for path in ("/health", "/health/")),
            *(Route(path, pages.metrics) for path in ("/metrics", "/metrics/")),
            Route("/metrics/prometheus", pages.prometheus),
            # A queue's name has no slash; a path with one gets the same answer as every other missing queue.
            Route("/queues/{name:path}", pages.queue),
        ]
    )


class Pages:
    def __init__(self, report: Reports, token: str | None) -> None:
        self._report = report
        self.proxies = Proxies(())
        self.check_secret: SecretCheck | None = None
        """None: the broker recovers its store."""
        self.set_token(token)

    def set_token(self, token: str | None) -> None:
        """Asked for as a bearer token by everything but the probes; None = open."""
        self._token = token.encode() if token is not None else None

    async def live(self, request: Request) -> Response:
        # Lenient on purpose: a probe that also judged disk or peers would turn their trouble into a restart loop.
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        if self._report.is_ready():
            return PlainTextResponse("ready\n")
        why = "; ".join(self._report.alarms()) or "starting or stopping"
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    async def started(self, request: Request) -> Response:
        started = self._report.is_started()
        return PlainTextResponse("started\n" if started else "recovering\n", status_code=200 if started else 503)

    async def health(self, request: Request) -> Response:
        self._check(request)
        health = await self._report.latest_health()
        return _json(health, 200 if health["is_healthy"] else 503)

    async def metrics(self, request: Request) -> Response:
        self._check(request)
        if request.url.path == "/metrics" and _wants_text(request.headers.get("accept", "")):
            return await self.prometheus(request)
        return _json(await self._report.latest_metrics())

    async def prometheus(self, request: Request) -> Response:
        self._check(request)
        return Response(await self._report.prometheus(), media_type=CONTENT_TYPE)

    async def queue(self, request: Request) -> Response:
        self._check(request)
        name = request.path_params["name"]
        depth = await self._report.queue_depth(name)
        if depth is not None:
            return _json(depth)
        if not self._report.is_started():
            return _error(VibeMQError("the broker recovers its store; try again later"), 503)
        return _error(QueueNotFound(name[:QUEUE_NAME_SHOWN_MAX]), 404)

    def _check(self, request: Request) -> None:
        wanted = self._token
        if wanted is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise _unauthorized("this route asks for a bearer token")

        def is_right() -> bool:
            return hmac.compare_digest(given.strip().encode(), wanted)

        wrong = "the token is not valid; it is http.token of the broker's settings"
        if self.check_secret is None:
            if not is_right():
                raise _unauthorized(wrong)
            return
        host = self.proxies.client_of(request.client.host if request.client else "", request.headers)
        request_id = os.urandom(12).hex()
        try:
            self.check_secret(host, request_id, is_right, wrong)
        except AuthFailed as error:
            raise _unauthorized(str(error), request_id, error.wait_s) from None


def _unauthorized(text: str, request_id: str = "", wait_s: float = 0.0) -> HTTPException:
    """`request_id`: under which the audit log has it."""
    headers = {"WWW-Authenticate": "Bearer"}
    if request_id:
        headers["X-Request-Id"] = request_id
    if wait_s > 0:
        headers["Retry-After"] = str(math.ceil(wait_s))
    return HTTPException(401, text, headers=headers)


def _wants_text(accept: str) -> bool:
    """Whether a scraper asks: the first of JSON, plain text and OpenMetrics that is named decides."""
    for part in accept.lower().split(","):
        kind = part.partition(";")[0].strip()
        if kind in ("text/plain", "application/openmetrics-text"):
            return True
        if kind == "application/json":
            return False
    return False


def _error(error: VibeMQError, status: int) -> Response:
    return _json({"code": error.code, "message": str(error)}, status)


def _json(value: object, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n", status, media_type="application/json")
