"""New messages: from a Publish to rows that may be handed out.

screen      duplicates are sorted out            (queue/dedup.py)
admit       the overflow policy decides           (overflow.py)
add         sequences are allotted, facts noted
show        once the queue's durability holds, groups see them
"""

from itertools import pairwise

from vibemq.engine.handlers.fan_out import enter
from vibemq.engine.handlers.overflow import trim_oldest
from vibemq.engine.handlers.retention import trim_log
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.collecting import collect
from vibemq.engine.queue.queue import NO_HOLES, NO_UNSEEN, Added, Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.extras.columns import ExtraColumns, columns_of, moved
from vibemq.model.extras.message_extra import Extras
from vibemq.model.instants import Values
from vibemq.model.options import Durability, Overflow
from vibemq.model.records import Dropped, Reason, StageMoved
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet, run_count, runs_of

_EXTRAS_PER_UNIT = 8
"""Messages with a delay or a priority that are noted, or become visible to one group, for the cost of one run."""


_SHOWN_TOGETHER = 1_024
"""Messages of one batch that become visible at once, when what they have beside their rows is the same for all of them;
else fewer."""
_SHOWN_LEAST = 128
_PIECES_MEASURED = 512
"""Of a stage that is moved as a whole: how finely its sizes are known while the broker runs."""


def add(
    state: EngineState,
    step: Step,
    queue: Queue,
    rows: Rows,
    extras: Extras | None,
    redirected: RunSet | None = None,
) -> Added:
    """Allot sequences to rows that were admitted. Transient and async ones are visible at once."""
    first = queue.next_sequence
    last = first + rows.count - 1
    queue.next_sequence = last + 1
    apart = queue.measure(first, last, rows.size, step.now)
    durability = queue.options.durability
    columns = columns_of(extras) if extras else None
    step.note_added(queue, first, rows, columns, apart=apart)
    if queue.holes:
        # After the rows: the gap must not move a group's head beyond the store's next sequence.
        step.note(Dropped(queue.queue_id, queue.holes, Reason.OVERFLOW), durability)
    if columns is not None:
        _remember_extras(queue, first, columns, step.now)
        step.work += len(columns) // _EXTRAS_PER_UNIT
    hidden = _before_groups(queue, first, last, redirected)
    if hidden is not None and hidden is not redirected:
        step.doubt(queue)
    added = Added(queue, first, last, columns, hidden, len(redirected or ()), holes=queue.holes, published_at=step.now)
    queue.holes = NO_HOLES
    if columns is not None:
        delayed, due = columns.deliveries_after(step.now, first)
        if delayed:
            queue.expect(due, step.now, last)
        if rows.count > _SHOWN_LEAST and durability > Durability.ASYNC:
            return _add_in_parts(step, added, columns)
    step.added.append(added)
    queue.hide(added)
    if durability <= Durability.ASYNC:
        added.visible = True
        # Its publisher may be answered with this step: whatever is asked behind the answer finds all of it.
        show(state, step, queue, whole=True)
    return added


def adopt(state: EngineState, step: Step, queue: Queue, stage: Queue, runs: list[Run]) -> int:
    """Allot sequences to all that a stage ever had: what of it is still there are messages, the rest are holes. Returns
    how many messages. Some may be gone already, but the store has them in blocks with others."""
    first, last = queue.next_sequence, queue.next_sequence + stage.next_sequence - 2
    moved = StageMoved(queue.queue_id, first, step.now, stage.queue_id, 1, last - first + 1)
    shift, count, durability = moved.shift, run_count(runs), queue.options.durability
    queue.next_sequence = last + 1
    for start, stop, size in stage.sizes.pieces(runs[0][0], runs[-1][1], _PIECES_MEASURED):
        moved.apart |= queue.measure(start + shift, stop + shift, size, step.now)
    step.note(moved, durability)
    around = pairwise([(0, 0), *runs, (stage.next_sequence, stage.next_sequence)])
    gaps = [(one[1] + 1 + shift, other[0] - 1 + shift) for one, other in around if one[1] + 1 < other[0]]
    holes = RunSet([*queue.holes, *gaps]).runs()
    queue.holes = NO_HOLES
    if holes:
        step.note(Dropped(queue.queue_id, holes, Reason.OVERFLOW), durability)
    hidden = _before_groups(queue, first, last, None)
    if hidden is not None:
        step.doubt(queue)
    for start, stop in runs:
        own = None if hidden is None else RunSet(hidden.overlap(start + shift, stop + shift)) or None
        added = Added(queue, start + shift, stop + shift, None, own, holes=holes, published_at=step.now)
        holes = NO_HOLES
        step.added.append(added)
        queue.hide(added)
        added.visible = durability <= Durability.ASYNC
    if durability <= Durability.ASYNC:
        show(state, step, queue, whole=True)
    return count


