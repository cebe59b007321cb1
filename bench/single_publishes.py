"""What one publish costs the client: processor time of its process, all threads, per message.

    python -m bench.single_publishes [--rounds 5] [--messages 3000] [--redis HOST:PORT]

A broker in a process of its own takes them into a transient queue. The ways take turns, in one run, so that other load
on the machine meets all of them. Prints the median of the rounds and the ratio to the first way.
"""

import argparse
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import anyio

import vibemq
import vibemq.sync

BODY = {"id": 4711, "item": "tea", "text": "x" * 200}
BROKER = """
import sys, anyio, vibemq
async def main():
    async with vibemq.Broker(sys.argv[1], port=0) as broker:
        print(broker.port, flush=True)
        await broker.run()
anyio.run(main)
"""
Way = Callable[[int], None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--redis", help="HOST:PORT of a Redis server to compare with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", BROKER, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            try:
                measure(int(broker.stdout.readline()), given)
            finally:
                broker.terminate()


def measure(port: int, given: argparse.Namespace) -> None:
    with vibemq.sync.connect(f"vibemq://127.0.0.1:{port}") as mq:
        mq.create_queue("bench", durability="transient", max_messages=1_000, overflow="drop-oldest")
        ways = {**ours(mq), **asynchronous(port), **(redis_ways(given.redis) if given.redis else {})}
        figures: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.rounds + 1):
            for name, way in ways.items():
                began = time.process_time()
                way(given.messages)
                figures[name].append((time.process_time() - began) / given.messages * 1_000)
    first = None
    for name, found in figures.items():
        median = statistics.median(found[1:])  # The first round warms up.
        first = first or median
        print(f"{name:<34} {median:7.4f} ms   x {median / first:.2f}   {min(found[1:]):.4f} to {max(found[1:]):.4f}")


def ours(mq: vibemq.sync.Client) -> dict[str, Way]:
    def waited(messages: int) -> None:
        for _ in range(messages):
            mq.publish("bench", BODY)

    def pipelined(messages: int) -> None:
        for _ in range(messages):
            mq.publish("bench", BODY, wait=False)
        mq.flush()

    def many(messages: int) -> None:
        mq.publish_many("bench", (BODY for _ in range(messages)))

    return {"publish": waited, "publish(wait=False)": pipelined, "publish_many": many}


def asynchronous(port: int) -> dict[str, Way]:
    """On asyncio; the connection is a part of it."""

    async def waited(messages: int) -> None:
        async with vibemq.connect(f"vibemq://127.0.0.1:{port}") as mq:
            for _ in range(messages):
                await mq.publish("bench", BODY)

    async def pipelined(messages: int) -> None:
        async with vibemq.connect(f"vibemq://127.0.0.1:{port}") as mq:
            for _ in range(messages):
                await mq.publish("bench", BODY, wait=False)
            await mq.flush()

    return {
        "await publish": lambda messages: anyio.run(waited, messages),
        "await publish(wait=False)": lambda messages: anyio.run(pipelined, messages),
    }


def redis_ways(address: str) -> dict[str, Way]:
    import json

    host, port = address.rsplit(":", 1)
    client: Any = importlib.import_module("redis").Redis(host, int(port))

    def waited(messages: int) -> None:
        for _ in range(messages):
            client.xadd("bench", {"body": json.dumps(BODY)}, maxlen=1_000, approximate=True)

    def pipelined(messages: int) -> None:
        for start in range(0, messages, 500):
            with client.pipeline(transaction=False) as pipe:
                for _ in range(min(500, messages - start)):
                    pipe.xadd("bench", {"body": json.dumps(BODY)}, maxlen=1_000, approximate=True)
                pipe.execute()

    return {"redis-py xadd": waited, "redis-py xadd, pipelines of 500": pipelined}


if __name__ == "__main__":
    main()
