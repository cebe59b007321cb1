"""`vibemq serve` on a folder, and what its start took."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.common.accounting import cpu_seconds, memory_mib, process_tree


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    cpu_s: float
    rss_anon_mib: float


class Broker:
    """One running broker; end it with `stop` or `kill`."""

    def __init__(self, folder: Path, provider: str, *, connections_max: int = 1_000) -> None:
        command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(folder), "--storage", provider]
        began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--http-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "VIBEMQ_LIMITS__MAX_CONNECTIONS": str(connections_max)},
        )
        assert self._process.stdout is not None
        self.port = 0
        for line in self._process.stdout:
            event = json.loads(line)
            if event.get("protocol") == "native":
                self.port = event["port"]
            if event["event"] == "ready":
                break
        else:
            raise RuntimeError("the broker did not start")
        # Of the broker alone: the checkpointer works for its own reasons.
        self.start = Start(time.monotonic() - began, self.cpu_s(), self.rss_anon_mib())

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        return cpu_seconds([self.pid])

    def rss_anon_mib(self) -> float:
        return memory_mib([self.pid], children=False)

    def stop(self) -> float:
        """A clean stop; how long it took."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9 of the broker alone; returns when its checkpointer has noticed."""
        children = process_tree([self.pid])
        self._end(signal.SIGKILL)
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            time.sleep(0.02)

    def _end(self, number: signal.Signals) -> float:
        began = time.monotonic()
        self._process.send_signal(number)
        self._process.wait(120)
        return time.monotonic() - began
