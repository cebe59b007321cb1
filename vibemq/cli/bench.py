"""`vibemq bench`: a short measurement of throughput and of the disk's flush time."""

import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from vibemq.cli.admin.doctor.fsync import fsync_latencies_ms
from vibemq.cli.child import BrokerProcess, ended_as_by_ctrl_c
from vibemq.cli.flags import DEFAULT_TIMEOUT, Json, Timeout, data_dir_option, size_option
from vibemq.cli.online import settings_for
from vibemq.cli.output import Output, bytes_text, table
from vibemq.cli.ping import median
from vibemq.cli.progress import Tracker, tracked
from vibemq.client import Client, connect
from vibemq.client.address import ClientSettings
from vibemq.model.options import Durability, enum_of

CHUNK = 2_000
SINGLE_PUBLISHES = 200


@dataclass(slots=True)
class Figures:
    messages: int
    publish_s: float = 0.0
    consume_s: float = 0.0
    lone_ms: float = 0.0
    """Median of one publish at a time, confirmed."""

    def as_object(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "publish_per_second": round(self.messages / self.publish_s),
            "consume_and_ack_per_second": round(self.messages / self.consume_s),
            "lone_publish_ms": round(self.lone_ms, 3),
        }


def bench(
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="Number of messages.")] = 100_000,
    size: Annotated[int, size_option("--size", "Payload of each message.", default="1KiB")] = 1024,
    durability: Annotated[str, typer.Option("--durability", help="strong, weak, async or transient.")] = "strong",
    storage: Annotated[str, typer.Option("--storage", help="lmdb or sqlite, for the temporary broker.")] = "lmdb",
    data_dir: Annotated[
        Path | None, data_dir_option("Directory for the broker's data; default: a new folder in TMPDIR.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Measure this running broker instead of starting one.")
    ] = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Publish, consume and acknowledge messages, and print the rates.

    Starts a temporary broker unless --url is given. The queue it uses is deleted at the end.
    """
    policy = enum_of(Durability, durability, "durability").name.lower()
    out = Output(json=json)

    async def measure(broker: str) -> Figures:
        return await _measure(out, settings_for(broker, timeout, patient=True), messages, size, policy)

    with ended_as_by_ctrl_c():
        base = Path(tempfile.mkdtemp(prefix="vibemq-bench-", dir=data_dir))
        try:
            latencies = fsync_latencies_ms(base)
            figures = anyio.run(_run, measure, base, url, storage)
        finally:
            shutil.rmtree(base, ignore_errors=True)
    disk = {"fsync_median_ms": round(median(latencies), 3), "fsync_max_ms": round(latencies[-1], 3)}
    value = {"durability": policy, "payload_bytes": size, **figures.as_object(), **disk}
    out.emit(
        value, table(("figure", "value"), _rows(value), title=f"{messages:,} messages of {bytes_text(size)}, {policy}")
    )


def _rows(value: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("publish, confirmed", f"{value['publish_per_second']:,}/s"),
        ("consume and ack", f"{value['consume_and_ack_per_second']:,}/s"),
        ("one publish at a time, median", f"{value['lone_publish_ms']} ms"),
        ("fdatasync of this folder, median", f"{value['fsync_median_ms']} ms"),
        ("fdatasync of this folder, slowest", f"{value['fsync_max_ms']} ms"),
    ]


async def _run(measure: Callable[[str], Awaitable[Figures]], base: Path, url: str | None, storage: str) -> Figures:
    if url is not None:
        return await measure(url)
    broker = BrokerProcess(base / "data", storage=storage)
    try:
        await broker.start()
        return await measure(broker.url)
    finally:
        with anyio.CancelScope(shield=True):
            await broker.stop()


async def _measure(out: Output, settings: ClientSettings, messages: int, size: int, durability: str) -> Figures:
    queue = f"vibemq-bench-{time.time_ns():x}"
    figures = Figures(messages)
    async with connect(settings) as mq:
        await mq.create_queue(queue, durability=durability)
        try:
            figures.lone_ms = await _lone_publish(mq, queue, size)
            await mq.purge_queue(queue)
            with tracked("published", out, silent=out.json) as progress:
                figures.publish_s = await _publish(mq, queue, messages, size, progress)
            with tracked("consumed ", out, silent=out.json) as progress:
                figures.consume_s = await _consume(mq, queue, messages, progress)
        finally:
            with anyio.CancelScope(shield=True):
                await mq.delete_queue(queue)
    return figures


async def _lone_publish(mq: Client, queue: str, size: int) -> float:
    laps = []
    for _ in range(SINGLE_PUBLISHES):
        began = time.perf_counter()
        await mq.publish(queue, b"0" * size)
        laps.append(1000 * (time.perf_counter() - began))
    return median(laps)


async def _publish(mq: Client, queue: str, messages: int, size: int, progress: Tracker) -> float:
    body = (b'"' + b"x" * (size - 2) + b'"') if size >= 2 else b"0" * size
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        left = iter(range(0, messages, CHUNK))
        done = 0

        async def publisher() -> None:
            nonlocal done
            for start in left:
                count = min(CHUNK, messages - start)
                await mq.publish_many(queue, [body] * count)
                done += count
                progress(done, messages)

        for _ in range(4):
            tasks.start_soon(publisher)
    return time.perf_counter() - began


async def _consume(mq: Client, queue: str, messages: int, progress: Tracker) -> float:
    began = time.perf_counter()
    done = 0
    async with mq.subscribe(queue, prefetch=2 * CHUNK) as subscription:
        while done < messages:
            batch = await subscription.next_batch()
            batch.ack_all()
            done += len(batch)
            progress(done, messages)
        await mq.ping()
    return time.perf_counter() - began
