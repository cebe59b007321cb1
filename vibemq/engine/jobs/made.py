"""Which messages of a queue jobs have made."""

from bisect import bisect_right
from collections.abc import Callable


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

    def maker(self, sequence: int) -> int:
        """0 = no job."""
        at = bisect_right(self._firsts, sequence) - 1
        if at < 0:
            return 0
        last, job_id = self._runs[at]
        return job_id if sequence <= last else 0

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Forget the messages of the other jobs."""
        kept = [(first, run) for first, run in zip(self._firsts, self._runs, strict=True) if wanted(run[1])]
        self._firsts = [first for first, _ in kept]
        self._runs = [run for _, run in kept]
