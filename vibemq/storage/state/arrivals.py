"""The rows that a run of records brings into a store, under the sequences that they have in the end."""

from collections.abc import Callable

from vibemq.model.records import MessagesAdded, Record, StageMoved


class Arrivals:
    def __init__(self) -> None:
        self.added: dict[int, list[MessagesAdded]] = {}
        """By queue; those of each ascend."""
        self.moved: list[StageMoved] = []
        """What of the stages was stored before these records changes hands; `added` has the rest of them already."""

    def take(self, record: Record) -> None:
        if type(record) is MessagesAdded:
            self.added.setdefault(record.queue_id, []).append(record)
        elif type(record) is StageMoved:
            self.moved.append(record)
            self._rename(record)

    def _rename(self, moved: StageMoved) -> None:
        own = self.added.pop(moved.stage_id, None)
        if own is None:
            return
        self.added.setdefault(moved.queue_id, []).extend(
            MessagesAdded(moved.queue_id, fact.first_sequence + moved.shift, moved.published_at, fact.rows)
            for fact in own
        )

    def beginnings(self) -> dict[int, int]:
        """queue_id -> a sequence at or before the first that has come."""
        found = {queue_id: facts[0].first_sequence for queue_id, facts in self.added.items()}
        for moved in self.moved:
            found[moved.queue_id] = min(moved.first_sequence, found.get(moved.queue_id, moved.first_sequence))
        return found

    def keep(self, is_wanted: Callable[[MessagesAdded], bool]) -> int:
        """Forget rows that nobody needs; return the bytes of the others."""
        kept = {queue_id: [fact for fact in facts if is_wanted(fact)] for queue_id, facts in self.added.items()}
        self.added = {queue_id: facts for queue_id, facts in kept.items() if facts}
        return sum(fact.rows.size for facts in self.added.values() for fact in facts)
