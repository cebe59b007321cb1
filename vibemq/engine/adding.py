"""New messages: from a Publish to rows that may be handed out.

screen      duplicates are sorted out            (dedup.py)
admit       the overflow policy decides           (overflow.py)
add         sequences are allotted, facts noted
show        once the queue's durability holds, groups see them
"""

from vibemq.engine.fanout import enter
from vibemq.engine.overflow import trim_oldest
from vibemq.engine.queue import Added, Queue
from vibemq.engine.retention import trim_log
from vibemq.engine.sizes import span_for
from vibemq.engine.state import State
from vibemq.engine.turn import Turn
from vibemq.model.options import Durability, Overflow
from vibemq.model.records import Dropped, MessageExtra, MessagesAdded, Reason
from vibemq.model.rows import Rows
from vibemq.model.runs import RunSet

Extras = dict[int, MessageExtra]


def add(
    state: State,
    turn: Turn,
    queue: Queue,
    rows: Rows,
    extras: Extras | None,
    redirected: RunSet | None = None,
) -> Added:
    """Allot sequences to rows that were admitted. Transient and async ones are visible at once."""
    first = queue.next_sequence
    last = first + rows.count - 1
    queue.next_sequence = last + 1
    queue.published += rows.count
    queue.sizes.add(first, last, rows.size, turn.now, span_for(queue.options.message_ttl_ms))
    durability = queue.options.durability
    turn.note(MessagesAdded(queue.queue_id, first, turn.now, rows, extras), durability)
    if queue.holes:
        # After the rows: the gap must not move a group's head beyond the store's next sequence.
        turn.note(Dropped(queue.queue_id, queue.holes, Reason.OVERFLOW), durability)
    if extras:
        _remember_extras(queue, first, extras, turn.now)
    added = Added(queue, first, last, extras, redirected, holes=queue.holes)
    queue.holes = []
    turn.added.append(added)
    queue.unseen.append(added)
    queue.unseen_count += rows.count
    if durability <= Durability.ASYNC:
        added.visible = True
        show(state, turn, queue)
    return added


def _remember_extras(queue: Queue, first: int, extras: Extras, now: int) -> None:
    levels, window = queue.levels, queue.options.dedup_window_ms
    for index, extra in extras.items():
        sequence = first + index
        if levels is not None and extra.priority != 1:
            members = levels.get(extra.priority)
            if members is None:
                members = levels[extra.priority] = RunSet()
            members.add(sequence, sequence)
        if extra.dedup_id and window:
            queue.dedup[extra.dedup_id] = (sequence, now)
            queue.dedup_order.append((now, extra.dedup_id))


def show(state: State, turn: Turn, queue: Queue) -> None:
    """Let the groups see what has become visible, in order."""
    unseen = queue.unseen
    while unseen and unseen[0].visible:
        _show_one(state, turn, queue, unseen.popleft())
    if queue.options.overflow is Overflow.DROP_OLDEST:
        trim_oldest(turn, queue)
    if queue.log is not None:
        trim_log(state, turn, queue)
    at = queue.next_expiry()
    if at < queue.armed_at:
        state.arm(queue, at)
    queue.collect()


def _show_one(state: State, turn: Turn, queue: Queue, added: Added) -> None:
    first, last = added.first, added.last
    queue.unseen_count -= last - first + 1
    if added.extras:
        for index, extra in added.extras.items():
            if extra.expires_at:
                queue.set_expiry(first + index, extra.expires_at)
            if extra.deliver_at > turn.now:
                queue.delayed[first + index] = extra.deliver_at
    runs = [(first, last)]
    if added.redirected is not None:
        shown = RunSet(runs)
        for run in added.redirected.runs():
            shown.remove(*run)
        runs = shown.runs()
    for start, stop in runs:
        if queue.log is not None:
            queue.log.add(start, stop)
        for group in queue.groups.values():
            if stop >= group.start:
                enter(state, turn, queue, group, max(start, group.start), stop)


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
    return picked, {new: extras[old] for new, old in enumerate(indexes) if old in extras} or None
