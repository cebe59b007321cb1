"""Runs the HTTP routes inside the broker's own loop: no signals, no logging setup, bounded."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers

from vibemq.config import Http
from vibemq.errors import ConfigInvalid
from vibemq.web.app import Pages, Reports, SecretCheck, make_app
from vibemq.web.headers import DATA, PAGES, SecurityHeaders
from vibemq.web.heads import HEAD_BYTES_MAX
from vibemq.web.hosts import ANY, AllowedHosts, HostCheck, is_below
from vibemq.web.limits import App, HttpPool, Receive, RouteSlots, Scope, Send, connections_of, with_slots
from vibemq.web.proxies import Proxies

if TYPE_CHECKING:
    from vibemq.web.api.making import MadeApi
    from vibemq.web.api.services import ApiServices
    from vibemq.web.console.site import ConsoleSite

BACKLOG = 1024
KEEP_ALIVE_S = 8
"""Of an idle connection. Longer than the period of open consoles, so that their requests meet no connection that is
just being closed, and shorter than the time that a head may take."""
MOUNT_REQUESTS_MAX = 64
"""Under way at a time in all applications of plug-ins: fewer than connections, so that some are always idle."""
OWN_PREFIXES = ("/livez", "/readyz", "/startupz", "/health", "/metrics", "/queues", "/api", "/console")
API = "/api"
CONSOLE = ("/console", "/")
"""The root leads to it."""


class Accepting(Protocol):
    def close(self) -> None:
        """Take nobody more, and close the socket."""


Accept = Callable[[socket.socket, Callable[[], asyncio.BaseProtocol]], Accepting]
"""Takes connections of a socket that listens, with TLS or without, and makes a protocol object for each."""


class _Server(uvicorn.Server):
    """Does not take its connections by itself: asyncio's own servers tell nobody of a handshake that failed."""

    def __init__(self, config: uvicorn.Config, accept: Accept) -> None:
        super().__init__(config)
        self._accept = accept
        self._accepting: list[Accepting] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._accepting = [self._accept(each, self._make_connection) for each in sockets or ()]

    def _make_connection(self) -> asyncio.BaseProtocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as in uvicorn
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to whoever owns the process: `vibemq serve`, or the program that embeds the broker.
        yield

    def close_listeners(self) -> None:
        """The loop forgets a socket only while it is open: one that is closed first stays in its tables, and the next
        socket that gets its number is never heard."""
        for accepting in self._accepting:
            accepting.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.close_listeners()
        await super().shutdown(sockets)


