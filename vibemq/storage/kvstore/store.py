"""What lmdb and sqlite have in common: an ordered key-value store, and the state kept in it.

`write_dirty` writes what `apply` touched, `load_state` reads it all back. Keys are in `keys.py`, values in
`values.py`; every value is sealed (`encoding.seal`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Protocol

from vibemq.errors import StorageDamaged
from vibemq.model.extras.dedup_table import remembered, remembered_parts
from vibemq.model.records import ALL_GROUPS
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.encoding import GARBAGE, seal, unseal
from vibemq.storage.state.changes import RUN_PAGE_SHIFT, VALUE_PAGE_SHIFT, Dirty, PageKey, RunKind, ValueKind
from vibemq.storage.state.messages import keys_within


class KV(Protocol):
    """An ordered store of bytes, inside one transaction of its owner. Errors are the owner's to translate."""

    where: str
    """Names the file in errors."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None:
        """A missing key is fine."""

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Every key with start <= key < stop."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < stop, ascending. The caller changes nothing while it walks."""

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The same, descending."""

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        """The pair with the greatest key k, start <= k <= key."""


def write_dirty(kv: KV, state: StoredState, dirty: Dirty, *, volatile_dead: int = 0) -> None:
    """Write every value that `dirty` names, and the store-wide facts. Does not clear `dirty`.

    Args:
        volatile_dead: how many of `state.dead_count` are dead letters of transient queues, which are not stored.
    """
    write_meta(kv, state, volatile_dead=volatile_dead)
    whole = dirty.whole_queues
    for queue_id in whole:
        wipe_queue(kv, queue_id)
        if queue_id in state.queues:
            write_queue(kv, state.queues[queue_id])
    for queue_id in dirty.queues - whole:
        _write_queue_value(kv, state, queue_id)
    for queue_id, group_id in dirty.whole_groups:
        if queue_id not in whole:
            _rewrite_group(kv, state, queue_id, group_id)
    for queue_id, group_id in dirty.groups - dirty.whole_groups:
        if queue_id not in whole:
            _write_group_value(kv, _group(state, queue_id, group_id), queue_id, group_id)
    _write_pages(kv, state, dirty)
    _write_chunks(kv, state, dirty)
    _write_dedup(kv, state, dirty)
    _write_plans(kv, state, dirty)
    for app in dirty.transactions:
        transaction = state.transactions.get(app)
        body = None if transaction is None else values.pack_transaction(transaction)
        _put_or_delete(kv, keys.transaction_key(app), body)
    _write_accounts(kv, state, dirty)
    for job_id in dirty.jobs:
        job = state.jobs.get(job_id)
        _put_or_delete(kv, keys.job_key(job_id), None if job is None else values.pack_job(job))


def write_meta(kv: KV, state: StoredState, *, volatile_dead: int = 0) -> None:
    """Write the store-wide facts; `volatile_dead` as in `write_dirty`."""
    _put(kv, keys.STATE_META, values.pack_meta(state, state.dead_count - volatile_dead))


def write_state(kv: KV, state: StoredState) -> None:
    """Write the whole state into an empty store (dead letters and blocks are not part of it)."""
    dirty = Dirty()
    dirty.whole_queues.update(state.queues)
    dirty.transactions.update(state.transactions)
    dirty.users.update(state.users)
    dirty.tokens.update(state.tokens)
    dirty.jobs.update(state.jobs)
    write_dirty(kv, state, dirty)


def wipe_queue(kv: KV, queue_id: int) -> None:
    """Remove the queue's state, not its dead letters and blocks."""
    for table in (keys.QUEUE, keys.GROUP, keys.RUN_PAGE, keys.VALUE_PAGE, keys.PLAN, keys.CHUNK, keys.DEDUP):
        prefix = keys.queue_prefix(table, queue_id)
        kv.delete_range(prefix, keys.after(prefix))


