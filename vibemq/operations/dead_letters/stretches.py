"""Where in the DLQ letters are looked for: everywhere, or only about the ids that are named."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from vibemq.model.runs import Run

NEAR_IDS = 16
"""To read the facts of so many letters between two ids costs less than to look for the second by itself."""


class IdStretches:
    """Args:
    ids: None = all that there are.
    """

    def __init__(self, ids: Iterable[int] | None = None) -> None:
        named = None if ids is None else sorted(ids)
        runs = [] if not named else list(_stretches_of(named))
        self.everywhere = named is None
        self._firsts = [first for first, _ in runs]
        self._lasts = [last for _, last in runs]

    def above(self, last: int, below: int) -> tuple[int, int] | None:
        """(after, below) of the lowest stretch with ids in (last, below); None: there is none."""
        if self.everywhere:
            return last, below
        at = bisect_right(self._lasts, last)
        if at == len(self._lasts):
            return None
        return _unless_empty(max(last, self._firsts[at] - 1), min(below, self._lasts[at] + 1))

    def beneath(self, last: int, after: int) -> tuple[int, int] | None:
        """(after, below) of the highest stretch with ids in (after, last); None: there is none."""
        if self.everywhere:
            return after, last
        at = bisect_left(self._firsts, last) - 1
        if at < 0:
            return None
        return _unless_empty(max(after, self._firsts[at] - 1), min(last, self._lasts[at] + 1))


def _stretches_of(ids: Sequence[int]) -> Iterator[Run]:
    """Of ascending ids: those that stand close together are looked for in one go."""
    first = last = ids[0]
    for dead_id in ids:
        if dead_id - last > NEAR_IDS:
            yield first, last
            first = dead_id
        last = dead_id
    yield first, last


def _unless_empty(after: int, below: int) -> tuple[int, int] | None:
    """`after` and `below` themselves are not among the ids."""
    return (after, below) if after + 1 < below else None


EVERYWHERE = IdStretches()
