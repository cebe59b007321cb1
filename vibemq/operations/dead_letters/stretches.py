"""Where in the DLQ letters are looked for: everywhere, or only about the ids that are named."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

NEAR_IDS = 16
"""To read the facts of so many letters between two ids costs less than to look for the second by itself."""
IDS_AT_ONCE = 256
"""Of those that stand close together: more are as many as a page looks at, and the next stretch begins with them."""


class IdStretches:
    """Args:
    ids: None = all that there are.
    """

    def __init__(self, ids: Iterable[int] | None = None) -> None:
        self.everywhere = ids is None
        self._ids = sorted(ids or ())

    def above(self, last: int, below: int) -> tuple[int, int] | None:
        """(after, below) of the lowest stretch with ids in (last, below); None: there is none."""
        if self.everywhere:
            return last, below
        ids = self._ids
        first = at = bisect_right(ids, last)
        if first == len(ids):
            return None
        end = min(len(ids), first + IDS_AT_ONCE)
        while at + 1 < end and ids[at + 1] - ids[at] <= NEAR_IDS:
            at += 1
        return _unless_empty(max(last, ids[first] - 1), min(below, ids[at] + 1))

    def beneath(self, last: int, after: int) -> tuple[int, int] | None:
        """(after, below) of the highest stretch with ids in (after, last); None: there is none."""
        if self.everywhere:
            return after, last
        ids = self._ids
        first = at = bisect_left(ids, last) - 1
        if first < 0:
            return None
        end = max(0, first - IDS_AT_ONCE)
        while at > end and ids[at] - ids[at - 1] <= NEAR_IDS:
            at -= 1
        return _unless_empty(max(after, ids[at] - 1), min(last, ids[first] + 1))


def _unless_empty(after: int, below: int) -> tuple[int, int] | None:
    """`after` and `below` themselves are not among the ids."""
    return (after, below) if after + 1 < below else None


EVERYWHERE = IdStretches()
