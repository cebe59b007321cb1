"""NATS JetStream with file storage: publish_async within a window, pull consumers with explicit acknowledgement.

W: flushed every two minutes, the server's default. S: `sync_interval: always`, which servers before 2.10 lack
(Debian 12 ships 2.9). T: memory storage. The server is the one that NATS_SERVER names, else the one that `go install`
has built (GOBIN, GOPATH, ~/go/bin), else the one on the PATH.
Fan-out: one durable consumer per pass over a stream with interest retention.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import uvloop
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench.common.binaries import go_built
from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan

STREAM, SUBJECT = "BENCH", "bench.queue"
WINDOW = 1000
ACK_PENDING_MAX = 20_000
_FLUSHES_SINCE = (2, 10)
_INSTALL = "go install github.com/nats-io/nats-server/v2@latest, or NATS_SERVER names the binary"


class JetStream(Peer):
    server_name = "nats"
    guarantees = frozenset({Guarantee.STRONG, Guarantee.WEAK, Guarantee.TRANSIENT})

    @classmethod
    def missing(cls) -> str:
        return "" if _server() else f"nats-server is not installed ({_INSTALL})"

    def unfit(self) -> str:
        version = _version()
        if self.guarantee is not Guarantee.STRONG or version >= _FLUSHES_SINCE:
            return ""
        found = ".".join(map(str, version))
        return f"nats-server {found} cannot flush before it confirms (2.10 can: {_INSTALL})"

    def plan(self, folder: Path) -> Plan:
        flush = "sync_interval: always" if self.guarantee is Guarantee.STRONG else ""
        config = folder / "nats.conf"
        storage = f'store_dir: "{folder}/store"\n max_file_store: 60GB\n {flush}'
        config.write_text(f'listen: "127.0.0.1:{self.port}"\njetstream {{ {storage} }}\n')
        return Plan([_server(), "-c", str(config)])

    def set_up(self, job: Job) -> None:
        storage = StorageType.MEMORY if self.guarantee is Guarantee.TRANSIENT else StorageType.FILE
        retention = RetentionPolicy.INTEREST if job.subscribers > 1 else RetentionPolicy.WORK_QUEUE
        stream = StreamConfig(name=STREAM, subjects=[SUBJECT], retention=retention, storage=storage)

        async def create() -> None:
            connection = await self._connect()
            manager = connection.jetstream()
            await manager.add_stream(stream)
            for number in range(job.subscribers):
                consumer = ConsumerConfig(
                    durable_name=_durable(number), ack_policy=AckPolicy.EXPLICIT, max_ack_pending=ACK_PENDING_MAX
                )
                await manager.add_consumer(STREAM, consumer)
            await connection.close()

        uvloop.run(create())

    def tear_down(self) -> None:
        async def delete() -> None:
            connection = await self._connect()
            await connection.jetstream().delete_stream(STREAM)
            await connection.close()

        uvloop.run(delete())

    async def _connect(self) -> Any:
        return await nats.connect(f"nats://127.0.0.1:{self.port}", pending_size=16 << 20)

    # -- publishing -------------------------------------------------------------------------------------------------

    def produce(self, job: Job, go: Go) -> Span:
        return uvloop.run(self._publish(job, go))

    async def _publish(self, job: Job, go: Go) -> Span:
        connection = await self._connect()
        stream = connection.jetstream(publish_async_max_pending=job.window or WINDOW, timeout=60)
        bodies, confirms = Bodies(job.size), _Confirms(job.messages)
        go()
        pacer = Pacer(job.rate, job.messages) if job.rate else None
        began = now()
        for number in range(job.messages):
            if pacer is None:
                future = await stream.publish_async(SUBJECT, bodies.make(number))
                future.add_done_callback(confirms.note)
                continue
            due_at = await pacer.wait_until_due(number)
            future = await stream.publish_async(SUBJECT, bodies.make(number, due_at))
            future.add_done_callback(confirms.noting(due_at))
        await confirms.all.wait()
        ended = now()
        await connection.close()
        if confirms.error is not None:
            raise confirms.error
        return Span(began, ended, job.messages, confirms.latencies)

    # -- receiving --------------------------------------------------------------------------------------------------

    def consume(self, job: Job, go: Go) -> Span:
        return uvloop.run(self._take(job, go, 1))

    def consume_fan_out(self, job: Job, go: Go) -> Span:
        return uvloop.run(self._take(job, go, job.subscribers))

    async def _take(self, job: Job, go: Go, passes: int) -> Span:
        connection = await self._connect()
        stream = connection.jetstream()
        pulls = [await stream.pull_subscribe_bind(consumer=_durable(n), stream=STREAM) for n in range(passes)]
        go()
        began = now()
        taken = await asyncio.gather(*(_pulled(pull, job) for pull in pulls))
        # A round trip behind the last acknowledgement.
        await connection.flush()
        ended = now()
        await connection.close()
        latencies = [latency for latencies in taken for latency in latencies]
        return Span(began, ended, len(latencies), latencies)


async def _pulled(pull: Any, job: Job) -> list[float]:
    latencies: list[float] = []
    most, patience_s = (100, 0.05) if job.rate else (job.batch, 1.0)
    while len(latencies) < job.messages:
        try:
            messages = await pull.fetch(min(most, job.messages - len(latencies)), timeout=patience_s)
        except (NatsTimeout, TimeoutError):
            continue
        at = now()
        for message in messages:
            latencies.append(at - sent_at(message.data))
            await message.ack()
    return latencies


class _Confirms:
    """Counts the answers to asynchronous publishes."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self.latencies: list[float] = []
        self.error: BaseException | None = None
        self.all = asyncio.Event()

    def note(self, future: "asyncio.Future[Any]") -> None:
        if future.exception() is not None:
            self.error = future.exception()
        self._missing -= 1
        if not self._missing:
            self.all.set()

    def noting(self, due_at: float) -> "Callable[[asyncio.Future[Any]], None]":
        def note(future: "asyncio.Future[Any]") -> None:
            self.latencies.append(now() - due_at)
            self.note(future)

        return note


def _durable(number: int) -> str:
    return f"worker-{number}"


def _server() -> str:
    """Debian's is often older than the one that somebody has built for himself."""
    return os.environ.get("NATS_SERVER") or go_built("nats-server")


def _version() -> tuple[int, ...]:
    answer = subprocess.run([_server(), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v?(\d+)\.(\d+)\.(\d+)", answer.stdout + answer.stderr)
    return tuple(map(int, found.groups())) if found else (0,)