def write_queue(kv: KV, queue: StoredQueue) -> None:
    """Write everything of one queue whose keys are all absent."""
    queue_id = queue.queue_id
    _put(kv, keys.queue_key(queue_id), values.pack_queue(queue))
    for group in queue.groups.values():
        _write_group(kv, queue_id, group)
    _write_run_set(kv, queue_id, ALL_GROUPS, RunKind.DROPPED, queue.dropped)
    _write_run_set(kv, queue_id, ALL_GROUPS, RunKind.DEAD, queue.dead)
    for priority, runs in queue.priorities.items():
        _write_run_set(kv, queue_id, ALL_GROUPS, RunKind.PRIORITY + priority, runs)
    _write_values(kv, queue_id, ALL_GROUPS, ValueKind.EXPIRES, queue.expires)
    _write_values(kv, queue_id, ALL_GROUPS, ValueKind.DELAYED, queue.delayed)
    for chunk in queue.chunks:
        _put(kv, keys.sequence_key(keys.CHUNK, queue_id, chunk.first), values.pack_chunk(chunk))
    for dedup_id, known in queue.dedup.oldest_first():
        sequence, published_at = remembered_parts(known)
        _put(kv, keys.sequence_key(keys.DEDUP, queue_id, sequence), values.pack_dedup(dedup_id, published_at))


# -- writing ------------------------------------------------------------------------------------------------------


def _put(kv: KV, key: bytes, body: bytes) -> None:
    kv.put(key, seal(key, body))


def _put_or_delete(kv: KV, key: bytes, body: bytes | None) -> None:
    if body is None:
        kv.delete(key)
    else:
        _put(kv, key, body)


def _group(state: StoredState, queue_id: int, group_id: int) -> StoredGroup | None:
    queue = state.queues.get(queue_id)
    return None if queue is None else queue.groups.get(group_id)


def _write_queue_value(kv: KV, state: StoredState, queue_id: int) -> None:
    queue = state.queues.get(queue_id)
    _put_or_delete(kv, keys.queue_key(queue_id), None if queue is None else values.pack_queue(queue))


def _write_group_value(kv: KV, group: StoredGroup | None, queue_id: int, group_id: int) -> None:
    _put_or_delete(kv, keys.group_key(queue_id, group_id), None if group is None else values.pack_group(group))


def _rewrite_group(kv: KV, state: StoredState, queue_id: int, group_id: int) -> None:
    kv.delete(keys.group_key(queue_id, group_id))
    for table in (keys.RUN_PAGE, keys.VALUE_PAGE, keys.PLAN):
        prefix = keys.group_prefix(table, queue_id, group_id)
        kv.delete_range(prefix, keys.after(prefix))
    group = _group(state, queue_id, group_id)
    if group is not None:
        _write_group(kv, queue_id, group)


def _write_group(kv: KV, queue_id: int, group: StoredGroup) -> None:
    _write_group_value(kv, group, queue_id, group.group_id)
    _write_run_set(kv, queue_id, group.group_id, RunKind.TAKEN, group.taken)
    _write_run_set(kv, queue_id, group.group_id, RunKind.PENDING, group.pending)
    _write_values(kv, queue_id, group.group_id, ValueKind.ATTEMPTS, group.attempts)
    for number, plan in group.plans.items() if group.has("plans") else ():
        _put(kv, keys.plan_key(queue_id, group.group_id, number), values.pack_plan(plan))


def _write_run_set(kv: KV, queue_id: int, group_id: int, kind: int, runs: RunSet) -> None:
    for page in {first >> RUN_PAGE_SHIFT for first, _ in runs.runs()}:
        _write_run_page(kv, runs, PageKey(queue_id, group_id, kind, page))


def _write_values(kv: KV, queue_id: int, group_id: int, kind: ValueKind, entries: MutableMapping[int, Any]) -> None:
    for page in {sequence >> VALUE_PAGE_SHIFT[kind] for sequence in entries}:
        _write_value_page(kv, entries, PageKey(queue_id, group_id, kind, page))


def _write_run_page(kv: KV, runs: RunSet | None, page: PageKey) -> None:
    start = page.page << RUN_PAGE_SHIFT
    stop = start + (1 << RUN_PAGE_SHIFT)
    found = [] if runs is None else [run for run in runs.touching(start, stop - 1) if start <= run[0] < stop]
    _put_or_delete(kv, keys.page_key(keys.RUN_PAGE, *page), values.pack_runs(found) if found else None)


def _write_value_page(kv: KV, entries: MutableMapping[int, Any] | None, page: PageKey) -> None:
    shift = VALUE_PAGE_SHIFT[ValueKind(page.kind)]
    start = page.page << shift
    found = keys_within(entries, (start, start + (1 << shift) - 1)) if entries else []
    body = values.pack_page(ValueKind(page.kind), {s: entries[s] for s in found}) if entries and found else None
    _put_or_delete(kv, keys.page_key(keys.VALUE_PAGE, *page), body)


