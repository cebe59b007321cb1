"""Publish: screened for duplicates, admitted by the overflow policy, answered when its messages are safe.

append.py            sequences are allotted, groups see the messages
queue/dedup.py       what is a duplicate
overflow.py          what fits
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from vibemq.engine.handlers.append import add, pick, show
from vibemq.engine.handlers.dead_lettering import bury_unseen
from vibemq.engine.handlers.overflow import LOOKS_PER_UNIT, count_first, fitting, full, is_clear, waiting_in
from vibemq.engine.handlers.queues import check_may_make, find_or_create
from vibemq.engine.pacing import STEP_UNITS, Slices, is_crowded
from vibemq.engine.queue.dedup import Screened, screen
from vibemq.engine.queue.parts.backlog import Parked
from vibemq.engine.queue.parts.waiting_room import cost_of
from vibemq.engine.queue.queue import Added, Queue
from vibemq.engine.requests import asking
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, Wait
from vibemq.engine.waiting import Waiting
from vibemq.errors import Blocked, InvalidOptions, QueueFull, QueueNotFound, VibeMQError
from vibemq.model.commands import Pressure, Publish
from vibemq.model.effects import Published, Reply
from vibemq.model.extras.columns import columns_of
from vibemq.model.extras.message_extra import Extras
from vibemq.model.options import Durability, Overflow
from vibemq.model.rows import Rows
from vibemq.model.runs import RunSet


def publish(state: EngineState, step: Step, command: Publish, *, counted: bool = False) -> Slices | None:
    """`counted`: it is known how much waits in the group that has most."""
    queue = state.queues.get(command.queue)
    if state.pressure >= Pressure.BLOCKING:
        if queue is None and not (command.create or command.rows.count):
            raise QueueNotFound(command.queue)  # A question whether it is there, which has an answer at any time.
        check_pressure(state, queue, command.rows.count)
    if queue is None:
        if command.requester is not None:
            # What is refused leaves no queue behind.
            check_may_make(state, command.queue, create=command.create)
            asking.check_room(state.requests, command.session)
        queue = find_or_create(state, step, command.queue, create=command.create)
    if command.extras:
        command.extras = columns_of(command.extras).with_short_ids()
        check_delays(queue, command.extras.delayed_after(step.now))
        if queue in state.unshown:
            return _publish_behind(state, step, command, queue)
    if queue.tail is not None and is_crowded(queue) and not (counted or _may_go_on(queue, command)):
        return _publish_counted(state, step, command, queue)
    waiting = None
    if command.requester is not None:
        waiting = asking.begin(state.requests, step, command, command.requester)
    blocks = queue.options.overflow is Overflow.BLOCK_PUBLISHER
    # Behind others that wait it waits in any case, but for a question whether it might publish, which has no message.
    waits = queue.parked or (blocks and not _fits_whole(queue, command.rows, command.extras, step.now))
    if waits and command.rows.count:
        _park(state, step, queue, command, waiting)
        if counted and queue.is_overtaken():
            # Nobody was told of the room that was made before it waited.
            state.arm(queue, step.now)
    else:
        accept(state, step, queue, command.session, command.token, command.rows, command.extras, waiting)
    return None


def _publish_behind(state: EngineState, step: Step, command: Publish, queue: Queue) -> Slices:
    """What was published with extras before is shown first, so that nobody publishes faster than that."""
    while queue in state.unshown:
        show(state, step, queue)
        if queue in state.unshown:
            step = yield
    if (more := publish(state, step, command)) is not None:
        yield from more


def _may_go_on(queue: Queue, command: Publish) -> bool:
    """Whether it does not depend on very many groups how much of it fits."""
    return queue.options.overflow is Overflow.DROP_OLDEST or is_clear(queue, command.rows)


def _publish_counted(state: EngineState, step: Step, command: Publish, queue: Queue) -> Slices:
    step = yield from count_first(step, queue)
    try:
        more = publish(state, step, command, counted=not queue.deleted)
    finally:
        queue.forget_count()
    if more is not None:
        yield from more


def _is_short(state: EngineState, queue: Queue | None) -> bool:
    """Whether the broker has too little memory or disk for a message in the queue."""
    drops = queue is not None and queue.options.overflow is Overflow.DROP_OLDEST
    return state.pressure is Pressure.OVERFLOWING or (state.pressure is Pressure.BLOCKING and not drops)


def check_pressure(state: EngineState, queue: Queue | None, count: int) -> None:
    """Raises Blocked while the broker is short of memory or disk."""
    if _is_short(state, queue):
        if queue is not None:
            queue.refused += count
        raise _blocked(state)


def _blocked(state: EngineState) -> Blocked:
    why = state.pressure_why or "memory or disk is above its watermark"
    return Blocked(f"the broker refuses messages at present ({why}); publish again later")


def check_delays(queue: Queue, delayed: bool) -> None:
    """Raises InvalidOptions: a cursor reads by sequence, and would read a message before it is due."""
    if not delayed:
        return
    cursor = next((group for group in queue.groups.values() if group.cursor is not None), None)
    if cursor is not None:
        raise InvalidOptions(
            f"queue {queue.name!r} is read by the cursor {cursor.name!r}, which reads in the order of publishing and "
            "would read a delayed message before it is due; nothing was accepted. Publish it without a delay, or to a "
            "queue that no cursor reads"
        )


def accept(
    state: EngineState,
    step: Step,
    queue: Queue,
    session: int,
    token: Any,
    rows: Rows,
    extras: Extras | None,
    waiting: Waiting | None = None,
) -> None:
    """Take what is new and fits, by the queue's overflow policy, and answer."""
    screened = screen(queue.dedup, queue.options.dedup_window_ms, rows.count, extras, step.now)
    fresh = screened.fresh
    fits = len(fresh) if queue.options.overflow is Overflow.DROP_OLDEST else fitting(queue, rows, fresh)
    taken = fresh if queue.options.overflow is Overflow.REDIRECT_TO_DLQ else fresh[:fits]
    first = queue.next_sequence if taken else 0
    if waiting is not None:
        if taken:
            # Ahead of what may drop the message at once.
            waiting.place(queue.name, queue.place_for_requests(), first)
        else:
            state.requests.forget(waiting)
    added = _take(state, step, queue, rows, extras, taken, fits) if taken else None
    refused: dict[int, VibeMQError] | None = None
    if len(taken) < len(fresh):
        refused = dict.fromkeys(fresh[len(taken) :], full(queue))
        queue.refused += len(refused)
    result = Published(queue.name, first, rows.count, refused)
    if screened.known or screened.twins:
        result.duplicates = _duplicates(screened, taken, first, result)
    answer(state, step, queue, session, token, result, added)


