"""The pure reducer: what one record does to a store's state.

`apply(state, record, dead, dirty)` never reads a row, a clock or a file, so every provider, the checkpointer and the
tests come to the same state from the same records. Rows are none of its business.

The plain path (messages without extras, runs in order) costs a few bisections per record, nothing per message.
Records about a queue or group that is gone are ignored: within one batch it may have been deleted before them.

Transient queues
----------------
Their definition (queue, options, groups, group epochs) is durable; their messages, hand-outs, settlements and dead
letters are not. A provider asks `persistent(state, record)` before it applies a record and never writes those for
which it answers False, nor marks anything dirty for them. After a restart `restart_transient` starts their sequences
at `now x 1000`: above anything used before as long as a queue took fewer than a million messages a second on
average, nothing has to be reserved on disk, and the numbers stay below 2**53. A queue's durability must not change
from or to TRANSIENT; the engine refuses that.
"""

from collections.abc import Sequence
from itertools import islice, takewhile
from operator import itemgetter, lt

from vibemq.model.jobs.job import StoredJob
from vibemq.model.jobs.job_records import (
    JobAdvanced,
    JobChanged,
    JobLettersDied,
    JobMadeSettled,
    JobRecord,
    JobsForgotten,
    JobStarted,
    advanced,
    bereaved,
    changed,
    relieved,
)
from vibemq.model.options import Durability, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    AccountRecord,
    Attempts,
    CursorChanged,
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
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
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
from vibemq.model.runs import Run, runs_of
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState, StoredTransaction, with_version
from vibemq.storage.state import messages
from vibemq.storage.state.changes import Dirty, RunKind, ValueKind
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadIndex, DeadTable
from vibemq.storage.state.liveness import (
    alive_runs,
    any_waiting,
    in_group,
    is_alive,
    is_waiting,
    waiting_floor,
    waiting_runs,
)

__all__ = [
    "DeadEntry",
    "DeadIndex",
    "DeadTable",
    "Dirty",
    "alive_runs",
    "any_waiting",
    "apply",
    "in_group",
    "is_alive",
    "is_transient",
    "is_waiting",
    "persistent",
    "restart_transient",
    "waiting_floor",
    "waiting_runs",
]

_SEQUENCES_PER_MS = 1000


def is_transient(state: StoredState, queue_id: int) -> bool:
    queue = state.queues.get(queue_id)
    return queue is not None and queue.options.durability is Durability.TRANSIENT


def persistent(state: StoredState, record: Record) -> bool:
    """Whether the record may reach the disk. Ask before applying it: the state must be that before the record."""
    match record:
        case MessagesAdded() | HandedOut() | Returned() | Settled() | Dropped() | DeadLettered():
            queue = state.queues.get(record.queue_id)
            return queue is None or queue.options.durability is not Durability.TRANSIENT
        case _:
            return True


def restart_transient(state: StoredState, now: int) -> None:
    """Forget the messages of transient queues, as a restart does; call once on a freshly loaded state."""
    for queue in list(state.queues.values()):
        if queue.options.durability is not Durability.TRANSIENT:
            continue
        if queue.deleted:
            # Only its dead letters kept it, and they are gone.
            del state.queues[queue.queue_id]
        queue.next_sequence = max(queue.next_sequence, max(now, state.instant) * _SEQUENCES_PER_MS)
        queue.chunks.clear()
        for runs in (queue.dropped, queue.dead):
            runs.remove(1, queue.next_sequence)
        queue.letters = 0
        queue.priorities.clear()
        for values in (queue.expires, queue.delayed, queue.dedup):
            values.clear()
        for group in queue.groups.values():
            _move(group, queue.next_sequence, group.epoch)


