"""EventMesh while brokers, publishers and subscribers are killed, and a ledger of what was promised.

Publishers of both forms pipeline; two groups of two members acknowledge, but for poison, which nobody ever does. At the
end every confirmed message has come to both groups, none came again after its acknowledgement was carried out, and the
dead letters are the poison, once for each group. Over HTTP the same broker pushes to URLs that fail at random.
"""

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import vibemq
from tests.interop.eventmesh import EventMeshBroker
from tests.proof import mesh_http
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.mesh_client import POISON, TOPIC, ChaosPeer, MeshLedger, name_in, published_as
from tests.proof.mesh_http import HttpSide

GROUPS = {"red": 2, "blue": 2}
PUBLISHERS = 3
WINDOW = 20
POISON_SHARE = 0.01
MAX_ATTEMPTS = 2
QUEUE: dict[str, Any] = {
    "mode": "fan-out-with-ack",
    "durability": "strong",
    "max_attempts": MAX_ATTEMPTS,
    "retry_base_ms": 20,
    # A member that is killed has done nothing wrong: only poison runs out of attempts.
    "lost_connection": "release",
}
ACK_TIMEOUT_MS = 1_500
LONG_S, LONG_ACK_TIMEOUT_MS = 100, 4_000
"""In a run that is so long, other programs may keep this one from its turn for seconds, and a message whose reader has
no turn within two ack timeouts is rightly a dead letter."""
CALM_S = 60.0
LULL_EVERY = 40
"""Faults. Poison can only die where nothing is cut for two ack timeouts; without a lull the poison of ten minutes fills
the windows of all members, and everything behind it waits until the run has ended."""
STALL_EVERY_S = 0.05
LOST = (OSError, EOFError, asyncio.IncompleteReadError)


@dataclass
class MeshWorld:
    broker: EventMeshBroker
    rng: random.Random
    http: HttpSide
    ledger: MeshLedger = field(default_factory=MeshLedger)
    peers: list[ChaosPeer] = field(default_factory=list)
    """Connected ones, to be cut."""
    life: int = 0
    """Of the broker."""
    stopped: bool = False
    longest_stall_s: float = 0.0
    """Of this process: so long none of its clients has had a turn."""
    faults: dict[str, int] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    """Poison that outlived a lull."""

    async def connect(self, group: str, purpose: str) -> ChaosPeer:
        """As soon as there is somebody to connect to."""
        while True:
            with suppress(*LOST):
                peer = await ChaosPeer.connected(self.broker.mesh_port, group, purpose)
                self.peers.append(peer)
                return peer
            await asyncio.sleep(0.02)

    def gone(self, peer: ChaosPeer) -> None:
        peer.cut()
        self.peers.remove(peer)


async def publish(world: MeshWorld, number: int, rng: random.Random) -> None:
    count = 0
    while not world.stopped:
        peer = await world.connect("publishers", "pub")
        waiting: dict[str, str] = {}
        try:
            while not world.stopped:
                while len(waiting) < WINDOW:
                    count += 1
                    kind = POISON if rng.random() < POISON_SHARE else "good"
                    name = f"{kind}-{number}-{count}"
                    form, body = published_as(name, event=kind == POISON or rng.random() < 0.5)
                    world.ledger.tried.add(name)
                    waiting[peer.say("ASYNC_MESSAGE_TO_SERVER", body, form=form)] = name
                heard = await peer.heard()
                if heard.cmd != "ASYNC_MESSAGE_TO_SERVER_ACK":
                    continue
                name = waiting.pop(heard.seq)
                if heard.code == 0:
                    world.ledger.confirmed.add(name)
                await asyncio.sleep(0.002)
        except LOST:
            pass
        world.gone(peer)


async def consume(world: MeshWorld, group: str, rng: random.Random) -> None:
    while True:
        began = world.ledger.now
        peer = await world.connect(group, "sub")
        try:
            topics = {"topicList": [{"topic": TOPIC, "mode": "CLUSTERING", "type": "ASYNC"}]}
            await peer.asked("SUBSCRIBE_REQUEST", topics)
            early = await peer.asked("LISTEN_REQUEST")
            await _take(world, peer, group, rng, early, began)
        except LOST:
            pass
        finally:
            world.gone(peer)
        await asyncio.sleep(rng.uniform(0, 0.05))