def _take(
    state: EngineState,
    step: Step,
    queue: Queue,
    rows: Rows,
    extras: Extras | None,
    taken: Sequence[int],
    fits: int,
) -> Added:
    if len(taken) < rows.count:
        rows, extras = pick(rows, extras, list(taken))
    if fits >= len(taken):
        return add(state, step, queue, rows, extras)
    first = queue.next_sequence
    beyond = RunSet([(first + fits, first + len(taken) - 1)])
    added = add(state, step, queue, rows, extras, beyond)
    bury_unseen(state, step, queue, beyond.runs())
    return added


def _duplicates(screened: Screened, taken: Sequence[int], first: int, result: Published) -> dict[int, int]:
    """Sequences of known ids; a twin of a refused row is refused like it."""
    place = {index: first + offset for offset, index in enumerate(taken)}
    duplicates = dict(screened.known)
    for index, original in screened.twins.items():
        if original in place:
            duplicates[index] = place[original]
        else:
            assert result.refused is not None
            result.refused[index] = result.refused[original]
    return duplicates


def answer(
    state: EngineState, step: Step, queue: Queue, session: int, token: Any, result: Published, added: Added | None
) -> None:
    durability = queue.options.durability
    if token is None:
        if added is not None and durability is Durability.TRANSIENT:
            added.promised = not state.is_being_created(queue)
        return
    gated = added is not None and durability > Durability.ASYNC
    tickets: set[int] = set()
    if result.duplicates:
        if durability > Durability.ASYNC and state.is_being_strengthened(queue):
            # The originals were accepted under the weaker durability, and may be visible, or told of, before they are
            # flushed. What this outcome needs holds for all records before it, theirs and that of the change included.
            gated = True
        else:
            tickets = _open_originals(state, step, queue, result.duplicates)
    if tickets - {state.next_ticket}:
        # The next ticket is that of this very outcome.
        wait = Wait(session, token, result, tickets | ({state.next_ticket} if gated else set()))
        step.waits.append(wait)
    elif gated or tickets:
        step.durability = max(step.durability, durability)
        step.gated.append(Reply(session, token, result, step.answering))
    else:
        # A known duplicate may still be on its way, like a message that is new.
        waits = bool(result.duplicates) and durability <= Durability.ASYNC
        if added is not None and not waits:
            waits = durability is Durability.ASYNC or state.is_being_created(queue)
            added.promised = not waits
        step.tell(Reply(session, token, result, step.answering), Durability.ASYNC if waits else Durability.TRANSIENT)


