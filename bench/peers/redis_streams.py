"""Redis streams with a consumer group: XADD in pipelines, XREADGROUP, XACK with XDEL.

S: append-only file flushed before the answer (`appendfsync always`). W: flushed every second. T: no file at all.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import redis

from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan

KEY, GROUP = "bench", "workers"
WINDOW = 1000
_PERSISTENCE = {
    Guarantee.STRONG: ["--appendonly", "yes", "--appendfsync", "always"],
    Guarantee.WEAK: ["--appendonly", "yes", "--appendfsync", "everysec"],
    Guarantee.TRANSIENT: ["--appendonly", "no"],
}


class RedisStreams(Peer):
    server_name = "redis"
    guarantees = frozenset(_PERSISTENCE)

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("redis-server") else "redis-server is not installed (apt-get install redis-server)"

    def plan(self, folder: Path) -> Plan:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder)]
        options = ["--save", "", "--daemonize", "no", "--loglevel", "warning"]
        return Plan([*command, *options, *_PERSISTENCE[self.guarantee]])

    def set_up(self, job: Job) -> None:
        client = self._connect()
        client.flushall()
        client.xgroup_create(KEY, GROUP, id="0", mkstream=True)
        client.close()

    def tear_down(self) -> None:
        client = self._connect()
        client.flushall()
        client.close()

    def _connect(self) -> Any:
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=60)

    def produce(self, job: Job, go: Go) -> Span:
        client = self._connect()
        client.ping()
        go()
        try:
            return self._paced(client, job) if job.rate else self._piped(client, job)
        finally:
            client.close()

    def _piped(self, client: Any, job: Job) -> Span:
        bodies, sent, window = Bodies(job.size), 0, job.window or WINDOW
        began = now()
        while sent < job.messages:
            count = min(window, job.messages - sent)
            _add(client, [bodies.make(number) for number in range(sent, sent + count)])
            sent += count
        return Span(began, now(), sent)

    def _paced(self, client: Any, job: Job) -> Span:
        bodies, pacer, sent = Bodies(job.size), Pacer(job.rate, job.messages), 0
        latencies: list[float] = []
        while sent < job.messages:
            time.sleep(max(0.0, pacer.delay(sent)))
            dues = [pacer.due_at(number) for number in range(sent, sent + pacer.due(sent))]
            _add(client, [bodies.make(sent + index, due) for index, due in enumerate(dues)])
            at = now()
            latencies += [at - due for due in dues]
            sent += len(dues)
        return Span(pacer.began, now(), sent, latencies)

    def consume(self, job: Job, go: Go) -> Span:
        client = self._connect()
        client.ping()
        latencies: list[float] = []
        go()
        began = now()
        while len(latencies) < job.messages:
            answer = client.xreadgroup(GROUP, "worker", {KEY: ">"}, count=job.batch, block=1000)
            if not answer:
                continue
            entries = _entries(answer)
            at = now()
            latencies += [at - sent_at(fields[b"body"]) for _, fields in entries]
            ids = [entry_id for entry_id, _ in entries]
            pipeline = client.pipeline(transaction=False)
            pipeline.xack(KEY, GROUP, *ids)
            pipeline.xdel(KEY, *ids)
            pipeline.execute()
        ended = now()
        client.close()
        return Span(began, ended, len(latencies), latencies)


def _add(client: Any, bodies: list[bytes]) -> None:
    pipeline = client.pipeline(transaction=False)
    for body in bodies:
        pipeline.xadd(KEY, {"body": body})
    pipeline.execute()


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the only stream; RESP2 answers with a list of pairs, RESP3 with a dict of nested lists."""
    entries: Any = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
    found: list[tuple[bytes, dict[bytes, bytes]]] = entries
    return found