def apply(state: StoredState, record: Record, dead: DeadIndex, dirty: Dirty | None = None) -> None:
    """Change `state` (and `dead`) by one record; note in `dirty` which stored values that touches.

    `state.lsn` is the caller's to set, once per batch.
    """
    match record:
        case MessagesAdded():
            _messages_added(state, record, dirty)
        case HandedOut():
            _handed_out(state, record, dirty)
        case Settled():
            _settled(state, record, dirty)
        case Returned():
            _returned(state, record, dirty)
        case Dropped():
            _dropped(state, record, dirty)
        case DeadLettered():
            _dead_lettered(state, record, dead, dirty)
        case StageMoved():
            _stage_moved(state, record, dirty)
        case DeadRemoved():
            _dead_removed(state, record, dead, dirty)
        case QueueCreated() | QueueChanged() | QueueDeleted() | QueueAttended():
            _queue_record(state, record, dirty)
        case TransactionDecided() | TransactionsForgotten():
            _transaction_record(state, record, dirty)
        case PlanMade() | PlansForgotten():
            _plan_record(state, record, dirty)
        case UserStored() | UserRemoved() | TokenStored() | TokenRemoved():
            _account_record(state, record, dirty)
        case JobStarted() | JobAdvanced() | JobChanged() | JobLettersDied() | JobMadeSettled() | JobsForgotten():
            _job_record(state, record, dirty)
        case _:
            _group_record(state, record, dirty)


# -- queues and groups --------------------------------------------------------------------------------------------


def _queue_record(
    state: StoredState, record: QueueCreated | QueueChanged | QueueDeleted | QueueAttended, dirty: Dirty | None
) -> None:
    queue_id = record.queue_id
    if dirty is not None:
        dirty.queues.add(queue_id)
    if isinstance(record, QueueCreated):
        state.queues[queue_id] = StoredQueue(
            queue_id, record.name, record.options, record.created_at, record.incarnation
        )
        state.next_queue_id = max(state.next_queue_id, queue_id + 1)
        state.instant = max(state.instant, record.created_at)
        return
    queue = state.queues.get(queue_id)
    if queue is None:
        return
    if isinstance(record, QueueChanged):
        if not messages.decides_age(queue.options) and messages.decides_age(record.options):
            messages.date_by_youngest(queue, record.options, state.instant, dirty)
        _change_options(queue, record, dirty)
        return
    if isinstance(record, QueueAttended):
        queue.attended = True
        return
    queue.deleted = True
    queue.groups.clear()
    if dirty is not None:
        dirty.whole_queues.add(queue_id)
    messages.everything_may_have_left(queue, dirty)
    queue.dedup.clear()
    queue.dropped.remove(1, queue.next_sequence)
    if not queue.dead:
        del state.queues[queue_id]


def _change_options(queue: StoredQueue, record: QueueChanged, dirty: Dirty | None) -> None:
    was_log = queue.options.retention is Retention.LOG
    queue.options = record.options
    queue.attended = queue.attended and record.options.auto_delete
    if was_log and record.options.retention is not Retention.LOG:
        # Without the log only the groups keep messages, and what was dropped must not come back to them.
        for run in queue.dropped.runs():
            for group in queue.groups.values():
                _settle(queue, group, run, dirty)
        queue.dropped.remove(1, queue.next_sequence)
        if dirty is not None:
            dirty.whole_queues.add(queue.queue_id)
        messages.everything_may_have_left(queue, dirty)


def _group_record(
    state: StoredState,
    record: GroupCreated | GroupRenamed | GroupDeleted | GroupMoved | CursorChanged | GroupOwned | GroupFiltered,
    dirty: Dirty | None,
) -> None:
    queue = state.queues.get(record.queue_id)
    if queue is None or queue.deleted:
        return
    key = (record.queue_id, record.group_id)
    if dirty is not None:
        dirty.groups.add(key)
    if isinstance(record, GroupCreated):
        queue.groups[record.group_id] = StoredGroup(record.group_id, record.name, record.durable, record.head)
        if record.group_id >= queue.next_group_id:
            queue.next_group_id = record.group_id + 1
            if dirty is not None:
                dirty.queues.add(queue.queue_id)
        return
    group = queue.groups.get(record.group_id)
    if group is None:
        return
    if isinstance(record, GroupRenamed):
        group.name, group.durable = record.name, record.durable
        return
    if isinstance(record, GroupOwned):
        group.owner = record.owner
        return
    if isinstance(record, GroupFiltered):
        group.where = record.where
        return
    if isinstance(record, CursorChanged):
        group.epoch, group.cursor = record.facts.epoch, record.facts
        return
    if dirty is not None:
        dirty.whole_groups.add(key)
    first = min(group.head, group.pending.first) if group.pending else group.head
    last = queue.next_sequence - 1
    if isinstance(record, GroupMoved):
        last = max(record.head - 1, group.pending.last) if group.pending else record.head - 1
        _move(group, record.head, record.epoch)
        if group.has("plans"):
            group.plans.clear()
    else:
        del queue.groups[record.group_id]
    if first <= last:
        messages.groups_let_go(queue, [(first, last)], dirty)


