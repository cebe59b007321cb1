"""A million delayed messages: growth, restart, the order in which they fall due, and kills at any instant.

    python -m bench.delays [--messages 1000000] [--mixed-messages 1000000] [--kills 50] [--seed 1]

First without kills: the private memory that the messages add, the seconds of a restart with all of them waiting, and
the drain, whose order is checked. Then with `kill -9` at random instants, half of them while messages are published and
half while they are drained: every confirmed message must be delivered; one is delivered again only when a kill came
between, not long after its acknowledgement; and a message is there twice only when a kill left its publish unanswered.

Last the first run again in a mixed order: each millisecond of the spread is the delay of some messages, and those that
fall due together were published far apart from each other.

Exit code 1 when something is not as it should be.
"""

import argparse
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

import vibemq
from bench.common.options import switches
from bench.million import rss_anon_kib
from vibemq import Outgoing
from vibemq.client import ReconnectPolicy

CHUNK = 20_000
SETTLED_S = 5.0
"""An acknowledgement that is older than that when the broker is killed is on the disk."""
QUICK = ReconnectPolicy(initial_delay=0.02, max_delay=0.1)
GROWTH_MIB, RESTART_S = 40, 3.0


class KillableBroker:
    """`vibemq serve` on one port and one folder, however often it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.empty_start_s = self.start()
        """What the restarts are to be compared with on a busy machine."""

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Seconds until it is ready."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(self._folder)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), "--http-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event.get("protocol") == "native":
                self.port = event["port"]
            if event["event"] == "ready":
                return time.perf_counter() - began
        raise RuntimeError("the broker has ended before it was ready")

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=600)

    def private_mib(self) -> float:
        return rss_anon_kib(self.process.pid) / 1024


@dataclass
class Plan:
    """When each message falls due: the stretch published last first, or `mixed`: neighbours in the order of what
    is due are as many messages apart as there are delays."""

    messages: int
    begin_ms: int
    spread_ms: int
    delays: int
    mixed: bool = False

    def due_ms(self, number: int) -> int:
        place = number * 7919 % self.delays if self.mixed else self.delays - 1 - number * self.delays // self.messages
        return self.begin_ms + place * self.spread_ms // self.delays

    def published(self, start: int, stop: int) -> Iterator[Outgoing]:
        return (Outgoing(number, deliver_at=self.due_ms(number) / 1000) for number in range(start, stop))


class DelayLedger:
    """What was delivered, and what is wrong with it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._first = array("Q", bytes(8 * plan.messages))
        """The sequence under which a message came first; 0 = it has not come."""
        self._life = array("I", bytes(4 * plan.messages))
        """In which life of the broker it came last."""
        self._kills_then = array("I", bytes(4 * plan.messages))
        """How many kills there had been then. A life is counted when whoever starts the broker hears that it is there:
        its clients may be faster."""
        self._acked = array("d", bytes(8 * plan.messages))
        self._doubled: dict[int, set[int]] = {}
        self._due = 0
        self.uncertain: set[int] = set()
        """The chunks whose publish a kill has left unanswered."""
        self.kills: list[float] = []
        """When; each ends a life of the broker."""
        self.life = 0
        """What was on its way at a kill is still of the life before, until the broker is there again."""
        self.left = plan.messages
        self.repeated = self.doubled = 0
        self.faults: list[str] = []

    def note(self, number: int, sequence: int, now: float, *, redelivered: bool) -> None:
        """It has been delivered. `redelivered`: the broker has handed it out before, perhaps to a connection that was
        cut before it came; it is then back at its place by sequence."""
        first, life = self._first[number], self.life
        if not first:
            self._first[number] = sequence
            self.left -= 1
            due = self._plan.due_ms(number)
            if due < self._due and not redelivered:
                self._fault(f"message {number} came after one that fell due {self._due - due} ms later")
            self._due = self._due if redelivered else max(self._due, due)
        elif sequence == first or sequence in self._doubled.get(number, ()):
            self.repeated += 1
            if (self._life[number], self._kills_then[number]) == (life, len(self.kills)):
                self._fault(f"message {number} came twice without a kill between")
            elif self.kills[self._life[number]] - self._acked[number] > SETTLED_S:
                self._fault(f"message {number} came again although it was acknowledged long before the kill")
        else:
            self.doubled += 1
            self._doubled.setdefault(number, set()).add(sequence)
            if number // CHUNK not in self.uncertain:
                self._fault(f"message {number} is there twice, and its publish was answered")
        self._life[number], self._kills_then[number], self._acked[number] = life, len(self.kills), now

    def _fault(self, sentence: str) -> None:
        if len(self.faults) < 10:
            self.faults.append(sentence)


