"""What the storage tests write: a model of a store, and random but sensible batches of records for it."""

from copy import deepcopy
from random import Random

from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability, QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    AccountRecord,
    Attempts,
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    GroupRenamed,
    HandedOut,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
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
    TransactionsForgotten,
    UserRemoved,
    UserStored,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run, RunSet, runs_of
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState
from vibemq.storage.state.liveness import gaps
from vibemq.storage.state.reducer import DeadTable, alive_runs, apply, persistent, restart_transient, waiting_runs

STRONG = QueueOptions(dedup_window_ms=60_000)
TRANSIENT = QueueOptions(durability=Durability.TRANSIENT)
LOG = QueueOptions(retention=Retention.LOG)
STAGE = "stage-"


def rows(first: int, count: int, size: int = 20) -> Rows:
    """Rows whose ids and payloads tell their sequence."""
    payloads = ((sequence, f"{sequence}:".encode().ljust(size, b".")) for sequence in range(first, first + count))
    return Rows.of([pack_row(f"m{sequence}", payload, [("n", str(sequence))]) for sequence, payload in payloads])


class Model:
    """The pure reducer with every row: what a store must hold, for as long as nothing is forgotten."""

    def __init__(self) -> None:
        self.state = StoredState()
        self.dead = DeadTable()
        self.rows: dict[tuple[int, int], tuple[bytes, int]] = {}
        """(queue_id, sequence) -> (row, published_at); never removed from, `alive` says which still count."""

    @classmethod
    def of(cls, state: StoredState, dead: DeadTable) -> "Model":
        """A view of a state that somebody else keeps, without rows."""
        model = cls()
        model.state, model.dead = state, dead
        return model

    def apply(self, records: list[Record]) -> None:
        for record in records:
            self.apply_one(record)
        self.state.lsn += 1

    def apply_one(self, record: Record) -> None:
        if isinstance(record, MessagesAdded):
            for index, row in enumerate(record.rows):
                self.rows[record.queue_id, record.first_sequence + index] = (row, record.published_at)
        elif isinstance(record, StageMoved):
            assert_whole(self.state, record)
            for sequence in range(record.stage_first, record.stage_first + record.count):
                if (record.stage_id, sequence) in self.rows:
                    row = self.rows[record.stage_id, sequence][0]
                    self.rows[record.queue_id, sequence + record.shift] = (row, record.published_at)
        apply(self.state, record, self.dead)

    def alive(self, queue_id: int) -> dict[int, tuple[bytes, int]]:
        """Sequence -> (row, published_at) of the messages that must be readable."""
        queue = self.state.queues.get(queue_id)
        if queue is None:
            return {}
        runs = alive_runs(queue, 1, queue.next_sequence - 1)
        sequences = (s for first, last in runs for s in range(first, last + 1))
        return {s: self.rows[queue_id, s] for s in sequences if (queue_id, s) in self.rows}


def assert_whole(state: StoredState, record: StageMoved) -> None:
    """Storage takes a stage whole: a record that names a part of it is one that no engine may make."""
    stage = state.queues.get(record.stage_id)
    assert stage is not None
    assert record.has(1, stage.next_sequence - 1), (record, stage.next_sequence)
    queue = state.queues.get(record.queue_id)
    assert queue is None or record.first_sequence >= queue.next_sequence


class DurableModel:
    """A `Model` and what is left of it after a restart: its batches without the records that are never written."""

    def __init__(self) -> None:
        self.live = Model()
        self._written: list[list[Record]] = []

    def apply(self, records: list[Record]) -> None:
        written: list[Record] = []
        for record in records:
            if persistent(self.live.state, record):
                written.append(record)
            self.live.apply_one(record)
        self._written.append(written)

    def restart(self, opened: StoredState) -> None:
        """Forget what a restart forgets. Raises AssertionError if the store came back with another state."""
        fresh = Model()
        for batch in self._written:
            fresh.apply(batch)
        restart_transient(fresh.state, 0)
        assert comparable(opened) == comparable(fresh.state)
        # Where transient queues go on is the store's choice.
        fresh.state = deepcopy(opened)
        self.live = fresh


