"""Messages published with a delay, as long as nobody in the group has had them.

One that falls due takes its place by that instant: behind what was published until then, before what was published
later. It stays here with its instant; where the two orders meet is found when messages are handed out (`in_turn`).
What comes back from a consumer has its place by sequence, as any other message.
"""

from collections.abc import Sequence

from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.ready import NORMAL, Levels
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.queue.timing.due_order import DueRun
from vibemq.model.instants import Instants, Values
from vibemq.model.runs import END, Run, run_count

_NO_LEVELS: dict[int, Delayed] = {}
_LOOKED_AT_MAX = 4096


class Scheduled:
    """By priority; with `levels` (a queue's priorities, shared and never changed here) there may be several. `known`:
    the instants of all messages of the queue that were published with a delay."""

    __slots__ = ("_known", "_queue_levels", "levels")

    def __init__(self, known: Instants, levels: Levels | None = None) -> None:
        self._known = known
        self._queue_levels = levels
        self.levels = _NO_LEVELS
        """By priority, those that have something."""

    def __len__(self) -> int:
        return sum(map(len, self.levels.values()))

    def __bool__(self) -> bool:
        return bool(self.levels)

    @property
    def fallen(self) -> int:
        """How many have fallen due: they are ready."""
        return sum(level.fallen for level in self.levels.values())

    @property
    def later(self) -> int:
        """How many are not due yet."""
        return len(self) - self.fallen

    def _level(self, number: int) -> Delayed:
        level = self.levels.get(number)
        if level is None:
            if self.levels is _NO_LEVELS:
                self.levels = {}
            level = self.levels[number] = Delayed(self._known)
        return level

    def _number_of(self, sequence: int) -> int:
        for number, members in (self._queue_levels or {}).items():
            if sequence in members:
                return number
        return NORMAL

    def add(self, sequence: int) -> None:
        self._level(self._number_of(sequence)).add(sequence, self._known[sequence])

    def add_all(self, sequences: Sequence[int], dues: Values) -> None:
        """As `add` of each, of which none is here."""
        if not self._queue_levels:
            self._level(NORMAL).add_all(sequences, dues)
            return
        if isinstance(dues, int):
            dues = [dues] * len(sequences)
        first, last = sequences[0], sequences[-1]
        numbers = {
            sequence: number
            for number, members in self._queue_levels.items()
            for start, stop in members.overlap(first, last)
            for sequence in range(start, stop + 1)
        }
        parts: dict[int, tuple[list[int], list[int]]] = {}
        for sequence, due in zip(sequences, dues, strict=True):
            some, their_dues = parts.setdefault(numbers.get(sequence, NORMAL), ([], []))
            some.append(sequence)
            their_dues.append(due)
        for number, (some, their_dues) in parts.items():
            self._level(number).add_all(some, their_dues)

    def fill(self, due: Instants) -> None:
        """Take many at once, none of which is here. `due` is used up."""
        if not self._queue_levels:
            self._level(NORMAL).fill(due)
            return
        for number, members in self._queue_levels.items():
            some = Instants()
            for first, last in members.runs():
                for sequence in due.within(first, last):
                    some[sequence] = due.pop(sequence)
            if some:
                self._level(number).fill(some)
        if due:
            self._level(NORMAL).fill(due)

    def clear(self) -> None:
        self.levels = _NO_LEVELS

    def advance(self, now: int) -> None:
        """What is due at or before now has fallen due."""
        for level in self.levels.values():
            level.advance(now)

    def next_later(self) -> int:
        """When the next one falls due; END when none is to."""
        return min([END, *(level.next_later() for level in self.levels.values())])

    def next_from(self, instant: int) -> int:
        """The earliest instant, not before that one, at which something is due; END when nothing is."""
        return min([END, *(level.next_from(instant) for level in self.levels.values())])

    def level(self, number: int) -> Delayed | None:
        return self.levels.get(number)

    def fallen_levels(self) -> list[int]:
        return [number for number, level in self.levels.items() if level.fallen]

    def pop_front(self, number: int, count: int) -> None:
        """Take the first ones out of a level."""
        level = self.levels[number]
        level.drop_front(count)
        if not level:
            del self.levels[number]

    def in_runs(self, most: int) -> int:
        """How many messages the first `most` runs of each level are, or a part of them."""
        return sum(_in_runs(level, most) for level in self.levels.values() if level.fallen)

    # -- by sequence --------------------------------------------------------------------------------------------------

    def due_at(self, sequence: int) -> int:
        """0 when it is not here."""
        return max([0, *(level.due_at(sequence) for level in self.levels.values())])

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last]."""
        found = [sequence for level in self.levels.values() for sequence in level.within(first, last)]
        return sorted(found) if len(self.levels) > 1 else found

    def runs_within(self, first: int, last: int) -> list[Run]:
        """The same as runs; those of several levels, and some others, may adjoin."""
        found = [run for level in self.levels.values() for run in level.runs_within(first, last)]
        return sorted(found) if len(self.levels) > 1 else found

    def runs(self) -> list[Run]:
        """Ascending; those of several levels may adjoin."""
        found = [run for level in self.levels.values() for run in level.runs()]
        return sorted(found) if len(self.levels) > 1 else found

    def lowest(self) -> int | None:
        """The smallest sequence; None when nothing is here."""
        return min((first for level in self.levels.values() if (first := level.lowest()) is not None), default=None)

    def smallest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the smallest sequences from `start` on."""
        found = [sequence for level in self.levels.values() for sequence in level.smallest(count, start)]
        return sorted(found)[:count] if len(self.levels) > 1 else found

    def remove(self, first: int, last: int) -> list[int]:
        """Take out what is in [first, last]."""
        found: list[int] = []
        for number, level in list(self.levels.items()):
            found += level.remove(first, last)
            if not level:
                del self.levels[number]
        return sorted(found)


