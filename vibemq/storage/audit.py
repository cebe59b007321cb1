"""Walking a whole key-value store: what is wrong with it, and what of it can be saved."""

from collections.abc import Iterable, Iterator

from vibemq.errors import StorageDamaged
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import DeadRemoved, Dropped, Reason
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState
from vibemq.storage import keys, values
from vibemq.storage.blocks import BlockInfo, block_infos, decode_block, last_of, load_block, put_block
from vibemq.storage.dirty import Dirty
from vibemq.storage.encoding import GARBAGE, seal, unseal
from vibemq.storage.interface import Problem
from vibemq.storage.kv import KV, LOADERS, load_one, load_state, write_dirty, write_state
from vibemq.storage.liveness import gaps, waiting_runs
from vibemq.storage.state import apply
from vibemq.storage.stored_dead import StoredDead


def audit(kv: KV) -> Iterator[Problem]:
    """Every problem of the store; nothing when it is sound."""
    state, found = load_what_is_sound(kv)
    yield from found
    held: dict[int, RunSet] = {}
    for queue_id in sorted(state.queues):
        held[queue_id] = RunSet()
        yield from _audit_blocks(kv, state.queues[queue_id], held[queue_id])
    yield from _audit_dead(kv, state, held)


def load_what_is_sound(kv: KV) -> tuple[StoredState, list[Problem]]:
    """The state without the values that cannot be read, and those."""
    state, found = StoredState(), []
    for table, load in LOADERS:
        for key, value in kv.scan(table, keys.after(table)):
            try:
                load_one(kv, state, key, value, load)
            except StorageDamaged as exc:
                found.append(Problem(str(exc), kv.where, repairable=True))
    return state, found


def _audit_blocks(kv: KV, queue: StoredQueue, held: RunSet) -> Iterator[Problem]:
    try:
        infos = list(block_infos(kv, queue.queue_id))
    except StorageDamaged as exc:
        yield Problem(str(exc), kv.where, queue=queue.name, repairable=True)
        return
    for before, info in zip([None, *infos], infos, strict=False):
        if before is not None and info.first <= before.last:
            yield _of_block(kv, queue, info, f"overlaps the block at {before.first}")
        try:
            parts = load_block(kv, queue.queue_id, info, queue.name)
        except StorageDamaged as exc:
            yield Problem(str(exc), kv.where, None, queue.name, info.first, info.last, repairable=True)
            continue
        if (parts[0].first_sequence, last_of(parts[-1])) != (info.first, info.last):
            yield _of_block(kv, queue, info, "holds other messages than its info says")
        if info.last >= queue.next_sequence:
            yield _of_block(kv, queue, info, f"reaches beyond the queue's next sequence {queue.next_sequence}")
        for part in parts:
            held.add(part.first_sequence, last_of(part))


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
    if count != state.dead_count:
        yield Problem(f"{count} dead letters are stored, {state.dead_count} are counted", kv.where, repairable=True)


def drop_missing(kv: KV) -> list[Problem]:
    """Take the messages that no block holds out of their queues, so that nobody waits for them; name them all.

    Dead letters that point at such a message go as well. The last step of a repair, when the blocks are as sound as
    they will ever be.
    """
    state, dirty, problems = load_state(kv), Dirty(), []
    dead = StoredDead(kv, _nothing_is_volatile)
    held = {queue.queue_id: _held(kv, queue) for queue in state.queues.values()}
    for queue in list(state.queues.values()):
        if queue.deleted or queue.options.durability is Durability.TRANSIENT:
            continue
        waiting = waiting_runs(queue, 1, queue.next_sequence - 1)
        missing = [gap for run in waiting for gap in gaps(held[queue.queue_id], *run)]
        if missing:
            apply(state, Dropped(queue.queue_id, missing, Reason.PURGED), dead, dirty)
        for first, last in missing:
            text = f"messages {first} to {last} of queue {queue.name} are lost"
            problems.append(Problem(text, kv.where, None, queue.name, first, last))
    for entry in list(dead.after(0)):
        sequence = entry.facts.sequence
        if entry.queue_id not in held or sequence not in held[entry.queue_id]:
            apply(state, DeadRemoved([entry.facts.dead_id]), dead, dirty)
            text = f"dead letter {entry.facts.dead_id} is lost with its message {sequence} of queue {entry.queue_id}"
            problems.append(Problem(text, kv.where))
    if problems:
        dead.flush()
        write_dirty(kv, state, dirty)
    return problems


def _held(kv: KV, queue: StoredQueue) -> RunSet:
    held = RunSet()
    for info in block_infos(kv, queue.queue_id):
        for part in load_block(kv, queue.queue_id, info, queue.name):
            held.add(part.first_sequence, last_of(part))
    return held


def _nothing_is_volatile(queue_id: int) -> bool:
    """Dead letters of transient queues are not stored."""
    return False


# -- saving -------------------------------------------------------------------------------------------------------


