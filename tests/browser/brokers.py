"""Brokers as processes, and a proxy in front of one."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.crash.forked_command import Child, ForkedCommand
from tests.integration.certificates import Signed
from tests.ports import held_port

CEILING_MS = 120_000
"""Of each wait for a page, on the slowest machine."""


class ServedBroker:
    def __init__(
        self,
        room: Path,
        settings: str = "",
        *,
        serve: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`serve`: a command to start, with an interpreter of its own, instead of a forked `vibemq serve`."""
        self._room = room
        self._serve = serve
        self._environment = os.environ if environment is None else environment
        (room / "vibemq.toml").write_text(settings)
        ports = self._start({name: held_port(self) for name in ("http", "native")})
        self.origin = f"http://127.0.0.1:{ports['http']}"
        self.console = f"{self.origin}/console/"
        self.port = ports["native"]
        self.url = f"vibemq://127.0.0.1:{self.port}"
        self._ports = ports

    def _start(self, ports: Mapping[str, int]) -> dict[str, int]:
        """Until it is ready; answers its ports."""
        words = (
            *("--port", str(ports["native"]), "--http-port", str(ports["http"])),
            *("--data-dir", str(self._room / "data"), "--config", str(self._room / "vibemq.toml")),
        )
        environment = {name: value for name, value in self._environment.items() if not name.startswith("VIBEMQ_")}
        self._process = self._begin(words, self._room / "log", environment)
        assert self._process.stdout is not None
        found = {}
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                break
            found[event["protocol"]] = event["port"]
        assert found, (self._room / "log").read_text()
        return found

    def _begin(self, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        if not self._serve:
            return ForkedCommand(["vibemq", "serve", *words], log, environment=environment)
        with log.open("ab") as said:
            command = [*self._serve, *words]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def start_again(self) -> None:
        self._start(self._ports)

    def _end(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> "ServedBroker":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class StrippingProxy:
    """Serves a broker below a path of its own, and takes that path away before it asks. `signed`: over TLS."""

    def __init__(self, origin: str, prefix: str, signed: Signed | None = None) -> None:
        target = urlsplit(origin).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass_on()

            do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

            def _pass_on(self) -> None:
                if not self.path.startswith(prefix + "/"):
                    self.send_error(404, "not below the prefix")
                    return
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with closing(http.client.HTTPConnection(target, timeout=60)) as upstream:
                    upstream.request(self.command, self.path.removeprefix(prefix), body or None, dict(self.headers))
                    with upstream.getresponse() as answer:
                        self._answer(answer)

            def _answer(self, answer: http.client.HTTPResponse) -> None:
                """As it comes: a stream has no length, and ends with its connection."""
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                if answer.length is None:
                    self.send_header("connection", "close")
                    self.close_connection = True
                self.end_headers()
                while part := answer.read1(65536):
                    self.wfile.write(part)

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *arguments: Any) -> None:
                """A browser that leaves a page breaks off its requests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if signed is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(signed.certificate, signed.key)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.origin = f"{'https' if signed else 'http'}://127.0.0.1:{self._server.server_port}"
        self.base = f"{self.origin}{prefix}/"
        self.console = f"{self.base}console/"

    def __enter__(self) -> "StrippingProxy":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