class Mounts:
    """The broker's own pages, and the applications of plug-ins, which share slots."""

    def __init__(self, pages: App) -> None:
        self._pages = pages
        self._apps: dict[str, App] = {}
        self._own: dict[str, App] = {}
        self._mounted = RouteSlots(self._enter, {}, {"mount": MOUNT_REQUESTS_MAX}, "mount")

    def mount(self, prefix: str, app: App) -> None:
        if not prefix.startswith("/") or prefix.endswith("/") or prefix in self._apps or prefix in OWN_PREFIXES:
            raise ConfigInvalid(f"the HTTP path {prefix!r} is taken, or is not a path like /events; choose another one")
        self._apps[prefix] = app

    def mount_own(self, prefix: str, app: App) -> None:
        """A part of the broker, which has limits of its own."""
        self._own[prefix] = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        own = next((app for prefix, app in self._own.items() if is_below(path, prefix)), None)
        app = own or (self._pages if self._prefix_of(scope) is None else self._mounted)
        await app(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._prefix_of(scope)
        assert prefix is not None
        await self._apps[prefix]({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)

    def _prefix_of(self, scope: Scope) -> str | None:
        path = scope.get("path", "")
        return next((p for p in self._apps if is_below(path, p)), None)


class WebServer:
    """Bound at once, so that the port is known; `run` serves until `stop`."""

    def __init__(self, http: Http, report: Reports, accept: Accept, *, tls: bool = False) -> None:
        family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
        try:
            self._socket = socket.create_server((http.host, http.port), family=family, backlog=BACKLOG)
            self._socket.setblocking(False)
        except OSError as error:
            where = f"{http.host}:{http.port}"
            # `create_server` repeats the address behind the reason.
            reason = str(error.strerror or error).partition(" (while attempting")[0]
            mend = "choose an address of this machine (--host, http.host)"
            if error.errno == errno.EADDRINUSE:
                mend = "another broker may be running: stop it, choose another port (--http-port)"
            elif error.errno == errno.EACCES:
                mend = "this user may not listen there; choose a port from 1024 up (--http-port)"
            raise ConfigInvalid(
                f"cannot listen on {where} for HTTP: {reason}; {mend}, or disable HTTP (--no-http)"
            ) from error
        self.host, self.port = self._socket.getsockname()[:2]
        self._pages = Pages(report, None)
        self._tls = tls
        self._mounts = Mounts(with_slots(make_app(self._pages)))
        self._api: MadeApi | None = None
        if http.api:
            self._mounts.mount_own(API, SecurityHeaders(recovering, DATA, tls=tls))
        self._console: ConsoleSite | None = None
        if http.api and http.console:
            self._open_console()
        self._app = HostCheck(self._mounts, _hosts(http), {})
        self.configure(http)
        app: Any = SecurityHeaders(self._app, PAGES, tls=tls)
        self.pool = HttpPool()
        config = uvicorn.Config(
            app,
            http=connections_of(self.pool),
            ws="none",
            lifespan="off",
            log_config=None,
            # Its warnings are of what strangers send; the connection says that itself.
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=2,
        )
        config.load()
        self._server = _Server(config, accept)

    def configure(self, http: Http) -> None:
        """Take the token, the names and what else a reload may change of these settings."""
        self._app.hosts = _hosts(http)
        names = (ANY,) if http.allowed_hosts is None else http.allowed_hosts
        # They judge names of hosts by themselves: with users any will do (see `web.api.guardrails.clients`).
        guarded = (API, *(CONSOLE if self._console is not None else ()))
        self._app.others = dict.fromkeys(guarded, AllowedHosts(http.host, names, needs_token=False))
        self._pages.set_token(http.token.get_secret_value() if http.token is not None else None)
        self._pages.proxies = Proxies(http.trusted_proxies)
        if self._api is not None:
            self._api.configure(http)

    def slow_guesses(self, check_secret: SecretCheck) -> None:
        """Of the token of the pages, from now on."""
        self._pages.check_secret = check_secret

    def _open_console(self) -> None:
        """Its pages are there while the broker recovers, and tell so."""
        from vibemq.web.console.site import ConsoleSite

        self._console = ConsoleSite()
        for path in CONSOLE:
            self._mounts.mount_own(path, self._console)

    def open_api(self, http: Http, services: "ApiServices") -> "MadeApi":
        """Serve the API from now on; until then it says that the broker recovers its store."""
        # A broker whose API nobody wants starts sooner.
        from vibemq.web.api.making import make_api

        self._api = make_api(http, services)
        self._mounts.mount_own(API, SecurityHeaders(self._api.app, DATA, tls=self._tls))
        if self._console is not None:
            self._console.refusal = self._api.refusal
        return self._api

    def mount(self, prefix: str, app: App) -> None:
        """Serve `app` below the prefix. Raises ConfigInvalid when the prefix cannot be had."""
        self._mounts.mount(prefix, app)

    @property
    def console_url(self) -> str | None:
        """What a browser on this machine opens."""
        if self._console is None:
            return None
        host = "localhost" if self.host in ("0.0.0.0", "::", "127.0.0.1", "::1") else self.host  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/console/"

    @property
    def console_refusal(self) -> str | None:
        """Why a browser that opens `console_url` is refused; None: it is not."""
        if self.console_url is None or self._api is None:
            return None
        refused = self._api.refusal(Headers({"host": urlsplit(self.console_url).netloc}))
        return None if refused is None else refused[1]

    async def run(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    def close(self) -> None:
        self._server.close_listeners()
        self._socket.close()


async def recovering(scope: Scope, receive: Receive, send: Send) -> None:
    """The API before the broker has started."""
    body = (
        b'{"type":"urn:vibemq:error:RECOVERING","title":"The broker recovers its store","status":503,'
        b'"detail":"the broker recovers its store; ask again later","code":"RECOVERING"}'
    )
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 503, "headers": [*headers, (b"retry-after", b"1")]})
    await send({"type": "http.response.body", "body": body})


def _hosts(http: Http) -> AllowedHosts:
    return AllowedHosts(http.host, http.allowed_hosts, needs_token=http.token is not None)