async def _take(
    world: MeshWorld, peer: ChaosPeer, group: str, rng: random.Random, early: list[Any], written_after: int
) -> None:
    """`written_after`: an instant of the ledger before the first push."""
    ledger = world.ledger
    acked: list[str] = []
    asked, at_ask, asked_at = "", 0, 0
    life = world.life
    while True:
        heard = early.pop(0) if early else await peer.heard()
        if heard.cmd == "HEARTBEAT_RESPONSE":
            if heard.seq == asked:
                # What was acknowledged before it was carried out before it.
                if world.life == life:
                    ledger.settle(group, acked[:at_ask])
                    # What comes behind this answer was written after the question was asked.
                    written_after = asked_at
                del acked[:at_ask]
                asked = ""
        elif heard.cmd == "ASYNC_MESSAGE_TO_CLIENT":
            name = name_in(heard.body)
            ledger.arrived(group, name, written_after)
            if POISON not in name:
                peer.say("ASYNC_MESSAGE_TO_CLIENT_ACK", seq=heard.seq)
                acked.append(name)
            if rng.random() < 0.02:
                await asyncio.sleep(rng.uniform(0, 0.05))
        if not asked and acked:
            asked, at_ask, asked_at = peer.say("HEARTBEAT_REQUEST"), len(acked), ledger.now


async def note_stalls(world: MeshWorld) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(STALL_EVERY_S)
        world.longest_stall_s = max(world.longest_stall_s, time.monotonic() - before - STALL_EVERY_S)


# -- faults -------------------------------------------------------------------------------------------------------


async def _kill_broker(world: MeshWorld) -> None:
    await asyncio.to_thread(world.broker.kill)
    # Not before: who connects while it is being killed is served, and may acknowledge, in the old life.
    world.life += 1
    world.ledger.begin_life()
    await asyncio.sleep(world.rng.uniform(0, 0.2))
    await asyncio.to_thread(world.broker.start)


async def _cut_one(world: MeshWorld) -> None:
    if world.peers:
        world.rng.choice(world.peers).cut()


async def _cut_all(world: MeshWorld) -> None:
    for peer in list(world.peers):
        peer.cut()


async def _say_goodbye(world: MeshWorld) -> None:
    """Subscribers and publishers alike: nothing is pushed to it from then on."""
    if world.peers:
        peer = world.rng.choice(world.peers)
        with suppress(*LOST):
            peer.said_goodbye = True
            peer.say("CLIENT_GOODBYE_REQUEST")
        await asyncio.sleep(world.rng.uniform(0, 0.1))
        peer.close()


async def _broken_bytes(world: MeshWorld) -> None:
    if world.peers:
        peer = world.rng.choice(world.peers)
        peer._writer.write(world.rng.randbytes(world.rng.randint(1, 400)))
        await asyncio.sleep(0.05)
        peer.cut()


FAULTS = {
    "broker killed": _kill_broker,
    "one cut": _cut_one,
    "all cut": _cut_all,
    "goodbye": _say_goodbye,
    "broken bytes": _broken_bytes,
}


# -- a run --------------------------------------------------------------------------------------------------------


async def storm(budget: Budget, result: Result) -> None:
    side = HttpSide(random.Random(f"{budget.seed}/http"))
    broker = EventMeshBroker(budget.work, toml=side.toml)
    await asyncio.to_thread(broker.start)
    world = MeshWorld(broker, random.Random(budget.seed), side)
    try:
        async with vibemq.connect(broker.url) as mq:
            timeout_ms = LONG_ACK_TIMEOUT_MS if budget.seconds > LONG_S else ACK_TIMEOUT_MS
            await mq.create_queue(TOPIC, ack_timeout_ms=timeout_ms, **QUEUE)
            await mq.create_queue(mesh_http.TOPIC, **mesh_http.QUEUE)
        async with side.served():
            await _storm(world, budget, result)
    finally:
        if broker.is_alive:
            broker.kill()


async def _storm(world: MeshWorld, budget: Budget, result: Result) -> None:
    members = [
        asyncio.create_task(consume(world, group, random.Random(f"{budget.seed}/{group}{number}")))
        for group, count in GROUPS.items()
        for number in range(count)
    ]
    await _until_there(world)
    publishers = [
        asyncio.create_task(publish(world, number, random.Random(f"{budget.seed}/{number}")))
        for number in range(PUBLISHERS)
    ]
    posting, stalls = asyncio.create_task(world.http.publish()), asyncio.create_task(note_stalls(world))
    await _blow(world, budget, result)
    world.stopped = world.http.calm = True
    for peer in list(world.peers):
        peer.cut()
    posting.cancel()
    stalls.cancel()
    await asyncio.gather(*publishers)
    await _judge(world, budget, result)
    for task in members:
        if task.done():
            # It has heard what no client of its kind should: whoever is missing takes nothing any more.
            task.result()
        task.cancel()
    await asyncio.gather(posting, stalls, *members, return_exceptions=True)


async def _until_there(world: MeshWorld) -> None:
    """A group gets what is published once it is there; the first one all that was before."""
    async with vibemq.connect(world.broker.url) as mq:
        while len((await mq.queue_info(TOPIC)).groups) < len(GROUPS):
            await asyncio.sleep(0.01)


