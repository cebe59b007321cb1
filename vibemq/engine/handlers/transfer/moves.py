"""Waiting messages of one queue enter another: out of the one and into the other in one batch.

So a message is in exactly one of the two whatever fails, and a move that was interrupted is resumed by moving on.
Only what a single reader waits for is moved. Messages that several groups or a log keep are in more than one place.
"""

from functools import partial

from vibemq.engine.handlers.append import add, pick
from vibemq.engine.handlers.dead_lettering import remove_from_group
from vibemq.engine.handlers.overflow import fitting, when_counted
from vibemq.engine.handlers.publish import check_delays, check_pressure
from vibemq.engine.handlers.queues import find, find_same
from vibemq.engine.pacing import Slices
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue, TakenOut
from vibemq.engine.queue.ready import NORMAL
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy
from vibemq.errors import InvalidOptions
from vibemq.model.commands import MoveMessages, Pressure
from vibemq.model.effects import Moved
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability
from vibemq.model.records import Dropped, Reason
from vibemq.model.runs import END, Run, RunSet, run_count, runs_of


def check_route(source: Queue, target: Queue) -> None:
    """Raises InvalidOptions: what a move promises could not be kept."""
    name = source.name
    copy = "copy the messages with `queue export` and `queue import` instead"
    if source is target:
        raise InvalidOptions(f"queue {name!r} is the source and the target; name another target")
    if source.options.is_fan_out:
        raise InvalidOptions(f"queue {name!r} is a fan-out: each of its groups has a place of its own in it; {copy}")
    if source.log is not None:
        raise InvalidOptions(f"queue {name!r} keeps a log, which its groups can read again; {copy}")
    if len(source.groups) > 1:
        other = next(group for group in source.groups if group != WAITING_NAME)
        raise InvalidOptions(f"queue {name!r} is also read by group {other!r}, which would miss messages; {copy}")
    if target.transient and not source.transient:
        raise InvalidOptions(
            f"queue {target.name!r} is transient and loses its messages when the broker restarts, unlike {name!r}; "
            "name a target that keeps them"
        )


def move_messages(state: EngineState, step: Step, command: MoveMessages) -> Slices | None:
    """Those that still wait, from the first one on as far as the target has room. It drops nothing for them."""
    return when_counted(step, state.queues.get(command.to), command.rows, partial(_move, state, command))


def _move(state: EngineState, command: MoveMessages, step: Step) -> None:
    source = find_same(state, command.queue, command.incarnation)
    # A target that was made anew takes messages as well as the one before: nothing of it was read.
    target = find(state, command.to)
    check_route(source, target)
    if state.pressure >= Pressure.BLOCKING:
        check_pressure(state, target, command.rows.count)
    step.work += command.rows.count
    group = source.groups[WAITING_NAME]
    extras: dict[int, MessageExtra] = {}
    alive: list[int] = []
    wanted = runs_of(command.sequences)
    there, levels = _waiting(group, wanted), source.levels_of(wanted)
    for index, sequence in enumerate(command.sequences):
        if sequence in there:
            level = command.priorities.get(index, NORMAL) if source.levels is None else levels.get(sequence, NORMAL)
            extra = extras[index] = _extra(source, group, command, index, level, step.now)
            if not (source.is_expired(sequence, step.now) or 0 < extra.expires_at <= step.now):
                # What has expired is about to leave its own queue, as its options say.
                alive.append(index)
    check_delays(target, any(extras[index].deliver_at > step.now for index in alive))
    chosen = alive[: fitting(target, command.rows, alive)]
    if chosen:
        special = {index: extras[index] for index in chosen if extras[index] != MessageExtra()}
        first = target.next_sequence
        add(state, step, target, *pick(command.rows, special or None, chosen))
        sequences = [command.sequences[index] for index in chosen]
        taken = _take_out(step, source, group, sequences)
        if source.requests:
            _take_requests_along(taken, target, sequences, first)
    kept = Durability.TRANSIENT if target.transient else Durability.STRONG
    step.answer(command, Moved(len(chosen), len(alive) - len(chosen)), kept if chosen else state.need_of_known)


def _waiting(group: Group, runs: list[Run]) -> set[int]:
    """Those of the runs, which are few messages, that wait."""
    return {
        sequence for run in runs for first, last in group.waiting_within(*run) for sequence in range(first, last + 1)
    }