def _move(group: StoredGroup, head: int, epoch: int) -> None:
    group.head, group.epoch = head, epoch
    group.taken = type(group.taken)()
    group.pending = type(group.pending)()
    group.attempts.clear()


def _plan_record(state: StoredState, record: PlanMade | PlansForgotten, dirty: Dirty | None) -> None:
    _, groups = _groups(state, record.queue_id, record.group_id)
    for group in groups:
        if isinstance(record, PlanMade):
            group.plans[record.number] = record.plan
            changed = [record.number]
        else:
            changed = list(takewhile(lambda number: number < record.below, group.plans))
            for number in changed:
                del group.plans[number]
        if dirty is not None:
            dirty.plans.update((record.queue_id, record.group_id, number) for number in changed)


def _transaction_record(
    state: StoredState, record: TransactionDecided | TransactionsForgotten, dirty: Dirty | None
) -> None:
    apps = [record.app] if isinstance(record, TransactionDecided) else record.apps
    if dirty is not None:
        dirty.transactions.update(apps)
    if isinstance(record, TransactionDecided):
        kept = StoredTransaction(record.version, record.decided_at, list(record.stages), record.tag)
        before = state.transactions.get(record.app)
        kept.owner, kept.committed = record.owner, with_version(before.committed if before else (), record.version)
        state.transactions[record.app] = kept
        state.instant = max(state.instant, record.decided_at)
        return
    for app in apps:
        state.transactions.pop(app, None)


def _job_record(state: StoredState, record: JobRecord, dirty: Dirty | None) -> None:
    touched = dirty.jobs if dirty is not None else set[int]()
    if isinstance(record, JobsForgotten):
        for job_id in record.job_ids:
            state.jobs.pop(job_id, None)
        touched.update(record.job_ids)
        return
    if isinstance(record, JobStarted):
        job = record.job
        state.instant = max(state.instant, job.created_at)
        # Its letters may not be kept; those that die later must not be taken for them.
        state.next_dead_id = max(state.next_dead_id, job.plan.last_id + 1)
    else:
        known = state.jobs.get(record.job_id)
        if known is None:
            # Its start could not be stored.
            return
        job = _job_after(known, record)
        if not isinstance(record, JobLettersDied | JobMadeSettled):
            state.instant = max(state.instant, record.at)
    state.jobs[job.job_id] = job
    touched.add(job.job_id)


def _job_after(job: StoredJob, record: JobAdvanced | JobChanged | JobLettersDied | JobMadeSettled) -> StoredJob:
    match record:
        case JobAdvanced():
            return advanced(job, record)
        case JobChanged():
            return changed(job, record)
        case JobLettersDied():
            return bereaved(job, record)
        case JobMadeSettled():
            return relieved(job, record)


def _account_record(state: StoredState, record: AccountRecord, dirty: Dirty | None) -> None:
    users, tokens = (dirty.users, dirty.tokens) if dirty is not None else (set[str](), set[str]())
    match record:
        case UserStored(user):
            state.users[user.name] = user
            state.instant = max(state.instant, user.changed_at)
            users.add(user.name)
        case UserRemoved(name):
            state.users.pop(name, None)
            users.add(name)
        case TokenStored(token):
            state.tokens[token.token_id] = token
            state.instant = max(state.instant, token.created_at, token.used_at)
            tokens.add(token.token_id)
        case TokenRemoved(token_id):
            state.tokens.pop(token_id, None)
            tokens.add(token_id)


def _groups(state: StoredState, queue_id: int, group_id: int) -> tuple[StoredQueue | None, list[StoredGroup]]:
    """The queue, and the groups the id stands for; none when they are gone."""
    queue = state.queues.get(queue_id)
    if queue is None or queue.deleted:
        return None, []
    if group_id == ALL_GROUPS:
        return queue, list(queue.groups.values())
    group = queue.groups.get(group_id)
    return queue, [] if group is None else [group]


# -- messages -----------------------------------------------------------------------------------------------------


