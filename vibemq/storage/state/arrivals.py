"""The rows that a run of records brings into a store, under the sequences that they have in the end."""

from collections.abc import Callable, Iterator

from vibemq.model.records import MessagesAdded, Record, StageMoved


class Arrivals:
    def __init__(self) -> None:
        self.added: list[MessagesAdded] = []
        """Those of one queue ascend."""
        self.moved: list[StageMoved] = []
        """What of the stages was stored before these records changes hands; `added` has the rest of them already."""

    def take(self, record: Record) -> None:
        if type(record) is MessagesAdded:
            self.added.append(record)
        elif type(record) is StageMoved:
            self.moved.append(record)
            self._rename(record)

    def _rename(self, moved: StageMoved) -> None:
        own: list[MessagesAdded] = []
        others: list[MessagesAdded] = []
        for fact in self.added:
            (own if fact.queue_id == moved.stage_id else others).append(fact)
        shift = moved.shift
        self.added = others + [
            MessagesAdded(moved.queue_id, fact.first_sequence + shift, moved.published_at, fact.rows) for fact in own
        ]

    def beginnings(self) -> Iterator[tuple[int, int]]:
        """(queue_id, first sequence) of all of it."""
        yield from ((fact.queue_id, fact.first_sequence) for fact in self.added)
        yield from ((fact.queue_id, fact.first_sequence) for fact in self.moved)

    def keep(self, is_wanted: Callable[[MessagesAdded], bool]) -> int:
        """Forget rows that nobody needs; return the bytes of the others."""
        self.added = [fact for fact in self.added if is_wanted(fact)]
        return sum(fact.rows.size for fact in self.added)
