"""What journal records mean, told without runs, heads or pages: sets of sequences, one by one.

The reducer of the product is one way to say it, this is another; where the two disagree one of them is wrong. The law
of conservation is stated here as set arithmetic: every published message of a group is in exactly one place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.proof.sim_naive_jobs import NaiveJob, Unbalanced, apply_job_record
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.jobs.job_records import JobRecord
from vibemq.model.options import Durability, QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    CursorChanged,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupMoved,
    GroupRenamed,
    HandedOut,
    MessagesAdded,
    PlanMade,
    PlansForgotten,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Record,
    Returned,
    Settled,
    StageMoved,
    TokenRemoved,
    TokenStored,
    UserRemoved,
    UserStored,
)
from vibemq.model.runs import Run

Message = tuple[int, int]
"""(queue_id, sequence)."""


class Broken(AssertionError):
    """A promise does not hold."""


def each(runs: Iterable[Run]) -> set[int]:
    return {sequence for first, last in runs for sequence in range(first, last + 1)}


@dataclass(slots=True)
class NaiveGroup:
    name: str
    entered: set[int] = field(default_factory=set)
    unsettled: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    """By policy or by an operator; expired ones of queues without a DLQ are among them."""
    dead: set[int] = field(default_factory=set)
    committed: int = 0
    """Of a cursor: everything below is acknowledged."""

    def leave(self, sequences: set[int], place: set[int]) -> None:
        gone = self.unsettled & sequences
        self.unsettled -= gone
        place |= gone

    def copy(self) -> "NaiveGroup":
        entered, unsettled, settled = set(self.entered), set(self.unsettled), set(self.settled)
        return NaiveGroup(self.name, entered, unsettled, settled, set(self.dropped), set(self.dead), self.committed)

    def places(self) -> int:
        return len(self.unsettled) + len(self.settled) + len(self.dropped) + len(self.dead)


@dataclass(slots=True)
class NaiveQueue:
    name: str
    incarnation: str
    options: QueueOptions
    next_sequence: int = 1
    deleted: bool = False
    groups: dict[int, NaiveGroup] = field(default_factory=dict)
    logged: set[int] = field(default_factory=set)
    """Kept by log retention."""
    dedup: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> "NaiveQueue":
        groups = {group_id: group.copy() for group_id, group in self.groups.items()}
        return NaiveQueue(
            self.name,
            self.incarnation,
            self.options,
            self.next_sequence,
            self.deleted,
            groups,
            set(self.logged),
            dict(self.dedup),
        )


class Naive:
    """The facts up to some lsn."""

    def __init__(self) -> None:
        self.queues: dict[int, NaiveQueue] = {}
        self.dead: dict[int, Message] = {}
        self.users: dict[str, StoredUser] = {}
        self.tokens: dict[str, StoredToken] = {}
        self.jobs: dict[int, NaiveJob] = {}

    def copy(self) -> "Naive":
        other = Naive()
        other.queues = {queue_id: queue.copy() for queue_id, queue in self.queues.items()}
        other.dead = dict(self.dead)
        other.users = dict(self.users)
        other.tokens = dict(self.tokens)
        other.jobs = {job_id: job.copy() for job_id, job in self.jobs.items()}
        return other

    def alive(self, queue_id: int) -> set[int]:
        """Sequences whose rows must be readable."""
        found = {sequence for owner, sequence in self.dead.values() if owner == queue_id}
        queue = self.queues.get(queue_id)
        if queue is None:
            return found
        return found.union(queue.logged, *(group.unsettled for group in queue.groups.values()))

    def apply(self, batch: list[Record]) -> None:
        """Raises Broken when the batch makes no sense."""
        for record in batch:
            match record:
                case QueueCreated():
                    self.queues[record.queue_id] = NaiveQueue(record.name, record.incarnation, record.options)
                case QueueDeleted():
                    self._delete(record.queue_id)
                case DeadRemoved():
                    self._remove_dead(record, batch)
                case UserStored() | UserRemoved() | TokenStored() | TokenRemoved():
                    self._account(record)
                case _ if isinstance(record, JobRecord):
                    try:
                        apply_job_record(self.jobs, record, batch)
                    except Unbalanced as error:
                        raise Broken(str(error)) from None
                case _:
                    queue = self.queues.get(getattr(record, "queue_id", 0))
                    if queue is not None and not queue.deleted:
                        self._in_queue(queue, record)

    def _account(self, record: Record) -> None:
        match record:
            case UserStored(user):
                if user.name not in self.users and (heirs := self._tokens_of(user.name)):
                    raise Broken(f"user {user.name} is new and has the tokens {heirs} of an earlier one")
                self.users[user.name] = user
            case UserRemoved(name):
                self.users.pop(name, None)
            case TokenStored(token):
                self.tokens[token.token_id] = token
            case TokenRemoved(token_id):
                self.tokens.pop(token_id, None)

    def _tokens_of(self, user: str) -> list[str]:
        return sorted(token.token_id for token in self.tokens.values() if token.user == user)

    def _delete(self, queue_id: int) -> None:
        queue = self.queues.get(queue_id)
        if queue is None:
            return
        queue.deleted = True
        queue.groups.clear()
        queue.logged.clear()
        self._bury_queue(queue_id)

    def _bury_queue(self, queue_id: int) -> None:
        if self.queues[queue_id].deleted and all(owner != queue_id for owner, _ in self.dead.values()):
            del self.queues[queue_id]

    def _remove_dead(self, record: DeadRemoved, batch: list[Record]) -> None:
        known = [dead_id for dead_id in record.dead_ids if dead_id in self.dead]
        if record.replayed:
            come = sum(r.rows.count for r in batch if isinstance(r, MessagesAdded))
            if come < len(known):
                raise Broken(f"dead letters {known} leave the DLQ in a batch that adds {come} messages")
        for dead_id in known:
            queue_id = self.dead.pop(dead_id)[0]
            if queue_id in self.queues:
                self._bury_queue(queue_id)

    def _in_queue(self, queue: NaiveQueue, record: Record) -> None:
        match record:
            case QueueChanged():
                queue.options = record.options
            case GroupCreated():
                queue.groups[record.group_id] = group = NaiveGroup(record.name)
                self._enter(queue, group, record.head)
            case GroupRenamed() if record.group_id in queue.groups:
                queue.groups[record.group_id].name = record.name
            case GroupDeleted():
                queue.groups.pop(record.group_id, None)
            case GroupMoved() if record.group_id in queue.groups:
                queue.groups[record.group_id] = group = NaiveGroup(queue.groups[record.group_id].name)
                self._enter(queue, group, record.head)
            case MessagesAdded():
                self._add(queue, record)
            case StageMoved():
                stage = self.queues[record.stage_id]
                if not record.has(1, stage.next_sequence - 1):
                    raise Broken(f"{record} does not name all of {stage.name}, which has {stage.next_sequence - 1}")
                self._enter_all(queue, record.first_sequence, record.count)
            case HandedOut() | Settled() if record.group_id in queue.groups:
                group = queue.groups[record.group_id]
                if isinstance(record, Settled):
                    group.leave(each(record.runs), group.settled)
            case Dropped():
                for group in queue.groups.values():
                    group.leave(each(record.runs), group.dropped)
                queue.logged -= each(record.runs)
            case DeadLettered():
                for letter in record.letters:
                    self.dead[letter.dead_id] = (record.queue_id, letter.sequence)
                    for group in self._named(queue, record.group_id):
                        group.leave({letter.sequence}, group.dead)
            case CursorChanged() if record.group_id in queue.groups:
                queue.groups[record.group_id].committed = record.facts.committed
            case Returned() | PlanMade() | PlansForgotten():
                pass

    def _named(self, queue: NaiveQueue, group_id: int) -> list[NaiveGroup]:
        if group_id == ALL_GROUPS:
            return list(queue.groups.values())
        return [queue.groups[group_id]] if group_id in queue.groups else []

    def _enter(self, queue: NaiveQueue, group: NaiveGroup, head: int) -> None:
        found = set(range(head, queue.next_sequence))
        if queue.options.retention is Retention.LOG:
            found &= queue.logged
        group.entered |= found
        group.unsettled |= found

    def _add(self, queue: NaiveQueue, record: MessagesAdded) -> None:
        first = record.first_sequence
        self._enter_all(queue, first, record.rows.count)
        for index, extra in (record.extras or {}).items():
            if extra.dedup_id and queue.options.dedup_window_ms:
                queue.dedup[extra.dedup_id] = (first + index, record.published_at)

    def _enter_all(self, queue: NaiveQueue, first: int, count: int) -> None:
        if first < queue.next_sequence:
            raise Broken(f"sequence {first} of {queue.name} is given again; the next is {queue.next_sequence}")
        fresh = set(range(first, first + count))
        queue.next_sequence = first + count
        if queue.options.retention is Retention.LOG:
            queue.logged |= fresh
        for group in queue.groups.values():
            group.entered |= fresh
            group.unsettled |= fresh

    def check_law(self) -> None:
        """published = settled + waiting + dead + dropped, and nothing is in two places."""
        for queue in self.queues.values():
            for group in queue.groups.values():
                union = group.unsettled | group.settled | group.dropped | group.dead
                if union != group.entered or group.places() != len(group.entered):
                    raise Broken(f"{queue.name}/{group.name}: {len(group.entered)} entered, {group.places()} found")


def keeps_nothing(options: QueueOptions) -> bool:
    return options.durability is Durability.TRANSIENT