def _open_originals(state: EngineState, step: Step, queue: Queue, duplicates: dict[int, int]) -> set[int]:
    """The outcomes that carry the originals, as far as these are not safe yet."""
    tickets: set[int] = set()
    # What is in front of all that is unseen is visible: usually none of the originals is left to look for.
    unseen_from = queue.unseen[0].first if queue.unseen else queue.next_sequence
    wanted = sorted(sequence for sequence in duplicates.values() if sequence >= unseen_from)
    if not wanted:
        return tickets
    carried = [(ticket, outcome.added) for ticket, outcome in state.open.items()]
    for ticket, all_added in [*carried, (state.next_ticket, step.added)]:
        for added in all_added:
            if added.queue is queue and not added.visible and _has_one_of(added, wanted):
                tickets.add(ticket)
                break
    return tickets


def _has_one_of(added: Added, wanted: list[int]) -> bool:
    """`wanted`: sequences in order."""
    place = bisect_left(wanted, added.first)
    return place < len(wanted) and wanted[place] <= added.last


# -- BlockPublisher -----------------------------------------------------------------------------------------------


def _may_go_now(queue: Queue, waiting: Parked, now: int) -> bool:
    """The queue may have been changed since, and block nobody any more."""
    if queue.options.overflow is not Overflow.BLOCK_PUBLISHER:
        return True
    return _fits_whole(queue, waiting.rows, waiting.extras, now)


def _fits_whole(queue: Queue, rows: Rows, extras: Extras | None, now: int) -> bool:
    """Or waiting cannot help."""
    fresh = screen(queue.dedup, queue.options.dedup_window_ms, rows.count, extras, now).fresh
    # A batch above the limits never fits: it is taken as far as it goes once nothing else waits.
    return fitting(queue, rows, fresh) == len(fresh) or not (queue.surely_full() or waiting_in(queue))


def _park(state: EngineState, step: Step, queue: Queue, command: Publish, waiting: Waiting | None) -> None:
    deadline = step.now + state.settings.block_timeout_ms
    cost = cost_of(command.rows, command.extras)
    parked = Parked(command.session, command.token, command.rows, command.extras, deadline, waiting, cost)
    if not state.waiting_room.enter(parked, state.settings.block_bytes_max):
        parked.forget_waiting()
        queue.refused += command.rows.count
        # Which limit is met would be looked for in all groups.
        error = QueueFull(queue.name, "and so is the memory for publishers that wait")
        step.answer(parked, state.refusal(error, command.rows.count, queue.name))
        return
    queue.park(parked)
    state.parking[queue] = None
    state.arm(queue, deadline)


