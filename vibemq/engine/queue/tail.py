"""What a queue with several groups has shown to them: one tail for all, however many they are.

A publish moves the tail, and looks at no group. A group takes over what it has not seen yet when somebody looks at what
waits in it (`Group.ready`, `Group.delayed`), so at every moment it is as if it had been told at once. Only those that
may hand it out have to be called; they are, a few in each step (`Tail.call`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from vibemq.model.runs import END, Run, RunSet

GAPS_MAX = 256
"""With more runs than these in the tail, groups without consumers are called too: what all have seen is forgotten."""


class Follower(Protocol):
    def catch_up(self) -> None:
        """Take over what the tail has shown meanwhile."""


F = TypeVar("F", bound=Follower)
_Calls = OrderedDict[F, tuple[int, int]]


class Tail(Generic[F]):
    __slots__ = ("_attended", "_pressing", "_resting", "_runs", "_units", "last", "put_off")

    def __init__(self, put_off: Callable[[F, int, int], None] | None = None) -> None:
        """`put_off` takes out of what is ready of a run what the follower may not have yet."""
        self.put_off = put_off
        self.last = 0
        """Everything visible is up to here."""
        self._runs = RunSet()
        """What not all have seen yet, and some of what they have."""
        self._units = 0
        """What it costs a follower to take over everything since the tail was made, beyond a unit for each look."""
        self._pressing = 0
        """Groups without consumers are called for what is up to here: it would be long work for the next who looks."""
        # Follower -> the last sequence and the units when it was called; the first ones are the furthest behind.
        self._attended: _Calls[F] = OrderedDict()
        """They have active consumers."""
        self._resting: _Calls[F] = OrderedDict()

    def show(self, first: int, last: int, units: int = 0) -> None:
        """The next messages are visible; they are behind all that were before. `units`: the work to take them over."""
        self._runs.add(first, last)
        self.last = last
        self._units += units
        if units or self._runs.run_count > GAPS_MAX:
            self._pressing = last

    def since(self, seen: int) -> list[Run]:
        return self._runs.overlap(seen + 1, self.last)

    @property
    def run_count(self) -> int:
        return self._runs.run_count

    def add(self, follower: F, *, attended: bool) -> None:
        """It follows from now on, and has seen everything."""
        (self._attended if attended else self._resting)[follower] = self.last, self._units

    def move(self, follower: F, *, attended: bool) -> None:
        """It has consumers from now on, or has none. One that does not follow is left alone."""
        if follower in (self._resting if attended else self._attended):
            follower.catch_up()
            self.drop(follower)
            self.add(follower, attended=attended)

    def drop(self, follower: F) -> None:
        """It follows no more."""
        self._attended.pop(follower, None)
        self._resting.pop(follower, None)

    def end(self) -> None:
        """Nobody follows any more, and nothing is put off: what refers to the queue's own is let go."""
        self.put_off = None
        self._attended.clear()
        self._resting.clear()

    @property
    def is_ahead(self) -> bool:
        """Whether somebody is yet to be called."""
        return _called_at(self._attended) < self.last or _called_at(self._resting) < self._pressing

    def call(self, units: int) -> tuple[list[F], int]:
        """(followers, units): let the next of those that are yet to be called catch up, those furthest behind first, as
        far as that costs about so many units."""
        called: list[F] = []
        cost = 0
        for ring, upto in ((self._attended, self.last), (self._resting, self._pressing)):
            while cost < units and _called_at(ring) < upto:
                follower, (_, before) = next(iter(ring.items()))
                follower.catch_up()
                ring[follower] = self.last, self._units
                ring.move_to_end(follower)
                called.append(follower)
                cost += 1 + self._units - before
        seen = min(_called_at(self._attended), _called_at(self._resting))
        if self._runs and self._runs.first <= seen:
            self._runs.remove(self._runs.first, min(seen, self.last))
        return called, cost


def _called_at(ring: _Calls[F]) -> int:
    """Up to where the one that is furthest behind was called."""
    return ring[next(iter(ring))][0] if ring else END
