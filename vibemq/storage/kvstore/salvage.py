"""Saving what can be saved of a damaged key-value store, and naming what could not.

`salvage` writes the sound values of the old store into a new one, `drop_missing` then takes out what no block holds.

Rather again than never: where a group's progress is damaged or cannot be trusted, the group starts over with the oldest
stored message, and stays whose it is; a queue whose own value is lost comes back under the name `recovered-<id>` with
default options; a message whose dead letter is lost gets a new one.
"""

from collections.abc import Iterable, Iterator

from vibemq.errors import StorageDamaged
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import DeadFacts, DeadRemoved, Dropped, Plan, Reason
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.blocks import (
    Lent,
    block_infos,
    decode_block,
    lend_block,
    lent_by,
    load_block,
    put_block,
    unpack_lent,
)
from vibemq.storage.kvstore.dead.index import BUILD_LETTERS, INDEX_TABLES, update_index
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.encoding import GARBAGE, seal, unseal
from vibemq.storage.kvstore.integrity import NAMES, TableSums, difference, is_counted, write_tally
from vibemq.storage.kvstore.store import KV, LOADERS, load_one, load_state, write_dirty, write_state
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.dead_letter_facts import DeadEntry
from vibemq.storage.state.liveness import gaps, waiting_runs
from vibemq.storage.state.reducer import apply

MADE_UP = "why it died was lost; a repair made this dead letter up"


