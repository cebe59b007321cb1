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
    http_port: int
    """0: it has none."""
    ready_after_s: float
    cpu_s: float
    """Of the process until it was ready."""


@contextmanager
def serving(folder: Path, *, http: bool = False) -> Iterator[Served]:
    """Its superuser is `root`, with `PASSWORD`. Over HTTP nobody is slowed down but who guesses."""
    began = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vibemq", "serve", "--data-dir", str(folder), "--port", "0"),
            *(("--http-port", "0") if http else ("--no-http",)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "VIBEMQ_AUTH__SUPERUSER": "root",
            "VIBEMQ_AUTH__SUPERUSER_PASSWORD": PASSWORD,
            "VIBEMQ_HTTP__REQUESTS_PER_SECOND": "0",
        },
    )
    try:
        assert process.stdout is not None
        ports = {"native": 0, "http": 0}
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                break
            ports[event["protocol"]] = event["port"]
        yield Served(process.pid, ports["native"], ports["http"], time.monotonic() - began, cpu_seconds([process.pid]))
    finally:
        process.terminate()
        process.wait(60)
