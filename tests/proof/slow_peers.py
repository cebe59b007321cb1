"""A consumer that never reads, beside one that reads as fast as it can: what the fast one loses by it.

Measured in pairs of short rounds within one run, with the dead consumer and without it, in turns (ABBA); without it the
same messages are published before, and nobody holds them. The figure is the median of the pairs' ratios, by the clock
and by the broker's processor time: a machine that is slow this hour is slow for both halves of a pair. Pairs go on
until it is clear on which side of the limit the median lies, or until there are enough. Only a loss that is clear, by
one of the two measures, is a finding.

Two variants: the dead one on a queue of its own, and on the same round-robin queue. Publisher and fast consumer speak
raw frames and look at as little as they can, to leave the machine to the broker. Afterwards the dead consumer must be
dropped, and what it held must reach the fast one.
"""

import asyncio
import math
import socket
import statistics
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from tests.crash.ledger import BrokerProcess
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.interval import of_median
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions as ext
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body

RATIO_LEAST = 0.95
PAIRS_LEAST = 2
ROWS_PER_FRAME = 100
PAYLOAD = b'"' + b"x" * 1_022 + b'"'
FRAMES_UNCONFIRMED = 16
HELD = 6_000
"""Messages that the dead consumer is given and never reads: more than sockets buffer."""
WRITE_TIMEOUT_MS = 5_000
WAIT_S = 60.0
_DELIVERED = struct.Struct("!QQB")
REPEAT = "python -m tests.proof.slow_peers"
VARIANTS = ("on another queue", "on the same queue")


def cpu_seconds(pid: int) -> float:
    """Of the whole process, with the threads that have ended, to the nanosecond: a tick of /proc/PID/stat would be a
    hundredth of what is measured. The clock's number is that of clock_getcpuclockid(3), which Python has not."""
    return time.clock_gettime((~pid << 3) | 2)


class Raw:
    """A client as thin as it can be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = NativeFrameReader()
        self._bodies: list[bytes] = []

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0) -> Self:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        raw = cls(*await asyncio.open_connection(sock=sock, limit=1 << 20))
        headers = {"supported-extensions": "batch/1,admin/1"}
        await raw.ask(encode_body(CommandType.CONNECT, "c", headers=headers))
        return raw

    async def ask(self, body: bytes) -> bytes:
        self.writer.write(encode_frame(body))
        answer = await self.next()
        if answer[1] == CommandType.ERROR:
            raise AssertionError(repr(answer[:300]))
        return answer

    async def admin(self, verb: str, **arguments: object) -> Any:
        payload = orjson.dumps({"verb": verb, "arguments": arguments})
        answer = await self.ask(encode_body(CommandType.ADMIN, "a", payload=payload))
        return orjson.loads(decode_body(answer).payload or b"null")

    async def subscribe(self, queue: str, prefetch: int) -> None:
        await self.ask(encode_body(CommandType.SUBSCRIBE, "s", queue, headers={"prefetch": str(prefetch)}))

    async def next(self) -> bytes:
        while not self._bodies:
            data = await self._reader.read(1 << 18)
            if not data:
                raise ConnectionResetError("the broker hung up")
            self._frames.receive_data(data)
            self._bodies += self._frames.bodies()
        return self._bodies.pop(0)

    def close(self) -> None:
        self.writer.transport.abort()


async def publish(raw: Raw, queue: str, count: int) -> None:
    """Publish and wait for the confirms, a few frames ahead of them."""
    rows = Rows.of([pack_row(f"{number:08}", PAYLOAD) for number in range(ROWS_PER_FRAME)])
    frame = encode_frame(ext.publish_many("p", queue, rows))
    sent = confirmed = 0
    frames = -(-count // ROWS_PER_FRAME)
    while confirmed < frames:
        while sent < min(frames, confirmed + FRAMES_UNCONFIRMED):
            raw.writer.write(frame)
            sent += 1
        body = await raw.next()
        assert body[1] == CommandType.PUBLISH_MANY_ACK, body[:200]
        confirmed += 1


async def consume(raw: Raw, count: int) -> float:
    """Take and settle so many; when the last came."""
    taken = 0
    while taken < count:
        body = await raw.next()
        if body[1] == CommandType.DELIVER_MANY:
            first, count_here = delivered(body)
            raw.writer.write(encode_frame(ext.settle("s", 0, [(first, first + count_here - 1)])))
            taken += count_here
    return time.perf_counter()


def delivered(body: bytes) -> tuple[int, int]:
    """(first sequence, count) of a DeliverMany, its rows unread."""
    at = 2
    for _ in ("id", "queue"):
        at += 2 + int.from_bytes(body[at : at + 2], "big")
    first, _, acquired = _DELIVERED.unpack_from(body, at)
    at += _DELIVERED.size
    if acquired:
        at += 4 + int.from_bytes(body[at : at + 4], "big")
    return first, int.from_bytes(body[at : at + 4], "big")


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second by the clock, and per second of the broker's processor time."""

    by_clock: float
    by_cpu: float