def salvage(pairs: Iterable[tuple[bytes, bytes]], target: KV) -> list[Problem]:
    """Write into the empty `target` what can be saved of a damaged store's pairs; return what was lost or made up.

    Rather again than never: where a group's progress is damaged, the group starts over with the oldest stored message;
    a queue whose own value is lost comes back under the name `recovered-<id>` with default options.
    """
    copy = _Salvage(target)
    for key, value in pairs:
        copy.take(key, value)
    copy.finish()
    return copy.problems


class _Salvage:
    def __init__(self, target: KV) -> None:
        self._target = target
        self._state = StoredState()
        self._rest: dict[bytes, list[tuple[bytes, bytes]]] = {table: [] for table, _ in LOADERS}
        self._held: dict[int, RunSet] = {}
        self._restart: set[tuple[int, int]] = set()
        self.problems: list[Problem] = []

    def take(self, key: bytes, value: bytes) -> None:
        table = key[:1]
        try:
            body = unseal(key, value, self._target.where) if table != keys.DEAD_BY_MESSAGE else b""
            if table == keys.BLOCK:
                self._take_block(key, body)
            elif table in self._rest:
                self._rest[table].append((key, value))
            elif table == keys.DEAD:
                self._rest.setdefault(table, []).append((key, body))
        except GARBAGE as exc:
            self._lost(key, str(exc))

    def _take_block(self, key: bytes, body: bytes) -> None:
        queue_id = keys.split_sequence_key(key)[0]
        parts = decode_block(body)
        held = self._held.setdefault(queue_id, RunSet())
        if held.overlap(parts[0].first_sequence, last_of(parts[-1])):
            raise ValueError("its messages are in another block already")
        put_block(self._target, queue_id, parts)
        for part in parts:
            held.add(part.first_sequence, last_of(part))

    def _lost(self, key: bytes, why: str) -> None:
        self.problems.append(Problem(f"lost the value {key.hex()} ({why})", self._target.where))
        table = key[:1]
        try:
            if table in (keys.RUN_PAGE, keys.VALUE_PAGE):
                self._restart.add(keys.split_page_key(key)[:2])
            elif table == keys.GROUP:
                self._restart.add(keys.split_group_key(key))
        except GARBAGE:
            return

    def finish(self) -> None:
        for table, load in LOADERS:
            for key, value in self._rest[table]:
                try:
                    load_one(self._target, self._state, key, value, load)
                except StorageDamaged as exc:
                    self._lost(key, str(exc))
            if table == keys.QUEUE:
                self._make_up_queues()
            elif table == keys.GROUP:
                self._make_up_groups()
        self._restart_groups()
        self._take_dead()
        for queue_id, held in self._held.items():
            queue = self._state.queues[queue_id]
            queue.next_sequence = max(queue.next_sequence, held.last + 1 if held else 1)
        self._state.next_queue_id = max([self._state.next_queue_id, *(q + 1 for q in self._state.queues)])
        write_state(self._target, self._state)

    def _make_up_queues(self) -> None:
        for queue_id in set(self._held) - set(self._state.queues):
            name = f"recovered-{queue_id}"
            self._state.queues[queue_id] = StoredQueue(queue_id, name, QueueOptions(), 0, "")
            self._restart.add((queue_id, 0))
            self.problems.append(Problem(f"queue {queue_id} lost its definition; it is now {name}", self._target.where))

    def _make_up_groups(self) -> None:
        for queue_id, group_id in self._restart:
            queue = self._state.queues.get(queue_id)
            if queue is not None and not queue.deleted and group_id not in queue.groups and group_id < 2**32 - 1:
                name = "" if group_id == 0 else f"recovered-{group_id}"
                queue.groups[group_id] = StoredGroup(group_id, name, True)
                queue.next_group_id = max(queue.next_group_id, group_id + 1)

    def _restart_groups(self) -> None:
        for queue_id, group_id in self._restart:
            queue = self._state.queues.get(queue_id)
            group = None if queue is None else queue.groups.get(group_id)
            if queue is None or group is None:
                continue
            held = self._held.get(queue_id)
            queue.groups[group_id] = StoredGroup(
                group_id, group.name, group.durable, held.first if held else queue.next_sequence, group.epoch
            )
            text = f"group {group.name!r} of queue {queue.name} starts over with its oldest stored message"
            self.problems.append(Problem(text, self._target.where, queue=queue.name))

    def _take_dead(self) -> None:
        for queue in self._state.queues.values():
            queue.dead = RunSet()
        self._state.dead_count = 0
        for key, body in self._rest.get(keys.DEAD, []):
            try:
                entry = values.unpack_dead(body)
            except GARBAGE as exc:
                self._lost(key, str(exc))
                continue
            sequence, held = entry.facts.sequence, self._held.get(entry.queue_id)
            if held is None or sequence not in held:
                self._lost(key, f"its message {sequence} is lost")
                continue
            self._state.queues[entry.queue_id].dead.add(sequence, sequence)
            self._state.dead_count += 1
            self._state.next_dead_id = max(self._state.next_dead_id, entry.facts.dead_id + 1)
            self._target.put(key, seal(key, body))
            self._target.put(keys.dead_by_message_key(entry.queue_id, sequence, entry.facts.dead_id), b"")
