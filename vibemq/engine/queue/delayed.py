"""Messages that wait for an instant: published with a delay, or to be retried."""

from heapq import heapify, heappop, heappush

from vibemq.model.runs import Run, runs_of


class Later:
    """Sequences by due instant. Removed ones leave a heap when they surface, or when they outnumber the others."""

    __slots__ = ("_due", "_heap", "_order")

    def __init__(self) -> None:
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._order: list[int] = []
        """A heap of the sequences, for `lowest`."""

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._due

    def runs(self) -> list[Run]:
        return runs_of(self._due)

    def add(self, sequence: int, due: int) -> None:
        self._due[sequence] = due
        heappush(self._heap, (due, sequence))
        heappush(self._order, sequence)

    def lowest(self) -> int | None:
        """The smallest sequence; None when nothing waits."""
        order, due = self._order, self._due
        while order and order[0] not in due:
            heappop(order)
        return order[0] if order else None

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last], found by walking whichever is shorter."""
        if not self._due:
            return []
        if last - first < len(self._due):
            return [s for s in range(first, last + 1) if s in self._due]
        return sorted(s for s in self._due if first <= s <= last)

    def remove(self, first: int, last: int) -> list[int]:
        found = self.within(first, last)
        for sequence in found:
            del self._due[sequence]
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(due, sequence) for sequence, due in self._due.items()]
            heapify(self._heap)
        self._compact()
        return found

    def pop_due(self, now: int) -> list[int]:
        """Remove and return every sequence that is due at or before now."""
        found: list[int] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, sequence = heappop(heap)
            if self._due.get(sequence) == due:
                del self._due[sequence]
                found.append(sequence)
        self._compact()
        return found

    def _compact(self) -> None:
        if len(self._order) > 2 * len(self._due) + 64:
            self._order = sorted(self._due)

    def next_due(self) -> int | None:
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None
