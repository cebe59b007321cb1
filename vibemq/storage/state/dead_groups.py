"""The index of the dead letters that are in memory: by queue, reason and fingerprint, as the store has it on disk."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from vibemq.model.dead.fingerprint import OTHER, fingerprint, sample_of
from vibemq.model.dead.groups import GROUPS_MAX, GroupKey, LetterChoice, LetterStretch
from vibemq.model.records import DeadFacts, Reason

STREAMS_MAX = 64
"""So many groups are gone through side by side; of more, all letters are looked at."""
PLACES_TRIED = 4096
"""In so many places, of a queue and a reason, groups are looked for: a millisecond or two of work."""
ALL_REASONS = tuple(map(int, Reason))
Looked = tuple[int, bool]
"""A dead_id, and whether the letter is one of those that are looked for."""
BY_ID = itemgetter(0)


class DeadEntry(NamedTuple):
    """A dead letter without its message, which stays where it is: row `facts.sequence` of the queue."""

    queue_id: int
    group: str
    """Name of the group it died in; "" when it left every group at once."""
    facts: DeadFacts


class OrderedIds:
    """Numbers that mostly come in order and go in any."""

    __slots__ = ("_ids", "_there")

    def __init__(self) -> None:
        self._ids: list[int] = []
        """Ascending; those that are gone stay until they are the majority."""
        self._there: set[int] = set()

    def __len__(self) -> int:
        return len(self._there)

    def __contains__(self, number: int) -> bool:
        return number in self._there

    def add(self, number: int) -> None:
        if not self._ids or number > self._ids[-1]:
            self._ids.append(number)
        elif self._ids[bisect_left(self._ids, number)] != number:
            insort(self._ids, number)
        self._there.add(number)

    def remove(self, number: int) -> None:
        self._there.discard(number)
        while self._ids and self._ids[-1] not in self._there:
            self._ids.pop()
        if len(self._ids) > 2 * len(self._there) + 64:
            self._ids = sorted(self._there)

    @property
    def first(self) -> int:
        """There must be one."""
        ids = self._ids
        if ids[0] not in self._there:
            # What is gone at the front is looked at once.
            at = next(index for index, number in enumerate(ids) if number in self._there)
            del ids[:at]
        return ids[0]

    @property
    def last(self) -> int:
        """There must be one."""
        return self._ids[-1]

    def between(self, after: int, below: int, *, newest_first: bool = False) -> Iterator[int]:
        """Those in (after, below). Nothing may be added or removed while it runs."""
        ids, there = self._ids, self._there
        places = range(bisect_right(ids, after), bisect_left(ids, below))
        return (ids[at] for at in (reversed(places) if newest_first else places) if ids[at] in there)


class _Group:
    __slots__ = ("ids", "sample")

    def __init__(self, sample: bytes) -> None:
        self.ids = OrderedIds()
        self.sample = sample


class LetterGroups:
    """Nothing is sorted in before it is asked for: fingerprints are no work for whoever adds letters.

    Call `catch_up` until it answers False before any question.
    """

    def __init__(self) -> None:
        self._reached = 0
        """Letters up to this id were sorted in, but for those that wait."""
        self._waiting = deque[DeadEntry]()
        """Those whose ids did not come in order."""
        self._placed: dict[int, tuple[GroupKey, int, int]] = {}
        """dead_id -> its group, its own fingerprint, dead_at."""
        self._all = OrderedIds()
        self._by_queue: dict[int, OrderedIds] = {}
        self._groups: dict[GroupKey, _Group] = {}
        self._keys: list[GroupKey] = []
        """Of the groups, ascending."""
        self._own: Counter[tuple[int, int]] = Counter()
        """(queue_id, reason) -> groups beside the one of all others; 0 where that one is alone."""

    def add(self, entry: DeadEntry) -> None:
        if entry.facts.dead_id <= self._reached:
            self._waiting.append(entry)

    def remove(self, dead_id: int) -> None:
        placed = self._placed.pop(dead_id, None)
        if placed is None:
            # Its turn has not come, and will not.
            return
        self._all.remove(dead_id)
        key = placed[0]
        of_queue = self._by_queue[key.queue_id]
        of_queue.remove(dead_id)
        if not of_queue:
            del self._by_queue[key.queue_id]
        group = self._groups[key]
        group.ids.remove(dead_id)
        if not group.ids:
            del self._groups[key]
            del self._keys[bisect_left(self._keys, key)]
            place = key[:2]
            if key.fingerprint != OTHER:
                self._own[place] -= 1
            if not self._own[place] and key._replace(fingerprint=OTHER) not in self._groups:
                # Queues are deleted and made anew, and each has a number of its own.
                del self._own[place]

    def catch_up(self, letters: Mapping[int, DeadEntry], ids: Sequence[int], most: int) -> bool:
        """Place up to `most` letters that are not placed yet; return whether there are more.

        `letters`: those that are there; `ids`: of all of them, and of some that are gone, ascending.
        """
        waiting = self._waiting
        while waiting and most:
            most -= 1
            entry = waiting.popleft()
            if letters.get(entry.facts.dead_id) is entry:
                self._place(entry)
        start = bisect_right(ids, self._reached)
        stop = min(start + most, len(ids))
        for at in range(start, stop):
            self._reached = ids[at]
            found = letters.get(self._reached)
            if found is not None:
                self._place(found)
        return bool(waiting) or stop < len(ids)

    @property
    def waiting(self) -> int:
        """Letters that came late and are not placed yet; some of them may be gone."""
        return len(self._waiting)

    def _place(self, entry: DeadEntry) -> None:
        facts = entry.facts
        number = fingerprint(facts.error)
        key = GroupKey(entry.queue_id, int(facts.reason), number)
        if key not in self._groups and self._own[key[:2]] >= GROUPS_MAX:
            key = key._replace(fingerprint=OTHER)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(sample_of(facts.error))
            insort(self._keys, key)
            if key.fingerprint != OTHER:
                self._own[key[:2]] += 1
        group.ids.add(facts.dead_id)
        self._all.add(facts.dead_id)
        self._placed[facts.dead_id] = (key, number, facts.dead_at)
        of_queue = self._by_queue.get(entry.queue_id)
        if of_queue is None:
            of_queue = self._by_queue[entry.queue_id] = OrderedIds()
        of_queue.add(facts.dead_id)

    # -- questions ----------------------------------------------------------------------------------------------------

    def keys_from(self, after: GroupKey | None) -> Iterator[GroupKey]:
        """Of the groups behind that one, ascending. Nothing may be added or removed while it runs."""
        known = self._keys
        start = 0 if after is None else bisect_right(known, after)
        return (known[at] for at in range(start, len(known)))

    def stretch(self, key: GroupKey) -> LetterStretch | None:
        group = self._groups.get(key)
        if group is None:
            return None
        first, last = group.ids.first, group.ids.last
        placed = self._placed
        return LetterStretch(len(group.ids), first, placed[first][2], last, placed[last][2], group.sample)

    def ids(self, choice: LetterChoice, after: int, below: int, *, newest_first: bool) -> Iterator[Looked]:
        """In (after, below), in their order. Nothing may be added or removed while it runs."""
        if choice.reason is None and choice.fingerprint is None:
            wanted = self._by_queue.keys() if choice.queue_ids is None else self._by_queue.keys() & choice.queue_ids
            streams: list[OrderedIds] | None = [self._by_queue[queue_id] for queue_id in wanted]
            chosen = None
        else:
            keys = self._keys_of(choice)
            streams = None if keys is None else [self._groups[key].ids for key in keys]
            chosen = choice
        if streams is None or len(streams) > STREAMS_MAX:
            streams, chosen = [self._all], choice
        walks = [stream.between(after, below, newest_first=newest_first) for stream in streams]
        walked = merge(*walks, reverse=newest_first)
        return ((dead_id, chosen is None or self.is_chosen(chosen, dead_id)) for dead_id in walked)

    def _keys_of(self, choice: LetterChoice) -> list[GroupKey] | None:
        """Of the groups in which letters that are looked for may stand; None: they are too many, or too many places to
        look at."""
        places: Iterable[tuple[int, int]] = self._own
        if choice.queue_ids is not None and len(choice.queue_ids) <= STREAMS_MAX:
            places = product(choice.queue_ids, ALL_REASONS)
        found: list[GroupKey] = []
        for tried, (queue_id, reason) in enumerate(places):
            if tried >= PLACES_TRIED or len(found) > STREAMS_MAX:
                return None
            if (choice.queue_ids is None or queue_id in choice.queue_ids) and choice.reason in (None, reason):
                found += self._keys_at(queue_id, reason, choice.fingerprint)
        return found

    def _keys_at(self, queue_id: int, reason: int, number: int | None) -> list[GroupKey]:
        """Some more than `STREAMS_MAX` stand for all."""
        if number is not None:
            keys = (GroupKey(queue_id, reason, own) for own in {number, OTHER})
            return [key for key in keys if key in self._groups]
        at = bisect_left(self._keys, GroupKey(queue_id, reason, 0))
        return [key for key in self._keys[at : at + STREAMS_MAX + 1] if key[:2] == (queue_id, reason)]

    def has_placed(self, dead_id: int) -> bool:
        return dead_id in self._placed

    def is_chosen(self, choice: LetterChoice, dead_id: int) -> bool:
        """Of one that it has placed."""
        key, number, _ = self._placed[dead_id]
        return (
            (choice.queue_ids is None or key.queue_id in choice.queue_ids)
            and (choice.reason is None or key.reason == choice.reason)
            and (choice.fingerprint is None or choice.fingerprint in (key.fingerprint, number))
        )
