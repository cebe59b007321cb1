"""What extras cost: messages with a delay, a TTL, headers, keys or a priority, beside plain ones.

    python -m bench.extras [--messages 50000] [--rounds 5] [--ways plain,delay,...]

A broker of its own on a durable store. The ways take turns in one run, so that other load on the machine meets all of
them; each publishes to a queue of its own, deleted after each round. Prints medians, and the median ratio of the
rounds to the plain way: wall time, processor time of the client and of the broker, for each message.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

import vibemq
from bench.common.options import switches
from bench.million import Broker
from vibemq import Outgoing

BODY = {"id": 4711, "item": "tea"}
HOUR_MS = 3_600_000


def same(messages: int, **options: Any) -> tuple[Iterable[Any], dict[str, Any]]:
    return (BODY for _ in range(messages)), options


def each(messages: int, make: Any) -> tuple[Iterable[Any], dict[str, Any]]:
    return (make(number) for number in range(messages)), {}


WAYS: dict[str, Any] = {
    "plain": same,
    "Outgoing, plain": lambda n: each(n, lambda _: Outgoing(BODY)),
    "delay, one for all": lambda n: same(n, delay=3600),
    "delay, each its own, in order": lambda n: each(n, lambda i: Outgoing(BODY, delay=3600 + i / 100)),
    "delay, each its own": lambda n: each(n, lambda i: Outgoing(BODY, delay=3600 + i * 7919 % 3_600)),
    "deliver_at, each its own": lambda n: each(n, lambda i: Outgoing(BODY, deliver_at=4e9 + i * 7919 % 3_600)),
    "ttl, one for all": lambda n: same(n, ttl=3600),
    "ttl, each its own": lambda n: each(n, lambda i: Outgoing(BODY, ttl=3600 + i * 7919 % 3_600)),
    "priority, one for all": lambda n: same(n, priority=2),
    "priority, each its own": lambda n: each(n, lambda i: Outgoing(BODY, priority=i % 4)),
    "headers, one for all": lambda n: same(n, headers={"tenant": "north"}),
    "headers, each its own": lambda n: each(n, lambda i: Outgoing(BODY, headers={"tenant": f"n{i % 1000}"})),
    "dedup id, each its own": lambda n: each(n, lambda i: Outgoing(BODY, dedup_id=f"{time.time_ns():x}-{i}")),
}


def processor_s(pid: int) -> float:
    """Of all threads that are there, to the nanosecond: the ticks of `stat` are too coarse for a short round."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def measure(broker: Broker, given: argparse.Namespace) -> None:
    ways = {name: way for name, way in WAYS.items() if name == "plain" or not given.ways or given.ways in name}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    async with vibemq.connect(broker.url) as mq:
        for _ in range(given.rounds + 1):
            for name, way in ways.items():
                mode = "PriorityBased" if name.startswith("priority") else "RoundRobin"
                await mq.create_queue("extras", mode=mode, durability=given.durability)
                messages, options = way(given.messages)
                before = time.perf_counter(), time.process_time(), processor_s(broker.process.pid)
                await mq.publish_many("extras", messages, **options)
                after = time.perf_counter(), time.process_time(), processor_s(broker.process.pid)
                found[name].append(tuple(b - a for a, b in zip(before, after, strict=True)))  # type: ignore[arg-type]
                await mq.delete_queue("extras")
    plain = found["plain"][1:]
    print(f"{'us for each message':<32} {'wall':>7} {'x':>5} {'client':>8} {'x':>5} {'broker':>8} {'x':>5}")
    for name, rounds in found.items():
        cells = []
        for column in range(3):
            some = [figures[column] for figures in rounds[1:]]  # The first round warms up.
            ratio = statistics.median(one / other[column] for one, other in zip(some, plain, strict=True))
            cells.append(f"{statistics.median(some) / given.messages * 1e6:8.2f} {ratio:5.2f}")
        print(f"{name:<31} {' '.join(cells)}")


def main() -> None:
    parser = switches("extras", __doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durability", default="strong")
    parser.add_argument("--ways", help="only those whose name has this in it, beside the plain one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vibemq-extras-") as folder:
        broker = Broker(Path(folder) / "data")
        try:
            anyio.run(measure, broker, given)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