def comparable(state: StoredState) -> StoredState:
    """A copy without what a restart may legitimately change: lsn, and where transient queues and counters stand."""
    plain = deepcopy(state)
    plain.lsn = plain.instant = plain.next_dead_id = 0
    for queue in plain.queues.values():
        if queue.options.durability is Durability.TRANSIENT:
            queue.next_sequence = 0
            for group in queue.groups.values():
                group.head = 0
    return plain


# -- random batches -----------------------------------------------------------------------------------------------


class Workload:
    """Makes batches that an engine could have made, from a `Model`'s state.

    Args:
        transient: also make transient queues.
    """

    def __init__(self, random: Random, *, transient: bool = True) -> None:
        self._random = random
        self._kinds = [STRONG, STRONG, LOG, *([TRANSIENT] if transient else [])]
        self.now = 1_000

    def batch(self, model: Model) -> list[Record]:
        """One to four records; each is made for the state that those before it leave."""
        scratch, dead = deepcopy(model.state), deepcopy(model.dead)
        records: list[Record] = []
        for _ in range(self._random.randint(1, 4)):
            self.now += self._random.choice((0, 1, 500, 20_000))
            record = None if self._random.random() < 0.2 else self._record(scratch, dead)
            for made in self._staging(scratch) if record is None else [record]:
                records.append(made)
                apply(scratch, made, dead)
        return records

    def _staging(self, state: StoredState) -> list[Record]:
        stages = [queue for queue in state.queues.values() if queue.name.startswith(STAGE)]
        roll = self._random.random()
        if not stages or (len(stages) < 3 and roll < 0.2):
            queue_id = state.next_queue_id
            made = QueueCreated(queue_id, f"{STAGE}{queue_id}", STRONG, self.now, "")
            return [made, GroupCreated(queue_id, 0, "", True, 1)]
        stage = self._random.choice(stages)
        waiting = waiting_runs(stage, 1, stage.next_sequence - 1)
        if not waiting and stage.next_sequence > 1:
            return [QueueDeleted(stage.queue_id)]
        if roll < 0.7 or not waiting:
            return self._staged(stage)
        if roll < 0.85:
            return [self._taken_out(stage, waiting)]
        targets = [
            queue
            for queue in state.queues.values()
            if not (queue.deleted or queue.options.durability is Durability.TRANSIENT or queue in stages)
        ]
        return self._moved(stage, waiting, self._random.choice(targets)) if targets else []

    def _staged(self, stage: StoredQueue) -> list[Record]:
        first = stage.next_sequence + self._random.choice((0, 0, 0, 3))
        extras = {0: MessageExtra(dedup_id=str(first).encode())}
        count, size = self._random.choice(((1, 10), (5, 200), (40, 10), (3, 20_000)))
        added = rows(first, count, size)
        hole: list[Record] = []
        if first > stage.next_sequence:
            hole = [Dropped(stage.queue_id, [(stage.next_sequence, first - 1)], Reason.OVERFLOW)]
        return [MessagesAdded(stage.queue_id, first, self.now, added, extras), *hole]

    def _taken_out(self, stage: StoredQueue, waiting: list[Run]) -> Record:
        """Some go elsewhere first: those in front as messages that were copied, others as what a repair has dropped."""
        first, last = waiting[0][0], waiting[-1][1]
        middle = self._random.randint(first, last)
        run = self._random.choice(((first, middle), (first, middle), (middle, min(middle + 3, last)), (middle, last)))
        return Dropped(stage.queue_id, RunSet(waiting).overlap(*run) or waiting[:1], Reason.MOVED)

    def _moved(self, stage: StoredQueue, waiting: list[Run], queue: StoredQueue) -> list[Record]:
        # What could not be stored at the end of the stage has a number, too.
        last = stage.next_sequence - 1 + self._random.choice((0, 0, 2))
        apart = self._random.random() < 0.1
        moved = StageMoved(queue.queue_id, queue.next_sequence, self.now, stage.queue_id, 1, last, apart)
        holes = [(start + moved.shift, stop + moved.shift) for start, stop in gaps(RunSet(waiting), 1, last)]
        records: list[Record] = [moved, Dropped(stage.queue_id, waiting, Reason.MOVED)]
        if holes:
            records.append(Dropped(queue.queue_id, holes, Reason.OVERFLOW))
        if self._random.random() < 0.3:
            records.append(QueueDeleted(stage.queue_id))
        return records

    def _record(self, state: StoredState, dead: DeadTable) -> Record | None:
        queues = [q for q in state.queues.values() if not (q.deleted or q.name.startswith(STAGE))]
        roll = self._random.random()
        if not queues or (len(queues) < 4 and roll < 0.08):
            queue_id = state.next_queue_id
            return QueueCreated(queue_id, f"q{queue_id}", self._random.choice(self._kinds), self.now, f"{queue_id:08x}")
        queue = self._random.choice(queues)
        if not queue.groups or roll < 0.12:
            name = f"g{queue.next_group_id}" if queue.groups else ""
            group_id = queue.next_group_id if queue.groups else 0
            return GroupCreated(queue.queue_id, group_id, name, True, queue.next_sequence)
        if roll < 0.45:
            return self._added(queue)
        if roll < 0.95:
            return self._progress(queue, self._random.choice(list(queue.groups.values())), state)
        return self._rare(queue, dead)

    def _added(self, queue: StoredQueue) -> MessagesAdded:
        count = self._random.choice((1, 2, 5, 40))
        extras: dict[int, MessageExtra] = {}
        # Dense ones too: neighbours of one priority are stored as a run, which partly leaves.
        density, priorities = self._random.choice(((0.2, (0, 1, 3)), (0.95, (3,))))
        for index in range(count):
            if self._random.random() < density:
                extras[index] = MessageExtra(
                    priority=self._random.choice(priorities),
                    expires_at=self._random.choice((0, self.now + 10_000)),
                    deliver_at=self._random.choice((0, self.now + 5_000)),
                    dedup_id=self._random.choice((b"", f"{queue.queue_id}-{queue.next_sequence + index}".encode())),
                )
        added = rows(queue.next_sequence, count, self._random.choice((10, 200)))
        return MessagesAdded(
            queue.queue_id, queue.next_sequence, self.now, added, extras or None, self._random.random() < 0.1
        )

    def _progress(self, queue: StoredQueue, group: StoredGroup, state: StoredState) -> Record | None:
        queue_id, group_id = queue.queue_id, group.group_id
        fresh = [s for s in range(group.head, queue.next_sequence) if s not in group.taken]
        verb = self._random.choice(("hand", "hand", "settle", "settle", "return", "bury", "drop"))
        if verb == "hand":
            if not fresh:
                return None
            some = fresh[: self._random.randint(1, 30)] if self._random.random() < 0.7 else self._some(fresh)
            return HandedOut(queue_id, group_id, runs_of(some))
        if verb == "drop":
            waiting = fresh or list(group.pending)
            return Dropped(queue_id, runs_of(self._some(waiting)), Reason.EXPIRED) if waiting else None
        pending = list(group.pending)
        if not pending:
            return None
        some = self._some(pending)
        if verb == "settle":
            return Settled(queue_id, group_id, runs_of(some))
        if verb == "return":
            history = Attempts(2, 1, self.now, self.now, self.now + 2_000, "no luck")
            return Returned(queue_id, group_id, dict.fromkeys(some[:3], history))
        letters = [
            DeadFacts(state.next_dead_id + index, sequence, Reason.REJECTED, "bad", 1, 1, self.now, self.now)
            for index, sequence in enumerate(some[:3])
        ]
        return DeadLettered(queue_id, self._random.choice((group_id, group_id, ALL_GROUPS)), letters)

    def _rare(self, queue: StoredQueue, dead: DeadTable) -> Record | None:
        group = self._random.choice(list(queue.groups.values()))
        if self._random.random() < 0.1:
            return self._account()
        if self._random.random() < 0.3:
            return self._cursor_or_transaction(queue, group)
        verb = self._random.randrange(7)
        if verb <= 2:
            known = sorted(dead.entries)
            return DeadRemoved(self._some(known), bool(verb)) if known else None
        if verb == 3:
            # Messages above the head may be gone: whoever moves a group before them settles them again, or they come
            # back without their rows. Here they are moved over.
            lowest = group.taken.last + 1 if group.taken else group.head
            head = self._random.randint(lowest, queue.next_sequence)
            return GroupMoved(queue.queue_id, group.group_id, head, group.epoch + 1)
        if verb == 4:
            return GroupRenamed(queue.queue_id, group.group_id, f"{group.name}x"[:8], not group.durable)
        if verb == 5 and len(queue.groups) > 1:
            return GroupDeleted(queue.queue_id, group.group_id)
        if self._random.random() < 0.5:
            return QueueDeleted(queue.queue_id)
        if self._random.random() < 0.2:
            return QueueAttended(queue.queue_id)
        return QueueChanged(queue.queue_id, queue.options.with_changes(max_attempts=self._random.randint(1, 9)))

    def _cursor_or_transaction(self, queue: StoredQueue, group: StoredGroup) -> Record:
        app = f"app-{self._random.randrange(3)}"
        verb = self._random.randrange(8)
        if verb == 7:
            where = self._random.choice(("", "n > 3", 'region == "eu"'))
            return GroupFiltered(queue.queue_id, group.group_id, where)
        if verb == 5:
            number = max(group.plans, default=0) + 1
            return PlanMade(queue.queue_id, group.group_id, number, Plan(f"tag {number}", f"end {number}"))
        if verb == 6:
            return PlansForgotten(queue.queue_id, group.group_id, max(group.plans, default=0))
        if verb == 0:
            version = self._random.randrange(9)
            return TransactionDecided(app, version, self.now, [queue.queue_id], "tag", "ann")
        if verb == 4:
            return GroupOwned(queue.queue_id, group.group_id, f"user-{self._random.randrange(3)}")
        if verb == 1:
            return TransactionsForgotten([app])
        runs = ((group.head, group.head + 2),) if verb == 2 else ()
        facts = CursorFacts(
            group.epoch + 1, group.head, 5, 0, 1 << 40, verb == 2, 1, "owner", runs, runs, group.head, verb == 3
        )
        return CursorChanged(queue.queue_id, group.group_id, facts)

    def _account(self) -> AccountRecord:
        name, token_id = f"user-{self._random.randrange(3)}", f"token-{self._random.randrange(3)}"
        rule = Rule(ResourceKind.QUEUE, f"{name}.*", frozenset(self._random.choice((("publish",), ("inspect", "*")))))
        match self._random.randrange(6):
            case 0:
                return UserRemoved(name)
            case 1:
                return TokenRemoved(token_id)
            case 2 | 3:
                rules = None if self._random.random() < 0.5 else (rule,)
                key = self._random.randbytes(16)
                return TokenStored(StoredToken(token_id, name, key, key[::-1], "job", self.now, 0, self.now, rules))
            case _:
                superuser = self._random.random() < 0.3
                return UserStored(StoredUser(name, "scrypt$...", superuser, (rule,), 5, self.now))

    def _some(self, items: list[int]) -> list[int]:
        return sorted(self._random.sample(items, self._random.randint(1, min(len(items), 12))))
