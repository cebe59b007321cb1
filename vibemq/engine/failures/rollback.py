"""What `failed` takes back, what it keeps, and what it owes.

New messages of an outcome that could not be written vanish: from their queue, wherever they are by now. But those of
transient queues whose publishers were told are kept: they need no disk. Everything else that the outcome said has
happened (settlements, hand-outs, new queues and groups): those facts are kept as owed and stand before the records of
the next outcome.
"""

from dataclasses import replace

from vibemq.engine.handlers.dead_letters import put_back, remove
from vibemq.engine.queue.queue import Added, TakenOut
from vibemq.engine.requests.failing import fail_unstored
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.jobs.job_records import JobAdvanced, JobLettersDied, JobStarted
from vibemq.model.records import (
    AccountRecord,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueAttended,
    Reason,
    Record,
    Returned,
    Settled,
    StageMoved,
    TransactionDecided,
)
from vibemq.model.runs import END, Run, RunSet, run_count, without
from vibemq.model.stored import IMPORT_PREFIX


class Holes:
    """Sequences whose messages vanished, of this outcome and of those before it, by queue.

    A queue is looked up when a record or an answer names it. Of very many queues an outcome names few, and after many
    refusals all of them may have holes.
    """

    def __init__(self, state: EngineState) -> None:
        self._queues = state.queues_by_id
        self._found: dict[int, RunSet] = {}

    def of(self, queue_id: int) -> RunSet:
        """Not to be changed."""
        found = self._found.get(queue_id)
        if found is None:
            queue = self._queues.get(queue_id)
            found = self._found[queue_id] = RunSet() if queue is None else RunSet(queue.holes)
        return found


def vanish(step: Step, state: EngineState, added: Added) -> None:
    """Take one publish out of its queue. Its sequences stay unused while the broker runs."""
    queue = added.queue
    first, last = added.first, added.last
    count = last - first + 1
    if added.replayed is not None:
        put_back(state, added.replayed, added.origins)
    if queue.requests:
        fail_unstored(queue, first, last)
    if queue.deleted:
        return
    if added in queue.unseen:
        queue.unseen.remove(added)
        queue.unseen_count -= count
    else:
        _take_out_visible(step, added)
    if not added.is_retried:
        queue.refused += count
    queue.holes = RunSet([*added.holes, *queue.holes, (first, last)]).runs()
    _forget_ids(added)
    step.free(queue)


def _forget_ids(added: Added) -> None:
    """They may be published again. Only its own ids are looked at: the window may have very many of others."""
    if added.extras:
        added.queue.dedup.forget(added.extras.dedup_ids, added.first, added.last)


def _take_out_visible(step: Step, added: Added) -> None:
    """An async message may be anywhere already: waiting, or with a consumer, who keeps a copy of nothing."""
    queue, first, last = added.queue, added.first, added.last
    if queue.log is not None:
        queue.log.remove(first, last)
    for group in queue.groups.values():
        lost = group.take_waiting(first, last) + group.take_held(first, last)
        group.forget_history(lost)
        group.counters.dropped += run_count(lost)
        step.touch(queue, group)


def keep_promised(state: EngineState, records: list[Record], promised: list[Added]) -> list[Record]:
    """The records of those messages alone."""
    if not promised:
        return []
    runs: dict[int, RunSet] = {}
    for added in promised:
        runs.setdefault(added.queue.queue_id, RunSet()).add(added.first, added.last)
        if not added.queue.deleted:
            state.gaps[added.queue] = added.last
    kept: list[Record] = []
    for record in records:
        if isinstance(record, MessagesAdded) and record.queue_id in runs:
            kept += _parts_of(record, runs[record.queue_id])
    return kept


def _parts_of(record: MessagesAdded, runs: RunSet) -> list[Record]:
    first, count = record.first_sequence, record.rows.count
    parts = runs.overlap(first, first + count - 1)
    if parts == [(first, first + count - 1)]:
        return [record]
    # Publishes that became one record have no extras.
    return [
        MessagesAdded(
            record.queue_id,
            start,
            record.published_at,
            record.rows.slice(start - first, last + 1 - first),
            apart=record.apart and start == first,
        )
        for start, last in parts
    ]


def without_moves(state: EngineState, records: list[Record], moved: list[TakenOut]) -> list[Record]:
    """The records without what jobs have counted as gone and is back in its queue."""
    back: dict[int, RunSet] = {}
    for taken in moved:
        if not taken.queue.deleted:
            back.setdefault(taken.queue.queue_id, RunSet()).add_all(taken.runs)
    kept: list[Record] = []
    for record in records:
        if isinstance(record, JobLettersDied) and record.gone and record.queue_id in back:
            there = back[record.queue_id]
            state.jobs.revive(record, there)
            runs = _minus(record.runs, there)
            if runs:
                kept.append(replace(record, runs=runs))
        else:
            kept.append(record)
    return kept