async def _blow(world: MeshWorld, budget: Budget, result: Result) -> None:
    deadline = time.monotonic() + budget.seconds
    while result.cases < budget.cases and time.monotonic() < deadline:
        # Each once before chance decides, so that the short form has them all.
        names = list(FAULTS)
        name = names[result.cases] if result.cases < len(names) else world.rng.choice(names)
        world.faults[name] = world.faults.get(name, 0) + 1
        await FAULTS[name](world)
        result.cases += 1
        await asyncio.sleep(world.rng.uniform(0.1, 0.4))
        if result.cases % LULL_EVERY == 0:
            await _lull(world)
    result.complete = result.cases >= budget.cases


async def _lull(world: MeshWorld) -> None:
    """All that was confirmed before it comes to both groups, or dies, while publishers go on."""
    poison = {name for name in world.ledger.confirmed if POISON in name}
    end = time.monotonic() + CALM_S
    before = set(world.ledger.confirmed)
    async with vibemq.connect(world.broker.url) as mq:
        while True:
            dead = Counter((await _dead_names(mq))[0])
            alive = [name for name in poison if dead[name] < len(GROUPS)]
            late = {name for group in GROUPS for name in world.ledger.lost(group)} & before - set(dead)
            if not (alive or late):
                return
            if time.monotonic() > end:
                world.stuck += sorted([*alive, *late])
                return
            await asyncio.sleep(1)


async def _judge(world: MeshWorld, budget: Budget, result: Result) -> None:
    ledger, repeat = world.ledger, f"python -m tests.proof.mesh_chaos {budget.cases} {budget.seed}"
    wanted = {name for name in ledger.confirmed if POISON in name}
    end = time.monotonic() + CALM_S
    dead: list[str] = []
    reasons: Counter[str] = Counter()
    async with vibemq.connect(world.broker.url) as mq:
        while time.monotonic() < end:
            dead, reasons = await _dead_names(mq)
            missing = [name for name in wanted if dead.count(name) < len(GROUPS)]
            info = await mq.queue_info(TOPIC)
            busy = any(group.waiting or group.in_flight for group in info.groups)
            if not (missing or busy or world.http.lost or any(map(ledger.lost, GROUPS))):
                break
            await asyncio.sleep(0.1)
    # What has died before it was read is a finding of its own, and is not lost.
    lost = {name for group in GROUPS for name in ledger.lost(group)} - set(dead) | world.http.lost
    phantoms = ledger.phantoms | world.http.phantoms
    result.confirmed += len(ledger.confirmed) + len(world.http.confirmed)
    result.lost += len(lost)
    result.resurrected += len(phantoms) + len(ledger.risen)
    result.figures |= {
        "EventMesh faults": ", ".join(f"{name} {count}" for name, count in sorted(world.faults.items())),
        "EventMesh dead letters": f"{len(dead)}, by reason {dict(reasons)}",
        "EventMesh clients without a turn for": f"{world.longest_stall_s:.1f} s at most",
        "EventMesh delivered more than once": f"{ledger.doubled:,}, {ledger.late} of them read too late",
        "EventMesh over HTTP": f"{len(world.http.confirmed):,} confirmed, {world.http.failed:,} pushes failed",
    }
    innocent = [name for name in dead if POISON not in name]
    twice = [name for name in set(dead) if dead.count(name) > len(GROUPS)]
    undead = [name for name in wanted if dead.count(name) < len(GROUPS)]
    for what, names in (
        (f"waited for {CALM_S:.0f} s without a fault", world.stuck),
        ("were lost", lost),
        ("came from nowhere", phantoms),
        ("came after they were settled", ledger.risen),
        ("are dead letters that nobody promised", innocent),
        ("are dead letters too often", twice),
        ("should be dead letters", undead),
    ):
        if names:
            result.findings.append(Finding(f"{len(names)} messages {what}: {sorted(map(str, names))[:5]}", repeat))


async def _dead_names(mq: vibemq.Client) -> tuple[list[str], Counter[str]]:
    """And how many of those that are not poison have died for which reason."""
    names: list[str] = []
    reasons: Counter[str] = Counter()
    after: Any = None
    while True:
        page = await mq.admin("dlq.list", queue=TOPIC, limit=500, **({"after": after} if after is not None else {}))
        for letter in page["letters"]:
            # The name of a message that is no event is a property.
            name = letter["headers"].get("name", letter["id"])
            names.append(name)
            if POISON not in name:
                reasons[f"{letter['reason']}: {letter['error']}"] += 1
        after = page.get("next")
        if after is None:
            return names, reasons


def run(budget: Budget) -> Result:
    result = Result(unit="faults")
    asyncio.run(storm(budget, result))
    return result


METHOD = Method(
    name="eventmesh",
    title="EventMesh clients and their broker are killed",
    run=run,
    short=Size(4, 8),
    crash=Size(cases=30, seconds=30),
    torture=Size(cases=1_000_000, seconds=300),
    waits=True,
)

if __name__ == "__main__":
    import sys
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        cases, seed = int(sys.argv[1]), int(sys.argv[2])
        print(run(Budget(cases, 3_600, seed, Path(folder))))
