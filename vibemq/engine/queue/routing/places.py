"""Places in the order of a queue, level by level.

They are stretches of sequences, and may have more in them than there are messages: what is at a place is found in what
is ready. So messages that go change nothing here, and few stretches stand for many scattered messages.
"""

from collections.abc import Iterable

from vibemq.model.runs import END, Run, RunSet


class QueuePlaces:
    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[int, RunSet] = {}

    def __bool__(self) -> bool:
        return any(self._levels.values())

    @property
    def run_count(self) -> int:
        return sum(places.run_count for places in self._levels.values())

    def levels(self) -> list[int]:
        return [level for level, places in self._levels.items() if places]

    def of(self, level: int) -> RunSet:
        """Theirs, to be changed by nobody else; empty when there are none."""
        return self._levels.get(level) or RunSet()

    def add(self, level: int, first: int, last: int) -> None:
        self.add_all(level, [(first, last)])

    def add_all(self, level: int, runs: Iterable[Run], most: int = END) -> None:
        """Beyond `most` stretches of the level everything between them is added, too."""
        places = self._levels.get(level)
        if places is None:
            places = self._levels[level] = RunSet()
        places.add_all(runs)
        if places.run_count > most:
            places.add(places.first, places.last)

    def remove(self, level: int, runs: Iterable[Run]) -> None:
        places = self._levels.get(level)
        if places:
            for run in runs:
                places.remove(*run)

    def clear(self) -> None:
        self._levels.clear()

    def first_at(self, level: int, members: RunSet) -> int:
        """The first of these members at one of the places; END when there is none. Places before it are given up."""
        places = self._levels.get(level)
        while places:
            found = members.front(1, places.first)
            at = found[0][0] if found else END + 1
            places.remove(0, at - 1)
            if places and places.first == at:
                return at
        return END

    def next(self, level: int, members: RunSet, most: int, most_runs: int) -> tuple[list[Run], list[Run]]:
        """The first of these members at the places, and the stretches in which they are all there is."""
        stretches: list[Run] = []
        found: list[Run] = []
        places = self._levels.get(level)
        for first, last in places.first_runs(most_runs) if places else ():
            runs = members.front(most, first, last)[: most_runs - len(found)]
            if runs:
                stretches.append((first, runs[-1][1]))
                found += runs
                most -= sum(stop - start + 1 for start, stop in runs)
            if most <= 0 or len(found) >= most_runs:
                break
        return stretches, found