def unpark(state: EngineState, step: Step, queue: Queue) -> None:
    """Let parked publishers go on, in order, as far as there is room; refuse those that waited too long. Those that one
    step has no time for have their turn at the next tick, at once."""
    if queue in state.doomed:
        # What it takes now would be deleted with it; they are told that it is gone.
        return
    try:
        _let_go_on(state, step, queue)
    finally:
        queue.forget_count()


def _let_go_on(state: EngineState, step: Step, queue: Queue) -> None:
    parked = queue.parked
    counted = False
    while parked:
        if step.work >= STEP_UNITS:
            state.arm(queue, step.now)
            return
        publish = parked[0]
        if not (counted or is_clear(queue, publish.rows)):
            if not _count(state, step, queue):
                return
            counted = True
        step.work += 1
        waiting = publish.waiting
        if waiting is not None and not waiting.waits:
            # Its requester knows that its time has passed, or has given up.
            state.waiting_room.leave(parked.popleft())
            queue.refused += publish.rows.count
            step.answer(publish, asking.overdue(waiting))
        elif publish.deadline <= step.now:
            state.waiting_room.leave(parked.popleft())
            publish.forget_waiting()
            queue.refused += publish.rows.count
            error = _blocked(state) if _is_short(state, queue) else full(queue, state.settings.block_timeout_ms)
            step.answer(publish, state.refusal(error, publish.rows.count, queue.name))
        elif not _is_short(state, queue) and _may_go_now(queue, publish, step.now):
            state.waiting_room.leave(parked.popleft())
            accept(state, step, queue, publish.session, publish.token, publish.rows, publish.extras, waiting)
        elif queue.is_overtaken():
            # The room that was made during the count is not told of again.
            if not _count(state, step, queue):
                return
        else:
            break
    queue.count = None
    if parked:
        state.arm(queue, parked[0].deadline)
    else:
        state.parking.pop(queue, None)


def _count(state: EngineState, step: Step, queue: Queue) -> bool:
    """Of very many groups, which has most: a part of them at a time. Whether it is known."""
    if queue.count is None:
        queue.count = queue.begin_count()
    known = queue.go_on_counting(queue.count, LOOKS_PER_UNIT * max(1, STEP_UNITS - step.work))
    if known:
        queue.count = None
        step.work += 1
    else:
        step.work = max(step.work, STEP_UNITS)
        state.arm(queue, step.now)
    return known


def forget_parked(state: EngineState, session: int) -> None:
    """The publisher is gone: what it still waited to publish was never accepted."""
    for queue in list(state.parking):
        _take_parked(state, queue, session)


def refuse_parked(state: EngineState, step: Step, session: int, check: Callable[[str], VibeMQError | None]) -> Slices:
    """The publisher may have lost rights: what waits for room in queues for which there is an error is refused."""
    for queue in list(state.parking):
        if step.work >= STEP_UNITS:
            step = yield
        step.work += 1
        waits = queue in state.parking and any(p.session == session for p in queue.parked)
        error = check(queue.name) if waits and state.queues.get(queue.name) is queue else None
        if error is None:
            continue
        for publish in _take_parked(state, queue, session):
            if step.work >= STEP_UNITS:
                step = yield
            step.work += 1
            publish.forget_waiting()
            queue.refused += publish.rows.count
            step.answer(publish, state.refusal(error, publish.rows.count, queue.name))


def _take_parked(state: EngineState, queue: Queue, session: int) -> list[Parked]:
    """Those of the session."""
    first = queue.parked[0]
    taken = [p for p in queue.parked if p.session == session]
    kept = [p for p in queue.parked if p.session != session]
    for publish in taken:
        state.waiting_room.leave(publish)
    queue.parked.clear()
    queue.parked.extend(kept)
    if not kept:
        queue.count = None
        del state.parking[queue]
    elif kept[0] is not first:
        # It may fit where the one before it did not.
        state.arm(queue, state.now)
    return taken