@dataclass(slots=True)
class Kept:
    """What the fast consumer keeps: of each pair the rate with the dead one, by that without it."""

    by_clock: list[float] = field(default_factory=list)
    by_cpu: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    """Messages a second without it."""

    def add(self, dead: Rate, alone: Rate) -> None:
        self.by_clock.append(dead.by_clock / alone.by_clock)
        self.by_cpu.append(dead.by_cpu / alone.by_cpu)
        self.alone.append(alone.by_clock)

    @property
    def count(self) -> int:
        return len(self.alone)

    @property
    def is_enough(self) -> bool:
        """By both measures."""
        return all(of_median(ratios).is_above(RATIO_LEAST) for ratios in (self.by_clock, self.by_cpu))

    @property
    def is_too_little(self) -> bool:
        """By one of them: time that passes without work shows by the clock alone."""
        return any(of_median(ratios).is_below(RATIO_LEAST) for ratios in (self.by_clock, self.by_cpu))

    @property
    def is_clear(self) -> bool:
        return self.is_enough or self.is_too_little


@dataclass
class Bench:
    broker: BrokerProcess
    messages: int
    _trials: int = field(default=0)

    async def rate(self, variant: str, *, dead: bool) -> Rate:
        """Of the fast consumer."""
        self._trials += 1
        queue = f"fast-{self._trials}"
        operator = await Raw.connect(self.broker.port)
        peers = [operator]
        try:
            await operator.admin("queue.create", queue=queue, options={"durability": "weak"})
            if dead:
                peers.append(await self._dead(operator, queue if variant == VARIANTS[1] else f"dead-{self._trials}"))
            else:
                await self._held(operator, f"dead-{self._trials}")
            fast, publisher = await Raw.connect(self.broker.port), await Raw.connect(self.broker.port)
            peers += [fast, publisher]
            left = await self._left_over(operator, queue)
            await fast.subscribe(queue, 5_000)
            # What the dead one had no room for must not be the fast one's head start, or its burden.
            await consume(fast, left)
            start, cpu = time.perf_counter(), cpu_seconds(self.broker.pid)
            end, _ = await asyncio.gather(consume(fast, self.messages), publish(publisher, queue, self.messages))
            spent = max(0.01, cpu_seconds(self.broker.pid) - cpu)
            return Rate(self.messages / (end - start), self.messages / spent)
        finally:
            for peer in peers[1:]:
                peer.close()
            for name in (queue, f"dead-{self._trials}"):
                await operator.ask(encode_body(CommandType.DELETE_QUEUE, "d", name))
            operator.close()

    async def _held(self, operator: Raw, queue: str) -> None:
        """What a dead consumer would hold, and nobody to hold it."""
        await operator.admin("queue.create", queue=queue, options={"durability": "weak"})
        await publish(operator, queue, HELD)

    async def _dead(self, operator: Raw, queue: str) -> Raw:
        """A consumer with everything in front of it that it may have, and no intention of reading it."""
        await operator.admin("queue.create", queue=queue, options={"durability": "weak"})
        dead = await Raw.connect(self.broker.port, receive_buffer=4_096)
        await dead.subscribe(queue, HELD)
        dead.writer.transport.pause_reading()  # type: ignore[attr-defined]  # every stream's transport is a ReadTransport
        await publish(operator, queue, HELD)
        return dead

    async def _left_over(self, operator: Raw, queue: str) -> int:
        """Messages that wait, once the broker has given the dead consumer all that it will."""
        before = -1
        while True:
            waiting = int((await operator.admin("queue.info", queue=queue))["ready"])
            if waiting == before:
                return waiting
            before = waiting
            await asyncio.sleep(0.05)

    async def pairs(self, variant: str, pairs: int, until: float) -> Kept:
        """At most so many, and until the time or until they tell enough; the first pair warms up and does not count."""
        kept = Kept()
        for number in range(pairs + 1):
            order = (True, False) if number % 2 else (False, True)
            rates = {dead: await self.rate(variant, dead=dead) for dead in order}
            if number:
                kept.add(rates[True], rates[False])
            if kept.is_clear or (time.monotonic() > until and kept.count >= PAIRS_LEAST):
                break
        return kept

    async def dropped(self) -> int:
        """A dead consumer on the fast one's queue: how many of its messages the fast one never gets."""
        queue = "left-behind"
        operator = await Raw.connect(self.broker.port)
        dead = await self._dead(operator, queue)
        fast = await Raw.connect(self.broker.port)
        await fast.subscribe(queue, HELD)
        try:
            async with asyncio.timeout(WAIT_S + WRITE_TIMEOUT_MS / 1000):
                await consume(fast, HELD)
            return 0
        except TimeoutError:
            return HELD
        finally:
            for peer in (dead, fast, operator):
                peer.close()


