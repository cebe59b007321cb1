"""What one simulated broker wrote, and what it told whom, so that every image can be held against it."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tests.proof.copied_state import copy_state
from tests.proof.sim_naive import Broken, Message, Naive, NaiveQueue, each
from vibemq.model.commands import CommitCursor
from vibemq.model.effects import CursorInfo, Deliver, Effect, Outcome, Published, Reply
from vibemq.model.jobs.job_records import JobAdvanced, JobChanged, JobStarted
from vibemq.model.options import Durability, Overflow, Retention
from vibemq.model.records import (
    CursorChanged,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Returned,
    Settled,
    StageMoved,
    TokenRemoved,
    TokenStored,
    TransactionDecided,
    UserRemoved,
    UserStored,
)
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable
from vibemq.storage.state.reducer import apply

STRUCTURAL = (
    "CreateQueue",
    "DeleteQueue",
    "ReplayDead",
    "PurgeDead",
    "PurgeQueue",
    "JoinCursor",
    "RejectAt",
    "Quarantine",
    "ChangeAccounts",
    "StartJob",
    "ChangeJob",
    "Stage",
    "DecideTransaction",
    "MoveStage",
    "MoveStaged",
    "DropStages",
)
"""Commands whose plain answer states a fact that a power cut must not take back."""

STATED: dict[str, tuple[type, ...]] = {
    "Publish": (QueueCreated, MessagesAdded),
    "Settle": (Settled, Returned),
    "CommitCursor": (CursorChanged,),
    "JoinCursor": (GroupCreated, GroupMoved, CursorChanged),
    "RejectAt": (DeadLettered,),
    "Quarantine": (DeadLettered, CursorChanged),
    "Subscribe": (GroupCreated,),
    "CreateQueue": (QueueCreated, GroupCreated),
    "DeleteQueue": (QueueDeleted,),
    "DeleteGroup": (GroupDeleted,),
    "PurgeQueue": (Dropped,),
    "PurgeDead": (DeadRemoved, JobAdvanced),
    "ReplayDead": (DeadRemoved, MessagesAdded, JobAdvanced),
    "ChangeAccounts": (UserStored, UserRemoved, TokenStored, TokenRemoved),
    "StartJob": (JobStarted,),
    "ChangeJob": (JobChanged,),
    "Stage": (QueueCreated, MessagesAdded),
    "DecideTransaction": (TransactionDecided,),
    "MoveStage": (StageMoved,),
    "MoveStaged": (MessagesAdded, Dropped),
    "DropStages": (QueueDeleted,),
}
"""Command -> the records that its answer tells of: what a step does besides, nobody was told."""


def _is_stated(record: Record) -> bool:
    """False for what a step hands out besides, of whatever queue: its Deliver is no promise, and no answer names it."""
    return not isinstance(record, HandedOut)


def _beyond_retention(queue_id: int, queue: NaiveQueue, batch: Sequence[Record]) -> set[int]:
    """What the queue's log holds beyond its limit, with what the batch adds."""
    logged = set(queue.logged)
    for record in batch:
        if isinstance(record, MessagesAdded) and record.queue_id == queue_id:
            logged.update(range(record.first_sequence, record.first_sequence + record.rows.count))
    oldest = sorted(logged)
    return set(oldest[: -queue.options.retain_messages]) if queue.options.retain_messages else set()


