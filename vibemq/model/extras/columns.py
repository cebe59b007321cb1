"""Extras of a batch by columns: what all of its messages have in common costs the same for any number of them.

The same facts as a dict of `MessageExtra` by index, for those that read message by message; whoever handles batches
asks for whole columns (`columns_of`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter

from vibemq.model.extras.message_extra import Extras, MessageExtra
from vibemq.model.instants import Values
from vibemq.model.steps import Steps, at_once

_NO_IDS: Sequence[bytes] = ()
_ID_BYTES_MAX = 128
"""A queue remembers very many ids."""
_DIGESTED_AT_ONCE = 262_144
"""Bytes of ids whose digests take about a millisecond."""
_DIGEST_MARK = b"\xff"
"""Begins no text, so the digest of an id is the id of no other message."""


class ExtraColumns(Mapping[int, MessageExtra]):
    """
    Args:
        indexes: of the messages, ascending.
        dedup_ids: one for each, b"" for none; empty when nobody has one.
    """

    __slots__ = ("dedup_ids", "deliver_at", "expires_at", "indexes", "priorities")

    def __init__(
        self,
        indexes: Sequence[int],
        priorities: Values = 1,
        expires_at: Values = 0,
        deliver_at: Values = 0,
        dedup_ids: Sequence[bytes] = _NO_IDS,
    ) -> None:
        self.indexes = indexes
        self.priorities = priorities
        self.expires_at = expires_at
        self.deliver_at = deliver_at
        self.dedup_ids = dedup_ids

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indexes)

    def __getitem__(self, index: int) -> MessageExtra:
        place = bisect_left(self.indexes, index)
        if place == len(self.indexes) or self.indexes[place] != index:
            raise KeyError(index)
        numbers = (self.priorities, self.expires_at, self.deliver_at)
        priority, expires_at, deliver_at = (some if isinstance(some, int) else some[place] for some in numbers)
        return MessageExtra(priority, expires_at, deliver_at, self.dedup_ids[place] if self.dedup_ids else b"")

    def __repr__(self) -> str:
        return f"ExtraColumns({dict(self.items())})"

    def picked(self, indexes: Sequence[int]) -> "ExtraColumns | None":
        """Of the messages at these ascending indexes, which from now on are counted from 0; None: they have none."""
        have = self.indexes
        if isinstance(have, range):
            places = [index - have.start for index in indexes if index in have]
            chosen: Sequence[int] = [new for new, index in enumerate(indexes) if index in have]
        else:
            place_of = {index: place for place, index in enumerate(have)}
            places = [place_of[index] for index in indexes if index in place_of]
            chosen = [new for new, index in enumerate(indexes) if index in place_of]
        if not chosen:
            return None
        if chosen[-1] - chosen[0] + 1 == len(chosen):
            chosen = range(chosen[0], chosen[-1] + 1)
        numbers = (self.priorities, self.expires_at, self.deliver_at)
        priorities, expires_at, deliver_at = (
            some if isinstance(some, int) else [some[place] for place in places] for some in numbers
        )
        ids = [self.dedup_ids[place] for place in places] if self.dedup_ids else _NO_IDS
        return ExtraColumns(chosen, priorities, expires_at, deliver_at, ids)

    def between(self, start: int, stop: int) -> "ExtraColumns | None":
        """Of the messages at the indexes [start, stop), which from now on are counted from 0; None: they have none."""
        have = self.indexes
        low, high = bisect_left(have, start), bisect_left(have, stop)
        if low == high:
            return None
        numbers = (self.priorities, self.expires_at, self.deliver_at)
        priorities, expires_at, deliver_at = (some if isinstance(some, int) else some[low:high] for some in numbers)
        return ExtraColumns(moved(have[low:high], -start), priorities, expires_at, deliver_at, self.dedup_ids[low:high])

    def with_short_ids(self) -> "ExtraColumns":
        """The same; what is remembered of a dedup id that is long is its digest."""
        return self if _are_short(self.dedup_ids) else at_once(self.short_ids_in_steps())

    def short_ids_in_steps(self) -> "Steps[ExtraColumns]":
        """`with_short_ids` of a batch whose ids may be many megabytes."""
        if _are_short(self.dedup_ids):
            return self
        short = yield from _shortened(self.dedup_ids)
        return ExtraColumns(self.indexes, self.priorities, self.expires_at, self.deliver_at, short)

    def delayed_after(self, now: int) -> bool:
        """Whether one of them is to be delivered later than that."""
        instants = self.deliver_at
        return (instants if isinstance(instants, int) else max(instants)) > now

    def deliveries_after(self, now: int, first: int) -> tuple[Sequence[int], Values]:
        """(sequences, instants) of those that are to be delivered later than that; the batch begins at `first`."""
        return self._above(self.deliver_at, now, first)

    def expiries(self, first: int) -> tuple[Sequence[int], Values]:
        """(sequences, instants) of those that have an instant of their own."""
        return self._above(self.expires_at, 0, first)

    def _above(self, values: Values, least: int, first: int) -> tuple[Sequence[int], Values]:
        if isinstance(values, int):
            return (moved(self.indexes, first), values) if values > least else ((), 0)
        if min(values) > least:
            return moved(self.indexes, first), values
        some = [(first + index, value) for index, value in zip(self.indexes, values, strict=True) if value > least]
        return [sequence for sequence, _ in some], [value for _, value in some]

    def by_priority(self, first: int) -> dict[int, Sequence[int]]:
        """The sequences of those that are not of the normal priority."""
        priorities = self.priorities
        if isinstance(priorities, int):
            return {} if priorities == 1 else {priorities: moved(self.indexes, first)}
        found: dict[int, list[int]] = {priority: [] for priority in set(priorities) - {1}}
        for index, priority in zip(self.indexes, priorities, strict=True) if found else ():
            if priority != 1:
                found[priority].append(first + index)
        return dict(found)

    def with_dedup_ids(self) -> Iterator[tuple[int, bytes]]:
        """(index, id) of those that have one."""
        return filter(itemgetter(1), zip(self.indexes, self.dedup_ids, strict=False))


def short_ids(ids: Sequence[bytes]) -> Sequence[bytes]:
    """What is remembered of each: of a long one its digest."""
    return ids if _are_short(ids) else at_once(_shortened(ids))


def _are_short(ids: Sequence[bytes]) -> bool:
    return not ids or max(map(len, ids)) <= _ID_BYTES_MAX


def _shortened(ids: Sequence[bytes]) -> Steps[list[bytes]]:
    short, size = list(ids), 0
    for index, one in enumerate(ids):
        if len(one) <= _ID_BYTES_MAX:
            continue
        if size > _DIGESTED_AT_ONCE:
            yield
            size = 0
        short[index] = _digest(one)
        size += len(one)
    return short


def _digest(dedup_id: bytes) -> bytes:
    return _DIGEST_MARK + blake2b(dedup_id, digest_size=32).digest()


def moved(indexes: Sequence[int], first: int) -> Sequence[int]:
    if isinstance(indexes, range):
        return range(indexes.start + first, indexes.stop + first)
    return [first + index for index in indexes]


def columns_of(extras: Extras) -> ExtraColumns:
    """The same by columns; there is at least one."""
    if isinstance(extras, ExtraColumns):
        return extras
    ordered = sorted(extras.items(), key=itemgetter(0))
    priorities, expires_at, deliver_at, dedup_ids = zip(*(extra for _, extra in ordered), strict=True)
    indexes: Sequence[int] = [index for index, _ in ordered]
    if indexes[-1] - indexes[0] + 1 == len(indexes):
        indexes = range(indexes[0], indexes[-1] + 1)
    return ExtraColumns(
        indexes, _common(priorities), _common(expires_at), _common(deliver_at), dedup_ids if any(dedup_ids) else _NO_IDS
    )


def _common(values: tuple[int, ...]) -> Values:
    return values[0] if values.count(values[0]) == len(values) else values


def each_of(values: Values, count: int) -> Sequence[int]:
    """One for each of so many."""
    return [values] * count if isinstance(values, int) else values
