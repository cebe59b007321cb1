"""Dead letters that go back or go for good. The server reads them; the engine keeps their number.

The engine does not keep the ids of letters that were made before the start: of these the command must name the
`origins`, which the server has read from the store, so an id that the store does not have counts as gone. After a
restart a message that died in several groups counts once, since that is what the stored state tells; hence the floor
of 0.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from vibemq.engine.handlers.append import add, pick
from vibemq.engine.handlers.publish import check_pressure
from vibemq.engine.handlers.queues import find
from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import MessageNotFound, QueueNotFound
from vibemq.model.commands import Pressure, PurgeDead, ReplayDead
from vibemq.model.effects import Counted
from vibemq.model.options import Durability
from vibemq.model.records import DeadRemoved
from vibemq.model.runs import RunSet

_LOOKUPS = 1_000
"""Letters that are looked for in one step."""


def replay_dead(state: EngineState, step: Step, command: ReplayDead) -> Slices:
    """Out of the DLQ and into the queue, limits of the queue aside: each letter with its message in one batch."""
    queue = find(state, command.queue)
    if state.pressure >= Pressure.BLOCKING:
        check_pressure(state, queue, command.rows.count)
    return _replay(state, step, queue, command)


def _replay(state: EngineState, step: Step, queue: Queue, command: ReplayDead) -> Slices:
    dead_ids, rows = command.dead_ids, command.rows
    missing: list[int] = []
    for index, dead_id in enumerate(dead_ids):
        if not _is_there(state, dead_id, command.origins):
            missing.append(dead_id)
        if index % _LOOKUPS == _LOOKUPS - 1:
            step.work += STEP_UNITS
            step = yield
    if missing or len(set(dead_ids)) < len(dead_ids):
        raise MessageNotFound(f"dead letters {missing or dead_ids} are not in the DLQ any more; list it again")
    need = max(Durability.STRONG, queue.options.durability)
    count = 0
    for low in range(0, len(dead_ids), STEP_UNITS):
        if queue.deleted:
            raise QueueNotFound(queue.name)
        # Some may have been purged meanwhile.
        chosen = [
            index
            for index in range(low, min(low + STEP_UNITS, len(dead_ids)))
            if _is_there(state, dead_ids[index], command.origins)
        ]
        ids = [dead_ids[index] for index in chosen]
        step.note(DeadRemoved(ids, replayed=True), need)
        origins = remove(state, ids, command.origins)
        if rows.count and chosen:
            added = add(state, step, queue, *pick(rows, command.extras, chosen))
            added.replayed = ids
            added.origins = origins
        count += len(chosen)
        step.work += len(chosen)
        if step.work >= STEP_UNITS:
            step = yield
    step.answer(command, Counted(count), need)


def purge_dead(state: EngineState, step: Step, command: PurgeDead) -> Slices:
    known, count = command.origins, 0
    wanted = iter(command.dead_ids)
    while some := list(islice(wanted, STEP_UNITS)):
        dead_ids = [dead_id for dead_id in dict.fromkeys(some) if _is_there(state, dead_id, known)]
        if dead_ids:
            step.note(DeadRemoved(dead_ids), Durability.STRONG)
            remove(state, dead_ids, known)
            count += len(dead_ids)
        step.work += len(some)
        if step.work >= STEP_UNITS:
            step = yield
    step.answer(command, Counted(count), Durability.STRONG if count else state.need_of_known)


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
    queue = state.queues_by_id.get(queue_id)
    if queue is not None:
        queue.dead = max(0, queue.dead + change)
    elif queue_id in state.graves or change > 0:
        state.graves[queue_id] = max(0, state.graves.get(queue_id, 0) + change)
        if not state.graves[queue_id]:
            del state.graves[queue_id]


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
