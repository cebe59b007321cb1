"""Dead letters that go back or go for good. The server reads them; the engine keeps their number.

The engine does not keep the ids of letters that were made before the start: of these the command must name the
`origins`, which the server has read from the store, so an id that the store does not have counts as gone. After a
restart a message that died in several groups counts once, since that is what the stored state tells; hence the floor
of 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from vibemq.engine import lifetime
from vibemq.engine.handlers.append import add, pick
from vibemq.engine.handlers.jobs.advancing import count_step, running_job
from vibemq.engine.handlers.overflow import fitting, when_counted
from vibemq.engine.handlers.publish import check_pressure
from vibemq.engine.handlers.queues import find
from vibemq.engine.pacing import Slices
from vibemq.engine.queue.queue import Added, Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import QueueExclusive
from vibemq.model.commands import Pressure, PurgeDead, ReplayDead
from vibemq.model.effects import Counted, Replayed
from vibemq.model.jobs.job import JobStep
from vibemq.model.options import Durability, Overflow
from vibemq.model.records import DeadRemoved
from vibemq.model.runs import RunSet


def replay_dead(state: EngineState, step: Step, command: ReplayDead) -> Slices | None:
    """Out of the DLQ and into the queue in one batch: the letters that are still there, as far as the queue has room.

    Only a queue that drops its oldest messages has to have room: it would drop them, or the letters, for the letters.
    Any other takes replayed messages beyond its limits.
    """
    queue = find(state, command.queue)
    if command.step is not None:
        running_job(state, command.step)
    bounded = queue if queue.options.overflow is Overflow.DROP_OLDEST else None
    return when_counted(step, bounded, command.rows, partial(_replay, state, command))


def _replay(state: EngineState, command: ReplayDead, step: Step) -> None:
    queue = find(state, command.queue)
    if state.pressure >= Pressure.BLOCKING:
        # A job tries again and again.
        counts = not command.dry_run and command.step is None
        check_pressure(state, queue, command.rows.count if counts else 0)
    step.work += len(command.dead_ids)
    known = {dead_id: index for index, dead_id in enumerate(command.dead_ids)}
    there = sorted(index for dead_id, index in known.items() if _is_there(state, dead_id, command.origins))
    skipped, passed = len(known) - len(there), 0
    if command.step is not None:
        there, found = [index for index in there if _may_take(state, command, command.dead_ids[index])], len(there)
        passed = found - len(there)
        may = _within_limit(state, command.step, there)
    else:
        _check_owners(state, command, [command.dead_ids[index] for index in there])
        may = there
    fits = len(may)
    if queue.options.overflow is Overflow.DROP_OLDEST:
        fits = fitting(queue, command.rows, may)
    if command.dry_run:
        step.answer(command, Replayed(fits, len(may) - fits), state.need_of_known)
        return
    added = _put_into(state, step, queue, command, may[:fits]) if fits else None
    need = _need_of_replay(queue)
    if command.step is not None:
        count_step(
            state,
            step,
            command,
            done=fits,
            skipped=skipped,
            passed=passed,
            left=len(there) - fits,
            too_large=_too_large(queue, command, may[fits:]),
            queue=queue,
            run=(added.first, added.first + fits - 1) if added is not None else None,
            need=need,
        )
    else:
        step.answer(command, Replayed(fits, len(may) - fits), need if fits else state.need_of_known)


def _too_large(queue: Queue, command: ReplayDead, left: Sequence[int]) -> int:
    """The first of the letters that are left, if it would not fit into the empty queue either; else 0."""
    most = queue.options.max_bytes if queue.options.overflow is Overflow.DROP_OLDEST else 0
    is_too_large = left and most and command.rows.row_lengths()[left[0]] > most
    return command.dead_ids[left[0]] if is_too_large else 0


def _put_into(state: EngineState, step: Step, queue: Queue, command: ReplayDead, indexes: list[int]) -> Added:
    dead_ids = [command.dead_ids[index] for index in indexes]
    origins = remove(state, dead_ids, command.origins)
    # First what is added, as in a move: a row that was written ahead is its record's first.
    added = add(state, step, queue, *pick(command.rows, command.extras, indexes))
    step.note(DeadRemoved(dead_ids, replayed=True), _need_of_replay(queue))
    added.replayed = dead_ids
    added.is_retried = command.step is not None
    added.origins = origins
    return added


def _need_of_replay(queue: Queue) -> Durability:
    return max(Durability.STRONG, queue.options.durability)


def purge_dead(state: EngineState, step: Step, command: PurgeDead) -> None:
    step.work += len(command.dead_ids)
    known = command.origins
    if command.step is not None:
        running_job(state, command.step)
    asked = list(dict.fromkeys(command.dead_ids))
    there = [dead_id for dead_id in asked if _is_there(state, dead_id, known)]
    skipped, passed = len(asked) - len(there), 0
    if command.step is not None:
        there, found = [dead_id for dead_id in there if _may_take(state, command, dead_id)], len(there)
        passed = found - len(there)
        dead_ids = _within_limit(state, command.step, there)
    else:
        _check_owners(state, command, there)
        dead_ids = there
    if dead_ids:
        step.note(DeadRemoved(dead_ids), Durability.STRONG)
        remove(state, dead_ids, known)
    if command.step is not None:
        left = len(there) - len(dead_ids)
        count_step(state, step, command, done=len(dead_ids), skipped=skipped, passed=passed, left=left)
        return
    step.answer_standing(command, Counted(len(dead_ids)), Durability.STRONG if dead_ids else state.need_of_known)


def _within_limit(state: EngineState, of: JobStep, there: list[int]) -> list[int]:
    """Of what there is, as many as the job may still do."""
    return there[: running_job(state, of).left]


def _may_take(state: EngineState, command: ReplayDead | PurgeDead, dead_id: int) -> bool:
    try:
        _check_owners(state, command, [dead_id])
    except QueueExclusive:
        return False
    return True


def _check_owners(state: EngineState, command: ReplayDead | PurgeDead, dead_ids: Sequence[int]) -> None:
    """Letters of an exclusive queue belong to its connection as well, as long as the queue is there.

    Raises:
        QueueExclusive: a letter died in a queue of another connection.
    """
    if not state.mortal:
        return
    queue_id: int | None = None
    for dead_id in dead_ids:
        queue_id = (command.origins or {}).get(dead_id) or _origin(state, dead_id, queue_id)
        queue = state.queues_by_id.get(queue_id) if queue_id is not None else None
        if queue is not None and queue not in state.doomed:
            lifetime.check_owner(queue, command)


def _is_there(state: EngineState, dead_id: int, origins: Mapping[int, int] | None) -> bool:
    if dead_id in state.dead_gone or not 0 < dead_id < state.next_dead_id:
        return False
    if dead_id >= state.first_new_dead_id:
        return True
    # Made before the start: only the store knows, and whoever read it there says so.
    return origins is not None and dead_id in origins


def remove(state: EngineState, dead_ids: Sequence[int], origins: Mapping[int, int] | None) -> dict[int, int]:
    """Count the letters out; return the queue of each, as far as it is known, for `put_back`."""
    found: dict[int, int] = {}
    queue_id: int | None = None
    for dead_id in dead_ids:
        state.dead_gone.add(dead_id, dead_id)
        state.dead_total -= 1
        queue_id = (origins or {}).get(dead_id) or _origin(state, dead_id, queue_id)
        if queue_id is not None:
            found[dead_id] = queue_id
            _forget_origin(state, queue_id, dead_id)
            _count(state, queue_id, -1)
    return found


def put_back(state: EngineState, dead_ids: Sequence[int], origins: Mapping[int, int] | None) -> None:
    """A replay that could not be stored did not happen. `origins`: what `remove` returned."""
    for dead_id in dead_ids:
        state.dead_gone.remove(dead_id, dead_id)
        state.dead_total += 1
        queue_id = (origins or {}).get(dead_id)
        if queue_id is not None:
            state.dead_origins.setdefault(queue_id, RunSet()).add(dead_id, dead_id)
            _count(state, queue_id, +1)


def _count(state: EngineState, queue_id: int, change: int) -> None:
    """Nobody asks how many are left of a queue that was deleted."""
    queue = state.queues_by_id.get(queue_id)
    if queue is not None:
        queue.dead = max(0, queue.dead + change)


def _origin(state: EngineState, dead_id: int, guess: int | None) -> int | None:
    """`guess`: letters that follow each other are mostly of one queue, and there may be many with letters."""
    if guess in state.dead_origins and dead_id in state.dead_origins[guess]:
        return guess
    return next((queue_id for queue_id, ids in state.dead_origins.items() if dead_id in ids), None)


def _forget_origin(state: EngineState, queue_id: int, dead_id: int) -> None:
    """Only letters that are there have an origin, so that a broker that makes and replays many keeps few."""
    ids = state.dead_origins.get(queue_id)
    if ids is not None:
        ids.remove(dead_id, dead_id)
        if not ids:
            del state.dead_origins[queue_id]
