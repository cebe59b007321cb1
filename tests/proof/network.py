"""Real clients and a real broker with a bad network between them, and a ledger of what was promised.

Faults come and go by a seeded schedule: delay, thin lines, slices of a few bytes, stalls longer than the heartbeat,
resets, half-closed streams, refused connections, and now and then the broker is killed or stopped for a while. At the
end the weather is calm, every client must be back by itself, and every confirmed message must have come, whole.
"""

import asyncio
import random
import re
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.proof import network_clock, network_peers
from tests.proof.chaos_proxy import CALM, ChaosProxy, Weather
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.network_clock import CLOCK_SCENES
from tests.proof.network_load import CLIENT, OPTIONS, QUEUES, Account, consume, drained, publish, quiet_clients
from vibemq.errors import VibeMQError

PUBLISHERS, CONSUMERS = 3, 2
CALM_S = 60.0
"""How long the last messages, and the clients, may take to come once the weather is calm."""
SETTINGS = """
weak_flush_ms = 200
[limits]
idle_timeout_ms = 3000
handshake_timeout_ms = 2000
write_timeout_ms = 5000
"""


@dataclass
class World:
    """One broker, one proxy before it, and the load that goes through it."""

    broker: BrokerProcess
    proxy: ChaosProxy
    rng: random.Random
    account: Account = field(default_factory=Account)
    clients: list[Any] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    async def fault(self) -> None:
        """One fault, from its beginning to its end."""
        name = self.rng.choice(list(FAULTS))
        self.faults[name] = self.faults.get(name, 0) + 1
        await FAULTS[name](self)
        self.proxy.weather = CALM
        await anyio.sleep(self.rng.uniform(0.05, 0.3))

    async def weather(self, weather: Weather, least: float = 0.3, most: float = 1.0) -> None:
        self.proxy.weather = weather
        await anyio.sleep(self.rng.uniform(least, most))

    async def kill_broker(self) -> None:
        self.kills += 1
        await asyncio.to_thread(self.broker.kill)
        await anyio.sleep(self.rng.uniform(0, 0.5))
        await asyncio.to_thread(self.broker.start)

    async def stop_broker(self) -> None:
        """Stopped, not dead: sockets stay open and nobody answers."""
        self.broker._process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        try:
            await anyio.sleep(self.rng.uniform(1.5, 3.5))
        finally:
            self.broker._process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]


async def _reset(world: World) -> None:
    world.proxy.reset_all()


async def _half_close(world: World) -> None:
    world.proxy.half_close_all(world.rng.choice(("up", "down")))
    await anyio.sleep(world.rng.uniform(0.2, 0.6))


async def _refuse(world: World) -> None:
    world.proxy.weather = Weather(refusing=True)
    world.proxy.reset_all()
    await anyio.sleep(world.rng.uniform(0.2, 1.0))


async def _stall(world: World) -> None:
    """Longer than both sides' patience; then what was on its way is gone."""
    await world.weather(Weather(stalled=True), 1.0, 4.0)
    if world.rng.random() < 0.5:
        world.proxy.reset_all()


Fault = Callable[[World], Awaitable[None]]
FAULTS: dict[str, Fault] = {
    "late": lambda world: world.weather(Weather(delay_s=0.05, jitter_s=0.1)),
    "thin": lambda world: world.weather(Weather(bytes_per_s=40_000)),
    "sliced": lambda world: world.weather(Weather(slice_max=7)),
    "late and sliced": lambda world: world.weather(Weather(delay_s=0.001, slice_max=60)),
    "stalled": _stall,
    "reset": _reset,
    "half-closed": _half_close,
    "refused": _refuse,
    "broker killed": World.kill_broker,
    "broker stopped": World.stop_broker,
}


# -- a run --------------------------------------------------------------------------------------------------------


async def storm(budget: Budget, result: Result) -> None:
    rng = random.Random(budget.seed)
    config = budget.work / "network.toml"
    config.write_text(SETTINGS)
    broker = BrokerProcess(budget.work / "data", arguments=("--config", str(config)))
    await asyncio.to_thread(broker.start)
    try:
        async with ChaosProxy(lambda: broker.port, rng) as proxy:
            world = World(broker, proxy, rng)
            await _blow(world, budget, result)
    finally:
        if broker.is_alive:
            broker.kill()
    _judge(world, budget, result)


