"""What a message costs the broker, and how long a start takes, with more and more messages waiting."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from bench.common.accounting import cpu_seconds
from bench.common.lab import Lab
from bench.common.load import Job
from bench.common.peer import Guarantee, Peer

SIZE = 128
PROBE_MESSAGES = 100_000
FILL_AT_ONCE = 1_000_000
CHECKPOINT_S = 11.0
"""By then a broker that nobody uses has checkpointed everything."""
QUIET_S = 0.5
QUIET_CPU_S = 0.02


@dataclass(frozen=True, slots=True)
class Held:
    """Medians, at one size of the backlog."""

    waiting: int
    cpu_us: float
    """Of the broker and its checkpointer, per message published, handed out and acknowledged."""
    start_s: float
    """After kill -9, with the probe's own records in the journal and everything else in the store."""


class Backlog:
    def __init__(self, lab: Lab, rounds: int) -> None:
        self._lab = lab
        self._rounds = rounds

    def measured(self, sizes: tuple[int, ...]) -> Iterator[Held]:
        """Ascending sizes of one backlog that is never emptied in between."""
        peer = self._lab.peer("vibemq", Guarantee.STRONG)
        peer.set_up(Job(messages=1))
        held = 0
        for size in sizes:
            while held < size:
                more = min(FILL_AT_ONCE, size - held)
                self._work(peer, "produce", more)
                held += more
            self._settle(peer)
            costs = [self._probe(peer) for _ in range(self._rounds)]
            starts = [self._restart(peer) for _ in range(self._rounds)]
            yield Held(size, median(costs), median(starts))

    def _probe(self, peer: Peer) -> float:
        """New messages at one end, the oldest ones taken at the other: the backlog stays as large as it is."""
        began = self._cpu_s(peer)
        self._work(peer, "produce", PROBE_MESSAGES)
        self._work(peer, "consume", PROBE_MESSAGES)
        self._settle(peer)
        return (self._cpu_s(peer) - began) / PROBE_MESSAGES * 1e6

    def _restart(self, peer: Peer) -> float:
        self._work(peer, "produce", PROBE_MESSAGES)
        self._work(peer, "consume", PROBE_MESSAGES)
        return self._lab.kill_and_restart(peer)

    def _work(self, peer: Peer, role: str, messages: int) -> None:
        self._lab.work(peer, role, Job(messages=messages, size=SIZE))

    def _settle(self, peer: Peer) -> None:
        time.sleep(CHECKPOINT_S)
        used = self._cpu_s(peer)
        while True:
            time.sleep(QUIET_S)
            used, before = self._cpu_s(peer), used
            if used - before <= QUIET_CPU_S:
                return

    def _cpu_s(self, peer: Peer) -> float:
        return cpu_seconds(self._lab.server(peer).pids)
