"""A broker whose clock the proof moves, and real connections to it: what each message may do is decided to the
millisecond, and nothing waits for time to pass.

One scene keeps connections busy that publish with delays and times to live. In the other a consumer ends its stream and
keeps the connection: what it has not been sent is nobody's attempt and nobody's letter, and keeps its order.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vibemq
from tests.integration.http_api import ApiClient, serving
from tests.integration.plain_peers import PlainPeer, frame
from tests.proof.contract import Budget, Finding, Result
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.testing.timed_broker import TimedBroker

QUEUE = "q"
STEPS = 24
STEP_MS_MAX = 6_000
LOOK_EVERY = 8
LATER_MS_MAX = 30_000
TAKEN_S = 60.0
HOUR_S = 3_600


@dataclass
class ClockScene:
    """One broker and one client of it, for one scene."""

    broker: TimedBroker
    api: ApiClient
    mq: Any
    rng: random.Random
    confirmed: int = 0
    told: list[str] = field(default_factory=list)

    def info(self) -> Any:
        info = self.broker.queue_info(QUEUE)
        assert info is not None
        return info

    async def taken(self) -> list[tuple[int, int]]:
        """(number, failed attempts) of all that can be had now, in order; they are acknowledged."""
        await self.broker.time_has_moved()
        taken: list[tuple[int, int]] = []
        while messages := await self.mq.fetch(QUEUE, max=500, timeout=0):
            for message in messages:
                taken.append((number_in(message.payload), message.failures or 0))
                await message.ack()
        return taken


def body_of(number: int, fill: int = 0) -> bytes:
    """JSON, as plain clients need it."""
    return b'"%06d%b"' % (number, b"x" * fill)


def number_in(body: bytes) -> int:
    return int(body[1:7])


# -- a busy connection ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    way: str
    due: int
    expires: int
    """0: never."""

    def can_be_had(self, now: int) -> bool:
        return self.due <= now and (not self.expires or now < self.expires)


Way = Callable[[bytes, int, int], Awaitable[None]]
"""(body, delay in ms, ttl in ms; 0: none) -> published."""


def ways_of(scene: ClockScene, peer: PlainPeer) -> dict[str, Way]:
    mq, api = scene.mq, scene.api

    async def alone(body: bytes, delay_ms: int, ttl_ms: int) -> None:
        await mq.publish(QUEUE, body, delay=delay_ms / 1000 or None, ttl=ttl_ms / 1000 or None)

    async def many(body: bytes, delay_ms: int, ttl_ms: int) -> None:
        await mq.publish_many(QUEUE, [body], delay=delay_ms / 1000 or None, ttl=ttl_ms / 1000 or None)

    async def plain(body: bytes, delay_ms: int, ttl_ms: int) -> None:
        times = {"vibemq_delay_ms": delay_ms, "vibemq_ttl_ms": ttl_ms}
        said = {name: str(value) for name, value in times.items() if value}
        peer.send(frame(CommandType.PUBLISH, f"m{number_in(body)}", QUEUE, body, **said))
        assert await peer.heard() == CommandType.PUBLISH_ACK

    async def over_http(body: bytes, delay_ms: int, ttl_ms: int) -> None:
        headers = {"content-type": "application/octet-stream", "vibemq-delay-ms": str(delay_ms)}
        if ttl_ms:
            headers["vibemq-ttl-ms"] = str(ttl_ms)
        await api.done("POST", f"/queues/{QUEUE}/messages", content=body, headers=headers)

    return {"publish": alone, "publish_many": many, "a plain frame": plain, "the HTTP API": over_http}


async def busy_connection(scene: ClockScene) -> None:
    """Each connection publishes at every step, and time passes between the steps without the broker's timers."""
    rng, now, published = scene.rng, 0, list[Timed]()
    gone: set[int] = set()
    peer = PlainPeer(scene.broker.port)
    try:
        await peer.connect()
        for step in range(STEPS):
            for name, way in ways_of(scene, peer).items():
                delay_ms = rng.choice((0, rng.randint(1, LATER_MS_MAX)))
                ttl_ms = rng.choice((0, delay_ms + rng.randint(1, LATER_MS_MAX)))
                await way(body_of(len(published)), delay_ms, ttl_ms)
                published.append(Timed(name, now + delay_ms, ttl_ms and now + ttl_ms))
            pause = rng.randint(0, STEP_MS_MAX)
            scene.broker.advance_unseen(pause / 1000)
            now += pause
            if step % LOOK_EVERY == LOOK_EVERY - 1:
                await look(scene, published, gone, now)
        scene.broker.advance_unseen(LATER_MS_MAX / 1000)
        await look(scene, published, gone, now + LATER_MS_MAX)
    finally:
        peer.close()
    scene.confirmed += len(published)


