"""Latency of strong publishes while the checkpointer works, and while it does not."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.common.accounting import cpu_seconds, process_tree
from bench.common.lab import Lab
from bench.common.load import Job, Span, now, quantiles_ms
from bench.common.peer import Guarantee
from bench.peers.vibemq_native import QUEUE, VibeMQ, paced, run

RATE = 1000.0
SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Pauses:
    during_p99_ms: float
    beside_p99_ms: float
    during: int
    """Messages that were due while a checkpoint was under way."""

    @property
    def ratio(self) -> float:
        return self.during_p99_ms / self.beside_p99_ms


@dataclass(slots=True)
class Watch:
    """Processor time of the broker's child, the checkpointer, every few milliseconds."""

    broker: list[int]
    seen: list[tuple[float, float]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            children = [pid for pid in process_tree(self.broker) if pid not in self.broker]
            self.seen.append((now(), cpu_seconds(children)))

    def end(self) -> None:
        self._over.set()

    def busy(self) -> list[tuple[float, float]]:
        """Spans of time in which it worked."""
        return [(a, b) for (a, used), (b, more) in pairwise(self.seen) if more > used]


def pauses(lab: Lab, seconds: float) -> Pauses:
    peer = lab.peer("vibemq", Guarantee.STRONG)
    assert isinstance(peer, VibeMQ)
    job = Job(messages=int(RATE * seconds), size=1024, rate=RATE)
    peer.set_up(job)
    watch = Watch(lab.server(peer).pids)
    sampler = threading.Thread(target=watch.sample)
    sampler.start()
    try:

        async def publish() -> Span:
            async with peer.connect() as mq:
                return await paced(mq, job)

        span = run(publish)
        time.sleep(2 * SAMPLE_S)
    finally:
        watch.end()
        sampler.join()
        peer.tear_down()
    return _judged(span, watch.busy())


def _judged(span: Span, busy: Sequence[tuple[float, float]]) -> Pauses:
    during: list[float] = []
    beside: list[float] = []
    for number, latency_s in enumerate(span.latencies_s):
        due_at = span.began + number / RATE
        met = any(begin < due_at + latency_s and due_at < end for begin, end in busy)
        (during if met else beside).append(latency_s)
    if not during or not beside:
        raise RuntimeError(f"no checkpoint of queue {QUEUE!r} was seen in {len(span.latencies_s)} messages; run longer")
    return Pauses(quantiles_ms(during)["p99_ms"], quantiles_ms(beside)["p99_ms"], len(during))