class Counts:
    """Of all lives of one run."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.confirmed_strong = 0
        self.confirmed_weak = 0
        self.confirmed_async = 0
        self.delivered = 0
        self.settled = 0
        self.dead = 0
        self.replayed = 0
        self.duplicates = 0
        self.later_steps = 0
        """Steps of commands behind their first one."""
        self.written_ahead = 0
        """Records with a row that was written ahead of them."""
        self.moved = 0
        """Stages that entered their queue whole."""
        self.account_changes = 0
        """Answered changes of users and tokens."""
        self.positions = 0
        """Confirmed positions of cursors."""
        self.reused_told = 0
        """Sequences of weak or async messages that were told, lost with the tail, and given to other messages."""


class Ledger:
    """The journal's history and what was promised upon it. `lives` counts the recoveries."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.life = 0
        self.bodies: dict[int, bytes] = {}
        self.naive: dict[int, Naive] = {0: Naive()}
        self.reduced: dict[int, StoredState] = {0: StoredState()}
        self.dead: dict[int, dict[int, DeadEntry]] = {0: {}}
        self._reduced = StoredState()
        self._dead = DeadTable()
        self.last_lsn = 0
        """Of the newest record whose append was begun."""
        self.written_lsn = 0
        """Of the newest record whose append has returned."""
        self.floor = 0
        """Everything up to here was promised to survive a power cut."""
        self.weak_told: list[tuple[int, float]] = []
        """(lsn, second) of confirmed weak messages, in the order of their lsn."""
        self.positions: dict[tuple[int, str], int] = {}
        """(queue_id, group) of cursors -> up to where an acknowledgement was confirmed."""
        self.rows: dict[Message, tuple[bytes, int]] = {}
        self.lsn_of: dict[Message, int] = {}
        self.created: dict[str, int] = {}
        """Queue name -> lsn of its creation."""
        self.may_settle: set[tuple[int, int, int]] = set()
        """(queue, group, sequence) that a consumer acknowledged, or that an operator purged."""
        self.told: dict[tuple[str, int], bytes] = {}
        """Row of every message that anybody was told of, lost ones included, by the queue's incarnation."""
        self._records: dict[Any, list[Record]] = {}
        """By token, of all steps of the command that were decided."""
        self._lsn_of_record: dict[int, int] = {}
        self._kept: list[Sequence[Record]] = []
        self._commands: dict[Any, Any] = {}

    # -- what is written ------------------------------------------------------------------------------------------

    def writing(self, body: bytes, lsn: int) -> None:
        """A record is about to be written: from now on it may be found."""
        batch = decode_batch(body)
        self.bodies[lsn] = body
        self.last_lsn = lsn
        self._check_reasons(batch)
        naive = self.naive[lsn - 1].copy()
        for record in batch:
            if isinstance(record, MessagesAdded):
                self._note_rows(naive, record, lsn)
            elif isinstance(record, StageMoved):
                self._rename_rows(naive, record, lsn)
            elif isinstance(record, QueueCreated):
                # It may go again in the same batch.
                self.created.setdefault(record.name, lsn)
            elif isinstance(record, GroupMoved | GroupDeleted | QueueDeleted):
                self._forget_positions(naive, record)
            apply(self._reduced, record, self._dead)
        naive.apply(batch)
        naive.check_law()
        self._reduced.lsn = lsn
        self.naive[lsn] = naive
        self.reduced[lsn] = copy_state(self._reduced)
        self.dead[lsn] = dict(self._dead.entries)
        for queue in naive.queues.values():
            if not queue.deleted:
                self.created.setdefault(queue.name, lsn)

    def appended(self, records: Sequence[Record], lsn: int) -> None:
        """The provider's append has returned."""
        self.written_lsn = max(self.written_lsn, lsn)
        self._kept.append(records)
        for record in records:
            self._lsn_of_record[id(record)] = lsn
            if isinstance(record, MessagesAdded) and (record.queue_id, record.first_sequence) not in self.lsn_of:
                self._keep_rows(record, lsn)

    def _note_rows(self, naive: Naive, record: MessagesAdded, lsn: int) -> None:
        queue = naive.queues.get(record.queue_id)
        for offset, row in enumerate(record.rows if queue is not None else ()):
            assert queue is not None
            sequence = record.first_sequence + offset
            if self.told.get((queue.incarnation, sequence), row) != row:
                if queue.options.durability is Durability.STRONG:
                    raise Broken(f"sequence {sequence} of strong queue {queue.name} was told and is used again")
                self.counts.reused_told += 1
        self._keep_rows(record, lsn)

    def _rename_rows(self, naive: Naive, record: StageMoved, lsn: int) -> None:
        self.counts.moved += 1
        queue = naive.queues[record.queue_id]
        for sequence in range(record.stage_first, record.stage_last + 1):
            if (record.stage_id, sequence) not in self.rows:
                continue
            row, to = self.rows[record.stage_id, sequence][0], sequence + record.shift
            if queue.options.durability is Durability.STRONG and self.told.get((queue.incarnation, to), row) != row:
                raise Broken(f"sequence {to} of strong queue {queue.name} was told and is used again")
            self.rows[record.queue_id, to] = (row, record.published_at)
            self.lsn_of[record.queue_id, to] = lsn

    def _keep_rows(self, record: MessagesAdded, lsn: int) -> None:
        for offset, row in enumerate(record.rows):
            message = (record.queue_id, record.first_sequence + offset)
            self.rows[message] = (row, record.published_at)
            self.lsn_of[message] = lsn

    def _check_reasons(self, batch: list[Record]) -> None:
        """Messages leave because somebody asked for it, or because their queue's options say so."""
        moved = {(r.queue_id, r.group_id) for r in batch if isinstance(r, GroupCreated | GroupMoved)}
        naive = self.naive[self.last_lsn - 1]
        for record in batch:
            if not isinstance(record, Settled | Dropped):
                continue
            queue = naive.queues.get(record.queue_id)
            if queue is None or queue.deleted:
                continue
            options = queue.options
            if isinstance(record, Dropped):
                forbidden = record.reason in (Reason.MAX_ATTEMPTS, Reason.REJECTED, Reason.EXPIRED)
                kept = options.retention is Retention.SETTLED and record.reason is Reason.RETENTION
                if (forbidden and options.dead_letter) or kept:
                    raise Broken(f"{queue.name} drops {record.runs} as {record.reason.name}")
                continue
            group = queue.groups.get(record.group_id)
            # Where a full queue drops its oldest, or there is no DLQ, a group may let go of what another still holds.
            lets_go = not options.dead_letter or (options.max_messages and options.overflow is Overflow.DROP_OLDEST)
            if group is None or (record.queue_id, record.group_id) in moved or lets_go:
                continue
            gone = each(record.runs) & group.unsettled
            asked = self.may_settle
            # What a cursor has acknowledged is settled when its hold is over, perhaps after a restart.
            unasked = {s for s in gone if s >= group.committed and (record.queue_id, record.group_id, s) not in asked}
            if unasked and options.retention is Retention.LOG:
                # With many groups each of them lets go of what the log is to lose, in records of their own before it.
                unasked -= _beyond_retention(record.queue_id, queue, batch)
            if unasked and options.consumers_settle:
                raise Broken(f"{queue.name}/{group.name}: {sorted(unasked)} settled, though nobody acknowledged them")

    # -- what is told ---------------------------------------------------------------------------------------------

    def asked(self, command: Any, queue_id: int | None) -> None:
        """`queue_id`: of the queue that the command names, when its first step begins."""
        token = getattr(command, "token", None)
        if token is not None:
            self._commands[token] = (command, queue_id)
            self._records[token] = []

    def decided(self, command: Any, outcome: Outcome) -> None:
        """One step of it."""
        if (token := getattr(command, "token", None)) is not None:
            self._records[token] += outcome.records

    def heard(self, effects: Sequence[Effect], now_s: float) -> None:
        """A session was told this, just now."""
        for effect in effects:
            if isinstance(effect, Reply):
                self._heard_reply(effect, now_s)
            elif isinstance(effect, Deliver):
                self.counts.delivered += sum(last - first + 1 for first, last in effect.runs)
                self._heard_messages(effect.queue_id, each(effect.runs), None)

    def _heard_reply(self, reply: Reply, now_s: float) -> None:
        command, queue_id = self._commands.pop(reply.token)
        records = self._records.pop(reply.token)
        if isinstance(reply.result, Exception):
            return
        self._check_written(command, records)
        if isinstance(command, CommitCursor):
            self._heard_position(reply.result)
        if isinstance(reply.result, Published) and type(command).__name__ != "Stage":
            self._heard_published(queue_id, reply.result, now_s)
        elif type(command).__name__ in STRUCTURAL and not self._is_volatile(command, queue_id):
            self.floor = max(self.floor, *(self._lsn_of_record.get(id(r), 0) for r in records if _is_stated(r)), 0)
        if type(command).__name__ == "ChangeAccounts":
            self.counts.account_changes += 1
            written = [r for r in records if id(r) in self._lsn_of_record]
            if len(written) < len(command.records):
                raise Broken(f"{len(command.records)} changes of users were answered, {len(written)} were written")
        if type(command).__name__ == "CreateQueue":
            if command.queue not in self.created:
                raise Broken(f"the creation of {command.queue} was confirmed and never written")
            self.floor = max(self.floor, self.created[command.queue])

    def _is_volatile(self, command: Any, queue_id: int | None) -> bool:
        """Messages of a transient queue were never written, so neither is their end."""
        queue = self.naive[self.last_lsn].queues.get(queue_id or 0)
        transient = queue is not None and queue.options.durability is Durability.TRANSIENT
        return transient and type(command).__name__ == "PurgeQueue"

    def _heard_published(self, queue_id: int, result: Published, now_s: float) -> None:
        taken = result.count - len(result.refused or {}) - len(result.duplicates or {})
        sequences = set(range(result.first_sequence, result.first_sequence + taken)) if taken else set()
        self.counts.duplicates += len(result.duplicates or {})
        self.counts.confirmed += len(sequences)
        self._heard_messages(queue_id, sequences | set((result.duplicates or {}).values()), now_s)

    def _heard_messages(self, queue_id: int, sequences: set[int], confirmed_at: float | None) -> None:
        queue = self.naive[self.last_lsn].queues.get(queue_id)
        if queue is None or not sequences:
            return
        durability = queue.options.durability
        if durability is Durability.TRANSIENT:
            return
        for sequence in sequences:
            message = (queue_id, sequence)
            if message not in self.rows:
                raise Broken(f"message {sequence} of {queue.name} was told of and never written")
            self.told[queue.incarnation, sequence] = self.rows[message][0]
        lsn = max(self.lsn_of[queue_id, sequence] for sequence in sequences)
        if durability is Durability.STRONG:
            self.floor = max(self.floor, lsn)
            self.counts.confirmed_strong += len(sequences) if confirmed_at is not None else 0
        elif confirmed_at is not None and durability is Durability.WEAK:
            self.counts.confirmed_weak += len(sequences)
            if not self.weak_told or lsn > self.weak_told[-1][0]:
                self.weak_told.append((lsn, confirmed_at))
        elif confirmed_at is not None:
            self.counts.confirmed_async += len(sequences)

    def _check_written(self, command: Any, records: list[Record]) -> None:
        """Whoever is answered may rely on it: a kill in this moment must not undo it."""
        name = type(command).__name__
        for record in records:
            told = isinstance(record, STATED.get(name, ())) and not self._is_of_memory(record)
            if told and id(record) not in self._lsn_of_record:
                raise Broken(f"{name} was answered, and its {type(record).__name__} is not written")

    def _is_of_memory(self, record: Record) -> bool:
        """Of a transient queue, of which only the definition is kept; or of one that is gone."""
        if isinstance(record, QueueCreated | GroupCreated) or not hasattr(record, "queue_id"):
            return False
        queue = self.naive[self.last_lsn].queues.get(record.queue_id)
        return queue is None or queue.options.durability is Durability.TRANSIENT

    def _heard_position(self, told: CursorInfo) -> None:
        self.counts.positions += 1
        queue = self.naive[self.last_lsn].queues.get(told.queue_id)
        groups = () if queue is None else queue.groups.values()
        # What was answered behind its flush may have been sought elsewhere, or be gone, before it is heard.
        if any(group.name == told.group and group.committed >= told.committed for group in groups):
            self.positions[told.queue_id, told.group] = told.committed

    def _forget_positions(self, naive: Naive, record: GroupMoved | GroupDeleted | QueueDeleted) -> None:
        """A cursor is sought elsewhere, or gone."""
        queue = naive.queues.get(record.queue_id)
        named = () if queue is None or isinstance(record, QueueDeleted) else (queue.groups.get(record.group_id),)
        groups = {group.name for group in named if group is not None}
        for queue_id, name in list(self.positions):
            if queue_id == record.queue_id and (isinstance(record, QueueDeleted) or name in groups):
                del self.positions[queue_id, name]

    # -- after a crash --------------------------------------------------------------------------------------------

    def position_lost(self, last_lsn: int) -> str:
        """Of a cursor whose confirmed position a kill has undone; empty when there is none."""
        queues = self.naive[last_lsn].queues
        for (queue_id, name), told in self.positions.items():
            queue = queues.get(queue_id)
            groups = () if queue is None else queue.groups.values()
            found = max((group.committed for group in groups if group.name == name), default=0)
            if found < told:
                return f"cursor {name} of queue {queue_id} was confirmed at {told}, and is at {found}"
        return ""

    def oldest_weak_lost(self, last_lsn: int) -> float | None:
        """When the oldest weak message above `last_lsn` was confirmed."""
        index = bisect_right(self.weak_told, last_lsn, key=lambda entry: entry[0])
        return self.weak_told[index][1] if index < len(self.weak_told) else None

    def power_lost(self) -> None:
        """From now on only what was promised to survive must be there."""
        self.written_lsn = self.floor
        self.weak_told.clear()
        self.positions.clear()

    def forget_newer(self) -> None:
        """The store has been turned into one of a version that had no users, tokens, jobs or transactions."""
        naive = self.naive[self.last_lsn]
        naive.jobs = {}
        for state in (naive, self.reduced[self.last_lsn], self._reduced):
            state.users, state.tokens = {}, {}
        for reduced in (self.reduced[self.last_lsn], self._reduced):
            reduced.jobs, reduced.transactions = {}, {}

    def recovered(self, last_lsn: int) -> None:
        """The broker goes on from `last_lsn`; what was above it never happened."""
        self.life += 1
        for lsn in range(last_lsn + 1, self.last_lsn + 1):
            del self.bodies[lsn], self.naive[lsn], self.reduced[lsn], self.dead[lsn]
        lost = [message for message, lsn in self.lsn_of.items() if lsn > last_lsn]
        for message in lost:
            del self.rows[message], self.lsn_of[message]
        self.last_lsn = self.written_lsn = self.floor = last_lsn
        self._reduced = copy_state(self.reduced[last_lsn])
        self._dead = DeadTable()
        for entry in self.dead[last_lsn].values():
            self._dead.add(entry)
        self.weak_told.clear()
        self.positions.clear()
        self.may_settle.clear()
        self._commands.clear()
        self._records.clear()
        names = {q.name for q in self.naive[last_lsn].queues.values() if not q.deleted}
        self.created = {name: lsn for name, lsn in self.created.items() if name in names and lsn <= last_lsn}
        for name in names - self.created.keys():
            self.created[name] = last_lsn
