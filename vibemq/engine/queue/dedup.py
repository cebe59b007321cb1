"""The window in which a dedup_id is published only once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vibemq.engine.queue.queue import Queue
from vibemq.model.extras.columns import columns_of
from vibemq.model.options import DEDUP_IDS_MAX
from vibemq.model.records import Extras

_PRUNED_TOGETHER = 2_000


@dataclass(slots=True)
class Screened:
    """Which rows of a publish are new."""

    fresh: Sequence[int]
    """Indexes of new rows, ascending."""
    known: dict[int, int] = field(default_factory=dict)
    """Index -> sequence of the message that already carries its dedup_id."""
    twins: dict[int, int] = field(default_factory=dict)
    """Index -> index of an earlier new row of the same publish with the same dedup_id."""


def prune(queue: Queue, now: int, most: int = _PRUNED_TOGETHER) -> None:
    """Forget ids whose window is over, and the oldest of too many: up to `most` of them."""
    oldest = now - queue.options.dedup_window_ms
    order = queue.dedup_order
    while order and most and (order[0][0] < oldest or len(order) > DEDUP_IDS_MAX):
        most -= 1
        published_at, dedup_id = order.popleft()
        known = queue.dedup.get(dedup_id)
        if known is not None and known[1] == published_at:
            del queue.dedup[dedup_id]


def screen(queue: Queue, count: int, extras: Extras | None, now: int) -> Screened:
    # More than this publish may add, so that they do not grow.
    prune(queue, now, _PRUNED_TOGETHER + count)
    if not extras or not queue.options.dedup_window_ms:
        return Screened(range(count))
    columns = columns_of(extras)
    if not columns.dedup_ids:
        return Screened(range(count))
    oldest = now - queue.options.dedup_window_ms
    seen: dict[bytes, int] = {}
    known: dict[int, int] = {}
    twins: dict[int, int] = {}
    for index, dedup_id in columns.with_dedup_ids():
        before = queue.dedup.get(dedup_id)
        if before is not None and before[1] >= oldest:
            known[index] = before[0]
        elif dedup_id in seen:
            twins[index] = seen[dedup_id]
        else:
            seen[dedup_id] = index
    if not known and not twins:
        return Screened(range(count))
    return Screened([i for i in range(count) if i not in known and i not in twins], known, twins)
