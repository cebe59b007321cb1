"""What a group may hand out now, and which of its selectors match it.

    fresh      nobody has looked at it yet
    behind     looked at, but before a selector came that is still behind
    classes    what the same selectors match, by the bits of these selectors
    the rest   looked at, and matched by none: it stays where it is, and costs nothing

Every message that comes in, or comes back, is fresh. Every message that goes out leaves all of these.
"""

from collections.abc import Iterable, Iterator

from vibemq.engine.queue.ready import Levels, Ready
from vibemq.model.runs import END, Run, RunSet, run_count, smallest_of

Matched = tuple[int, int, int]
"""First and last sequence, and the bits of the selectors that match them."""


class Sifted(Ready):
    __slots__ = ("behind", "classes", "fresh")

    def __init__(self, levels: Levels | None = None) -> None:
        super().__init__(levels)
        self.fresh = Ready(levels)
        self.behind: dict[int, Ready] = {}
        """Bit of a selector -> what it has yet to be asked about, beside what is fresh."""
        self.classes: dict[int, Ready] = {}

    @classmethod
    def of(cls, ready: Ready) -> "Sifted":
        """Everything is fresh."""
        sifted = cls(ready.queue_levels)
        for run in ready.runs():
            sifted.add(*run)
        return sifted

    def unsifted(self) -> Ready:
        ready = Ready(self.queue_levels)
        for run in self.runs():
            ready.add(*run)
        return ready

    # -- what comes and goes ------------------------------------------------------------------------------------------

    def add(self, first: int, last: int) -> None:
        super().add(first, last)
        self.fresh.add(first, last)

    def fill(self, members: RunSet) -> None:
        for run in members.runs():
            self.add(*run)

    def clear(self) -> None:
        super().clear()
        self.fresh.clear()
        self.classes.clear()
        for members in self.behind.values():
            members.clear()

    def remove(self, first: int, last: int) -> list[Run]:
        found = super().remove(first, last)
        if found:
            left = run_count(found) - run_count(self.fresh.remove(first, last))
            if left:
                for members in self.behind.values():
                    members.remove(first, last)
            for bits in list(self.classes):
                # Each message is in one class at most.
                if not left:
                    break
                left -= run_count(self._take(bits, first, last))
        return found

    def pop(self, count: int) -> list[Run]:
        runs = self.next(count)
        for run in runs:
            self.remove(*run)
        return runs

    def pop_level(self, level: int, count: int) -> None:
        for run in self.front(level, count):
            self.remove(*run)

    def _take(self, bits: int, first: int, last: int) -> list[Run]:
        """Out of a class."""
        members = self.classes[bits]
        taken = members.remove(first, last)
        if not members.count:
            del self.classes[bits]
        return taken

    def _put(self, bits: int, first: int, last: int) -> None:
        members = self.classes.get(bits)
        if members is None:
            members = self.classes[bits] = Ready(self.queue_levels)
        members.add(first, last)

    # -- selectors ----------------------------------------------------------------------------------------------------

    def open(self, bit: int) -> None:
        """A selector has come: it has to be asked about everything that others were asked about."""
        known = self.members()
        for run in self.fresh.runs():
            known.remove(*run)
        self.behind[bit] = Ready(self.queue_levels)
        self.behind[bit].fill(known)

    def close(self, bit: int) -> None:
        """It is gone."""
        self.behind.pop(bit, None)
        for bits in [some for some in self.classes if some & bit]:
            members = self.classes.pop(bits)
            if left := bits & ~bit:
                for run in members.runs():
                    self._put(left, *run)

    def look_again(self) -> None:
        """Nothing is known of anything any more."""
        everything = self.members()
        self.fresh.clear()
        self.fresh.fill(everything)
        self.classes.clear()
        for members in self.behind.values():
            members.clear()

    def tell(self, bit: int, first: int, last: int) -> None:
        """A selector that was behind matches these."""
        rest = RunSet(self.behind[bit].overlap(first, last))
        for bits in [some for some in self.classes if not some & bit]:
            for run in self._take(bits, first, last):
                rest.remove(*run)
                self._put(bits | bit, *run)
        for run in rest.runs():
            self._put(bit, *run)

    def caught_up(self, bit: int, runs: Iterable[Run]) -> None:
        """It has been asked about these."""
        for run in runs:
            self.behind[bit].remove(*run)

    def sift(self, runs: Iterable[Run], matched: Iterable[Matched], asked: int) -> list[Run]:
        """Of fresh messages it is known now which of the selectors `asked` match them. Returns those that none does."""
        left = RunSet([part for run in runs for part in sorted(self.fresh.overlap(*run))])
        others = [members for bit, members in self.behind.items() if not bit & asked]
        for first, last in left.runs():
            self.fresh.remove(first, last)
            for members in others:
                members.add(first, last)
        for first, last, bits in matched:
            for part in left.overlap(first, last):
                self._put(bits, *part)
                left.remove(*part)
        return left.runs()

    # -- in the order of hand-out -------------------------------------------------------------------------------------

    def candidates(self, bit: int, kinds: list[int], most: int) -> list[Run]:
        """What is in these classes and may be handed out to the consumers of a selector: about `most` runs of each.

        Behind a message that nobody has looked at yet nothing is handed out, so that what comes back keeps its place.
        """
        found: list[Run] = []
        some = [self.classes[bits] for bits in kinds]
        for level in sorted({level for members in some for level in members.levels()}, reverse=True):
            lists = [members.first_runs(level, most) for members in some]
            limit = min(self._limits(bit, level), *(runs[-1][1] for runs in lists if len(runs) >= most), END)
            found += [
                (first, min(last, limit)) for first, last in smallest_of(filter(None, lists), END) if first <= limit
            ]
        return found

    def _limits(self, bit: int, level: int) -> int:
        return min(_known_until(self.fresh, level), _known_until(self.behind[bit], level))

    @property
    def told_runs(self) -> int:
        """The same without what some selectors have yet to be asked about: to ask about it takes nothing more."""
        return self.kept_runs - sum(members.run_count for members in self.behind.values())

    @property
    def kept_runs(self) -> int:
        """What is kept here takes memory for so many runs."""
        return self.run_count + sum(members.run_count for members in self._parts())

    def _parts(self) -> Iterator[Ready]:
        yield self.fresh
        yield from self.classes.values()
        yield from self.behind.values()


def _known_until(unseen: Ready, level: int) -> int:
    """Up to where a level may be handed out, as long as these are not known."""
    if not unseen.count:
        return END
    if any(other > level and unseen.front(other, 1) for other in unseen.levels()):
        return 0
    front = unseen.front(level, 1)
    return front[0][0] - 1 if front else END
