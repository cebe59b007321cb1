"""A broker that asks for logins, for as long as it is measured."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.common.accounting import cpu_seconds

PASSWORD = "a password of the owner"  # of a broker that lives for some seconds


@dataclass(slots=True)
class Served:
    pid: int
    port: int
    """Of the native listener."""
    ready_after_s: float
    cpu_s: float
    """Of the process until it was ready."""


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Its superuser is `root`, with `PASSWORD`."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(folder), "--port", "0", "--no-http"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "VIBEMQ_AUTH__SUPERUSER": "root", "VIBEMQ_AUTH__SUPERUSER_PASSWORD": PASSWORD},
    )
    try:
        assert process.stdout is not None
        port = 0
        for line in process.stdout:
            event = json.loads(line)
            port = event.get("port", port)
            if event["event"] == "ready":
                break
        yield Served(process.pid, port, time.monotonic() - began, cpu_seconds([process.pid]))
    finally:
        process.terminate()
        process.wait(60)
