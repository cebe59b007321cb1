"""A broker in a child process that can be killed, and the ledger of what it confirmed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.crash.forked_command import Child, ForkedCommand
from tests.ports import held_port

START_TIMEOUT_S = 60


@dataclass
class Ledger:
    """Ids by what is known of them. Only the test's process writes it, so no kill can touch it."""

    confirmed: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    settled: set[str] = field(default_factory=set)

    @property
    def lost(self) -> set[str]:
        return self.confirmed - set(self.received)


class BrokerProcess:
    """`vibemq serve` on one data directory; its ports stay the same over restarts."""

    def __init__(
        self, data_dir: Path, *, provider: str = "lmdb", arguments: tuple[str, ...] = (), log: Path | None = None
    ) -> None:
        """`log`: where its stderr goes; by default beside the data directory."""
        self._data_dir = data_dir
        self._provider = provider
        self._arguments = arguments
        self._process: Child | None = None
        self._held = {name: held_port(self) for name in ("native", "http")}
        self.ports: dict[str, int] = {}
        """Of its listeners, by protocol."""
        self._log = log or data_dir.parent / f"{data_dir.name}.log"

    @property
    def port(self) -> int:
        return self.ports.get("native", 0)

    @property
    def http_port(self) -> int:
        return self.ports.get("http", 0)

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, prefix: tuple[str, ...] = ()) -> None:
        """Start and wait until it is ready. `prefix`: a command that runs the broker's, such as strace."""
        words = [
            "serve",
            "--data-dir",
            str(self._data_dir),
            "--port",
            str(self._held["native"]),
            "--http-port",
            str(self._held["http"]),
            "--storage",
            self._provider,
            *self._arguments,
        ]
        self._process = self._exec([*prefix, sys.executable, "-m", "vibemq", *words]) if prefix else self._fork(words)
        assert self._process.stdout is not None
        self._read_until_ready(self._process.stdout)

    def _exec(self, command: list[str]) -> Child:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _fork(self, words: list[str]) -> Child:
        return ForkedCommand(["vibemq", *words], self._log)

    def _read_until_ready(self, lines: IO[str]) -> None:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "ready":
                return
            if event["event"] == "listening":
                self.ports[event["protocol"]] = event["port"]
        raise AssertionError(f"the broker ended before it was ready:\n{self.log_text()}")

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._reap()

    def wait(self) -> int:
        """Wait until it ends by itself; return the exit code."""
        return self._reap()

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait(timeout=START_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code