def _messages_added(state: StoredState, record: MessagesAdded, dirty: Dirty | None) -> None:
    state.instant = max(state.instant, record.published_at)
    queue = state.queues.get(record.queue_id)
    if queue is not None and not queue.deleted and record.rows.count:
        messages.add(queue, record, dirty)


def _stage_moved(state: StoredState, record: StageMoved, dirty: Dirty | None) -> None:
    state.instant = max(state.instant, record.published_at)
    stage, queue = state.queues.get(record.stage_id), state.queues.get(record.queue_id)
    if dirty is not None:
        # They are stored already, and it may be that nobody waits for them, or that the queue is gone.
        dirty.mark_left(record.queue_id, [(record.first_sequence, record.last_sequence)])
    if queue is not None and not queue.deleted:
        messages.move(queue, [] if stage is None else stage.chunks, record, dirty)


def _handed_out(state: StoredState, record: HandedOut, dirty: Dirty | None) -> None:
    queue, groups = _groups(state, record.queue_id, record.group_id)
    if queue is None:
        return
    for group in groups:
        for run in record.runs:
            _count_repeats(queue, group, run, dirty)
            _take(queue, group, run, dirty)
            _pend(queue, group, run, dirty)


def _count_repeats(queue: StoredQueue, group: StoredGroup, run: Run, dirty: Dirty | None) -> None:
    for first, last in group.pending.overlap(*run):
        for sequence in range(first, last + 1):
            history = group.attempts.get(sequence)
            history = history._replace(acquired=history.acquired + 1, due_at=0) if history else Attempts(2)
            group.attempts[sequence] = history
            if dirty is not None:
                dirty.mark_value(queue.queue_id, group.group_id, ValueKind.ATTEMPTS, sequence)


def _returned(state: StoredState, record: Returned, dirty: Dirty | None) -> None:
    queue, groups = _groups(state, record.queue_id, record.group_id)
    if queue is None:
        return
    for sequence, attempts in record.attempts.items():
        state.instant = max(state.instant, attempts.last_failed_at)
        for group in groups:
            if not in_group(group, sequence):
                continue
            group.attempts[sequence] = attempts
            _take(queue, group, (sequence, sequence), dirty)
            _pend(queue, group, (sequence, sequence), dirty)
            if dirty is not None:
                dirty.mark_value(queue.queue_id, group.group_id, ValueKind.ATTEMPTS, sequence)


def _settled(state: StoredState, record: Settled, dirty: Dirty | None) -> None:
    queue, groups = _groups(state, record.queue_id, record.group_id)
    if queue is None:
        return
    for group in groups:
        if len(record.runs) > 1 and _settle_unheard(queue, group, record.runs, dirty):
            continue
        for run in record.runs:
            _settle(queue, group, run, dirty)
    messages.groups_let_go(queue, record.runs, dirty)


def _settle_unheard(queue: StoredQueue, group: StoredGroup, runs: Sequence[Run], dirty: Dirty | None) -> bool:
    """All at once what a group never gets that has just begun: the holes of its queue, of which there may be very many.

    False: nothing was done, they have to be settled one by one.
    """
    if group.taken or group.pending or group.attempts or runs[0][0] <= group.head:
        return False
    if not all(map(lt, map(itemgetter(1), runs), map(itemgetter(0), islice(runs, 1, None)))):
        return False
    group.taken.add_all(runs)
    if dirty is not None:
        dirty.mark_all_runs(queue.queue_id, group.group_id, RunKind.TAKEN, group.taken)
    return True


def _dropped(state: StoredState, record: Dropped, dirty: Dirty | None) -> None:
    queue, groups = _groups(state, record.queue_id, ALL_GROUPS)
    if queue is None:
        return
    for run in record.runs:
        for group in groups:
            # Most of many have settled it.
            if group.head <= run[1] or (not group.is_bare and (group.pending or group.attempts)):
                _settle(queue, group, run, dirty)
        if queue.options.retention is Retention.LOG:
            if dirty is not None:
                dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.DROPPED, queue.dropped, *run)
            queue.dropped.add(*run)
            if dirty is not None:
                dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.DROPPED, queue.dropped, *run)
    messages.may_have_left(queue, record.runs, dirty)