def _write_pages(kv: KV, state: StoredState, dirty: Dirty) -> None:
    for page in dirty.run_pages:
        if page.queue_id not in dirty.whole_queues:
            _write_run_page(kv, _run_set(state, page), page)
    for page in dirty.value_pages:
        if page.queue_id not in dirty.whole_queues:
            _write_value_page(kv, _values(state, page), page)


def _run_set(state: StoredState, page: PageKey) -> RunSet | None:
    queue = state.queues.get(page.queue_id)
    if queue is None:
        return None
    if page.group_id == ALL_GROUPS:
        if page.kind >= RunKind.PRIORITY:
            return queue.priorities.get(page.kind - RunKind.PRIORITY)
        return queue.dead if page.kind == RunKind.DEAD else queue.dropped
    group = queue.groups.get(page.group_id)
    if group is None:
        return None
    return group.taken if page.kind == RunKind.TAKEN else group.pending


def _values(state: StoredState, page: PageKey) -> MutableMapping[int, Any] | None:
    queue = state.queues.get(page.queue_id)
    if queue is None:
        return None
    if page.kind == ValueKind.ATTEMPTS:
        group = queue.groups.get(page.group_id)
        return None if group is None else group.attempts
    return queue.expires if page.kind == ValueKind.EXPIRES else queue.delayed


def _write_chunks(kv: KV, state: StoredState, dirty: Dirty) -> None:
    for queue_id, first in dirty.chunks:
        if queue_id in dirty.whole_queues:
            continue
        queue = state.queues.get(queue_id)
        chunk = None if queue is None else values.find_chunk(queue, first)
        _put_or_delete(
            kv, keys.sequence_key(keys.CHUNK, queue_id, first), None if chunk is None else values.pack_chunk(chunk)
        )


def _write_dedup(kv: KV, state: StoredState, dirty: Dirty) -> None:
    for queue_id, marks in dirty.dedup.items():
        if queue_id in dirty.whole_queues:
            continue
        sequences: set[int] = set()
        for marked, here in marks.items():
            if here:
                sequences.add(marked)
            else:
                kv.delete(keys.sequence_key(keys.DEDUP, queue_id, marked))
        queue = state.queues.get(queue_id)
        # New ids stand at the end of the table.
        for dedup_id, known in queue.dedup.latest_first() if queue is not None else ():
            if not sequences:
                break
            sequence, published_at = remembered_parts(known)
            if sequence in sequences:
                sequences.discard(sequence)
                key = keys.sequence_key(keys.DEDUP, queue_id, sequence)
                _put(kv, key, values.pack_dedup(dedup_id, published_at))


def _write_plans(kv: KV, state: StoredState, dirty: Dirty) -> None:
    for queue_id, group_id, number in dirty.plans:
        if queue_id in dirty.whole_queues or (queue_id, group_id) in dirty.whole_groups:
            continue
        group = _group(state, queue_id, group_id)
        plan = None if group is None else group.plans.get(number)
        key = keys.plan_key(queue_id, group_id, number)
        _put_or_delete(kv, key, None if plan is None else values.pack_plan(plan))


def _write_accounts(kv: KV, state: StoredState, dirty: Dirty) -> None:
    for name in dirty.users:
        user = state.users.get(name)
        _put_or_delete(kv, keys.user_key(name), None if user is None else values.pack_user(user))
    for token_id in dirty.tokens:
        token = state.tokens.get(token_id)
        _put_or_delete(kv, keys.token_key(token_id), None if token is None else values.pack_token(token))


# -- loading ------------------------------------------------------------------------------------------------------


def load_state(kv: KV) -> StoredState:
    """Everything but messages and dead letters.

    Raises:
        StorageDamaged: a value fails its checksum or makes no sense.
    """
    state = StoredState()
    for table, load in LOADERS:
        for key, value in kv.scan(table, keys.after(table)):
            load_one(kv, state, key, value, load)
    _count_letters(kv, state)
    return state


def _count_letters(kv: KV, state: StoredState) -> None:
    """One for each dead message, and nothing is read, unless there are more letters than such messages.

    Then the index tells: one row stands there for very many letters that say the same.
    """
    messages = 0
    for queue in state.queues.values():
        if not queue.is_bare and queue.has("dead"):
            queue.letters = queue.dead.count
            messages += queue.letters
    if messages == state.dead_count:
        return
    counted: Counter[int] = Counter()
    for key, value in kv.scan(keys.DEAD_GROUP, keys.after(keys.DEAD_GROUP)):
        try:
            counted[keys.split_dead_group_key(key, kv.where).queue_id] += _letters_of_group(kv, key, value)
        except StorageDamaged:
            continue  # No key of this table; `check` names it.
    for queue_id, count in counted.items():
        queue_with_letters = state.queues.get(queue_id)
        if queue_with_letters is not None:
            # Letters that cannot be read are in no index.
            queue_with_letters.letters = max(queue_with_letters.letters, count)


