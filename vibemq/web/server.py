"""Runs the HTTP routes inside the broker's own loop: no signals, no logging setup, bounded."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from vibemq.config import Http
from vibemq.errors import ConfigInvalid
from vibemq.server.monitoring.health import Report
from vibemq.server.net.http_limits import HttpPool, connections_of, with_slots
from vibemq.web.app import make_app

HEAD_BYTES_MAX = 16_384


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to whoever owns the process: `vibemq serve`, or the program that embeds the broker.
        yield


class WebServer:
    """Bound at once, so that the port is known; `run` serves until `stop`."""

    def __init__(self, http: Http, report: Report) -> None:
        family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
        try:
            self._socket = socket.create_server((http.host, http.port), family=family, backlog=256)
        except OSError as error:
            where = f"{http.host}:{http.port}"
            mend = "choose another http host or port, or switch it off (--no-http)"
            raise ConfigInvalid(f"cannot listen on {where} for HTTP: {error.strerror or error}; {mend}") from error
        self.host, self.port = self._socket.getsockname()[:2]
        token = http.token.get_secret_value() if http.token is not None else None
        app: Any = with_slots(make_app(report, token))
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

    async def run(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    def close(self) -> None:
        self._socket.close()
