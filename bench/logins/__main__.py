"""Measure publishes of one client beside a thousand wrong logins a second from fifty addresses, and without them.

Publishes are due at a fixed rate, and their latency counts from the instant when they are due. Rounds with and without
the attack take turns; what counts is the median of each. The owner logs in during the attack, from an address of its
own that has never logged in before.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import vibemq
from bench.common.accounting import cpu_seconds, memory_mib
from bench.common.options import parsed, switches
from bench.common.report import Journal, table
from bench.common.serving import PASSWORD, serving
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

RATIO_MAX, OWNER_MAX_S, MIB_MAX = 2.0, 1.0, 64.0
FLOORS = {
    "elsewhere": "the attack on a server of no use, beside",
    "connects": "as many connections that say nothing",
    "token": "as many logins with an access token",
}
"""What the machine and the connections cost by themselves."""


def main() -> None:
    options = _options()
    kinds = ("quiet", *(FLOORS if options.floors else ()), "wrong")
    p99s: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    owner: list[float] = []
    with (
        Journal(options.output) as journal,
        tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=options.data_root) as folder,
        serving(Path(folder)) as broker,
        elsewhere() as other_port,
    ):
        os.environ["BENCH_TOKEN"] = asyncio.run(make_token(broker.port))
        before = memory_mib([broker.pid], children=False)
        for number in range(options.rounds):
            for kind in kinds:
                began, used = time.monotonic(), cpu_seconds([broker.pid])
                if kind == "quiet":
                    p99s[kind].append(asyncio.run(p99_ms(broker.port, options)))
                else:
                    port = other_port if kind == "elsewhere" else broker.port
                    with attacking(port, options.logins, kind):
                        if kind == "wrong":
                            # The first guesses are the ones that are checked.
                            owner.append(asyncio.run(owner_logs_in(broker.port, f"127.0.1.{number + 1}")))
                        p99s[kind].append(asyncio.run(p99_ms(broker.port, options)))
                        if kind == "wrong":
                            owner.append(asyncio.run(owner_logs_in(broker.port, f"127.0.2.{number + 1}")))
                cpu[kind].append((cpu_seconds([broker.pid]) - used) / (time.monotonic() - began))
                journal.write("round", kind=kind, p99_ms=p99s[kind][-1], cpu=cpu[kind][-1], owner_s=owner[-2:])
                print(f"  {kind}: p99 {p99s[kind][-1]:.2f} ms, the broker used {cpu[kind][-1]:.2f} cores", flush=True)
        grown = memory_mib([broker.pid], children=False) - before
    _show(p99s, cpu, owner, grown)


def _show(p99s: dict[str, list[float]], cpu: dict[str, list[float]], owner: list[float], grown: float) -> None:
    quiet = median(p99s["quiet"])
    names = {"quiet": "without", **FLOORS, "wrong": "attacked"}
    rows = []
    for kind, values in p99s.items():
        ratio = median(values) / quiet
        goal = (f"< {RATIO_MAX:g}", _verdict(ratio < RATIO_MAX)) if kind == "wrong" else ("", "")
        figure = f"{median(values):.2f} ms = {ratio:.2f} of it, {median(cpu[kind]):.2f} cores"
        rows.append([f"p99 of publishes, {names[kind]}", figure, *goal])
    rows += [
        ["the owner's login, worst", f"{max(owner):.2f} s", f"< {OWNER_MAX_S:g} s", _verdict(max(owner) < OWNER_MAX_S)],
        ["private memory, grown by", f"{grown:.0f} MiB", f"< {MIB_MAX:g} MiB", _verdict(grown < MIB_MAX)],
    ]
    print(f"\n{table(['what', 'figure', 'goal', 'verdict'], rows)}")


def _options() -> argparse.Namespace:
    parser = switches("logins", __doc__)
    parser.add_argument("--rounds", type=int, default=4, help="with and without, of which the median counts (4)")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of publishing in each (30), of which an attack begins in the first"
    )
    parser.add_argument("--rate", type=float, default=200.0, help="publishes a second (200)")
    parser.add_argument("--logins", type=float, default=1000.0, help="wrong logins a second (1000)")
    parser.add_argument("--floors", action="store_true", help="also: what as many harmless connections cost")
    return parsed("logins", parser, whose="the broker's")


def _verdict(holds: bool) -> str:
    return "pass" if holds else "fall short"


@contextmanager
def elsewhere() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", "bench.logins.elsewhere"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextmanager
def attacking(port: int, rate: float, kind: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.logins.attack", str(port), str(rate), kind], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the attack has ended by itself: {first}")
    finally:
        process.kill()
        last = [first, *process.stdout.read().splitlines()][-1]
        process.wait()
    print(f"  attack: {last.strip()}", flush=True)


async def make_token(port: int) -> str:
    async with vibemq.connect(f"vibemq://127.0.0.1:{port}", username="root", password=PASSWORD) as mq:
        answer = await mq.admin("token.create", user="root", label="bench")
        return str(answer["token"])


async def p99_ms(port: int, options: argparse.Namespace) -> float:
    latencies: list[float] = []
    async with vibemq.connect(f"vibemq://127.0.0.1:{port}", username="root", password=PASSWORD) as mq:
        await mq.publish("bench", b"warm")
        began = time.monotonic()

        async def publish(due: float) -> None:
            await mq.publish("bench", b"x" * 100)
            latencies.append(time.monotonic() - due)

        async with asyncio.TaskGroup() as tasks:
            for number in range(int(options.rate * options.seconds)):
                due = began + number / options.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                tasks.create_task(publish(due))
    latencies.sort()
    return latencies[int(len(latencies) * 0.99)] * 1000


async def owner_logs_in(port: int, address: str) -> float:
    """From an address that the broker has never seen; how long it took."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    headers = {"authUsername": "root", "authPassword": PASSWORD}
    writer.write(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=1 << 20))
    answer = await reader.read(4096)
    took = time.monotonic() - began
    writer.close()
    if CommandType.CONNECT_ACK not in answer[:8]:
        raise RuntimeError(f"the owner was not let in: {answer!r}")
    return took


if __name__ == "__main__":
    main()
