"""Messages that wait for an instant: published with a delay, or to be retried."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import le

from vibemq.model.due_order import TOGETHER_MAX, Entry, Stretch
from vibemq.model.instants import Instants, Values
from vibemq.model.members import InstantsOfSome
from vibemq.model.options import NUMBER_MAX
from vibemq.model.runs import END, Run

_NO_ORDER: list[Stretch] = []
_NO_BOUNDS: list[Entry] = []
_FOLLOWING = 32


class Delayed:
    """Sequences by due instant: eight bytes each in the order of what is due, eight or more by sequence, or hardly any
    where their instants are known elsewhere.

    The order has exactly what waits, so nothing is ever due that has left, and nothing is ever sorted anew.

    What is due may be taken out (`pop_due`), or stay and count as fallen due (`advance`): that costs nothing for each
    message, however many fall due at once.
    """

    __slots__ = ("_bounds", "_due", "_horizon", "_known", "_order", "fallen")

    def __init__(self, known: Instants | None = None) -> None:
        """`known`: has the instants of all that is ever here, and of others."""
        self._known = known
        self._due: Instants | InstantsOfSome | None = None
        """Made when something waits for the first time."""
        self._order: list[Stretch] = _NO_ORDER
        self._bounds: list[Entry] = _NO_BOUNDS
        """The last of each stretch, or what was its last."""
        self._horizon = 0
        self.fallen = 0
        """How many are due at or before the horizon."""

    def __len__(self) -> int:
        return 0 if self._due is None else len(self._due)

    def __contains__(self, sequence: int) -> bool:
        return self._due is not None and sequence in self._due

    def __iter__(self) -> Iterator[int]:
        """Every sequence, in no order that means anything."""
        for stretch in self._order:
            yield from stretch.sequences(0, len(stretch))

    def runs(self) -> list[Run]:
        return [] if self._due is None else self._due.runs()

    def due_at(self, sequence: int) -> int:
        """0 when it does not wait."""
        return 0 if self._due is None else self._due.get(sequence)

    def lowest(self) -> int | None:
        """The smallest sequence; None when nothing waits."""
        return self._due.first if self._due else None

    def smallest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the smallest sequences from `start` on."""
        return self._due.lowest(count, start) if self._due else []

    def add(self, sequence: int, due: int) -> None:
        """It waits for that instant, and no more for the one that it may have waited for."""
        if self._due is None:
            self._due, self._order, self._bounds = self._nothing(), [], []
        before = self._due.put(sequence, due)
        if before:
            self._leave_order(before, [sequence], 0)
        self._enter_order(due, sequence)

    def add_all(self, sequences: Sequence[int], dues: Values) -> None:
        """As `add` of each, of which none is here."""
        if self._due is None:
            self._due, self._order, self._bounds = self._nothing(), [], []
        self._due.put_columns(sequences, dues)
        entries = sorted(zip(repeat(dues) if isinstance(dues, int) else dues, sequences, strict=False))
        if self._bounds and entries[0] <= self._bounds[-1]:
            entries = self._enter_between(entries)
        self._follow(entries)

    def _enter_between(self, entries: list[Entry]) -> list[Entry]:
        """Put these, which are in order, among the others; what comes behind all others is left and returned."""
        self.fallen += bisect_right(entries, (self._horizon, END), hi=bisect_right(entries, self._bounds[-1]))
        done = 0
        while done < len(entries) and entries[done] <= self._bounds[-1]:
            index = bisect_left(self._bounds, entries[done])
            stretch = self._order[index]
            # No more than it has room for: it is split as soon as it has too many.
            stop = bisect_right(entries, self._bounds[index], lo=done, hi=min(len(entries), done + TOGETHER_MAX))
            stretch.insert_all(entries[done:stop])
            done = stop
            if len(stretch) > 2 * TOGETHER_MAX:
                self._order.insert(index + 1, stretch.split())
                self._bounds.insert(index, stretch.last)
        return entries[done:]

    def _follow(self, entries: list[Entry]) -> None:
        """These, in order, come behind all others."""
        order, bounds = self._order, self._bounds
        self.fallen += bisect_right(entries, (self._horizon, END))
        while entries:
            if not order or len(order[-1]) >= TOGETHER_MAX:
                order.append(Stretch(*entries[0]))
                bounds.append(entries[0])
            some = entries[: TOGETHER_MAX - len(order[-1])]
            order[-1].extend(array("Q", [due for due, _ in some]), array("Q", [sequence for _, sequence in some]))
            bounds[-1] = some[-1]
            entries = entries[len(some) :]

    def _enter_order(self, due: int, sequence: int) -> None:
        if due <= self._horizon:
            self.fallen += 1
        bounds, order = self._bounds, self._order
        index = bisect_left(bounds, (due, sequence))
        if index == len(bounds):
            if not order or len(order[-1]) >= TOGETHER_MAX:
                order.append(Stretch(due, sequence))
                bounds.append((due, sequence))
            bounds[-1] = due, sequence
            order[-1].append(due, sequence)
            return
        stretch = order[index]
        stretch.insert(due, sequence)
        if len(stretch) > 2 * TOGETHER_MAX:
            order.insert(index + 1, stretch.split())
            bounds.insert(index, stretch.last)

    def _nothing(self) -> Instants | InstantsOfSome:
        return Instants() if self._known is None else InstantsOfSome(self._known)

    def fill(self, due: Instants) -> None:
        """Take many at once, of which none waits yet; cheaper than one by one. `due` is this one's own from here on."""
        if self._due:
            for sequence, instant in due.items():
                self.add(sequence, instant)
        elif due:
            self._put_in_order(due)
            self._due = due if self._known is None else InstantsOfSome(self._known, due.runs())

    def _put_in_order(self, due: Instants) -> None:
        numbers, dues = due.columns()
        self._order = []
        for instants, sequences in _sorted_apart(dues, numbers):
            for at in range(0, len(instants), TOGETHER_MAX):
                stretch = Stretch(instants[at], sequences[at])
                stretch.extend(instants[at : at + TOGETHER_MAX], sequences[at : at + TOGETHER_MAX])
                self._order.append(stretch)
        self._bounds = [stretch.last for stretch in self._order]
        self.fallen = self._count(0, self._horizon)

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last]."""
        return [] if self._due is None else self._due.within(first, last)

    def remove(self, first: int, last: int) -> list[int]:
        due = self._due
        if not due:
            return []
        found = due.within(first, last)
        if len(found) == len(due):
            self._due, self._order, self._bounds, self.fallen = None, _NO_ORDER, _NO_BOUNDS, 0
            return found
        at = 0
        while at < len(found):
            at += self._leave_order(due[found[at]], found, at)
        for sequence in found:
            del due[sequence]
        return found

    def _leave_order(self, due: int, found: list[int], at: int) -> int:
        """Take found[at], which is due then, out of the order, and those of the next ones that follow it there; return
        how many these are."""
        index = bisect_left(self._bounds, (due, found[at]))
        stretch = self._order[index]
        place = end = stretch.place_of(due, found[at])
        # Those that follow it are looked at some at a time: they are seldom many.
        most = _FOLLOWING
        while end - place == most - _FOLLOWING:
            some = stretch.sequences(end, end + _FOLLOWING)
            for sequence, other in zip(islice(found, at + end - place, None), some, strict=False):
                if sequence != other:
                    break
                end += 1
            most += _FOLLOWING
        if due <= self._horizon:
            self.fallen -= min(stretch.place_after(self._horizon), end) - place
        stretch.remove(place, end)
        if not stretch:
            del self._order[index], self._bounds[index]
        return end - place

    def pop_due(self, now: int, most: int = NUMBER_MAX) -> list[int]:
        """Remove and return up to `most` sequences that are due at or before now, the longest due first."""
        found: list[int] = []
        due = self._due
        while len(found) < most and self._order and self._order[0].first_due <= now:
            assert due is not None
            stretch = self._order[0]
            place = min(stretch.place_after(now), most - len(found))
            if self.fallen:
                self.fallen -= min(place, stretch.place_after(self._horizon))
            for sequence in stretch.sequences(0, place):
                del due[sequence]
                found.append(sequence)
            if place == len(stretch):
                del self._order[0], self._bounds[0]
            else:
                stretch.remove(0, place)
        return found

    def due_by(self, now: int) -> list[int]:
        """Every sequence that is due at or before now; they stay."""
        found: list[int] = []
        for stretch in self._order:
            if stretch.first_due > now:
                break
            found += stretch.sequences(0, stretch.place_after(now))
        return found

    def next_due(self) -> int | None:
        return self._order[0].first_due if self._order else None

    # -- what has fallen due and is still here ------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """What is due at or before now has fallen due."""
        if now > self._horizon:
            self.fallen += self._count(self._horizon, now)
            self._horizon = now

    def _count(self, after: int, upto: int) -> int:
        """How many are due after the one instant, and at or before the other. Costs what the stretches between are."""
        count = 0
        for index in range(bisect_left(self._bounds, (after, END)), len(self._order)):
            stretch = self._order[index]
            high = stretch.place_after(upto)
            count += high - stretch.place_after(after)
            if high < len(stretch):
                break
        return count

    def next_later(self) -> int:
        """When the next one falls due; END when none is to."""
        return self.next_from(self._horizon + 1)

    def next_from(self, instant: int) -> int:
        """The earliest instant, not before that one, at which something is due; END when nothing is."""
        for index in range(bisect_left(self._bounds, (instant, 0)), len(self._order)):
            stretch = self._order[index]
            if stretch.last_due >= instant:
                return stretch.due_from(instant)
        return END

    def front(self, count: int) -> list[Entry]:
        """Up to `count` of those that have fallen due, the longest due first; they stay."""
        found: list[Entry] = []
        count = min(count, self.fallen)
        for stretch in self._order:
            if len(found) >= count:
                break
            found += stretch.entries(count - len(found))
        return found

    def pop_front(self, count: int) -> list[int]:
        """Remove and return what `front` tells."""
        return self.pop_due(self._horizon, min(count, self.fallen))

    def fallen_of(self, sequences: list[int]) -> list[Entry]:
        """Those that have fallen due, the longest due first."""
        return sorted((due, s) for s in sequences if 0 < (due := self.due_at(s)) <= self._horizon)


def _sorted_apart(instants: "array[int]", sequences: "array[int]") -> "Iterable[tuple[array[int], array[int]]]":
    """The columns by instant, in ascending pieces: sorting a million numbers at once would need them all as objects."""
    if all(map(le, instants, instants[1:])):
        yield instants, sequences
        return
    # Instant and place of an entry are one number, so that a piece is sorted by no key.
    low, bits = min(instants), len(instants).bit_length()
    mask = (1 << bits) - 1
    width = ((max(instants) - low) * TOGETHER_MAX // len(instants) + 1) << bits
    fits = (max(instants) - low) >> (64 - bits) == 0
    pieces: dict[int, array[int] | list[int]] = {}
    for place, instant in enumerate(instants):
        entry = instant - low << bits | place
        try:
            pieces[entry // width].append(entry)
        except KeyError:
            pieces[entry // width] = array("Q", [entry]) if fits else [entry]
    for index in sorted(pieces):
        entries = sorted(pieces.pop(index))
        dues = array("Q", [low + (entry >> bits) for entry in entries])
        yield dues, array("Q", [sequences[entry & mask] for entry in entries])
