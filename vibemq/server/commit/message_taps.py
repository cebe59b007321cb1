"""Who looks at new messages when they have been appended: live tails. A queue at which nobody looks costs nothing."""

import logging
from collections.abc import Callable, Sequence

from vibemq.model.records import MessagesAdded, Record, StageMoved

log = logging.getLogger("vibemq.server")

Seen = Callable[[MessagesAdded | StageMoved], None]


class MessageTaps:
    def __init__(self) -> None:
        self._by_queue: dict[int, Seen] = {}

    def __bool__(self) -> bool:
        return bool(self._by_queue)

    def add(self, queue_id: int, seen: Seen) -> Callable[[], None]:
        """`seen` gets the records of a queue that nobody looks at yet, when they have been appended; it may be that
        they cannot be read yet. What is returned ends it. When it raises, the error is logged, and it is called no
        more."""
        assert queue_id not in self._by_queue
        self._by_queue[queue_id] = seen

        def end() -> None:
            if self._by_queue.get(queue_id) is seen:
                del self._by_queue[queue_id]

        return end

    def show(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, MessagesAdded | StageMoved) and (seen := self._by_queue.get(record.queue_id)):
                try:
                    seen(record)
                except Exception:
                    # The messages are kept, and their publishers are to hear that.
                    log.exception("new messages of queue %d could not be shown", record.queue_id)
                    self._by_queue.pop(record.queue_id, None)
