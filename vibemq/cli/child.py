"""Child processes that can be killed and started again; among them a broker of our own: `vibemq serve` on its port."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, ClassVar

import anyio
import orjson
from anyio import to_thread

from vibemq.cli.exits import CommandFailed
from vibemq.client import Client, ReconnectPolicy, connect
from vibemq.storage.local.child import command_of

START_TIMEOUT_S = 60.0
RECONNECT = ReconnectPolicy(initial_delay=0.05, max_delay=0.5)
"""Soon: a broker that was killed is back within a second or so."""
COMMAND_TIMEOUT_S = 60.0
"""A small machine under load may take long; this is no test of speed."""


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM and a terminal that is closed end the block as Ctrl-C does: children have sessions of their own, and
    would go on without anybody. A signal that is ignored, as under nohup, stays ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    usual = {number: signal.signal(number, interrupt) for number in numbers}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script's command in the background. What ignores Ctrl-C would ignore these, too.
        usual[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


class Child:
    """One process after the other over the same folder. Their log goes into a file beside the folder."""

    stop_timeout_s: ClassVar[float] = 30.0

    def __init__(self, folder: Path) -> None:
        self._log = folder.with_name(folder.name + ".log")
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._started is not None and self._started.poll() is None

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        """The latest, which may have ended."""
        assert self._started is not None, "not started"
        return self._started

    def _spawn(self, command: Sequence[str], environment: dict[str, str], stdin: int | None = None) -> None:
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is ours to handle, and what the child starts is found by it.
            self._started = subprocess.Popen(  # noqa: S603  # our own interpreter, no shell
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
            )

    def _reap(self) -> None:
        """Wait for its end, and kill what has not ended in time."""
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.stop_timeout_s)
        self._kill_rest()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _kill_rest(self) -> None:
        self._process.kill()  # Nothing happens if it has ended.

    def _log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class BrokerProcess(Child):
    """One broker on one data directory."""

    def __init__(self, data_dir: Path, *, storage: str = "lmdb") -> None:
        super().__init__(data_dir)
        self.data_dir = data_dir
        self.port = 0
        self._storage = storage
        self._config = data_dir.with_name(data_dir.name + ".toml")

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    def client(self, name: str) -> Client:
        """One that waits for the broker to come back when it is killed."""
        return connect(self.url, name=name, reconnect=RECONNECT, command_timeout=COMMAND_TIMEOUT_S)

    async def start(self) -> float:
        """Start, wait until it is ready, and return the seconds that took. The port of an earlier start is kept.

        Raises:
            CommandFailed: it ended or took too long; with the last line of its log.
        """
        began = time.monotonic()
        self._serve()
        stdout = self._process.stdout
        assert stdout is not None
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                ready = await to_thread.run_sync(self._read_until_ready, stdout, abandon_on_cancel=True)
        except TimeoutError:
            raise CommandFailed(
                f"the broker was not ready within {START_TIMEOUT_S:.0f} s; {self._last_words()}"
            ) from None
        if not ready:
            raise CommandFailed(f"the broker ended before it was ready; {self._last_words()}")
        return time.monotonic() - began

    async def kill(self) -> None:
        """kill -9 for the broker alone, not for its children, and wait until the system has taken it away."""
        os.kill(self.pid, signal.SIGKILL)
        await to_thread.run_sync(self._reap)

    async def stop(self) -> None:
        """SIGTERM, and kill -9 if it does not end in time. Fine to call when it does not run."""
        if not self.alive:
            return
        os.kill(self.pid, signal.SIGTERM)
        with anyio.move_on_after(self.stop_timeout_s + 5, shield=True):
            await to_thread.run_sync(self._reap)

    def _serve(self) -> None:
        command = command_of("vibemq", "serve", "--data-dir", str(self.data_dir))
        command += ["--port", str(self.port), "--http-port", "0", "--storage", self._storage, "--log-level", "warning"]
        # Settings of this machine's real broker (its file, its variables) are none of this one's business.
        self._config.touch()
        command += ["--config", str(self._config)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VIBEMQ_")}
        self._spawn(command, environment)

    def _read_until_ready(self, lines: IO[bytes]) -> bool:
        for line in lines:
            event = orjson.loads(line)
            if event["event"] == "ready":
                return True
            if event.get("protocol") == "native":
                self.port = event["port"]
        return False

    def _last_words(self) -> str:
        last = self._log_text().strip().rpartition("\n")[2].strip()
        return f"its last words: {last[:500] or 'it logged nothing'}"