# -- the method ---------------------------------------------------------------------------------------------------


def run(budget: Budget) -> Result:
    result = Result(unit="pairs")
    config = budget.work / "slow.toml"
    config.write_text(f"[limits]\nwrite_timeout_ms = {WRITE_TIMEOUT_MS}\n")
    broker = BrokerProcess(budget.work / "data", arguments=("--config", str(config)))
    broker.start()
    try:
        asyncio.run(_measure(budget, Bench(broker, 10_000 if budget.seconds < 30 else 30_000), result))
    finally:
        broker.kill()
    return result


async def _measure(budget: Budget, bench: Bench, result: Result) -> None:
    start = time.monotonic()
    for number, variant in enumerate(VARIANTS):
        until = start + (budget.seconds - WRITE_TIMEOUT_MS / 1000) * (number + 1) / len(VARIANTS)
        kept = await bench.pairs(variant, budget.cases // len(VARIANTS), until)
        result.cases += kept.count
        judge(variant, kept, result)
    result.confirmed = HELD
    result.lost = await bench.dropped()
    if result.lost:
        what = "a consumer that never reads was not dropped, or what it held came to nobody"
        result.findings.append(Finding(what, REPEAT))


def judge(variant: str, kept: Kept, result: Result) -> None:
    """A finding when the loss is clear; what the machine is too noisy to tell is told as that."""
    told = f"{_told(kept.by_clock)} by the clock, {_told(kept.by_cpu)} by CPU time"
    result.figures |= {
        f"throughput kept, dead one {variant}": f"{told}, of {kept.count} pairs",
        f"messages a second without it, {variant}": f"{statistics.median(kept.alone):,.0f}",
    }
    if kept.is_too_little:
        what = f"beside a dead consumer {variant} the fast one keeps {told} of its throughput"
        result.findings.append(Finding(what, REPEAT))
    elif not kept.is_enough:
        result.complete = False
        result.figures[f"not clear, {variant}"] = f"more than {100 * RATIO_LEAST:.0f} % or less"


def _told(ratios: list[float]) -> str:
    low, high = of_median(ratios)
    between = f" ({100 * low:.1f} to {100 * high:.1f})" if math.isfinite(low) else ""
    return f"{100 * statistics.median(ratios):.1f} %{between}"


METHOD = Method(
    name="slow-peers",
    title="a consumer that never reads, beside a fast one",
    run=run,
    short=Size(4, 3),
    crash=Size(cases=80, seconds=50),
    torture=Size(cases=160, seconds=80),
    alone=True,
    least_s=25,
)

if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        shown = run(Budget(int(sys.argv[1]) if len(sys.argv) > 1 else 160, 90, 1, Path(folder)))
        print(shown.figures, shown.lost, *(finding.what for finding in shown.findings), sep="\n")