async def _blow(world: World, budget: Budget, result: Result) -> None:
    deadline = time.monotonic() + budget.seconds * 0.5
    address = f"vibemq://127.0.0.1:{world.proxy.port}"
    async with AsyncExitStack() as stack:
        for _ in range(PUBLISHERS + CONSUMERS):
            world.clients.append(await stack.enter_async_context(vibemq.connect(address, **CLIENT)))
        for queue in QUEUES:
            await world.clients[0].create_queue(queue, **OPTIONS[queue])
        async with anyio.create_task_group() as tasks:
            stop = anyio.Event()
            for number, mq in enumerate(world.clients[:PUBLISHERS]):
                own = random.Random(f"{budget.seed}/p{number}")
                tasks.start_soon(publish, mq, f"p{number}", world.account, own, stop)
            for number, mq in enumerate(world.clients[PUBLISHERS:]):
                for queue in QUEUES:
                    own = random.Random(f"{budget.seed}/c{number}")
                    tasks.start_soon(consume, mq, queue, world.account, own)
            while result.cases < budget.cases and time.monotonic() < deadline:
                await world.fault()
                result.cases += 1
            stop.set()
            world.proxy.weather = CALM
            result.findings += await _all_back(world, budget)
            await drained(world.account, CALM_S)
            tasks.cancel_scope.cancel()
        world.account.interruptions = sum(mq.reconnects for mq in world.clients)


async def _all_back(world: World, budget: Budget) -> list[Finding]:
    """Every client answers again, by itself."""
    gone = 0
    for mq in world.clients:
        with anyio.move_on_after(CALM_S) as patience:
            while True:
                try:
                    await mq.ping()
                    break
                except VibeMQError:
                    await anyio.sleep(0.1)
        gone += patience.cancelled_caught
    return [Finding(f"{gone} clients did not come back", _repeat(budget))] if gone else []


def _repeat(budget: Budget) -> str:
    return f"python -m tests.proof.network {budget.cases} {budget.seed}"


def _judge(world: World, budget: Budget, result: Result) -> None:
    account = world.account
    result.confirmed += len(account.confirmed)
    result.lost += len(account.lost)
    result.resurrected += len(account.phantoms)
    result.undetected += len(account.broken)
    result.figures |= {
        "faults": ", ".join(f"{name} {count}" for name, count in sorted(world.faults.items())),
        "reconnections": account.interruptions,
        "publishes tried again": account.retries,
        "delivered more than once": account.doubled,
    }
    for what, some in (("lost", account.lost), ("came from nowhere", account.phantoms), ("are broken", account.broken)):
        if some:
            result.findings.append(Finding(f"{len(some)} messages {what}: {sorted(some)[:5]}", _repeat(budget)))


def _storm(budget: Budget) -> Result:
    result = Result(unit="faults")
    with quiet_clients():
        asyncio.run(storm(budget, result))
    result.complete = result.cases >= budget.cases
    return result


PEERS_EVERY, CLOCK_EVERY = 6, 2
"""Faults for each of these scenes."""
PEERS_PART, CLOCK_PART = 0.35, 0.15


def _peers(budget: Budget) -> Result:
    cases = max(1, budget.cases // PEERS_EVERY)
    return network_peers.run(replace(budget, cases=cases, seconds=budget.seconds * PEERS_PART))


def _clock(budget: Budget, names: list[str]) -> Result:
    cases = max(len(names), budget.cases // CLOCK_EVERY)
    return network_clock.run(replace(budget, cases=cases, seconds=budget.seconds * CLOCK_PART), names)


def run(budget: Budget) -> Result:
    """The scenes of `network_clock`, the storm, the scenes of `network_peers`; an aim names some of them: `busy
    connection`, `ended stream`, `storm`, `peers`."""
    result = Result(unit="faults")
    aimed = [name for name in (*CLOCK_SCENES, "storm", "peers") if re.search(budget.aim, name)]
    if names := [name for name in aimed if name in CLOCK_SCENES]:
        _add(result, _clock(_own(budget, "clock"), names))
    if "storm" in aimed:
        _add(result, _storm(_own(budget, "storm")))
    if "peers" in aimed:
        _add(result, _peers(_own(budget, "peers")))
    return result


def _own(budget: Budget, folder: str) -> Budget:
    """With a folder of its own."""
    (budget.work / folder).mkdir()
    return replace(budget, work=budget.work / folder)


def _add(result: Result, part: Result) -> None:
    result.complete &= part.complete
    result.cases += part.cases
    result.confirmed += part.confirmed
    result.lost += part.lost
    result.resurrected += part.resurrected
    result.undetected += part.undetected
    result.figures |= part.figures
    result.findings += part.findings


METHOD = Method(
    name="network",
    title="chaos proxy, stopped peers, broken bytes, delays and ended streams",
    run=run,
    short=Size(2, 25),
    crash=Size(cases=36, seconds=80),
    torture=Size(cases=240, seconds=550),
    waits=True,
)

if __name__ == "__main__":
    import sys
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
        shown = run(Budget(int(sys.argv[1]), 600, seed, Path(folder)))
        print(shown)
