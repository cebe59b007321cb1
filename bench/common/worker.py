"""A load process: takes orders on standard input, one JSON line each, and answers on standard output.

in    {"peer": "redis", "guarantee": "S", "port": 6379, "role": "produce", "job": {…}}
out   {"event": "ready"}                      connected
in    go
out   {"event": "done", "began": …, "ended": …, "messages": …, "cpu_s": …, "latency": {…}}
      {"event": "failed", "error": "…"}
"""

import gc
import json
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from bench.common.load import Job, Span, quantiles_ms, without_warm_up
from bench.common.peer import Guarantee, Peer, peer_class
from bench.common.reaper import REPOSITORY, Reaper

RESULT_TIMEOUT_S = 300.0


class LoadFailed(Exception):
    """A load process could not do its job."""


class Worker:
    """One load process, seen from the measuring process. It serves many jobs, so that imports cost once."""

    def __init__(self, name: str, reaper: Reaper) -> None:
        self.name = name
        self._reaper = reaper
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.common.worker"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        reaper.begun(self._process.pid)

    def prepare(self, peer: Peer, role: str, job: Job) -> None:
        """Give an order and wait until the load is connected."""
        order = {"peer": peer.name, "guarantee": peer.guarantee, "port": peer.port, "role": role, "job": asdict(job)}
        self._write(json.dumps(order))
        self._read("ready")

    def go(self) -> None:
        self._write("go")

    def result(self) -> dict[str, Any]:
        return self._read("done")

    def end(self) -> None:
        self._process.kill()
        # Also closes its pipes; what could not be written any more does not matter.
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._reaper.ended(self._process.pid)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self, expected: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(RESULT_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"event": "failed", "error": "it ended or took too long"}
        if answer["event"] != expected:
            self.end()
            raise LoadFailed(f"{self.name}: {answer.get('error', answer)}")
        return answer


def serve() -> None:
    for line in sys.stdin:
        try:
            answer = _work(json.loads(line))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            answer = {"event": "failed", "error": f"{type(error).__name__}: {error}"}
        _say(answer)
        gc.collect()


def _work(order: dict[str, Any]) -> dict[str, Any]:
    job = Job(**order["job"])
    peer = peer_class(order["peer"])(Guarantee(order["guarantee"]), order["port"])
    begun_cpu_s = 0.0

    def go() -> None:
        nonlocal begun_cpu_s
        _say({"event": "ready"})
        sys.stdin.readline()
        begun_cpu_s = time.process_time()

    span: Span = getattr(peer, order["role"])(job, go)
    cpu_s = time.process_time() - begun_cpu_s
    latencies = without_warm_up(span.latencies_s) if job.rate else span.latencies_s
    return {
        "event": "done",
        "began": span.began,
        "ended": span.ended,
        "messages": span.messages,
        "cpu_s": cpu_s,
        "latency": quantiles_ms(latencies),
    }


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