def _in_runs(level: Delayed, most: int) -> int:
    # Few runs are many messages or few: so many are looked at that they are known where each is a run.
    looked_at = most + 1
    while True:
        runs = level.front_runs(looked_at)
        count = run_count(runs[:most])
        if len(runs) > most or count < looked_at or looked_at >= _LOOKED_AT_MAX:
            return count
        looked_at = min(_LOOKED_AT_MAX, 4 * looked_at)


def in_turn(plain: list[Run], fallen: list[DueRun], sizes: Sizes, count: int) -> tuple[list[Run], int]:
    """(runs, due): up to `count` messages in the order of hand-out, and how many of them had fallen due. Both orders
    are told from their beginnings, and as far as `count` reaches."""
    runs: list[Run] = []
    index = due = 0
    for first, last in plain:
        while first <= last and count > 0:
            published_at = sizes.begun_at(first)
            start = index
            while index < len(fallen) and fallen[index][0] < published_at:
                index += 1
            taken = _append_all(runs, fallen[start:index], count)
            due += taken
            count -= taken
            stop = last if index == len(fallen) else min(last, max(first, sizes.last_begun_at(fallen[index][0])))
            stop = min(stop, first + count - 1)
            if stop >= first:
                _append(runs, first, stop)
                count -= stop - first + 1
                first = stop + 1
    return runs, due + _append_all(runs, fallen[index:], count)


def _append_all(runs: list[Run], fallen: list[DueRun], count: int) -> int:
    """Up to `count` of these; return how many that are."""
    left = count
    for _, first, last in fallen:
        if left <= 0:
            break
        last = min(last, first + left - 1)
        left -= last - first + 1
        _append(runs, first, last)
    return count - left


def _append(runs: list[Run], first: int, last: int) -> None:
    if runs and runs[-1][1] + 1 == first:
        runs[-1] = (runs[-1][0], last)
    else:
        runs.append((first, last))
