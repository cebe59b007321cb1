"""One pass over a queue: what it has still to hand out, what is on its way, who shares it.

Every sequence that the group has not settled is in exactly one place: `ready`, `later`, or held, by one consumer or by
the group's cursor.
"""

from collections import deque
from dataclasses import dataclass

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.delayed import Later
from vibemq.engine.queue.ready import Levels, Ready
from vibemq.model.records import Attempts
from vibemq.model.runs import Run, RunSet, run_count

END = 1 << 62
"""Above every sequence."""


@dataclass(slots=True)
class Tally:
    """What became of the messages that entered a group since the start. The law:

    entered = settled + dead + expired + dropped + moved + (ready + later + in flight)
    """

    entered: int = 0
    settled: int = 0
    dead: int = 0
    expired: int = 0
    """Without a DLQ; with one they count as dead."""
    dropped: int = 0
    """By overflow, retention, an operator, too many attempts without a DLQ, or lost by a full disk."""
    moved: int = 0
    """Taken out by a move of the group's cursor (those it puts in enter again)."""
    delivered: int = 0
    """Hand-outs."""
    redelivered: int = 0
    """Hand-outs beyond the first."""

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def remainder(self) -> int:
        """How many messages must be in the group."""
        return self.entered - self.settled - self.dead - self.expired - self.dropped - self.moved


class Group:
    __slots__ = (
        "_top",
        "attempts",
        "consumers",
        "cursor",
        "durable",
        "epoch",
        "group_id",
        "in_flight",
        "later",
        "name",
        "owner",
        "ready",
        "spent",
        "start",
        "tally",
        "turn",
    )

    def __init__(self, group_id: int, name: str, *, durable: bool, start: int, levels: Levels | None = None) -> None:
        self.group_id = group_id
        self.name = name
        self.durable = durable
        self.owner = ""
        """The user to whom it belongs; "" = nobody."""
        self.epoch = 0
        self.start = start
        """New messages below it are none of this group's."""
        self.ready = Ready(levels)
        self.later = Later()
        self.attempts: dict[int, Attempts] = {}
        """History of messages that came back at least once; those held with history are here too."""
        self.in_flight = 0
        self.cursor: Cursor | None = None
        """Reads by ranges instead of being handed messages; such a group has no consumers."""
        self.consumers: list[Consumer] = []
        """Those that receive and those that only hold."""
        self._top: list[Consumer] | None = None
        self.turn = 0
        """Whose turn it is among the top consumers."""
        self.spent: deque[tuple[int, list[Run]]] = deque()
        """Hand-outs that were their own settlement and are not recorded as settled yet."""
        self.tally = Tally()

    @property
    def waiting(self) -> int:
        """Not settled and with nobody."""
        return self.ready.count + len(self.later)

    @property
    def unsettled(self) -> int:
        return self.ready.count + len(self.later) + self.in_flight

    def top(self) -> list[Consumer]:
        """The active consumers of the highest priority; only they receive, even when all of them are full."""
        if self._top is None:
            active = [c for c in self.consumers if c.active]
            best = max((c.priority for c in active), default=0)
            self._top = [c for c in active if c.priority == best]
            self.turn = self.turn % len(self._top) if self._top else 0
        return self._top

    def consumers_changed(self) -> None:
        self._top = None

    @property
    def held_back(self) -> int:
        """Acknowledged, and kept for a while; counted in `in_flight`."""
        return self.cursor.held.count if self.cursor is not None else 0

    def held_runs(self) -> list[Run]:
        held = [run for consumer in self.consumers for run in consumer.held.runs()]
        return held + self.cursor.held.runs() if self.cursor is not None else held

    def take_held(self, first: int, last: int) -> list[Run]:
        """Take out what is held within [first, last], whoever holds it."""
        taken = [run for consumer in self.consumers for run in consumer.held.take(first, last)]
        if self.cursor is not None:
            taken += self.cursor.take_held(first, last)
        self.in_flight -= run_count(taken)
        return taken

    def waiting_set(self) -> RunSet:
        waiting = RunSet(self.ready.runs())
        for run in self.later.runs():
            waiting.add(*run)
        return waiting

    def unsettled_set(self) -> RunSet:
        unsettled = self.waiting_set()
        for run in self.held_runs():
            unsettled.add(*run)
        return unsettled

    def take_waiting(self, first: int, last: int) -> list[Run]:
        """Take out what waits within [first, last]; the caller says what becomes of it."""
        taken = self.ready.remove(first, last)
        later = self.later.remove(first, last) if self.later else []
        if not later:
            return taken
        merged = RunSet((s, s) for s in later)
        for run in taken:
            merged.add(*run)
        return merged.runs()

    def forget_history(self, runs: list[Run]) -> None:
        """The runs are settled: drop what was known about their attempts."""
        attempts = self.attempts
        if not attempts:
            return
        for first, last in runs:
            if last - first < len(attempts):
                for sequence in range(first, last + 1):
                    attempts.pop(sequence, None)
            else:
                for sequence in [s for s in attempts if first <= s <= last]:
                    del attempts[sequence]
