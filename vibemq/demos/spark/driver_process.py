"""The driver as a child: started, watched, killed with everything that is its own, started again."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import anyio
import orjson
from anyio import to_thread

from vibemq.cli.child import Child
from vibemq.cli.exits import CommandFailed
from vibemq.demos.spark import tidy
from vibemq.storage.local.child import command_of

START_TIMEOUT_S = 180.0
EXECUTOR = "CoarseGrainedExecutorBackend"


class DriverProcess(Child):
    """One Spark application after the other over the same checkpoints."""

    stop_timeout_s: ClassVar[float] = 60.0

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        """`module` says {"event": "ready"} on its standard output when its queries run, and ends with its input."""
        super().__init__(folder)
        self._folder = folder
        self._command = command_of(module, *arguments)

    async def start(self) -> float:
        """Start, wait until its queries run, and return the seconds that took.

        Raises:
            CommandFailed: it ended or took too long; with the end of its log.
        """
        began = time.monotonic()
        self._spawn(self._command, tidy.environment(self._folder), stdin=subprocess.PIPE)
        with anyio.move_on_after(START_TIMEOUT_S):
            event = await to_thread.run_sync(self._read_event, abandon_on_cancel=True)
            if event.get("event") == "ready":
                return time.monotonic() - began
        raise CommandFailed(f"the Spark driver did not start; {self.last_words()}")

    def executors(self) -> list[int]:
        return sorted(pid for pid, command in tidy.members(self.pid).items() if EXECUTOR in command)

    async def kill(self) -> None:
        """kill -9 for the driver, its JVM and all that they have started."""
        with suppress(ProcessLookupError):  # It has ended by itself.
            os.killpg(self.pid, signal.SIGKILL)
        await to_thread.run_sync(self._reap)

    async def stop(self) -> None:
        """Let the queries end, and kill what does not. Fine to call when it does not run."""
        if self._started is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        await to_thread.run_sync(self._reap)

    def last_words(self) -> str:
        text = self._log_text()[-3000:].strip()
        return f"the end of its log:\n{text}" if text else "it logged nothing"

    async def failure(self) -> str:
        """Why it has ended by itself: its own words, or the end of its log."""
        event = await to_thread.run_sync(self._read_event)
        return str(event.get("error") or self.last_words())

    def _read_event(self) -> dict[str, Any]:
        """The next one; empty when it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event: dict[str, Any] = orjson.loads(line)
            except ValueError:
                continue  # Something of Spark's own.
            return event
        return {}

    def _kill_rest(self) -> None:
        tidy.sweep(self.pid)