def salvage(pairs: Iterable[tuple[bytes, bytes]], target: KV) -> list[Problem]:
    """Write into the empty `target` what can be saved of a damaged store's pairs; return what was lost or made up.

    The target gets an empty tally, which its owner keeps up to date (`integrity.TalliedKV`).
    """
    write_tally(target, TableSums())
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
        """The state's values, as they are stored."""
        self._letters: list[tuple[bytes, bytes]] = []
        """The dead letters' values without their seals."""
        self._held: dict[int, RunSet] = {}
        self._lent: dict[tuple[int, int], Lent] = {}
        """Of blocks that came from stages: (queue_id, first sequence) of the stage -> whose they are."""
        self._pointers: dict[tuple[int, int], int] = {}
        """Dead letters by (queue_id, sequence)."""
        self._older_ids: Iterator[int] = iter(())
        self._restart: set[tuple[int, int]] = set()
        self._broken_plans: set[tuple[int, int]] = set()
        """Groups of which a plan is lost."""
        self._seen = TableSums()
        self._written: TableSums | None = None
        self._tally_is_there = False
        self._entries: list[DeadEntry] = []
        """The letters that were put into the target."""
        self._bad_index = 0
        self._taken: set[bytes] = set()
        """The keys of sound values. Damaged pages can lead to others twice."""
        self.problems: list[Problem] = []

    def take(self, key: bytes, value: bytes) -> None:
        table = key[:1]
        if key in self._taken:
            return
        if is_counted(key):
            self._seen.add(key, value)
        try:
            self._tally_is_there |= key == keys.TALLY
            if table in INDEX_TABLES:
                self._look_at_index(key, value)
                self._taken.add(key)
                return
            body = unseal(key, value, self._target.where) if table != keys.DEAD_BY_MESSAGE else b""
            if key == keys.TALLY:
                self._written = TableSums.unpack(body)
            elif key == keys.VERSION:
                self._target.put(key, value)
            elif table == keys.BLOCK:
                self._take_block(key, body)
            elif table == keys.LENT:
                self._lent[keys.split_sequence_key(key, self._target.where)] = unpack_lent(body)
            elif table == keys.BLOCK_INFO:
                # Made anew with its block. Who has the block stands in two places.
                self._lent.update(filter(None, [lent_by(key, body, self._target.where)]))
            elif table in self._rest:
                self._rest[table].append((key, value))
            elif table == keys.DEAD:
                self._letters.append((key, body))
            elif table == keys.DEAD_BY_MESSAGE:
                pointed_at = keys.split_dead_by_message_key(key, self._target.where)
                self._pointers[pointed_at[:2]] = pointed_at[2]
            self._taken.add(key)
        except GARBAGE as exc:
            self._lost(key, str(exc))

    def _look_at_index(self, key: bytes, value: bytes) -> None:
        """Made anew from the letters, whatever it says."""
        try:
            if key[:1] != keys.DEAD_BY_GROUP:
                unseal(key, value, self._target.where)
        except GARBAGE:
            self._bad_index += 1

    def _take_block(self, key: bytes, body: bytes) -> None:
        queue_id = keys.split_sequence_key(key, self._target.where)[0]
        parts = decode_block(body)
        held = self._held.setdefault(queue_id, RunSet())
        if held.overlap(parts[0].first_sequence, parts[-1].last_sequence):
            raise ValueError("its messages are in another block already")
        put_block(self._target, queue_id, parts)
        for part in parts:
            held.add(part.first_sequence, part.last_sequence)

    def _lost(self, key: bytes, why: str) -> None:
        self.problems.append(Problem(f"lost the value {key.hex()} ({why})", self._target.where))
        table = key[:1]
        try:
            if table in (keys.RUN_PAGE, keys.VALUE_PAGE):
                self._restart.add(keys.split_page_key(key, self._target.where)[:2])
            elif table == keys.GROUP:
                self._restart.add(keys.split_group_key(key))
            elif table == keys.PLAN:
                self._broken_plans.add(keys.split_plan_key(key)[:2])
        except GARBAGE:
            return

    def _lend_blocks(self) -> None:
        for (stage_id, first), (queue_id, new_first, published_at) in self._lent.items():
            info = next(block_infos(self._target, stage_id, first, first), None)
            if info is None or info.first != first:
                # What is missing is told of by its queue.
                continue
            held = self._held.setdefault(queue_id, RunSet())
            if held.overlap(new_first, new_first + info.last - first):
                continue
            for part in load_block(self._target, stage_id, info):
                self._held[stage_id].remove(part.first_sequence, part.last_sequence)
                held.add(part.first_sequence + new_first - first, part.last_sequence + new_first - first)
            lend_block(self._target, stage_id, info, queue_id, new_first, published_at)
        for stage_id in {stage_id for stage_id, _ in self._lent}:
            if not self._held.get(stage_id):
                self._held.pop(stage_id, None)

    def finish(self) -> None:
        self._lend_blocks()
        missing = self._missing()
        for table, load in LOADERS:
            for key, value in self._rest[table]:
                try:
                    load_one(self._target, self._state, key, value, load)
                except StorageDamaged as exc:
                    self._lost(key, str(exc))
            if table == keys.QUEUE:
                self._make_up_queues()
            elif table == keys.GROUP:
                if keys.GROUP in missing:
                    self._miss_groups()
                self._make_up_groups()
        if keys.RUN_PAGE in missing:
            # Any group's, and with them messages that it was handed and has not settled.
            self._restart.update((q.queue_id, group_id) for q in self._state.queues.values() for group_id in q.groups)
        self._restart_groups()
        if keys.PLAN in missing:
            self._broken_plans.update(
                (q.queue_id, group_id) for q in self._state.queues.values() for group_id in q.groups
            )
        self._break_plans()
        self._take_dead()
        for queue_id, held in self._held.items():
            queue = self._state.queues[queue_id]
            queue.next_sequence = max(queue.next_sequence, held.last + 1 if held else 1)
        # Blocks of stages stand under the stages' ids, which must not be given again.
        used = (*self._state.queues, *(stage_id for stage_id, _ in self._lent))
        self._state.next_queue_id = max([self._state.next_queue_id, *(queue_id + 1 for queue_id in used)])
        write_state(self._target, self._state)

    def _missing(self) -> set[bytes]:
        """Tables that lack more than the values known to be lost; it says so in `problems`."""
        if self._written is None:
            if self._tally_is_there:
                return set()
            # It does not get lost alone.
            self.problems.append(Problem("the tally of what is stored is missing", self._target.where))
            return set(NAMES)
        missing = {table for table in NAMES if self._seen.of(table) != self._written.of(table)}
        for table in sorted(missing):
            text = difference(table, self._seen, self._written)
            then = "it is made anew" if table in INDEX_TABLES else "what is missing is lost"
            self.problems.append(Problem(f"{text}; {then}", self._target.where))
        return missing

    def _miss_groups(self) -> None:
        """Queues without any group lost theirs; a new one would begin behind all messages."""
        for queue in self._state.queues.values():
            if not queue.groups and not queue.deleted:
                self._restart.add((queue.queue_id, 0))

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

    def _dead_id_of(self, queue_id: int, sequence: int) -> int | None:
        """The id that the message's letter had, or may have had. Fresh ones the journal may have given away already."""
        dead_id = self._pointers.get((queue_id, sequence))
        if dead_id is not None and not self._is_used(dead_id):
            return dead_id
        return next((number for number in self._older_ids if not self._is_used(number)), None)

    def _is_used(self, dead_id: int) -> bool:
        return self._target.get(keys.dead_key(dead_id)) is not None

    def _restart_groups(self) -> None:
        for queue_id, group_id in self._restart:
            queue = self._state.queues.get(queue_id)
            group = None if queue is None else queue.groups.get(group_id)
            if queue is None or group is None:
                continue
            held = self._held.get(queue_id)
            queue.groups[group_id] = _started_over(group, held.first if held else queue.next_sequence)
            text = f"group {group.name!r} of queue {queue.name} starts over with its oldest stored message"
            if group.cursor is not None:
                text = f"group {group.name!r} of queue {queue.name} reads on from {group.cursor.committed}"
            self.problems.append(Problem(text, self._target.where, queue=queue.name))

    def _break_plans(self) -> None:
        """Of a reader whose plans are not all there nobody knows how it goes on: no batch follows this plan."""
        for queue_id, group_id in sorted(self._broken_plans):
            queue = self._state.queues.get(queue_id)
            group = None if queue is None else queue.groups.get(group_id)
            if queue is not None and group is not None and group.cursor is not None:
                group.plans[max(group.plans, default=0) + 1] = Plan("", "")
                text = f"group {group.name!r} of queue {queue.name} lost how its batches were cut; seek it"
                self.problems.append(Problem(text, self._target.where, queue=queue.name))

    def _take_dead(self) -> None:
        promised = {queue.queue_id: queue.dead for queue in self._state.queues.values()}
        for queue in self._state.queues.values():
            queue.dead = RunSet()
        self._state.dead_count = 0
        for key, body in self._letters:
            try:
                entry = values.unpack_dead(body)
            except GARBAGE as exc:
                self._lost(key, str(exc))
                continue
            sequence, held = entry.facts.sequence, self._held.get(entry.queue_id)
            if held is None or sequence not in held:
                self._lost(key, f"its message {sequence} is lost")
                continue
            self._put_dead(entry)
        self._make_up_dead(promised)
        self._index_dead()

    def _index_dead(self) -> None:
        if self._bad_index:
            text = f"{self._bad_index} values of the index of dead letters are damaged; it is made anew"
            self.problems.append(Problem(text, self._target.where))
        self._entries.sort(key=lambda entry: entry.facts.dead_id)
        for at in range(0, len(self._entries), BUILD_LETTERS):
            update_index(self._target, {}, self._entries[at : at + BUILD_LETTERS])

    def _put_dead(self, entry: DeadEntry) -> None:
        dead_id, sequence = entry.facts.dead_id, entry.facts.sequence
        self._state.queues[entry.queue_id].dead.add(sequence, sequence)
        self._state.dead_count += 1
        self._state.next_dead_id = max(self._state.next_dead_id, dead_id + 1)
        key = keys.dead_key(dead_id)
        self._target.put(key, seal(key, values.pack_dead(entry)))
        self._target.put(keys.dead_by_message_key(entry.queue_id, sequence, dead_id), b"")
        self._entries.append(entry)

    def _make_up_dead(self, promised: dict[int, RunSet]) -> None:
        """Letters for dead messages whose own letter is lost. Messages that are lost too need none."""
        self._older_ids = iter(range(self._state.next_dead_id - 1, 0, -1))
        for queue_id, dead in promised.items():
            queue, held = self._state.queues[queue_id], self._held.get(queue_id, RunSet())
            for sequence in [s for s in dead if s not in queue.dead and s in held]:
                dead_id = self._dead_id_of(queue_id, sequence)
                if dead_id is None:
                    text = f"the dead letter of message {sequence} of queue {queue.name} is lost"
                    self.problems.append(Problem(text, self._target.where, None, queue.name, sequence, sequence))
                    continue
                at = self._state.instant
                facts = DeadFacts(dead_id, sequence, Reason.REJECTED, MADE_UP, 0, 0, at, at)
                self._put_dead(DeadEntry(queue_id, "", facts))
                text = f"the dead letter of message {sequence} of queue {queue.name} is lost; it has a new one"
                self.problems.append(Problem(text, self._target.where, None, queue.name, sequence, sequence))


def _started_over(group: StoredGroup, head: int) -> StoredGroup:
    """The group with what its own value says of it, and no messages that it was handed or has settled. A cursor has
    acknowledged what it says; what of it is held back is found when it is taken up."""
    fresh = StoredGroup(group.group_id, group.name, group.durable, head, group.epoch)
    fresh.owner, fresh.where = group.owner, group.where
    if group.cursor is not None:
        fresh.cursor = group.cursor._replace(head=0)
        fresh.plans.update(group.plans)
    return fresh


# -- what is missing ----------------------------------------------------------------------------------------------


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
            held.add(part.first_sequence, part.last_sequence)
    return held


def _nothing_is_volatile(queue_id: int) -> bool:
    """Dead letters of transient queues are not stored."""
    return False