def _extra(source: Queue, group: Group, command: MoveMessages, index: int, level: int, now: int) -> MessageExtra:
    """What the message takes along: its priority, and the instants of its own."""
    sequence = command.sequences[index]
    ttl = source.options.message_ttl_ms
    own = source.expires.get(sequence) or END
    expires_at = min(own, command.published_at[index] + ttl) if ttl else own
    due = group.delayed.due_at(sequence) or group.scheduled.due_at(sequence)
    return MessageExtra(level, expires_at if expires_at < END else 0, due if due > now else 0)


def _take_out(step: Step, source: Queue, group: Group, sequences: list[int]) -> TakenOut:
    runs = runs_of(sequences)
    due = {sequence: at for sequence in sequences if (at := group.delayed.due_at(sequence))}
    scheduled = {sequence: at for sequence in sequences if (at := group.scheduled.due_at(sequence))}
    for run in runs:
        group.take_waiting(*run)
    attempts = {s: group.attempts.pop(s) for s in sequences if s in group.attempts} if group.attempts else {}
    group.counters.moved += len(sequences)
    step.give_up(source, runs)
    step.note(Dropped(source.queue_id, runs, Reason.MOVED), heavy(source))
    taken = TakenOut(source, runs, due, scheduled, attempts, group.epoch)
    step.note_moved(taken)
    step.free(source)
    return taken


def _take_requests_along(taken: TakenOut, target: Queue, sequences: list[int], first: int) -> None:
    """Their messages have other sequences now, and their addresses with them: whoever reads one there can reply."""
    source = taken.queue
    for new, old in enumerate(sequences, first):
        waiting = source.requests.get(old)
        if waiting is not None:
            taken.requests.append((waiting, old))
            waiting.place(target.name, target.place_for_requests(), new)


def stay_away(moved: list[TakenOut]) -> None:
    """The batch that took these messages out is stored."""
    for taken in moved:
        taken.queue.leaving -= 1


def put_back(state: EngineState, step: Step, taken: TakenOut) -> None:
    """What was taken out in a batch that could not be stored is where it was, unless it has expired meanwhile."""
    queue = taken.queue
    queue.leaving -= 1
    if queue.deleted:
        return
    group = queue.groups[WAITING_NAME]
    back = RunSet(taken.runs)
    for run in queue.holes:
        # A message that the batches before had only just brought here has vanished.
        back.remove(*run)
    if group.epoch != taken.epoch:
        _as_if_sought(state, queue, group, taken, back)
    group.counters.moved -= run_count(taken.runs)
    group.counters.dropped += run_count(taken.runs) - back.count
    for sequence, history in taken.attempts.items():
        if sequence in back:
            group.remember(sequence, history)
    for sequence, due in taken.due.items():
        if sequence in back:
            back.remove(sequence, sequence)
            group.postpone(sequence, due)
            state.arm_part(queue, group, due)
    for sequence, due in taken.scheduled.items():
        if sequence in back:
            back.remove(sequence, sequence)
            queue.delay([sequence], due)
            group.schedule(sequence, queue.delayed)
            state.arm_part(queue, group, due)
    for first, last in back.runs():
        group.ready.add(first, last)
    # A group that was made meanwhile has never had them.
    queue.whole = None
    queue.regained()
    _let_overdue_go(state, step, queue, group, taken.runs)
    step.touch(queue, group)
    state.arm(queue, step.now)


def _as_if_sought(state: EngineState, queue: Queue, group: Group, taken: TakenOut, back: RunSet) -> None:
    """The group is where it would be if the messages had been there when it was sought."""
    back.remove(0, group.start - 1)
    taken.attempts.clear()
    taken.due.clear()
    state.brought_back.setdefault((queue.queue_id, group.group_id), RunSet()).add_all(back.runs())


def _let_overdue_go(state: EngineState, step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    """What has expired while it was away was not there when its turn came."""
    overdue = RunSet([(1, queue.swept)] if queue.swept else [])
    overdue.add_all(queue.expiries.overdue(step.now))
    gone = [part for run in runs for late in overdue.overlap(*run) for part in group.take_waiting(*late)]
    remove_from_group(state, step, queue, group, gone, Reason.EXPIRED)