def owed_of(state: EngineState, records: list[Record], holes: Holes, *, refused: bool = False) -> list[Record]:
    """The records that still have to be kept, without any word about the vanished messages.

    `refused`: whoever has asked for them was told that they could not be written. Changes of users, of which the engine
    keeps nothing, are then not made; everything else has happened all the same.
    """
    owed: list[Record] = []
    for record in records:
        if refused and isinstance(record, AccountRecord):
            continue
        if isinstance(record, DeadLettered) and (gone := holes.of(record.queue_id)):
            remove(state, [letter.dead_id for letter in record.letters if letter.sequence in gone], None)
        if isinstance(record, JobLettersDied) and (gone := holes.of(record.queue_id)):
            state.jobs.revive(record, gone)
        kept = _without(record, holes)
        if isinstance(kept, JobAdvanced):
            kept = _up_to_cursor(state, kept)
        for one in _as_found(state, kept) if kept is not None else ():
            _append(owed, one)
    return owed


def _as_found(state: EngineState, record: Record) -> list[Record]:
    """What says where a group was sought to, as if the messages that failed moves have brought back had been there."""
    if not state.brought_back or not isinstance(record, GroupMoved | Settled):
        return [record]
    back = state.brought_back.get((record.queue_id, record.group_id))
    if not back:
        return [record]
    if isinstance(record, Settled):
        runs = _minus(record.runs, back)
        return [replace(record, runs=runs)] if runs else []
    if record.head <= back.first:
        return [record]
    absent = without([(back.first, record.head - 1)], back.runs())
    found: list[Record] = [replace(record, head=back.first)]
    return [*found, Settled(record.queue_id, record.group_id, absent)] if absent else found


def _up_to_cursor(state: EngineState, record: JobAdvanced) -> JobAdvanced:
    """A step before it may have been taken back: the job goes on at the letters of that one."""
    job = state.jobs.by_id.get(record.job_id)
    return record if job is None or record.cursor <= job.cursor else replace(record, cursor=job.cursor)


def owe_what_followed(state: EngineState) -> None:
    """The last outcome of a series has failed: what followed from their failures comes behind the facts of all of
    them, which were decided before; and without the messages that vanished after it was noted."""
    noted, state.owed_behind = state.owed_behind, []
    holes = Holes(state)
    for record in noted:
        # A queue's new consumer is noted once, by what is still there.
        state.owed += [record] if isinstance(record, QueueAttended) else owed_of(state, [record], holes)
    for queue, last in state.gaps.items():
        gap = [hole for hole in queue.holes if hole[0] < last]
        if gap and not queue.deleted:
            # Those behind the last message are recorded with the next one.
            queue.holes = [hole for hole in queue.holes if hole[0] > last]
            state.owed.append(Dropped(queue.queue_id, gap, Reason.OVERFLOW))
    state.gaps.clear()
    state.brought_back.clear()


def _without(record: Record, holes: Holes) -> Record | None:
    match record:
        case MessagesAdded() | StageMoved() | QueueAttended():
            return None
        case DeadRemoved(replayed=True) | Dropped(reason=Reason.MOVED):
            return None
        case JobAdvanced() if record.queue_id:
            # What was counted belongs to the messages of the same batch, which have vanished.
            return None
        case JobStarted():
            return None
        case TransactionDecided() if record.app.startswith(IMPORT_PREFIX):
            # The position in a file belongs to the messages of the same batch, which have vanished.
            return None
        case Settled() | HandedOut() | Dropped() | JobLettersDied() if gone := holes.of(record.queue_id):
            runs = _minus(record.runs, gone)
            return replace(record, runs=runs) if runs else None
        case Returned() if gone := holes.of(record.queue_id):
            attempts = {s: a for s, a in record.attempts.items() if s not in gone}
            return replace(record, attempts=attempts) if attempts else None
        case DeadLettered() if gone := holes.of(record.queue_id):
            letters = [letter for letter in record.letters if letter.sequence not in gone]
            return replace(record, letters=letters) if letters else None
        case GroupCreated() | GroupMoved() if gone := holes.of(record.queue_id):
            return replace(record, head=_before_holes(record.head, gone))
        case _:
            return record


def _minus(runs: list[Run], gone: RunSet) -> list[Run]:
    kept = RunSet(runs)
    for run in gone.overlap(1, END):
        kept.remove(*run)
    return kept.runs()


def _before_holes(head: int, gone: RunSet) -> int:
    """A group that began behind vanished messages begins where they began: a restart allots these numbers again."""
    for first, last in reversed(gone.runs()):
        if first <= head <= last + 1:
            head = first
    return head


def _append(owed: list[Record], record: Record) -> None:
    """Settlements of one group that follow each other are one record, so that a long debt stays small."""
    before = owed[-1] if owed else None
    if (
        isinstance(record, Settled)
        and isinstance(before, Settled)
        and (before.queue_id, before.group_id) == (record.queue_id, record.group_id)
    ):
        owed[-1] = replace(before, runs=RunSet(before.runs + record.runs).runs())
    else:
        owed.append(record)
