"""Which delays end next: whether one has ended between two messages of a queue.

Known are those of the next minutes, eight bytes each. The others are looked for again before that time is over, a few
pages with each message, so that no look is long and nothing is kept for a delay that ends in an hour.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from vibemq.model.instants import Instants, Values

WINDOW_MS = 120_000
_PAGES_TOGETHER = 16
_TOGETHER_MAX = 2048
_FEW = 16
"""Instants that are put into a stretch one by one; of more the stretch is made anew."""


class Upcoming:
    __slots__ = ("_end", "_next_end", "_place", "_stretches", "unknown_to")

    def __init__(self, known_from: int = 0) -> None:
        """`known_from`: every delay that ends from then on will be added; 0: there are others."""
        self._stretches: list[array[int]] = []
        """Ascending, and none is empty."""
        self._end = known_from + WINDOW_MS if known_from else 0
        """Those that end before it are known."""
        self._next_end = self._end
        """The same when the look that is under way is over."""
        self._place: int | None = None
        """The page from which on that look goes on; None: none is under way."""
        self.unknown_to = 0
        """While something up to this sequence is on its way, there are delays that will only then be added."""

    def __len__(self) -> int:
        return sum(map(len, self._stretches))

    def add(self, instant: int) -> None:
        """One more delay that ends then. It is said when the message is accepted, and again when it is among those that
        a look sees: a look in between would miss it."""
        if instant < self._next_end:
            self._keep(instant)

    def add_all(self, instants: Values) -> None:
        """As `add` of each."""
        if isinstance(instants, int):
            self.add(instants)
        elif min(instants) < self._next_end:
            self._keep_all(0, self._next_end, instants)

    def pass_by(self, now: int, instants: Instants) -> bool:
        """Whether one may have ended since the last call and before now. `instants`: all of them; those that are not to
        come any more do no harm."""
        unknown = now > self._end
        if now + WINDOW_MS // 2 > self._end:
            self._look(now, instants)
        stretches = self._stretches
        passed = bool(stretches) and stretches[0][0] < now
        if passed:
            del stretches[: bisect_left(stretches, now, key=_last)]
            if stretches:
                del stretches[0][: bisect_left(stretches[0], now)]
        return passed or unknown

    def _look(self, now: int, instants: Instants) -> None:
        if self._place is None:
            self._place, self._next_end = 0, now + WINDOW_MS
        known = max(self._end, now)
        found, self._place = instants.of_pages(self._place, _PAGES_TOGETHER)
        self._keep_all(known, self._next_end, found)
        if self._place is None:
            self._end = self._next_end

    def _keep_all(self, start: int, end: int, instants: Iterable[int]) -> None:
        """Those in [start, end)."""
        some = sorted(set(instants))
        done, count = bisect_left(some, start), bisect_left(some, end)
        while done < count:
            index = bisect_left(self._stretches, some[done], key=_last)
            if index == len(self._stretches):
                self._follow(some[done:count])
                return
            stretch = self._stretches[index]
            stop = bisect_right(some, stretch[-1], done, count)
            if stop - done <= _FEW:
                for instant in some[done:stop]:
                    self._keep(instant)
            else:
                self._stretches[index : index + 1] = _cut(sorted({*stretch, *some[done:stop]}))
            done = stop

    def _follow(self, instants: list[int]) -> None:
        """They come behind all others, and ascend."""
        room = max(0, _TOGETHER_MAX - len(self._stretches[-1])) if self._stretches else 0
        if room:
            self._stretches[-1].extend(instants[:room])
        self._stretches += _cut(instants[room:])

    def _keep(self, instant: int) -> None:
        stretches = self._stretches
        index = bisect_left(stretches, instant, key=_last)
        if index == len(stretches):
            if not stretches or len(stretches[-1]) >= _TOGETHER_MAX:
                stretches.append(array("Q"))
            stretches[-1].append(instant)
            return
        stretch = stretches[index]
        at = bisect_left(stretch, instant)
        if stretch[at] == instant:
            return
        stretch.insert(at, instant)
        if len(stretch) > 2 * _TOGETHER_MAX:
            stretches[index : index + 1] = [stretch[:_TOGETHER_MAX], stretch[_TOGETHER_MAX:]]


def _cut(instants: list[int]) -> "list[array[int]]":
    return [array("Q", instants[at : at + _TOGETHER_MAX]) for at in range(0, len(instants), _TOGETHER_MAX)]


def _last(stretch: "array[int]") -> int:
    last: int = stretch[-1]
    return last
