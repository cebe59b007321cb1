"""Runs the HTTP routes inside the broker's own loop: no signals, no logging setup, bounded."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from vibemq.config import Http
from vibemq.errors import ConfigInvalid
from vibemq.web.app import SECURITY_HEADERS, Pages, Reports, make_app
from vibemq.web.hosts import AllowedHosts, HostCheck
from vibemq.web.limits import App, HttpPool, Receive, RouteSlots, Scope, Send, connections_of, with_slots

HEAD_BYTES_MAX = 16_384
MOUNT_REQUESTS_MAX = 64
"""Under way at a time in all applications of plug-ins: fewer than connections, so that some are always idle."""
OWN_PREFIXES = ("/livez", "/readyz", "/startupz", "/health", "/metrics", "/queues")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to whoever owns the process: `vibemq serve`, or the program that embeds the broker.
        yield


class Mounts:
    """The broker's own pages, and the applications of plug-ins, which share slots."""

    def __init__(self, pages: App) -> None:
        self._pages = pages
        self._apps: dict[str, App] = {}
        self._mounted = RouteSlots(self._enter, {}, {"mount": MOUNT_REQUESTS_MAX}, "mount")

    def mount(self, prefix: str, app: App) -> None:
        if not prefix.startswith("/") or prefix.endswith("/") or prefix in self._apps or prefix in OWN_PREFIXES:
            raise ConfigInvalid(f"the HTTP path {prefix!r} is taken, or is not a path like /events; choose another one")
        self._apps[prefix] = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._pages if self._prefix_of(scope) is None else self._mounted
        await app(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._prefix_of(scope)
        assert prefix is not None
        await self._apps[prefix]({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)

    def _prefix_of(self, scope: Scope) -> str | None:
        path = scope.get("path", "")
        return next((p for p in self._apps if path == p or path.startswith(p + "/")), None)


class WebServer:
    """Bound at once, so that the port is known; `run` serves until `stop`."""

    def __init__(self, http: Http, report: Reports) -> None:
        family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
        try:
            self._socket = socket.create_server((http.host, http.port), family=family, backlog=256)
        except OSError as error:
            where = f"{http.host}:{http.port}"
            mend = "another broker may be running; choose another port (--http-port), or disable HTTP (--no-http)"
            raise ConfigInvalid(f"cannot listen on {where} for HTTP: {error.strerror or error}; {mend}") from error
        self.host, self.port = self._socket.getsockname()[:2]
        self._pages = Pages(report, None)
        self._mounts = Mounts(with_slots(make_app(self._pages)))
        self._app = HostCheck(
            self._mounts, _hosts(http), [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
        )
        self.configure(http)
        app: Any = self._app
        self.pool = HttpPool()
        self._server = _Server(
            uvicorn.Config(
                app,
                http=connections_of(self.pool),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=2,
            )
        )

    def configure(self, http: Http) -> None:
        """Take the token and the names of these settings."""
        self._app.hosts = _hosts(http)
        self._pages.set_token(http.token.get_secret_value() if http.token is not None else None)

    def mount(self, prefix: str, app: App) -> None:
        """Serve `app` below the prefix. Raises ConfigInvalid when the prefix cannot be had."""
        self._mounts.mount(prefix, app)

    async def run(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    def close(self) -> None:
        self._socket.close()


def _hosts(http: Http) -> AllowedHosts:
    return AllowedHosts(http.host, http.allowed_hosts, needs_token=http.token is not None)
