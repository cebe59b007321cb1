"""The window in which a dedup_id is published only once."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from vibemq.model.extras.columns import columns_of
from vibemq.model.extras.dedup_table import DEDUP_SEQUENCE_BITS, DEDUP_SEQUENCE_MASK, DedupTable, remembered
from vibemq.model.extras.message_extra import Extras
from vibemq.model.options import DEDUP_IDS_MAX

_PRUNED_TOGETHER = 2_000


class DedupWindow:
    """The ids that a queue remembers. Nothing is made for each of them that Python's collector would look at."""

    __slots__ = ("_batches", "_in_batches", "_pruned", "ids")

    def __init__(self) -> None:
        self.ids = DedupTable()
        self._batches: OrderedDict[int, tuple[int, tuple[bytes, ...]]] = OrderedDict()
        """Sequence of the first -> (published_at, ids), the oldest first. An id that is remembered again stands in
        both."""
        self._in_batches = 0
        self._pruned = 0
        """Ids of the oldest batch that are forgotten already."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    def remember(self, ids: Sequence[bytes], sequences: Sequence[int], published_at: int) -> None:
        """They are known for the window from then on."""
        stamp = remembered(0, published_at)
        if isinstance(sequences, range):
            self.ids.add(ids, range(stamp + sequences.start, stamp + sequences.stop))
        else:
            self.ids.add(ids, [stamp + sequence for sequence in sequences])
        # Python's collector soon leaves tuples alone that hold nothing it looks at, and lists never.
        self._batches[sequences[0]] = published_at, tuple(ids)
        self._in_batches += len(ids)

    def known(self, dedup_id: bytes, oldest: int) -> int:
        """The sequence of the message that has it, if it was published then or later; 0: none has."""
        found = self.ids.get(dedup_id)
        return 0 if found is None or found >> DEDUP_SEQUENCE_BITS < oldest else found & DEDUP_SEQUENCE_MASK

    def knows_none(self, ids: Sequence[bytes]) -> bool:
        return self.ids.isdisjoint(ids)

    def forget(self, ids: Sequence[bytes], first: int, last: int) -> None:
        """Those among them that are of messages with these sequences, of one publish, may be published again."""
        known, lowest = self.ids, last + 1
        for dedup_id in ids if known else ():
            found = known.get(dedup_id)
            if found is not None and first <= found & DEDUP_SEQUENCE_MASK <= last:
                del known[dedup_id]
                lowest = min(lowest, found & DEDUP_SEQUENCE_MASK)
        self._drop(lowest)

    def _drop(self, first: int) -> None:
        """What is refused again and again must not count against the ids that are known."""
        if first not in self._batches:
            return
        if first == next(iter(self._batches)):
            self._in_batches += self._pruned
            self._pruned = 0
        self._in_batches -= len(self._batches.pop(first)[1])

    @property
    def oldest(self) -> int:
        """When the oldest was published; there is one."""
        return next(iter(self._batches.values()))[0]

    def prune(self, oldest: int, most: int = _PRUNED_TOGETHER) -> None:
        """Forget those that are older, and the oldest of too many: up to `most` of them."""
        batches = self._batches
        while batches and most > 0:
            published_at, ids = next(iter(batches.values()))
            if published_at >= oldest and self._in_batches <= DEDUP_IDS_MAX:
                break
            count = min(most, len(ids) - self._pruned)
            if published_at >= oldest:
                count = min(count, self._in_batches - DEDUP_IDS_MAX)
            self.ids.forget_published(islice(ids, self._pruned, self._pruned + count), published_at)
            most -= count
            self._in_batches -= count
            self._pruned += count
            if self._pruned == len(ids):
                batches.popitem(last=False)
                self._pruned = 0


NO_DEDUP_WINDOW = DedupWindow()
"""Of a queue that has remembered nothing yet; stays empty."""


@dataclass(slots=True)
class Screened:
    """Which rows of a publish are new."""

    fresh: Sequence[int]
    """Indexes of new rows, ascending."""
    known: dict[int, int] = field(default_factory=dict)
    """Index -> sequence of the message that already carries its dedup_id."""
    twins: dict[int, int] = field(default_factory=dict)
    """Index -> index of an earlier new row of the same publish with the same dedup_id."""


def screen(window: DedupWindow, window_ms: int, count: int, extras: Extras | None, now: int) -> Screened:
    oldest = now - window_ms
    # More than this publish may add, so that they do not grow.
    window.prune(oldest, _PRUNED_TOGETHER + count)
    if not extras or not window_ms:
        return Screened(range(count))
    columns = columns_of(extras)
    ids = columns.dedup_ids
    if not ids or (window.knows_none(ids) and len(set(ids)) == len(ids)):
        return Screened(range(count))
    seen: dict[bytes, int] = {}
    known: dict[int, int] = {}
    twins: dict[int, int] = {}
    for index, dedup_id in columns.with_dedup_ids():
        before = window.known(dedup_id, oldest)
        if before:
            known[index] = before
        elif dedup_id in seen:
            twins[index] = seen[dedup_id]
        else:
            seen[dedup_id] = index
    if not known and not twins:
        return Screened(range(count))
    return Screened([i for i in range(count) if i not in known and i not in twins], known, twins)
