"""Who looks at new messages when they have been appended: live tails. A queue at which nobody looks costs nothing."""

from collections.abc import Callable, Sequence

from vibemq.model.records import MessagesAdded, Record, StageMoved

Seen = Callable[[MessagesAdded | StageMoved], None]


class MessageTaps:
    def __init__(self) -> None:
        self._by_queue: dict[int, dict[int, Seen]] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._by_queue)

    def add(self, queue_id: int, seen: Seen) -> Callable[[], None]:
        """`seen` gets the records that have been appended; it may be that they cannot be read yet. What is returned
        ends it."""
        self._last += 1
        number = self._last
        self._by_queue.setdefault(queue_id, {})[number] = seen

        def end() -> None:
            taps = self._by_queue.get(queue_id, {})
            taps.pop(number, None)
            if not taps:
                self._by_queue.pop(queue_id, None)

        return end

    def show(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, MessagesAdded | StageMoved) and record.queue_id in self._by_queue:
                for seen in list(self._by_queue[record.queue_id].values()):
                    seen(record)
