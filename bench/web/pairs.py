"""Publishes and acknowledgements of 1 KiB messages, with and without readers in turn."""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

import vibemq
from bench.common.watched import WatchedBroker
from bench.web.addresses import LOAD, TAILED, Addresses
from bench.web.cases import AllSeen, Case, complaints
from bench.web.readers import reading

BODY = b"x" * 1_024
AT_A_TIME = 500
WARM_UP_S = 3.0
MEMORY_EVERY_S = 0.25


@dataclass(frozen=True)
class Figures:
    """Of one run."""

    throughput: float
    """Messages published and acknowledged a second."""
    processor_s: float
    """Of the broker, for 100,000 of them."""
    confirm_p99_s: float
    """Of publishes of AT_A_TIME messages."""
    memory_mib: float
    """Anonymous memory of the broker, the most seen."""


async def load(broker: WatchedBroker, seconds: float) -> Figures:
    async with vibemq.connect(broker.url) as producer, vibemq.connect(broker.url) as consumer:
        for queue in (LOAD, TAILED):
            await producer.purge_queue(queue)
        count, cpu, began = 0, broker.cpu_s(), time.perf_counter()
        end = began + seconds
        laps: list[float] = []
        memory = [0.0]

        async def publish() -> None:
            while (sent := time.perf_counter()) < end:
                await producer.publish_many(LOAD, [BODY] * AT_A_TIME)
                laps.append(time.perf_counter() - sent)

        async def look_at_memory() -> None:
            while time.perf_counter() < end:
                memory.append(broker.memory_mib("RssAnon"))
                await anyio.sleep(MEMORY_EVERY_S)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(publish)
            tasks.start_soon(look_at_memory)
            async with consumer.subscribe(LOAD, prefetch=4_000) as messages:
                async for batch in messages.batches():
                    batch.ack_all()
                    count += len(batch)
                    if time.perf_counter() >= end:
                        break
        took = time.perf_counter() - began
        p99 = sorted(laps)[len(laps) * 99 // 100]
        return Figures(count / took, (broker.cpu_s() - cpu) / count * 100_000, p99, max(memory))


async def create_queues(broker: WatchedBroker) -> None:
    async with vibemq.connect(broker.url) as client:
        for queue in (LOAD, TAILED):
            await client.create_queue(queue, durability="strong")


async def compare(broker: WatchedBroker, case: Case, count: int, seconds: float) -> list[str]:
    """Print what the readers cost; what is not as it should be, in sentences."""
    addresses = Addresses(broker.http_port, broker.ports[0])
    print(f"\n{case.about}: {count} pairs of {seconds:.0f} s", flush=True)
    await create_queues(broker)
    await load(broker, min(seconds, WARM_UP_S))
    pairs: list[dict[bool, Figures]] = []
    wrong: list[str] = []
    for number in range(count):
        found: dict[bool, Figures] = {}
        for watched in (False, True) if number % 2 else (True, False):
            with around(case, addresses, watched=watched) as seen:
                found[watched] = await load(broker, seconds)
            wrong += complaints(seen)
            print(f"  {'watched' if watched else 'alone':8}{_told(found[watched])}  {json.dumps(seen)}", flush=True)
        pairs.append(found)
    return wrong + _judged(case, pairs)


@contextmanager
def around(case: Case, addresses: Addresses, *, watched: bool) -> Iterator[AllSeen]:
    """The readers have begun when this is entered; what they have seen is there when it is left. What is beside both
    runs ends first."""
    seen: AllSeen = {}
    with ExitStack() as stack:
        for kind in (*(case.readers if watched else ()), *case.beside):
            seen[kind] = stack.enter_context(reading(kind, addresses))
        yield seen


def _told(run: Figures) -> str:
    return (
        f"{run.throughput:>9,.0f}/s {run.processor_s:>7.3f} s of processor "
        f"{run.confirm_p99_s * 1_000:>7.1f} ms p99 {run.memory_mib:>7.1f} MiB"
    )


def _judged(case: Case, pairs: Sequence[dict[bool, Figures]]) -> list[str]:
    def ratios(name: str) -> list[float]:
        return [getattr(pair[True], name) / getattr(pair[False], name) for pair in pairs]

    wrong: list[str] = []
    throughput, processor = _median("throughput", ratios("throughput")), _median("processor", ratios("processor_s"))
    _median("confirm p99", ratios("confirm_p99_s"))
    memory = _median("memory, MiB more", [pair[True].memory_mib - pair[False].memory_mib for pair in pairs])
    if throughput < case.throughput_min:
        wrong.append(f"the throughput is {throughput:.3f} of that alone, less than {case.throughput_min}")
    if processor > case.processor_max:
        wrong.append(f"the processor time is {processor:.3f} of that alone, more than {case.processor_max}")
    if case.memory_mib_max is not None and memory > case.memory_mib_max:
        wrong.append(f"the broker has {memory:.1f} MiB more, more than {case.memory_mib_max}")
    return wrong


def _median(name: str, values: Sequence[float]) -> float:
    median = statistics.median(values)
    rounded: list[Any] = [round(value, 3) for value in sorted(values)]
    print(f"  {name}, watched beside alone: median {median:.3f} of {json.dumps(rounded)}", flush=True)
    return median
