"""Finding dead letters by their index: which ids may fit, in their order, and the groups there are."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from vibemq.model.dead.fingerprint import OTHER
from vibemq.model.dead.groups import DeadGroupsWanted, GroupKey, LetterChoice, LetterStretch
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.dead.index import IndexedLetter, indexed, load_order, unpack_group, unpack_indexed
from vibemq.storage.kvstore.encoding import GARBAGE, U64_MAX, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_groups import BY_ID, STREAMS_MAX, Looked

Stream = Iterator[Looked]
REASON_MAX = (1 << 8) - 1
QUEUES_TRIED = 4 * STREAMS_MAX
"""So many queues that are named are looked for in the store; they have letters, or had some a moment ago."""
GROUPS_TRIED = 8 * STREAMS_MAX
"""Looks for groups: of each queue and each reason there is, for two."""


def is_chosen(choice: LetterChoice, queue_id: int, letter: IndexedLetter) -> bool:
    """Whether what the index knows of a letter fits, apart from its age."""
    return (
        (choice.queue_ids is None or queue_id in choice.queue_ids)
        and (choice.reason is None or letter.reason == choice.reason)
        and (
            choice.fingerprint is None
            or letter.fingerprint == choice.fingerprint
            or (letter.is_other and choice.fingerprint == OTHER)
        )
    )


def chosen_ids(kv: KV, choice: LetterChoice, after: int, below: int, *, newest_first: bool) -> Stream | None:
    """Ids of letters in (after, below) in their order, and which of them fit. None: there are too many queues or groups
    to go through side by side; look at all letters."""
    streams = _streams(kv, choice)
    if streams is None:
        return None
    return merge(*(stream(after, below, newest_first) for stream in streams), key=BY_ID, reverse=newest_first)


class _OfGroup:
    """The letters of one group."""

    def __init__(self, kv: KV, group: GroupKey, choice: LetterChoice) -> None:
        self._kv, self._group, self._choice = kv, group, choice
        # All of a group fit, but for the one of all others when one fingerprint is looked for.
        self._all = group.fingerprint != OTHER or choice.fingerprint in (None, OTHER)

    def __call__(self, after: int, below: int, newest_first: bool) -> Stream:
        start = keys.dead_by_group_key(self._group, after) + b"\0"
        stop = keys.dead_by_group_key(self._group, below)
        for key, _ in _scan(self._kv, start, stop, newest_first=newest_first):
            dead_id = keys.last_u64(key)
            yield dead_id, self._all or self._fits(dead_id)

    def _fits(self, dead_id: int) -> bool:
        letter = indexed(self._kv, self._group.queue_id, dead_id)
        return letter is not None and is_chosen(self._choice, self._group.queue_id, letter)


class _OfQueue:
    """The letters of one queue."""

    def __init__(self, kv: KV, queue_id: int, choice: LetterChoice) -> None:
        self._kv, self._queue_id, self._choice = kv, queue_id, choice
        self._all = choice.reason is None and choice.fingerprint is None

    def __call__(self, after: int, below: int, newest_first: bool) -> Stream:
        start = keys.dead_by_queue_key(self._queue_id, after) + b"\0"
        stop = keys.dead_by_queue_key(self._queue_id, below)
        for key, value in _scan(self._kv, start, stop, newest_first=newest_first):
            fits = self._all or is_chosen(self._choice, self._queue_id, unpack_indexed(self._kv, key, value))
            yield keys.last_u64(key), fits


def _scan(kv: KV, start: bytes, stop: bytes, *, newest_first: bool) -> Iterator[tuple[bytes, bytes]]:
    return kv.scan_back(start, stop) if newest_first else kv.scan(start, stop)


def _streams(kv: KV, choice: LetterChoice) -> list[_OfGroup | _OfQueue] | None:
    """A bounded number of looks at the store, whatever it has and whatever is looked for."""
    queue_ids = _queues(kv, choice.queue_ids)
    if queue_ids is None:
        return None
    if choice.reason is None and choice.fingerprint is None:
        return [_OfQueue(kv, queue_id, choice) for queue_id in queue_ids]
    groups = _groups(kv, queue_ids, choice)
    if groups is None:
        return [_OfQueue(kv, queue_id, choice) for queue_id in queue_ids]
    return [_OfGroup(kv, group, choice) for group in groups]


def _queues(kv: KV, wanted: frozenset[int] | None) -> list[int] | None:
    """Those whose letters are stored; None: there are too many to go through side by side."""
    if wanted is None:
        found = list(islice(stored_queues(kv), STREAMS_MAX + 1))
    elif len(wanted) > QUEUES_TRIED:
        return None
    else:
        found = list(islice((queue_id for queue_id in wanted if _has_letters(kv, queue_id)), STREAMS_MAX + 1))
    return found if len(found) <= STREAMS_MAX else None


def _has_letters(kv: KV, queue_id: int) -> bool:
    prefix = keys.queue_prefix(keys.DEAD_BY_QUEUE, queue_id)
    return next(kv.scan(prefix, keys.after(prefix)), None) is not None


def _groups(kv: KV, queue_ids: list[int], choice: LetterChoice) -> list[GroupKey] | None:
    """The groups of these queues in which letters that are looked for may stand; None: there are too many to go
    through side by side, or to find out in a moment."""
    found: list[GroupKey] = []
    for looked, group in enumerate(part for queue_id in queue_ids for part in _groups_of(kv, queue_id, choice)):
        if looked >= GROUPS_TRIED or len(found) > STREAMS_MAX:
            return None
        if group is not None:
            found.append(group)
    return found if len(found) <= STREAMS_MAX else None


def _groups_of(kv: KV, queue_id: int, choice: LetterChoice) -> Iterator[GroupKey | None]:
    """Of one queue; None stands for a look that has found none."""
    prefix = keys.queue_prefix(keys.DEAD_GROUP, queue_id)
    if choice.reason is not None:
        prefix = keys.reason_prefix(keys.DEAD_GROUP, queue_id, choice.reason)
    start, stop = prefix, keys.after(prefix)
    if choice.fingerprint is None:
        yield from (keys.split_dead_group_key(key, kv.where) for key, _ in kv.scan(start, stop))
        return
    while found := next(kv.scan(start, stop), None):
        # The first group of a reason: the one of all others, if there is one.
        first = keys.split_dead_group_key(found[0], kv.where)
        yield first if first.fingerprint in (OTHER, choice.fingerprint) else None
        own = first._replace(fingerprint=choice.fingerprint)
        if own != first:
            yield own if kv.get(keys.dead_group_key(own)) is not None else None
        start = keys.after(keys.reason_prefix(keys.DEAD_GROUP, queue_id, first.reason))


def stored_queues(kv: KV, after: int = 0) -> Iterator[int]:
    """Ids of the queues whose letters are stored, ascending, from behind that one on."""
    at = after + 1
    while found := next(kv.scan(keys.dead_by_queue_key(at, 0), keys.after(keys.DEAD_BY_QUEUE)), None):
        queue_id = keys.split_sequence_key(found[0], kv.where)[0]
        yield queue_id
        at = queue_id + 1


# -- age --------------------------------------------------------------------------------------------------------------


NEVER = (1 << 63) - 1


def narrowed(kv: KV, choice: LetterChoice, after: int, below: int) -> tuple[int, int]:
    """The part of (after, below) outside of which no letter has the right age, as far as ids tell."""
    if choice.since <= 0 and choice.until >= NEVER:
        return after, below
    order = load_order(kv)
    if order is None:
        return after, below
    low, high = max(after, order.unordered_id), min(below - 1, order.newest_id)
    try:
        if choice.since > 0 and low == after:
            found = _last(kv, low, high, choice.since)
            # Letters that are not stored may stand behind that one, and have the right age.
            after = after if found is None else found
        if choice.until < NEVER:
            found = _last(kv, low, high, choice.until + 1)
            later = next(kv.scan(keys.dead_key(low if found is None else found) + b"\0", keys.after(keys.DEAD)), None)
            below = below if later is None else min(below, keys.last_u64(later[0]))
    except GARBAGE:
        pass  # A letter that cannot be read tells nothing; those that are looked at are compared one by one.
    return after, below


def _last(kv: KV, low: int, high: int, instant: int) -> int | None:
    """The greatest id in (low, high] of a stored letter that died before the instant. Raises one of GARBAGE."""
    above, found = low, None
    while low < high:
        middle = (low + high + 1) // 2
        letter = kv.floor(keys.dead_key(above + 1), keys.dead_key(middle))
        if letter is None:
            low = middle
            continue
        facts = values.unpack_dead(unseal(*letter, kv.where)).facts
        if facts.dead_at < instant:
            low, found = middle, facts.dead_id
        else:
            high = facts.dead_id - 1
    return found


# -- groups -----------------------------------------------------------------------------------------------------------


def stored_groups(kv: KV, wanted: DeadGroupsWanted) -> Iterator[tuple[GroupKey, LetterStretch | None]]:
    """Groups behind `wanted.after`, ascending; None stands for one that does not fit, and for the end of a queue, so
    that queues without groups count, too. Raises StorageDamaged."""
    after = wanted.after
    if wanted.queue_ids is None:
        start = keys.DEAD_GROUP if after is None else keys.dead_group_key(after) + b"\0"
        yield from _stretch(kv, start, keys.after(keys.DEAD_GROUP), wanted)
        return
    for queue_id in sorted(wanted.queue_ids if after is None else (n for n in wanted.queue_ids if n >= after.queue_id)):
        prefix = keys.queue_prefix(keys.DEAD_GROUP, queue_id)
        if wanted.reason is not None:
            prefix = keys.reason_prefix(keys.DEAD_GROUP, queue_id, wanted.reason)
        start = prefix if after is None else max(prefix, keys.dead_group_key(after) + b"\0")
        yield from _stretch(kv, start, keys.after(prefix), wanted)
        end = GroupKey(queue_id, REASON_MAX, U64_MAX)
        if after is None or after < end:
            yield end, None


def _stretch(
    kv: KV, start: bytes, stop: bytes, wanted: DeadGroupsWanted
) -> Iterator[tuple[GroupKey, LetterStretch | None]]:
    for key, value in kv.scan(start, stop):
        group = keys.split_dead_group_key(key, kv.where)
        yield group, unpack_group(kv, key, value) if fits(group, wanted) else None


def fits(group: GroupKey, wanted: DeadGroupsWanted) -> bool:
    return (
        (wanted.queue_ids is None or group.queue_id in wanted.queue_ids)
        and (wanted.reason is None or group.reason == wanted.reason)
        and (wanted.fingerprint is None or group.fingerprint == wanted.fingerprint)
    )
