"""How long a request takes beside the confirm of a publish, on the same kind of queue.

    python -m bench.requests [--rounds 7] [--calls 400] [--at-once 10000]

Broker, responder and requester are processes of their own. The ways take turns in one run, so that other load on the
machine meets all of them. Prints the median of each and its ratio to the confirm, then the time of very many requests
at once and what client and broker keep of them.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

import vibemq
from bench.common.embedded import BODY, BROKER
from bench.common.options import switches

ECHO = """
import sys, anyio, vibemq
async def serve(mq, queue):
    async with mq.subscribe(queue) as messages:
        async for message in messages:
            async with message.process():
                await message.reply(message.body)
async def main():
    async with vibemq.connect(sys.argv[1]) as mq, anyio.create_task_group() as tasks:
        for queue in ("strong", "transient"):
            tasks.start_soon(serve, mq, queue)
        await mq.ping()
        print("ready", flush=True)
anyio.run(main)
"""


def main() -> None:
    parser = switches("requests", __doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = subprocess.Popen([sys.executable, "-c", BROKER, folder], stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        address = f"vibemq://127.0.0.1:{int(broker.stdout.readline())}"
        echo = None
        try:
            anyio.run(declare, address)
            echo = subprocess.Popen([sys.executable, "-c", ECHO, address], stdout=subprocess.PIPE, text=True)
            assert echo.stdout is not None
            echo.stdout.readline()
            anyio.run(measure, address, given, broker.pid)
        finally:
            for process in (echo, broker):
                if process is not None:
                    process.terminate()
                    process.wait()


async def declare(address: str) -> None:
    async with vibemq.connect(address) as mq:
        for queue in ("strong", "transient"):
            await mq.create_queue(queue, durability=queue)
            await mq.create_queue(f"{queue}-confirm", durability=queue, max_messages=1_000, overflow="drop-oldest")


async def measure(address: str, given: argparse.Namespace, broker: int) -> None:
    async with vibemq.connect(address) as mq:
        for queue in ("strong", "transient"):
            laps: dict[str, list[float]] = {"confirm": [], "request": []}
            for number in range(given.rounds + 1):
                for name, found in laps.items():
                    for _ in range(given.calls):
                        began = time.perf_counter()
                        if name == "confirm":
                            await mq.publish(f"{queue}-confirm", BODY)
                        else:
                            await mq.request(queue, BODY, timeout=60)
                        if number:  # The first round warms up.
                            found.append((time.perf_counter() - began) * 1_000)
            confirm, request = (statistics.median(found) for found in laps.values())
            print(f"{queue:<10} confirm {confirm:7.3f} ms   request {request:7.3f} ms   x {request / confirm:.2f}")
        for number in range(3):
            await at_once(mq, given.at_once, broker, number)


async def at_once(mq: vibemq.Client, calls: int, broker: int, number: int) -> None:
    async def ask() -> None:
        await mq.request("transient", BODY, timeout=60)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(ask)
    seconds = time.perf_counter() - began
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    kept = f"most memory {ours} MiB; broker {memory(broker)} MiB now"
    print(f"{calls:,} at once, round {number + 1}: {seconds:.2f} s; {kept}")


def memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024**2


if __name__ == "__main__":
    main()
