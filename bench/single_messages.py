"""What single messages cost the client: processor time of its process, all threads, per message.

    python -m bench.single_messages [--rounds 5] [--messages 1000] [--rate 500] [--only TEXT] [--redis HOST:PORT]

A broker in a process of its own takes them. What is consumed comes from a third process, one message at a time at a
steady rate, and each is read and acknowledged before the next. The ways take turns, in one run, so that other load on
the machine meets all of them. Prints medians of the rounds: processor time, its ratio to redis-py's of the same kind
in the same round, voluntary context switches, and the wait, from the call to the confirm or from the publish to the
hand-out.

Redis confirms what its own configuration promises; `--appendonly yes --appendfsync always` is what a queue of VibeMQ
promises by default.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Self

import vibemq
import vibemq.sync
from bench.common.embedded import BODY, BROKER
from bench.common.options import switches

KEPT = 1_000
"""Published messages that Redis keeps of what nobody consumes; a queue drops its oldest."""
BLOCK_MS = 5_000


@dataclass(slots=True)
class Sample:
    """Of one way in one round."""

    cpu_ms: float = 0.0
    switches: float = 0.0
    waits_s: list[float] = field(default_factory=list)


class Measured:
    """A `with` block around so many messages."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self.sample = Sample()

    def __enter__(self) -> Self:
        self._switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.sample.cpu_ms = (time.process_time() - self._began) / self._messages * 1_000
        after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        self.sample.switches = (after - self._switches) / self._messages


Way = Callable[[int], Sample]


def main() -> None:
    parser = switches("single_messages", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=500.0, help="of the messages to consume, per second")
    parser.add_argument("--only", default="", help="the ways whose names contain this")
    parser.add_argument("--redis", default="", help="HOST:PORT of a Redis server to compare with")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.feed:
        feed(given.feed, given.redis, given.rate)
        return
    with tempfile.TemporaryDirectory() as folder, process("-c", BROKER, folder) as broker:
        assert broker.stdout is not None
        address = f"vibemq://127.0.0.1:{int(broker.stdout.readline())}"
        arguments = ["--feed", address, "--redis", given.redis, "--rate", str(given.rate)]
        with vibemq.sync.connect(address) as mq, process("-m", "bench.single_messages", *arguments) as feeder:
            mq.create_queue("bench", max_messages=KEPT, overflow="drop-oldest")
            mq.create_queue("consumed")
            measure(all_ways(mq, address, given.redis, feeder), given)


