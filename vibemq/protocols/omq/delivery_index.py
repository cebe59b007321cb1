"""Round-robin messages between their hand-out and the Ack that proves they were read.

The stream is ordered: who has read a ping has read every message before it. So an Ack that echoes a ping settles
whatever was written before that ping.
"""

from collections import deque
from dataclasses import dataclass, field

from vibemq.model.runs import Run

_PINGS_MAX = 128
"""Unanswered pings that are told apart; of more, the oldest count as one with the next."""

Held = dict[int, list[Run]]
"""Runs by consumer, in the order of their writing."""


@dataclass(slots=True)
class _Pinged:
    second: int
    held: Held = field(default_factory=dict)


class OmqDeliveryIndex:
    def __init__(self) -> None:
        self._written: Held = {}
        """Behind the last ping."""
        self._pings: deque[_Pinged] = deque()

    def __bool__(self) -> bool:
        """Whether anything is unsettled."""
        return bool(self._written) or any(ping.held for ping in self._pings)

    def written(self, consumer: int, run: Run) -> None:
        _add(self._written, consumer, [run])

    def pinged(self, second: int) -> None:
        """A ping with this time was written, later than all before."""
        if not self:
            self._pings.clear()
            return
        self._pings.append(_Pinged(second, self._written))
        self._written = {}
        if len(self._pings) > _PINGS_MAX:
            oldest = self._pings.popleft()
            _merge(oldest.held, self._pings[0])

    def acked(self, second: int) -> Held:
        """What an Ack with this time settles; nothing when it echoes no ping that is waited for."""
        if not any(ping.second == second for ping in self._pings):
            return {}
        settled: Held = {}
        while self._pings and self._pings[0].second <= second:
            for consumer, runs in self._pings.popleft().held.items():
                _add(settled, consumer, runs)
        return settled

    def forget(self, consumer: int) -> None:
        """Its queue is gone, and with it what there was to settle."""
        self._written.pop(consumer, None)
        for ping in self._pings:
            ping.held.pop(consumer, None)


def _merge(held: Held, into: _Pinged) -> None:
    later, into.held = into.held, held
    for consumer, runs in later.items():
        _add(into.held, consumer, runs)


def _add(held: Held, consumer: int, runs: list[Run]) -> None:
    known = held.setdefault(consumer, [])
    for run in runs:
        if known and known[-1][1] + 1 == run[0]:
            known[-1] = (known[-1][0], run[1])
        else:
            known.append(run)
