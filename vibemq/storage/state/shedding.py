"""Queues that are empty again give back the containers that were made for their messages.

To make and give them back with each message would cost a busy queue time, so it is done beside the work, for a few
queues at a time, in turn. A queue that was used once then costs as much memory as one that was never used.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from vibemq.model.stored import StoredQueue, StoredState
from vibemq.storage.state.turns import in_turns

QUEUES_TOGETHER = 200
"""Looked at while the store's lock is held: about a quarter of a millisecond."""
QUEUES_PER_ROUND = 2_000
"""With a round each second, all of 100,000 queues in less than a minute."""
_GROUPS_MAX = 16
"""Queues with more groups keep theirs: their empty sets share lists, and there are few such queues."""


def shed_all(state: StoredState) -> None:
    """At once, before anybody waits for the store: what a replay has left behind."""
    for queue in state.queues.values():
        if not (queue.is_bare or queue.has("chunks")):
            _shed(queue)


class Shedder:
    """Of one store; `lock` guards its state. For the thread of its housekeeping."""

    def __init__(self, lock: AbstractContextManager[object], state: Callable[[], StoredState]) -> None:
        self._lock = lock
        self._state = state
        self._left: list[int] = []
        """Ids of the queues that are yet to have their turn."""

    def shed(self) -> None:
        """One round."""
        with self._lock:
            if not self._left:
                self._left = list(reversed(self._state().queues))
        in_turns(partial(self._shed_some, max(0, len(self._left) - QUEUES_PER_ROUND)))

    def _shed_some(self, end: int) -> bool:
        """Whether more than so many are left."""
        with self._lock:
            state = self._state()
            at = max(end, len(self._left) - QUEUES_TOGETHER)
            for queue_id in self._left[at:]:
                queue = state.queues.get(queue_id)
                if queue is not None and not queue.has("chunks"):
                    _shed(queue)
            del self._left[at:]
        return at > end


def _shed(queue: StoredQueue) -> None:
    few = len(queue.groups) <= _GROUPS_MAX
    if few and queue.has("group_order"):
        # Of no use without messages, and made anew when it is asked for.
        queue.group_order.clear()
    queue.shed()
    if few:
        for group in queue.groups.values():
            group.shed()