def _letters_of_group(kv: KV, key: bytes, value: bytes) -> int:
    try:
        return values.unpack_dead_group(unseal(key, value, kv.where))[0]
    except (*GARBAGE, StorageDamaged):
        prefix = keys.dead_by_group_prefix(keys.split_dead_group_key(key, kv.where))
        return sum(1 for _ in kv.scan(prefix, keys.after(prefix)))


Loader = Callable[[StoredState, bytes, bytes, str], None]
"""(state, key, body, where). Raises one of `encoding.GARBAGE`."""


def load_one(kv: KV, state: StoredState, key: bytes, value: bytes, load: Loader) -> None:
    body = unseal(key, value, kv.where)
    try:
        load(state, key, body, kv.where)
    except GARBAGE as exc:
        raise StorageDamaged(f"stored value {key.hex()} cannot be read ({exc!r})", path=kv.where) from exc


def _load_meta(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    if key == keys.STATE_META:
        values.unpack_meta(state, body)


def _load_queue(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    queue_id = keys.split_queue_key(key)
    state.queues[queue_id] = values.unpack_queue(queue_id, body)


def _load_group(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    queue_id, group_id = keys.split_group_key(key)
    state.queues[queue_id].groups[group_id] = values.unpack_group(group_id, body)


def _load_run_page(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    page = PageKey(*keys.split_page_key(key, where))
    if page.kind >= RunKind.PRIORITY:
        state.queues[page.queue_id].priorities.setdefault(page.kind - RunKind.PRIORITY, RunSet())
    runs = _run_set(state, page)
    if runs is None:
        raise ValueError(f"runs of the missing group {page.group_id}")
    for first, last in values.unpack_run_page(body):
        runs.add(first, last)


def _load_value_page(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    page = PageKey(*keys.split_page_key(key, where))
    entries = _values(state, page)
    if entries is None:
        raise ValueError(f"values of the missing group {page.group_id}")
    entries.update(values.unpack_page(ValueKind(page.kind), page.page, body))


def _load_chunk(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    queue_id, first = keys.split_sequence_key(key, where)
    state.queues[queue_id].chunks.append(values.unpack_chunk(first, body))


def _load_dedup(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    queue_id, sequence = keys.split_sequence_key(key, where)
    dedup_id, published_at = values.unpack_dedup(body)
    state.queues[queue_id].dedup[dedup_id] = remembered(sequence, published_at)


def _load_plan(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    queue_id, group_id, number = keys.split_plan_key(key)
    state.queues[queue_id].groups[group_id].plans[number] = values.unpack_plan(body)


def _load_transaction(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    app = key[len(keys.TRANSACTION) :].decode()
    state.transactions[app] = values.unpack_transaction(body)


def _load_user(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    name = key[len(keys.USER) :].decode()
    state.users[name] = values.unpack_user(name, body)


def _load_token(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    token_id = key[len(keys.TOKEN) :].decode()
    state.tokens[token_id] = values.unpack_token(token_id, body)


def _load_job(state: StoredState, key: bytes, body: bytes, where: str) -> None:
    job = values.unpack_job(body)
    state.jobs[keys.split_job_key(key)] = job
    # The store-wide facts say so, too, unless they are damaged: then a job would take letters that died after it began.
    state.next_dead_id = max(state.next_dead_id, job.plan.last_id + 1)


LOADERS: list[tuple[bytes, Loader]] = [
    (keys.META, _load_meta),
    (keys.QUEUE, _load_queue),
    (keys.GROUP, _load_group),
    (keys.RUN_PAGE, _load_run_page),
    (keys.VALUE_PAGE, _load_value_page),
    (keys.CHUNK, _load_chunk),
    (keys.DEDUP, _load_dedup),
    (keys.PLAN, _load_plan),
    (keys.TRANSACTION, _load_transaction),
    (keys.USER, _load_user),
    (keys.TOKEN, _load_token),
    (keys.JOB, _load_job),
]
"""In the order in which they must be read: groups belong to queues, pages to groups."""
