"""What is ready in a group whose consumers have selectors.

Nobody has looked yet at what came in, or came back: it is fresh. What is known of the rest is with the lines.
"""

from vibemq.engine.queue.ready import NORMAL, Levels, Ready
from vibemq.engine.queue.routing.places import QueuePlaces
from vibemq.model.runs import END, Run, RunSet


class Sifted(Ready):
    __slots__ = ("fresh",)

    def __init__(self, levels: Levels | None = None) -> None:
        super().__init__(levels)
        self.fresh = QueuePlaces()

    @classmethod
    def of(cls, ready: Ready) -> "Sifted":
        """What that one holds, which is not used any more. Everything is fresh."""
        sifted = cls(ready.queue_levels)
        sifted._plain, sifted._levels, sifted.count = ready._plain, ready._levels, ready.count
        sifted.look_again()
        return sifted

    def unsifted(self) -> Ready:
        """An ordinary one with the same; this one is not used any more."""
        ready = Ready(self.queue_levels)
        ready._plain, ready._levels, ready.count = self._plain, self._levels, self.count
        return ready

    def look_again(self) -> None:
        """Everything is fresh."""
        for level in self.levels():
            self.fresh.add(level, 0, END)

    def add(self, first: int, last: int) -> None:
        super().add(first, last)
        self.fresh.add(NORMAL, first, last)
        for level, members in self.queue_levels.items() if self.queue_levels else ():
            if members.meets(first, last):
                self.fresh.add(level, first, last)

    def fill(self, members: RunSet) -> None:
        super().fill(members)
        self.look_again()

    def clear(self) -> None:
        super().clear()
        self.fresh.clear()

    def members_of(self, level: int) -> RunSet:
        """What is ready of a level, to be changed by nobody else."""
        return self._plain if level == NORMAL else self._levels.get(level) or RunSet()

    def descending(self) -> list[int]:
        """The levels in the order of hand-out."""
        return sorted(self.levels(), reverse=True)

    def has_some_of(self, places: QueuePlaces) -> bool:
        """Whether a message is at one of these places."""
        return bool(places) and any(places.first_at(level, self.members_of(level)) < END for level in self.levels())

    def next_unseen(self, unseen: QueuePlaces, most: int, most_runs: int) -> tuple[int, list[Run], list[Run]]:
        """Of the first level that has some: (level, stretches, messages), as `QueuePlaces.next`."""
        for level in self.descending():
            members = self.members_of(level)
            if unseen.first_at(level, members) < END:
                return level, *unseen.next(level, members, most, most_runs)
        return NORMAL, [], []

    def candidates(self, known: QueuePlaces, unseen: list[QueuePlaces], most: int) -> tuple[list[Run], int]:
        """What is known to be a line's and may be handed out, about `most` runs in order, and how many stretches were
        looked at.

        Behind a message that nobody has looked at yet nothing is handed out, so that what comes back keeps its place.
        """
        found: list[Run] = []
        looked = 0
        for level in self.descending() if known else ():
            members = self.members_of(level)
            limit = min(places.first_at(level, members) for places in unseen)
            places = known.of(level)
            if places:
                runs, number = _first_known(places, members, limit - 1, most - len(found))
                found += runs
                looked += number
            if limit < END or len(found) >= most:
                break
        return found, looked


def _first_known(places: RunSet, members: RunSet, limit: int, most: int) -> tuple[list[Run], int]:
    """Up to `most` runs of the members at these places, up to `limit`. Places without any are given up."""
    found: list[Run] = []
    gone: list[Run] = []
    looked = 0
    for first, last in _runs_of(places, most + _PASSED_OVER):
        if first > limit or most <= 0:
            break
        looked += 1
        stop, number = members.cut_runs(first, min(last, limit), most)
        if number:
            found += members.overlap(first, stop)
            most -= number
        else:
            gone.append((first, min(last, limit)))
    for run in gone:
        places.remove(*run)
    return found, looked


_PASSED_OVER = 16
"""Places that have nothing any more among the first ones, of which more are looked at only when these do not do."""


def _runs_of(places: RunSet, most: int) -> "list[Run]":
    return places.first_runs(most) if places.run_count <= most else places.runs()
