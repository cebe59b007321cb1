"""Finding dead letters by their index: which ids may fit, in their order, and the groups there are."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from vibemq.model.dead.fingerprint import OTHER
from vibemq.model.dead.groups import DeadGroupsWanted, GroupKey, LetterChoice, LetterStretch
from vibemq.model.records import Reason
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.dead.index import IndexedLetter, indexed, load_order, unpack_group, unpack_indexed
from vibemq.storage.kvstore.encoding import GARBAGE, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_groups import BY_ID, STREAMS_MAX, Looked

ALL_REASONS = tuple(map(int, Reason))
Stream = Iterator[Looked]


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
    queue_ids = list(islice(stored_queues(kv, choice.queue_ids), STREAMS_MAX + 1))
    if len(queue_ids) > STREAMS_MAX:
        return None
    if choice.reason is None and choice.fingerprint is None:
        return [_OfQueue(kv, queue_id, choice) for queue_id in queue_ids]
    groups = list(islice(_groups(kv, queue_ids, choice), STREAMS_MAX + 1))
    if len(groups) <= STREAMS_MAX:
        return [_OfGroup(kv, group, choice) for group in groups]
    return [_OfQueue(kv, queue_id, choice) for queue_id in queue_ids]


def _groups(kv: KV, queue_ids: list[int], choice: LetterChoice) -> Iterator[GroupKey]:
    """The groups of these queues in which letters that are looked for may stand."""
    for queue_id in queue_ids:
        for reason in ALL_REASONS if choice.reason is None else (choice.reason,):
            if choice.fingerprint is None:
                prefix = keys.reason_prefix(keys.DEAD_GROUP, queue_id, reason)
                for key, _ in kv.scan(prefix, keys.after(prefix)):
                    yield keys.split_dead_group_key(key)
            else:
                for number in {choice.fingerprint, OTHER}:
                    group = GroupKey(queue_id, reason, number)
                    if kv.get(keys.dead_group_key(group)) is not None:
                        yield group


def stored_queues(kv: KV, wanted: frozenset[int] | None = None, after: int = 0) -> Iterator[int]:
    """Ids of the queues whose letters are stored, ascending, from behind that one on."""
    if wanted is not None and len(wanted) <= STREAMS_MAX:
        for queue_id in sorted(wanted):
            prefix = keys.queue_prefix(keys.DEAD_BY_QUEUE, queue_id)
            if queue_id > after and next(kv.scan(prefix, keys.after(prefix)), None) is not None:
                yield queue_id
        return
    at = after + 1
    while found := next(kv.scan(keys.dead_by_queue_key(at, 0), keys.after(keys.DEAD_BY_QUEUE)), None):
        queue_id = keys.split_sequence_key(found[0])[0]
        if wanted is None or queue_id in wanted:
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
    """Groups behind `wanted.after`, ascending; None stands for one that does not fit. Raises StorageDamaged."""
    after = wanted.after
    if wanted.queue_ids is None:
        start = keys.DEAD_GROUP if after is None else keys.dead_group_key(after) + b"\0"
        ranges = iter([(start, keys.after(keys.DEAD_GROUP))])
    else:
        ranges = (stretch for queue_id in sorted(wanted.queue_ids) for stretch in _stretch(queue_id, wanted))
    for start, stop in ranges:
        for key, value in kv.scan(start, stop):
            group = keys.split_dead_group_key(key)
            yield group, unpack_group(kv, key, value) if fits(group, wanted) else None


def _stretch(queue_id: int, wanted: DeadGroupsWanted) -> Iterator[tuple[bytes, bytes]]:
    after = wanted.after
    if after is not None and queue_id < after.queue_id:
        return
    prefix = keys.queue_prefix(keys.DEAD_GROUP, queue_id)
    if wanted.reason is not None:
        prefix = keys.reason_prefix(keys.DEAD_GROUP, queue_id, wanted.reason)
    start = prefix if after is None else max(prefix, keys.dead_group_key(after) + b"\0")
    yield start, keys.after(prefix)


def fits(group: GroupKey, wanted: DeadGroupsWanted) -> bool:
    return (
        (wanted.queue_ids is None or group.queue_id in wanted.queue_ids)
        and (wanted.reason is None or group.reason == wanted.reason)
        and (wanted.fingerprint is None or group.fingerprint == wanted.fingerprint)
    )