def _settle(queue: StoredQueue, group: StoredGroup, run: Run, dirty: Dirty | None) -> None:
    first, last = run
    pending = group.pending
    if pending:
        if dirty is not None:
            dirty.mark_runs(queue.queue_id, group.group_id, RunKind.PENDING, pending, first, last)
        pending.remove(first, last)
        if dirty is not None:
            dirty.mark_runs(queue.queue_id, group.group_id, RunKind.PENDING, pending, first, last)
    _take(queue, group, run, dirty)
    if group.attempts:
        for sequence in messages.keys_within(group.attempts, run):
            del group.attempts[sequence]
            if dirty is not None:
                dirty.mark_value(queue.queue_id, group.group_id, ValueKind.ATTEMPTS, sequence)


def _pend(queue: StoredQueue, group: StoredGroup, run: Run, dirty: Dirty | None) -> None:
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, group.group_id, RunKind.PENDING, group.pending, *run)
    group.pending.add(*run)
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, group.group_id, RunKind.PENDING, group.pending, *run)


def _take(queue: StoredQueue, group: StoredGroup, run: Run, dirty: Dirty | None) -> None:
    """The run is no longer to be handed out afresh: move the head over it, or note it above the head."""
    first, last = run
    if last < group.head:
        return
    taken = group.taken
    if first > group.head:
        if taken.covers(first, last):
            # It was handed out before it was settled.
            return
        if dirty is not None:
            dirty.mark_runs(queue.queue_id, group.group_id, RunKind.TAKEN, taken, first, last)
        taken.add(first, last)
    else:
        if dirty is not None:
            dirty.groups.add((queue.queue_id, group.group_id))
        head = last + 1
        if taken:
            if dirty is not None:
                dirty.mark_runs(queue.queue_id, group.group_id, RunKind.TAKEN, taken, group.head, last)
            joined = taken.touching(group.head, last)
            head = max(head, joined[-1][1] + 1) if joined else head
            taken.remove(1, head)
        group.head = head
    if dirty is not None and taken:
        dirty.mark_runs(queue.queue_id, group.group_id, RunKind.TAKEN, taken, first, last)


# -- dead letters -------------------------------------------------------------------------------------------------


def _dead_lettered(state: StoredState, record: DeadLettered, dead: DeadIndex, dirty: Dirty | None) -> None:
    queue, groups = _groups(state, record.queue_id, record.group_id)
    if queue is None:
        return
    name = groups[0].name if groups and record.group_id != ALL_GROUPS else ""
    runs = runs_of(letter.sequence for letter in record.letters)
    for run in runs:
        for group in groups:
            _settle(queue, group, run, dirty)
        _change_dead(queue, run, dirty, add=True)
    for letter in record.letters:
        dead.add(DeadEntry(queue.queue_id, name, letter))
        state.dead_count += 1
        queue.letters += 1
        state.next_dead_id = max(state.next_dead_id, letter.dead_id + 1)
        state.instant = max(state.instant, letter.dead_at)
    messages.groups_let_go(queue, runs, dirty)


def _dead_removed(state: StoredState, record: DeadRemoved, dead: DeadIndex, dirty: Dirty | None) -> None:
    gone: dict[int, set[int]] = {}
    state.next_dead_id = max(state.next_dead_id, max(record.dead_ids, default=0) + 1)
    for dead_id in record.dead_ids:
        # An unknown id is one of a transient queue, whose letters did not survive the restart.
        entry = dead.remove(dead_id)
        if entry is None:
            continue
        state.dead_count -= 1
        sequence, queue = entry.facts.sequence, state.queues.get(entry.queue_id)
        if queue is None:
            continue
        queue.letters -= 1
        if not dead.holds(entry.queue_id, sequence):
            gone.setdefault(entry.queue_id, set()).add(sequence)
    for queue_id, sequences in gone.items():
        queue = state.queues[queue_id]
        for run in runs_of(sequences):
            _change_dead(queue, run, dirty, add=False)
            messages.may_have_left(queue, [run], dirty)
        if queue.deleted and not queue.dead:
            del state.queues[queue_id]
            if dirty is not None:
                dirty.whole_queues.add(queue_id)


def _change_dead(queue: StoredQueue, run: Run, dirty: Dirty | None, *, add: bool) -> None:
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.DEAD, queue.dead, *run)
    if add:
        queue.dead.add(*run)
    else:
        queue.dead.remove(*run)
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.DEAD, queue.dead, *run)