@contextlib.contextmanager
def process(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as started:
        try:
            yield started
        finally:
            started.terminate()


def measure(ways: dict[str, tuple[str, Way]], given: argparse.Namespace) -> None:
    """`ways`: each with the one that it is compared with."""
    ways = {name: way for name, way in ways.items() if given.only in name}
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    for _ in range(given.rounds + 1):
        for name, (_, way) in ways.items():
            samples[name].append(way(given.messages))
    kept = {name: found[1:] for name, found in samples.items()}  # The first round warms up.
    print(f"{'':<34} {'CPU ms':>8} {'of theirs':>9} {'min':>8} {'max':>8} {'switches':>8} {'wait p50 ms':>11}")
    for name, (theirs, _) in ways.items():
        found = kept[name]
        pairs = zip(found, kept.get(theirs, ()), strict=False)
        ratios = [mine.cpu_ms / other.cpu_ms for mine, other in pairs]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        costs = [each.cpu_ms for each in found]
        switches = statistics.median(each.switches for each in found)
        waits = [wait for each in found for wait in each.waits_s]
        wait = f"{statistics.median(waits) * 1_000:.3f}" if waits else "-"
        print(
            f"{name:<34} {statistics.median(costs):8.4f} {ratio:>9} {min(costs):8.4f} {max(costs):8.4f} {switches:8.2f}"
            f" {wait:>11}"
        )


def all_ways(
    mq: vibemq.sync.Client, address: str, redis: str, feeder: "subprocess.Popen[str]"
) -> dict[str, tuple[str, Way]]:
    ways: dict[str, tuple[str, Way]] = {}
    assert feeder.stdin is not None
    assert feeder.stdout is not None
    fed = Feeder(feeder.stdin, feeder.stdout)
    if redis:
        ways |= {name: (name, way) for name, way in redis_ways(redis, fed).items()}
    ours = {**blocking(mq, fed), **asynchronous(address, fed)}
    compared = {
        "publish": "redis-py xadd",
        "publish(wait=False)": "redis-py xadd, pipelines of 500",
        "publish_many": "redis-py xadd, pipelines of 500",
        "await publish": "redis-py await xadd",
        "await publish(wait=False)": "redis-py xadd, pipelines of 500",
        "for message, ack": "redis-py xreadgroup, xack",
        "async for message, ack": "redis-py await xreadgroup, xack",
    }
    ways |= {name: (compared[name], way) for name, way in ours.items()}
    # Next to each other, so that other load meets both.
    return dict(sorted(ways.items(), key=lambda way: (list(compared.values()).index(way[1][0]), way[0] in ours)))


# -- the process that feeds consumers ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Feeder:
    """Tells the process what to publish."""

    orders: IO[str]
    answers: IO[str]

    def begin(self, where: str, messages: int) -> None:
        self.orders.write(f"{where} {messages}\n")
        self.orders.flush()

    def finish(self) -> None:
        self.answers.readline()


def feed(address: str, redis: str, rate: float) -> None:
    with vibemq.sync.connect(address) as mq:
        publish: dict[str, Callable[[Any], object]] = {"vibemq": lambda body: mq.publish("consumed", body)}
        if redis:
            client = _redis().Redis(**_host_and_port(redis))
            publish["redis"] = lambda body: client.xadd("consumed", {"body": json.dumps(body)})
        for line in sys.stdin:
            where, messages = line.split()
            due = time.perf_counter()
            for _ in range(int(messages)):
                due = max(due + 1 / rate, time.perf_counter() - 1 / rate)
                time.sleep(max(0.0, due - time.perf_counter()))
                # One clock for all processes of a machine.
                publish[where]({**BODY, "at": time.perf_counter()})
            print("fed", flush=True)


# -- ours -------------------------------------------------------------------------------------------------------------


def blocking(mq: vibemq.sync.Client, fed: Feeder) -> dict[str, Way]:
    def waited(messages: int) -> Sample:
        with Measured(messages) as measured:
            for _ in range(messages):
                began = time.perf_counter()
                mq.publish("bench", BODY)
                measured.sample.waits_s.append(time.perf_counter() - began)
        return measured.sample

    def pipelined(messages: int) -> Sample:
        with Measured(messages) as measured:
            for _ in range(messages):
                mq.publish("bench", BODY, wait=False)
            mq.flush()
        return measured.sample

    def many(messages: int) -> Sample:
        with Measured(messages) as measured:
            mq.publish_many("bench", (BODY for _ in range(messages)))
        return measured.sample

    def consumed(messages: int) -> Sample:
        with mq.subscribe("consumed") as subscription:
            fed.begin("vibemq", messages)
            with Measured(messages) as measured:
                for message in subscription:
                    measured.sample.waits_s.append(time.perf_counter() - message.json()["at"])
                    message.ack()
                    if len(measured.sample.waits_s) == messages:
                        break
        fed.finish()
        return measured.sample

    return {
        "publish": waited,
        "publish(wait=False)": pipelined,
        "publish_many": many,
        "for message, ack": consumed,
    }


def asynchronous(address: str, fed: Feeder) -> dict[str, Way]:
    """On asyncio, with the loop of the standard library."""

    async def waited(messages: int) -> Sample:
        async with vibemq.connect(address) as mq:
            with Measured(messages) as measured:
                for _ in range(messages):
                    began = time.perf_counter()
                    await mq.publish("bench", BODY)
                    measured.sample.waits_s.append(time.perf_counter() - began)
        return measured.sample

    async def pipelined(messages: int) -> Sample:
        async with vibemq.connect(address) as mq:
            with Measured(messages) as measured:
                for _ in range(messages):
                    await mq.publish("bench", BODY, wait=False)
                await mq.flush()
        return measured.sample

    async def consumed(messages: int) -> Sample:
        async with vibemq.connect(address) as mq, mq.subscribe("consumed") as subscription:
            fed.begin("vibemq", messages)
            with Measured(messages) as measured:
                async for message in subscription:
                    measured.sample.waits_s.append(time.perf_counter() - message.json()["at"])
                    message.ack()
                    if len(measured.sample.waits_s) == messages:
                        break
        fed.finish()
        return measured.sample

    return {
        "await publish": lambda messages: asyncio.run(waited(messages)),
        "await publish(wait=False)": lambda messages: asyncio.run(pipelined(messages)),
        "async for message, ack": lambda messages: asyncio.run(consumed(messages)),
    }


# -- Redis ------------------------------------------------------------------------------------------------------------


def redis_ways(address: str, fed: Feeder) -> dict[str, Way]:
    client: Any = _redis().Redis(**_host_and_port(address))
    client.delete("bench", "consumed")
    client.xgroup_create("consumed", "group", mkstream=True)
    kept = {"maxlen": KEPT, "approximate": True}

    def waited(messages: int) -> Sample:
        with Measured(messages) as measured:
            for _ in range(messages):
                began = time.perf_counter()
                client.xadd("bench", {"body": json.dumps(BODY)}, **kept)
                measured.sample.waits_s.append(time.perf_counter() - began)
        return measured.sample

    def pipelined(messages: int) -> Sample:
        with Measured(messages) as measured:
            for start in range(0, messages, 500):
                with client.pipeline(transaction=False) as pipe:
                    for _ in range(min(500, messages - start)):
                        pipe.xadd("bench", {"body": json.dumps(BODY)}, **kept)
                    pipe.execute()
        return measured.sample

    def consumed(messages: int) -> Sample:
        fed.begin("redis", messages)
        with Measured(messages) as measured:
            while len(measured.sample.waits_s) < messages:
                found = client.xreadgroup("group", "one", {"consumed": ">"}, count=1, block=BLOCK_MS)
                number, fields = found[0][1][0]
                measured.sample.waits_s.append(time.perf_counter() - json.loads(fields[b"body"])["at"])
                client.xack("consumed", "group", number)
        fed.finish()
        client.xtrim("consumed", maxlen=0)
        return measured.sample

    async def async_waited(messages: int) -> Sample:
        async with _async_redis(address) as redis:
            with Measured(messages) as measured:
                for _ in range(messages):
                    began = time.perf_counter()
                    await redis.xadd("bench", {"body": json.dumps(BODY)}, **kept)
                    measured.sample.waits_s.append(time.perf_counter() - began)
        return measured.sample

    async def async_consumed(messages: int) -> Sample:
        async with _async_redis(address) as redis:
            fed.begin("redis", messages)
            with Measured(messages) as measured:
                while len(measured.sample.waits_s) < messages:
                    found = await redis.xreadgroup("group", "one", {"consumed": ">"}, count=1, block=BLOCK_MS)
                    number, fields = found[0][1][0]
                    measured.sample.waits_s.append(time.perf_counter() - json.loads(fields[b"body"])["at"])
                    await redis.xack("consumed", "group", number)
        fed.finish()
        client.xtrim("consumed", maxlen=0)
        return measured.sample

    return {
        "redis-py xadd": waited,
        "redis-py xadd, pipelines of 500": pipelined,
        "redis-py xreadgroup, xack": consumed,
        "redis-py await xadd": lambda messages: asyncio.run(async_waited(messages)),
        "redis-py await xreadgroup, xack": lambda messages: asyncio.run(async_consumed(messages)),
    }


def _redis() -> Any:
    return importlib.import_module("redis")


@contextlib.asynccontextmanager
async def _async_redis(address: str) -> AsyncIterator[Any]:
    client = importlib.import_module("redis.asyncio").Redis(**_host_and_port(address))
    try:
        await client.ping()
        yield client
    finally:
        await client.aclose()


def _host_and_port(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"host": host, "port": int(port)}


if __name__ == "__main__":
    main()
