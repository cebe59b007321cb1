"""Who looks at new messages when they have been appended: live tails. A queue at which nobody looks costs nothing."""

import logging
from collections.abc import Callable, Sequence

from vibemq.model.records import MessagesAdded, Record, StageMoved

log = logging.getLogger("vibemq.server")

Seen = Callable[[MessagesAdded | StageMoved], None]


class MessageTaps:
    def __init__(self) -> None:
        self._by_queue: dict[int, dict[int, Seen]] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._by_queue)

    def add(self, queue_id: int, seen: Seen) -> Callable[[], None]:
        """`seen` gets the records that have been appended; it may be that they cannot be read yet. What is returned
        ends it. When it raises, the error is logged, and it is called no more."""
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
                self._show(record)

    def _show(self, record: MessagesAdded | StageMoved) -> None:
        taps = self._by_queue[record.queue_id]
        for number, seen in list(taps.items()):
            try:
                seen(record)
            except Exception:
                # The messages are kept, and their publishers are to hear that.
                log.exception("new messages of queue %d could not be shown", record.queue_id)
                taps.pop(number, None)
        if not taps:
            self._by_queue.pop(record.queue_id, None)
