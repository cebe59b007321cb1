"""Messages that wait for an instant: published with a delay, or to be retried."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from operator import itemgetter, le

from vibemq.engine.queue.timing.due_order import RUN_LEAST, TOGETHER_MAX, DueRun, Entry, SameDue, Stretch, neighbours
from vibemq.model.instants import Instants, Values
from vibemq.model.members import InstantsOfSome
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.runs import END, Run

_Order = list[Stretch | SameDue]
_NO_ORDER: _Order = []
_NO_BOUNDS: list[Entry] = []


class Delayed:
    """Sequences by due instant: eight bytes each in the order of what is due, eight or more by sequence, or hardly any
    where their instants are known elsewhere. Neighbours that are due together take hardly any memory or time in the
    order, however many they are.

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
        self._order: _Order = _NO_ORDER
        self._bounds: list[Entry] = _NO_BOUNDS
        """The last of each stretch, or what was its last; of a run it is exact."""
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
        if len(sequences) >= RUN_LEAST and sequences[-1] - sequences[0] + 1 == len(sequences):
            if isinstance(dues, int):
                self._enter_run(dues, sequences[0], sequences[-1])
                return
            if RUN_LEAST * len(set(dues)) <= len(dues):
                self._enter_in_runs(sequences, dues)
                return
            if (not self._bounds or dues[0] > self._bounds[-1][0]) and all(map(le, dues, islice(dues, 1, None))):
                self._follow(dues, sequences)
                return
        self._enter_all(sorted(zip(repeat(dues) if isinstance(dues, int) else dues, sequences, strict=False)))

    def _enter_in_runs(self, sequences: Sequence[int], dues: Sequence[int]) -> None:
        """Neighbours, many of which have one instant."""
        at = 0
        others: list[Entry] = []
        for due, group in groupby(dues):
            end = at + sum(1 for _ in group)
            if end - at >= RUN_LEAST:
                self._enter_run(due, sequences[at], sequences[end - 1])
            else:
                others += zip(repeat(due), sequences[at:end], strict=False)
            at = end
        if others:
            self._enter_all(sorted(others))

    def _enter_run(self, due: int, first: int, last: int) -> None:
        """Nothing is due between the first and the last of them."""
        if due <= self._horizon:
            self.fallen += last - first + 1
        order, bounds = self._order, self._bounds
        index = bisect_left(bounds, (due, first))
        before = order[index - 1] if index else None
        if isinstance(before, SameDue) and before.last == (due, first - 1):
            before.last_sequence = last
            bounds[index - 1] = due, last
            return
        if index < len(order) and (place := order[index].place_of(due, first)):
            if place < len(order[index]):
                self._split(index, place)
            else:
                bounds[index] = order[index].last
            index += 1
        order.insert(index, SameDue(due, first, last))
        bounds.insert(index, (due, last))

    def _split(self, index: int, place: int) -> None:
        """What stands from the place on has a stretch of its own behind the other."""
        stretch = self._order[index]
        self._order.insert(index + 1, stretch.split(place))
        self._bounds.insert(index, stretch.last)

    def _enter_all(self, entries: list[Entry]) -> None:
        """They are in order."""
        if self._bounds and entries[0] <= self._bounds[-1]:
            entries = self._enter_between(entries)
        self._follow([due for due, _ in entries], [sequence for _, sequence in entries])

    def _enter_between(self, entries: list[Entry]) -> list[Entry]:
        """Put these, which are in order, among the others; what comes behind all others is left and returned."""
        self.fallen += bisect_right(entries, (self._horizon, END), hi=bisect_right(entries, self._bounds[-1]))
        done = 0
        while done < len(entries) and entries[done] <= self._bounds[-1]:
            index = self._stretch_for(entries[done])
            stretch = self._order[index]
            assert isinstance(stretch, Stretch)
            # No more than it has room for: it is split as soon as it has too many.
            stop = bisect_right(entries, self._bounds[index], lo=done, hi=min(len(entries), done + TOGETHER_MAX))
            stretch.insert_all(entries[done:stop])
            done = stop
            if len(stretch) > 2 * TOGETHER_MAX:
                self._split(index, len(stretch) // 2)
        return entries[done:]

    def _stretch_for(self, entry: Entry) -> int:
        """The index of the stretch that has room for the entry, which does not come behind all others. Its bound is as
        far as the entry, or further."""
        index = bisect_left(self._bounds, entry)
        if isinstance(self._order[index], Stretch):
            return index
        # It comes right before a run.
        before = self._order[index - 1] if index else None
        if isinstance(before, Stretch) and len(before) < TOGETHER_MAX:
            index -= 1
        else:
            self._order.insert(index, Stretch(*entry))
            self._bounds.insert(index, entry)
        run = self._order[index + 1]
        self._bounds[index] = run.first_due, run.sequences(0, 1)[0] - 1
        return index

    def _follow(self, dues: Sequence[int], sequences: Sequence[int]) -> None:
        """These entries, in order, come behind all others."""
        self.fallen += bisect_right(dues, self._horizon)
        at = 0
        while at < len(dues):
            last = self._last_for((dues[at], sequences[at]))
            stop = min(len(dues), at + TOGETHER_MAX - len(last))
            last.extend(dues[at:stop], sequences[at:stop])
            self._bounds[-1] = dues[stop - 1], sequences[stop - 1]
            at = stop

    def _last_for(self, entry: Entry) -> Stretch:
        """The last stretch, with room for the entry, which comes behind all others."""
        last = self._order[-1] if self._order else None
        if isinstance(last, Stretch) and len(last) < TOGETHER_MAX:
            return last
        last = Stretch(*entry)
        self._order.append(last)
        self._bounds.append(entry)
        return last

    def _enter_order(self, due: int, sequence: int) -> None:
        if due <= self._horizon:
            self.fallen += 1
        if not self._bounds or (due, sequence) > self._bounds[-1]:
            last = self._order[-1] if self._order else None
            if isinstance(last, SameDue) and last.last == (due, sequence - 1):
                last.last_sequence = sequence
            else:
                self._last_for((due, sequence)).append(due, sequence)
            self._bounds[-1] = due, sequence
            return
        index = self._stretch_for((due, sequence))
        stretch = self._order[index]
        assert isinstance(stretch, Stretch)
        stretch.insert(due, sequence)
        if len(stretch) > 2 * TOGETHER_MAX:
            self._split(index, len(stretch) // 2)

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
            at = 0
            while at < len(instants):
                at += self._put_last(instants, sequences, at)
        self._bounds = [stretch.last for stretch in self._order]
        self.fallen = self._count(0, self._horizon)

    def _put_last(self, instants: "array[int]", sequences: "array[int]", at: int) -> int:
        """A run from that place on, or a stretch if they are none; return how many that are."""
        due, first = instants[at], sequences[at]
        near = min(at + RUN_LEAST, len(instants)) - 1
        if near - at == RUN_LEAST - 1 and instants[near] == due and sequences[near] - first == RUN_LEAST - 1:
            count = neighbours(sequences, at, bisect_right(instants, due, at) - at)
            self._order.append(SameDue(due, first, first + count - 1))
            return count
        stretch = Stretch(due, first)
        stretch.extend(instants[at : at + TOGETHER_MAX], sequences[at : at + TOGETHER_MAX])
        self._order.append(stretch)
        return len(stretch)

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last]."""
        return [] if self._due is None else self._due.within(first, last)

    def runs_within(self, first: int, last: int) -> list[Run]:
        """The same as runs; ascending, some may adjoin."""
        return [] if self._due is None else self._due.runs_within(first, last)

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
        due.remove_all(found)
        return found

    def _leave_order(self, due: int, found: list[int], at: int) -> int:
        """Take found[at], which is due then, out of the order, and those of the next ones that follow it there; return
        how many these are."""
        index = bisect_left(self._bounds, (due, found[at]))
        stretch = self._order[index]
        place = stretch.place_of(due, found[at])
        end = place + stretch.following(place, found, at)
        if due <= self._horizon:
            self.fallen -= min(stretch.place_after(self._horizon), end) - place
        self._drop(index, place, end)
        return end - place

    def _drop(self, index: int, place: int, end: int) -> None:
        """These of a stretch are in the order no more."""
        stretch = self._order[index]
        if isinstance(stretch, SameDue) and place > 0 and end < len(stretch):
            index, start = self._loosen(index, place, end)
            stretch, place, end = self._order[index], place - start, end - start
        if end - place == len(stretch):
            del self._order[index], self._bounds[index]
            return
        stretch.remove(place, end)
        if isinstance(stretch, SameDue):
            self._bounds[index] = stretch.last

    def _loosen(self, index: int, place: int, end: int) -> tuple[int, int]:
        """Before these are taken out of the middle of a run: what is about them becomes a stretch. A run with very many
        holes would otherwise become very many runs. Return the index of the stretch, and where in the run it begins."""
        run = self._order[index]
        if end - place > TOGETHER_MAX:
            # So wide a hole is worth another run.
            self._split(index, end)
            return index, 0
        start, stop = max(0, place - TOGETHER_MAX // 2), end + TOGETHER_MAX // 2
        if stop < len(run):
            self._split(index, stop)
        if start:
            self._split(index, start)
            index += 1
        middle = self._order[index]
        assert isinstance(middle, SameDue)
        self._order[index] = middle.stretch()
        return index, start

    def pop_due(self, now: int, most: int = NUMBER_MAX) -> list[int]:
        """Remove and return up to `most` sequences that are due at or before now, the longest due first."""
        found: list[int] = []
        while len(found) < most and self._order and self._order[0].first_due <= now:
            stretch = self._order[0]
            place = min(stretch.place_after(now), most - len(found))
            found += stretch.sequences(0, place)
            self._drop_front(place)
        return found

    def _drop_front(self, count: int) -> None:
        """So many of the first stretch are here no more."""
        due, stretch = self._due, self._order[0]
        assert due is not None
        if self.fallen:
            self.fallen -= min(count, stretch.place_after(self._horizon))
        sequences = stretch.sequences(0, count)
        due.remove_all(sequences if isinstance(sequences, range) else sorted(sequences))
        self._drop(0, 0, count)

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

    def front(self, count: int) -> list[DueRun]:
        """Up to `count` of those that have fallen due, the longest due first; they stay."""
        found: list[DueRun] = []
        count = min(count, self.fallen)
        for stretch in self._order:
            if count <= 0:
                break
            found += stretch.runs(count)
            count -= len(stretch)
        return found

    def front_runs(self, count: int) -> list[Run]:
        """The same in their order, without their instants."""
        found: list[Run] = []
        count = min(count, self.fallen)
        for stretch in self._order:
            if count <= 0:
                break
            some = stretch.runs_in_order(count)
            if found and found[-1][1] + 1 == some[0][0]:
                some[0] = found.pop()[0], some[0][1]
            found += some
            count -= len(stretch)
        return found

    def drop_front(self, count: int) -> None:
        """Remove what `front` tells."""
        count = min(count, self.fallen)
        while count:
            some = min(count, len(self._order[0]))
            self._drop_front(some)
            count -= some

    def fallen_of(self, sequences: list[int]) -> list[DueRun]:
        """Those that have fallen due, the longest due first."""
        found = [(due, s, s) for s in sequences if 0 < (due := self.due_at(s)) <= self._horizon]
        return sorted(found, key=itemgetter(0))


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