def _add_in_parts(step: Step, whole: Added, columns: ExtraColumns) -> Added:
    """The first of the parts of a batch with extras. They are shown in steps, and answered with the last one."""
    parts = _cut(whole, columns)
    step.added += parts
    for part in parts:
        whole.queue.hide(part)
    return parts[0]


def _cut(whole: Added, columns: ExtraColumns) -> list[Added]:
    """Messages with extras in parts, each of which is shown, or vanishes, at once."""
    first, last = whole.first, whole.last
    together = max(_SHOWN_LEAST, _SHOWN_TOGETHER // _weight(whole.queue, columns))
    parts: list[Added] = []
    for start in range(first, last + 1, together):
        stop = min(last, start + together - 1)
        hidden = None if whole.hidden is None else RunSet(whole.hidden.overlap(start, stop))
        some = columns.between(start - first, stop - first + 1)
        parts.append(Added(whole.queue, start, stop, some, hidden, published_at=whole.published_at))
    parts[0].redirected, parts[0].holes = whole.redirected, whole.holes
    return parts


def _remember_extras(queue: Queue, first: int, extras: ExtraColumns, now: int) -> None:
    levels = queue.levels
    if levels is not None:
        for priority, sequences in extras.by_priority(first).items():
            members = levels.get(priority)
            if members is None:
                members = levels[priority] = RunSet()
            members.add_all(runs_of(sequences))
    if extras.dedup_ids and queue.options.dedup_window_ms:
        ids, indexes = extras.dedup_ids, extras.indexes
        if b"" in ids:
            some = list(extras.with_dedup_ids())
            ids, indexes = [dedup_id for _, dedup_id in some], [index for index, _ in some]
        if ids:
            queue.remember(ids, moved(indexes, first), now)


def _before_groups(queue: Queue, first: int, last: int, redirected: RunSet | None) -> RunSet | None:
    """What nobody waits for is gone from the store with the publish itself; a later group must not expect it."""
    if queue.log is not None or (queue.starts_max <= first and queue.groups):
        return redirected
    starts = [group.start for group in queue.groups.values()]
    # Who was to begin far behind the end may have gone.
    queue.starts_max = max(starts, default=0)
    floor = min(starts, default=last + 1)
    if first >= floor:
        return redirected
    hidden = RunSet([(first, min(last, floor - 1))])
    for run in redirected.runs() if redirected is not None else ():
        hidden.add(*run)
    return hidden


def show(state: EngineState, step: Step, queue: Queue, *, whole: bool = False) -> None:
    """Let the groups see what has become visible, in order. Unless it is to be `whole`, what has extras only as far as
    that is the work of one step, and one part of it in any case, so that whoever calls this again and again comes to an
    end. The rest is shown by whoever calls this next, a tick that is due at once at the latest."""
    unseen = queue.unseen
    special = 0
    while unseen and unseen[0].visible:
        added = unseen.popleft()
        if not _is_plain(added):
            cost = _cost_of_showing(queue, added)
            if special and step.work + cost > STEP_UNITS and not whole:
                unseen.appendleft(added)
                state.unshown[queue] = None
                break
            _show_special(state, step, queue, added)
            step.work += cost
            special += 1
            continue
        # Plain publishes that follow each other are shown as one.
        last = added.last
        while unseen and unseen[0].visible and unseen[0].first == last + 1 and _is_plain(unseen[0]):
            last = unseen.popleft().last
        queue.unseen_count -= last - added.first + 1
        _enter_all(state, step, queue, added.first, last)
    else:
        if state.unshown:
            state.unshown.pop(queue, None)
    if not unseen:
        queue.unseen = NO_UNSEEN
    if queue.options.overflow is Overflow.DROP_OLDEST:
        trim_oldest(state, step, queue)
    if queue.log is not None:
        trim_log(state, step, queue)
    at = queue.next_expiry()
    if at < queue.armed_at:
        state.arm(queue, at)
    collect(queue)


def has_time_for(step: Step, queue: Queue) -> bool:
    """Whether what `show` does in any case is within the step."""
    unseen = queue.unseen
    cost = _cost_of_showing(queue, unseen[0]) if unseen and not _is_plain(unseen[0]) else 0
    return step.work + cost <= STEP_UNITS


def _is_plain(added: Added) -> bool:
    return not added.extras and added.hidden is None


def _cost_of_showing(queue: Queue, added: Added) -> int:
    extras = added.extras
    return 1 + len(extras) * _weight(queue, extras) // _EXTRAS_PER_UNIT if extras else 1


def _weight(queue: Queue, extras: ExtraColumns) -> int:
    """What all messages have in common costs the least. Delays and levels have an order of their own each, and ids that
    are remembered are forgotten one by one if the messages vanish."""
    several = (not isinstance(extras.expires_at, int)) + (not isinstance(extras.deliver_at, int))
    remembered = bool(extras.dedup_ids and queue.options.dedup_window_ms)
    return 1 + 2 * several + remembered + (4 if queue.levels is not None else 0)


def _show_special(state: EngineState, step: Step, queue: Queue, added: Added) -> None:
    first, last = added.first, added.last
    queue.unseen_count -= last - first + 1
    dues: Values | None = None
    if added.extras:
        expiring, expires_at = added.extras.expiries(first)
        if expiring:
            queue.expire(expiring, expires_at)
        delayed, due = added.extras.deliveries_after(added.published_at, first)
        if delayed:
            queue.delay(delayed, due)
            dues = due if len(delayed) == last - first + 1 else None
    runs = [(first, last)]
    if added.hidden is not None:
        step.doubt(queue)
        # They have counted while they were on their way.
        step.free(queue)
        shown = RunSet(runs)
        for run in added.hidden.runs():
            shown.remove(*run)
        runs, dues = shown.runs(), None
    for start, stop in runs:
        _enter_all(state, step, queue, start, stop, len(added.extras or ()), dues)


def _enter_all(
    state: EngineState,
    step: Step,
    queue: Queue,
    first: int,
    last: int,
    extras: int = 0,
    dues: Values | None = None,
) -> None:
    """`dues`: when all of them fall due, if it is known here."""
    if queue.log is not None:
        queue.log.add(first, last)
    if queue.starts_max > first:
        # Groups that do not get them have room for others.
        step.free(queue)
    if queue.tail is not None:
        queue.tail.show(first, last, -(-extras // _EXTRAS_PER_UNIT) if queue.delayed or queue.levels else 0)
        state.showing[queue] = None
        return
    for group in queue.groups.values():
        if last >= group.start:
            enter(state, step, queue, group, max(first, group.start), last, dues if first >= group.start else None)


def pick(rows: Rows, extras: Extras | None, indexes: list[int]) -> tuple[Rows, Extras | None]:
    """Some of the rows, in order, with their extras under their new index."""
    count = len(indexes)
    if count == rows.count:
        return rows, extras
    if count and indexes[-1] - indexes[0] + 1 == count:
        picked = rows.slice(indexes[0], indexes[-1] + 1)
    else:
        picked = Rows.of([rows[index] for index in indexes])
    if not extras:
        return picked, None
    return picked, columns_of(extras).picked(indexes)
