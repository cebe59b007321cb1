"""Walking a whole key-value store: what is wrong with it."""

from collections.abc import Iterator

from vibemq.errors import StorageDamaged
from vibemq.model.options import Durability
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredQueue, StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.blocks import BlockInfo, Home, block_infos, load_block, unpack_lent
from vibemq.storage.kvstore.dead.index_audit import audit_index
from vibemq.storage.kvstore.encoding import GARBAGE, unseal
from vibemq.storage.kvstore.integrity import NAMES, CountedKV
from vibemq.storage.kvstore.store import KV, LOADERS, load_one
from vibemq.storage.state.liveness import gaps, waiting_runs


def audit(kv: KV) -> Iterator[Problem]:
    """Every problem of the store; nothing when it is sound."""
    state, found = load_what_is_sound(kv)
    yield from found
    held: dict[int, RunSet] = {}
    for queue_id in sorted(state.queues):
        held[queue_id] = RunSet()
        queue = state.queues[queue_id]
        yield from _as_far_as_it_goes(kv, _audit_blocks(kv, queue, held[queue_id]), queue.name)
    yield from _as_far_as_it_goes(kv, _audit_lent(kv))
    yield from _as_far_as_it_goes(kv, _audit_dead(kv, state, held))
    yield from _as_far_as_it_goes(kv, audit_index(kv))
    yield from _as_far_as_it_goes(kv, _audit_tally(kv))


def _as_far_as_it_goes(kv: KV, problems: Iterator[Problem], queue: str = "") -> Iterator[Problem]:
    try:
        yield from problems
    except StorageDamaged as exc:
        yield Problem(str(exc), kv.where, queue=queue, repairable=True)


def load_what_is_sound(kv: KV) -> tuple[StoredState, list[Problem]]:
    """The state without the values that cannot be read, and those."""
    state, found = StoredState(), []
    for table, load in LOADERS:
        try:
            for key, value in kv.scan(table, keys.after(table)):
                try:
                    load_one(kv, state, key, value, load)
                except StorageDamaged as exc:
                    found.append(Problem(str(exc), kv.where, repairable=True))
        except StorageDamaged as exc:
            found.append(Problem(str(exc), kv.where, repairable=True))
    return state, found


def _audit_tally(kv: KV) -> Iterator[Problem]:
    """What is missing, there twice, out of date, or stands where looking it up does not find it."""
    counted = CountedKV(kv)
    for table in NAMES:
        for key, value in counted.scan(table, keys.after(table)):
            if kv.get(key) != value:
                yield Problem(f"the value {key.hex()} is not where it is looked up", kv.where, repairable=True)
    for text in counted.differences(tuple(NAMES)):
        yield Problem(text, kv.where, repairable=True)


def _audit_blocks(kv: KV, queue: StoredQueue, held: RunSet) -> Iterator[Problem]:
    named = RunSet()
    infos = list(block_infos(kv, queue.queue_id))
    for before, info in zip([None, *infos], infos, strict=False):
        if before is not None and info.first <= before.last:
            yield _of_block(kv, queue, info, f"overlaps the block at {before.first}")
        try:
            parts = load_block(kv, queue.queue_id, info, queue.name)
        except StorageDamaged as exc:
            yield Problem(str(exc), kv.where, None, queue.name, info.first, info.last, repairable=True)
            named.add(info.first, info.last)
            continue
        if (parts[0].first_sequence, parts[-1].last_sequence) != (info.first, info.last):
            yield _of_block(kv, queue, info, "holds other messages than its info says")
        if info.last >= queue.next_sequence:
            yield _of_block(kv, queue, info, f"reaches beyond the queue's next sequence {queue.next_sequence}")
        for part in parts:
            held.add(part.first_sequence, part.last_sequence)
    yield from _audit_waiting(kv, queue, RunSet([*held.runs(), *named.runs()]))


def _audit_lent(kv: KV) -> Iterator[Problem]:
    """What says to whom the blocks of stages belong, and whether their infos say the same."""
    for key, value in kv.scan(keys.LENT, keys.after(keys.LENT)):
        try:
            queue_id, first, published_at = unpack_lent(unseal(key, value, kv.where))
            home = Home(*keys.split_sequence_key(key, kv.where), published_at)
        except GARBAGE as exc:
            yield Problem(f"the value {key.hex()} cannot be read ({exc})", kv.where, repairable=True)
            continue
        info = next(block_infos(kv, queue_id, first, first), None)
        if info is None or info.home != home:
            text = f"the block of messages from {first} of queue {queue_id} is not where the value {key.hex()} says"
            yield Problem(text, kv.where, repairable=True)


def _audit_waiting(kv: KV, queue: StoredQueue, held: RunSet) -> Iterator[Problem]:
    if queue.options.durability is Durability.TRANSIENT:
        return
    for run in waiting_runs(queue, 1, queue.next_sequence - 1):
        for first, last in gaps(held, *run):
            text = f"messages {first} to {last} of queue {queue.name} are missing"
            yield Problem(text, kv.where, None, queue.name, first, last, repairable=True)


def _of_block(kv: KV, queue: StoredQueue, info: BlockInfo, what: str) -> Problem:
    text = f"the block of messages {info.first} to {info.last} of queue {queue.name} {what}"
    return Problem(text, kv.where, None, queue.name, info.first, info.last, repairable=True)


def _audit_dead(kv: KV, state: StoredState, held: dict[int, RunSet]) -> Iterator[Problem]:
    count = 0
    for key, value in kv.scan(keys.DEAD, keys.after(keys.DEAD)):
        count += 1
        try:
            entry = values.unpack_dead(unseal(key, value, kv.where))
        except GARBAGE as exc:
            yield Problem(f"the dead letter {key.hex()} cannot be read ({exc})", kv.where, repairable=True)
            continue
        sequence = entry.facts.sequence
        queue = state.queues.get(entry.queue_id)
        if queue is None or sequence not in queue.dead or sequence not in held[entry.queue_id]:
            what = f"dead letter {entry.facts.dead_id} points at the missing message {sequence}"
            name = "" if queue is None else queue.name
            yield Problem(what, kv.where, None, name, sequence, sequence, repairable=True)
    for key, _ in kv.scan(keys.DEAD_BY_MESSAGE, keys.after(keys.DEAD_BY_MESSAGE)):
        queue_id, sequence, dead_id = keys.split_dead_by_message_key(key, kv.where)
        if kv.get(keys.dead_key(dead_id)) is None:
            queue = state.queues.get(queue_id)
            name = "" if queue is None else queue.name
            what = f"message {sequence} is kept for the dead letter {dead_id}, which is not there"
            yield Problem(what, kv.where, None, name, sequence, sequence, repairable=True)
    if count != state.dead_count:
        yield Problem(f"{count} dead letters are stored, {state.dead_count} are counted", kv.where, repairable=True)