async def look(scene: ClockScene, published: list[Timed], gone: set[int], now: int) -> None:
    """What can be had now, and nothing else, comes now. `gone`: what was here before, or could have been."""
    came = {number for number, _ in await scene.taken()}
    for number in sorted(came):
        message = published[number]
        if now < message.due:
            scene.told.append(f"{message.way}: a message came {message.due - now} ms before its delay was over")
        elif number in gone:
            scene.told.append(f"{message.way}: a message came twice")
        elif not message.can_be_had(now):
            scene.told.append(f"{message.way}: a message came {now - message.expires} ms after its ttl was over")
    wanted = {number for number, message in enumerate(published) if message.can_be_had(now)} - gone
    for number in sorted(wanted - came):
        message = published[number]
        what = f"{message.expires - now} ms before its ttl was over" if message.expires else "although it is due"
        scene.told.append(f"{message.way}: a message was not there, {what}")
    gone |= came | wanted


# -- an ended stream ------------------------------------------------------------------------------------------------


async def ended_stream(scene: ClockScene) -> None:
    """Before or after it has got messages, some of which wait in the broker, since it reads few bytes at a time."""
    rng = scene.rng
    before, after = rng.choice((0, rng.randint(1, 200))), rng.randint(1, 20)
    attempts, fill = rng.choice((1, 1, 5)), rng.choice((0, 2_000, 60_000))
    await scene.mq.create_queue(QUEUE, max_attempts=attempts)
    bodies = [body_of(number, fill) for number in range(before + after)]
    await scene.mq.publish_many(QUEUE, bodies[:before])
    consumer = PlainPeer(scene.broker.port, receive_buffer=4096)
    try:
        with complaints() as logged:
            await consumer.consume(QUEUE, settles=rng.random() < 0.7)
            for _ in range(rng.choice((0, 0, 1, min(before, 20)))):
                if before:
                    await consumer.heard()
            consumer.end_stream()
            heard = {number_in(message.payload or b"") for message in await consumer.read_to_the_end()}
            await scene.mq.publish_many(QUEUE, bodies[before:])
            # A client that subscribes again, while the old connection still stands.
            came = await scene.taken()
        judge_ended(scene, before + after, attempts, heard, came)
        scene.told += [f"the broker logged: {line}" for line in logged]
    finally:
        consumer.close()
    scene.confirmed += before + after


def judge_ended(scene: ClockScene, count: int, attempts: int, heard: set[int], came: list[tuple[int, int]]) -> None:
    """`heard`: what the consumer may have seen; `came`: what another one got at once."""
    numbers, info = [number for number, _ in came], scene.info()
    missing = set(range(count)) - set(numbers)
    where = f"{info.dead} dead, {info.delayed} delayed, {info.in_flight} in flight"
    if unseen := missing - heard:
        scene.told.append(f"{len(unseen)} messages that nobody saw do not come to others: {where}")
    if len(missing) != info.dead + info.delayed or (attempts == 1 and info.delayed):
        scene.told.append(f"{len(missing)} messages are gone from the queue, which has {where}")
    if numbers != sorted(numbers):
        scene.told.append("messages came out of order to who connected again")
    if spent := [number for number, failed in came if failed and number not in heard]:
        scene.told.append(f"{len(spent)} messages that nobody saw have a failed attempt")


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What the broker and its loop complain of meanwhile."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield told
    finally:
        logging.getLogger().removeHandler(handler)


# -- all of them ----------------------------------------------------------------------------------------------------

CLOCK_SCENES: dict[str, Callable[[ClockScene], Awaitable[None]]] = {
    "busy connection": busy_connection,
    "ended stream": ended_stream,
}


async def play(name: str, seed: int, folder: Path) -> ClockScene:
    """A scene with everything random from its seed."""
    async with (
        serving(folder, broker_type=TimedBroker, durable=True) as api,
        vibemq.connect(api.broker.url) as mq,
    ):
        assert isinstance(api.broker, TimedBroker)
        scene = ClockScene(api.broker, api, mq, random.Random(seed))
        async with asyncio.timeout(TAKEN_S):
            await CLOCK_SCENES[name](scene)
        return scene


def run(budget: Budget, names: list[str]) -> Result:
    """The named scenes in turns, until the first that finds something."""
    result, rng = Result(unit="scenes"), random.Random(f"{budget.seed}/clock")
    deadline = time.monotonic() + budget.seconds
    while result.cases < budget.cases and not result.findings:
        # Each of them once, however slow the machine is.
        if result.cases >= len(names) and time.monotonic() >= deadline:
            break
        name, seed = names[result.cases % len(names)], rng.randrange(1 << 32)
        scene = asyncio.run(play(name, seed, budget.work / f"{result.cases}"))
        result.cases += 1
        result.confirmed += scene.confirmed
        repeat = f"python -m tests.proof.network_clock '{name}' {seed}"
        result.findings += [Finding(f"{name}: {what}", repeat) for what in scene.told]
    result.complete = result.cases >= budget.cases
    result.figures["scenes on a clock that is moved"] = result.cases
    return result


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as work:
        print(asyncio.run(play(sys.argv[1], int(sys.argv[2]), Path(work) / "data")).told)