@dataclass
class Trial:
    """One run: messages are published, and drained, while the broker may be killed."""

    broker: KillableBroker
    plan: Plan
    ledger: DelayLedger
    chance: random.Random
    figures: dict[str, Any] = field(default_factory=dict)
    publishing: int = -1
    """The chunk whose publish waits for its answer."""
    restarts: list[float] = field(default_factory=list)

    async def publish(self, mq: vibemq.Client) -> None:
        began = time.perf_counter()
        await mq.create_queue("delays")
        for start in range(0, self.plan.messages, CHUNK):
            self.publishing = start // CHUNK
            stop = min(start + CHUNK, self.plan.messages)
            await mq.publish_many("delays", self.plan.published(start, stop))
        self.publishing = -1
        self.figures["publish_s"] = round(time.perf_counter() - began, 2)
        if time.time() * 1000 > self.plan.begin_ms:
            self.ledger.faults.append(
                "the first ones fell due before the last were published: give --wait more seconds"
            )

    async def drain(self, mq: vibemq.Client) -> None:
        began = time.perf_counter()
        async with mq.subscribe("delays", prefetch=5_000) as subscription:
            async for batch in subscription.batches():
                batch.ack_all()
                now = time.monotonic()
                for message in batch:
                    self.ledger.note(message.body, message.sequence, now, redelivered=message.attempt > 1)
                if not self.ledger.left:
                    break
        self.figures["drain_s"] = round(time.perf_counter() - began, 2)

    async def kill(self, times: int, mean_s: float) -> None:
        for _ in range(times):
            await anyio.sleep(self.chance.uniform(0, 2 * mean_s))
            await anyio.to_thread.run_sync(self._kill_once)

    def _kill_once(self) -> None:
        if self.publishing >= 0:
            self.ledger.uncertain.add(self.publishing)
        self.ledger.kills.append(time.monotonic())
        self.broker.stop(signal.SIGKILL)
        self.restarts.append(self.broker.start())
        self.ledger.life += 1

    async def beside_kills(self, work: Any, times: int, mean_s: float) -> None:
        """The work, which goes on while the broker is killed. Kills that have no time any more are not made up for."""
        async with vibemq.connect(self.broker.url, reconnect=QUICK) as mq, anyio.create_task_group() as tasks:
            tasks.start_soon(self.kill, times, mean_s)
            await work(mq)
            tasks.cancel_scope.cancel()


async def quiet(trial: Trial, given: argparse.Namespace) -> None:
    """Without kills: growth, a restart, the drain."""
    trial.plan.begin_ms = in_ms(given.wait)
    before = trial.broker.private_mib()
    await trial.beside_kills(trial.publish, 0, 0)
    trial.figures["growth_mib"] = round(trial.broker.private_mib() - before, 1)
    trial.broker.stop(signal.SIGTERM)
    trial.figures["empty_start_s"] = round(trial.broker.empty_start_s, 2)
    trial.figures["restart_s"] = round(trial.broker.start(), 2)
    trial.figures["growth_after_restart_mib"] = round(trial.broker.private_mib() - before, 1)
    await wait_until(trial.plan.begin_ms)
    await trial.beside_kills(trial.drain, 0, 0)


async def killed(trial: Trial, given: argparse.Namespace) -> None:
    trial.plan.begin_ms = in_ms(given.wait + given.kills)
    half = given.kills // 2
    mean_s = given.messages / 150_000 / max(1, half)
    await trial.beside_kills(trial.publish, half, mean_s)
    await wait_until(trial.plan.begin_ms)
    await trial.beside_kills(trial.drain, given.kills - half, mean_s)
    trial.figures["kills"] = len(trial.ledger.kills)
    trial.figures["longest_restart_s"] = round(max(trial.restarts, default=0.0), 2)


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


async def mixed(trial: Trial, given: argparse.Namespace) -> None:
    await quiet(trial, given)


def trial_of(folder: Path, run: Any, given: argparse.Namespace) -> Trial:
    spread_ms = int(given.spread * 1000)
    if run is mixed:
        plan = Plan(given.mixed_messages, 0, spread_ms, max(1, spread_ms), mixed=True)
    else:
        plan = Plan(given.messages, 0, spread_ms, given.delays)
    return Trial(KillableBroker(folder), plan, DelayLedger(plan), random.Random(given.seed))


async def wait_until(epoch_ms: int) -> None:
    await anyio.sleep(max(0.0, epoch_ms / 1000 - time.time()))


def judged(name: str, trial: Trial, given: argparse.Namespace) -> bool:
    ledger, figures = trial.ledger, trial.figures
    if figures.get("growth_mib", 0) > GROWTH_MIB:
        ledger.faults.append(f"{figures['growth_mib']} MiB of growth; {GROWTH_MIB} are allowed")
    if figures.get("restart_s", 0) > RESTART_S:
        ledger.faults.append(f"the restart took {figures['restart_s']} s; {RESTART_S:g} are allowed")
    counted = {"lost": ledger.left, "delivered_again": ledger.repeated, "published_twice": ledger.doubled}
    print(
        json.dumps({"run": name, "messages": trial.plan.messages, **figures, **counted, "faults": ledger.faults}),
        flush=True,
    )
    return not ledger.faults and not ledger.left


def main() -> None:
    parser = switches("delays", __doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait", type=float, default=60.0, help="seconds from the start to the first that falls due")
    parser.add_argument("--spread", type=float, default=10.0, help="seconds from the first that falls due to the last")
    parser.add_argument("--delays", type=int, default=60, help="how many different ones there are")
    parser.add_argument("--mixed-messages", type=int, default=1_000_000, help="of the last run; 0: leave it out")
    parser.add_argument("--only", choices=("quiet", "killed", "mixed"))
    parser.add_argument("--data-root", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    logging.getLogger("vibemq").setLevel(logging.ERROR)
    sound = True
    for run in (quiet, killed, mixed) if given.mixed_messages else (quiet, killed):
        if given.only in (None, run.__name__):
            with tempfile.TemporaryDirectory(prefix="vibemq-delays-", dir=given.data_root) as folder:
                trial = trial_of(Path(folder), run, given)
                try:
                    anyio.run(run, trial, given)
                    sound &= judged(run.__name__, trial, given)
                finally:
                    trial.broker.stop(signal.SIGTERM)
    sys.exit(not sound)


if __name__ == "__main__":
    main()
