"""A broker of our own: `vibemq serve` in a child process, which can be killed and started again on its port."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import anyio
import orjson
from anyio import to_thread

from vibemq.cli.exits import CommandFailed

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


class BrokerProcess:
    """One broker on one data directory. Its log goes into a file beside the directory."""

    def __init__(self, data_dir: Path, *, storage: str = "lmdb") -> None:
        self.data_dir = data_dir
        self.port = 0
        self._storage = storage
        self._log = data_dir.with_name(data_dir.name + ".log")
        self._config = data_dir.with_name(data_dir.name + ".toml")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> float:
        """Start, wait until it is ready, and return the seconds that took. The port of an earlier start is kept.

        Raises:
            CommandFailed: it ended or took too long; with the last line of its log.
        """
        began = time.monotonic()
        process = self._process = self._spawn()
        assert process.stdout is not None
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                ready = await to_thread.run_sync(self._read_until_ready, process.stdout, abandon_on_cancel=True)
        except TimeoutError:
            raise CommandFailed(
                f"the broker was not ready within {START_TIMEOUT_S:.0f} s; {self._last_words()}"
            ) from None
        if not ready:
            raise CommandFailed(f"the broker ended before it was ready; {self._last_words()}")
        return time.monotonic() - began

    async def kill(self) -> None:
        """kill -9, and wait until the system has taken it away."""
        os.kill(self.pid, signal.SIGKILL)
        await to_thread.run_sync(self._reap)

    async def stop(self) -> None:
        """SIGTERM, and kill -9 if it does not end in time. Fine to call when it does not run."""
        if not self.alive:
            return
        os.kill(self.pid, signal.SIGTERM)
        with anyio.move_on_after(STOP_TIMEOUT_S + 5, shield=True):
            await to_thread.run_sync(self._reap)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(self.data_dir)]
        command += ["--port", str(self.port), "--http-port", "0", "--storage", self._storage, "--log-level", "warning"]
        # Settings of this machine's real broker (its file, its variables) are none of this one's business.
        self._config.touch()
        command += ["--config", str(self._config)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VIBEMQ_")}
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is ours to handle, the broker is stopped in order.
            return subprocess.Popen(  # noqa: S603  # our own interpreter, no shell
                command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
            )

    def _read_until_ready(self, lines: IO[bytes]) -> bool:
        for line in lines:
            event = orjson.loads(line)
            if event["event"] == "ready":
                return True
            if event.get("protocol") == "native":
                self.port = event["port"]
        return False

    def _reap(self) -> None:
        assert self._process is not None, "not started"
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        last = next((line for line in reversed(lines) if line.strip()), "it logged nothing")
        return f"its last words: {last.strip()[:500]}"
