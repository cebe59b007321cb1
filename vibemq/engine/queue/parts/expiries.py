"""When messages of a queue expire by themselves, whatever the queue's own TTL says."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.group import Group
from vibemq.model.instants import Instants, Values
from vibemq.model.runs import END, Run, RunSet, runs_of


@dataclass(slots=True, eq=False)
class Expiring:
    """What has expired and is taken out of the groups, one after the other."""

    runs: list[Run]
    groups: deque[Group]
    """They still have to be seen to."""
    lost: bool
    """See `remove_from_group`."""
    upto: int = 0
    """While it is found out what the runs are: at most up to there."""
    most: int = 0
    """Then: what one group may have in them."""


class Expiries:
    """Of messages that have an expiry of their own."""

    __slots__ = ("_expired", "_upcoming", "instants")

    def __init__(self, instants: Instants) -> None:
        """`instants`: of messages that there are already; kept."""
        self.instants = instants
        """By sequence, also of those that are in flight when their time comes."""
        self._upcoming = Delayed()
        """Those whose time has not come, by their instants."""
        if instants:
            self._upcoming.fill(instants.copy())
        self._expired = RunSet()
        """The others."""

    def add(self, sequences: Sequence[int], instants: Values) -> None:
        self.instants.put_columns(sequences, instants)
        self._upcoming.add_all(sequences, instants)

    def pop(self, now: int, most: int) -> list[int]:
        """Up to `most` sequences whose time has come; they stay in `instants`."""
        found = self._upcoming.pop_due(now, most)
        for run in runs_of(found):
            self._expired.add(*run)
        return found

    def next_at(self) -> int:
        upcoming = self._upcoming.next_due()
        return END if upcoming is None else upcoming

    def overdue(self, now: int) -> list[Run]:
        """Runs of sequences whose time has come, those that are in flight included."""
        return self._expired.runs() + runs_of(self._upcoming.due_by(now))

    def forget(self, first: int, last: int) -> None:
        """Messages that are gone; each has an instant."""
        self.instants.remove_all(range(first, last + 1))
        self._upcoming.remove(first, last)
        self._expired.remove(first, last)


NO_EXPIRIES = Expiries(Instants())
"""Of a queue none of whose messages has had an expiry; stays empty."""
