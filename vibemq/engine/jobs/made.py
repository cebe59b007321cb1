"""Which messages of a queue jobs have made."""

from bisect import bisect_right
from collections.abc import Callable, Iterator

from vibemq.model.runs import Run


class MadeIn:
    """Which job made a message of one queue. No two jobs make the same, and later ones come behind."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[tuple[int, int]] = []
        """(last, job_id) of each."""

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int, last: int, job_id: int) -> None:
        if self._runs and self._runs[-1] == (first - 1, job_id):
            self._runs[-1] = (last, job_id)
            return
        at = bisect_right(self._firsts, first)
        self._firsts.insert(at, first)
        self._runs.insert(at, (last, job_id))

    def remove(self, first: int, last: int) -> None:
        """Forget a stretch that one job has made, or a part of it."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._runs[at][0] < last:
            return
        start, (end, job_id) = self._firsts[at], self._runs[at]
        parts = [part for part in ((start, first - 1), (last + 1, end)) if part[0] <= part[1]]
        self._firsts[at : at + 1] = [part[0] for part in parts]
        self._runs[at : at + 1] = [(part[1], job_id) for part in parts]

    def within(self, first: int, last: int) -> Iterator[tuple[int, Run]]:
        """(job_id, run) of each stretch in [first, last], ascending."""
        for at in range(max(0, bisect_right(self._firsts, first) - 1), len(self._firsts)):
            start, (end, job_id) = self._firsts[at], self._runs[at]
            if start > last:
                return
            if end >= first:
                yield job_id, (max(start, first), min(end, last))

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Forget the messages of the other jobs."""
        kept = [(first, run) for first, run in zip(self._firsts, self._runs, strict=True) if wanted(run[1])]
        self._firsts = [first for first, _ in kept]
        self._runs = [run for _, run in kept]
