"""Queues come, change and go; what waits in them can be purged or picked out."""

from collections import deque
from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import Any

from vibemq.engine import lifetime
from vibemq.engine.handlers import expiry
from vibemq.engine.handlers.crowds.dropping import drop_from_groups
from vibemq.engine.handlers.dead_lettering import (
    cut_step,
    drop_waiting,
    held_among,
    visible_runs,
    waiting_among,
)
from vibemq.engine.handlers.fan_out import (
    check_filter,
    check_group_name,
    durable_need,
    group_for,
    open_waiting_group,
    set_filter,
)
from vibemq.engine.pacing import STEP_UNITS, Slices, is_crowded, pieces
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.parts.backlog import Parked
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.timing.alarms import PartAlarms
from vibemq.engine.requests import asking
from vibemq.engine.requests.failing import fail_some
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy, light
from vibemq.engine.views import counters_of, depth_steps
from vibemq.errors import InvalidOptions, PreconditionFailed, QueueExists, QueueNotFound, VibeMQError, WrongIncarnation
from vibemq.model.commands import (
    ChangeQueue,
    CreateQueue,
    DeleteQueue,
    GiveUp,
    PurgeQueue,
    RemoveListed,
    RemoveMessages,
    StartAt,
)
from vibemq.model.effects import ConsumerEnded, ConsumerLeft, Counted, Removed, Tried, TriedCount
from vibemq.model.options import (
    DeliveryMode,
    Durability,
    QueueOptions,
    check_new_queue_name,
    check_queue_name,
    option_text,
    options_from_dict,
    options_tag,
    options_to_dict,
)
from vibemq.model.records import QueueChanged, QueueCreated, QueueDeleted, Reason, TransactionsForgotten
from vibemq.model.runs import Run, RunSet, runs_of
from vibemq.model.steps import at_once

_FORGOTTEN_TOGETHER = 16

QUEUE_IDS_END = 2**32 - 8
"""Stores have 32 bits for the number of a queue. One step makes less than eight queues."""
_FIXED = ("mode", "retention", "exclusive")
"""Options that decide how a queue is kept; another value means another queue."""
_LEFT_PER_UNIT = 16
"""Groups that are looked at for the cost of one run."""
_CAUGHT_UP_PER_UNIT = 4
"""Groups that take in what was published for the cost of one run."""
_LOOKED_AT_FOR_ONE = 64
"""Groups out of which the message of one request is taken; with more of them it costs less to let it expire."""


def find(state: EngineState, name: str) -> Queue:
    queue = state.queues.get(name)
    if queue is None:
        raise QueueNotFound(name)
    return queue


def find_same(state: EngineState, name: str, incarnation: str | None) -> Queue:
    """The queue, if it is the one that is meant."""
    queue = find(state, name)
    if incarnation is not None and incarnation != queue.incarnation:
        raise WrongIncarnation(
            f"queue {name!r} was deleted and created again, or restored from a backup: sequences of the old queue are "
            "not valid in the new one; start over (with Spark: another checkpoint)"
        )
    return queue


def find_or_create(state: EngineState, step: Step, name: str, *, create: bool) -> Queue:
    queue = state.queues.get(name)
    if queue is not None:
        return queue
    check_may_make(state, name, create=create)
    queue = make_queue(state, step, name, _defaults(state), state.queues)
    lifetime.begin(state, queue, step.now)
    return queue


def check_may_make(state: EngineState, name: str, *, create: bool) -> None:
    """Whether `find_or_create` would make the missing queue. Raises QueueNotFound, InvalidQueueName, InvalidOptions."""
    if not (create and state.settings.auto_create):
        raise QueueNotFound(name)
    check_queue_name(name)
    check_queue_ids(state)


def create_queue(state: EngineState, step: Step, command: CreateQueue) -> None:
    existing = state.queues.get(command.queue)
    if existing is not None:
        if command.must_match:
            _check_match(existing, command.options or _defaults(state))
        if command.mode is not None:
            check_mode(existing, command.mode)
        _check_groups(command)
        for group, where in command.filters.items():
            if where is not None:
                check_filter(existing, existing.groups.get(group))
        if not command.dry_run and _add_groups(state, step, existing, command):
            step.answer_standing(command, None, durable_need(existing))
        else:
            step.answer_standing(command, _of_nothing(command), state.need_of_known, unchanged=True)
        return
    name = command.queue
    options = command.options or _defaults(state)
    check_new_queue(state, name, options)
    _check_groups(command)
    if not options.is_fan_out and any(where is not None for where in command.filters.values()):
        raise InvalidOptions(f"queue {name!r} is to be a work queue, and only groups of fan-out queues have filters")
    if options.exclusive and not command.session:
        raise InvalidOptions(
            f"queue {name!r} cannot be exclusive: an exclusive queue belongs to the connection that creates it, and "
            "this request comes from the broker itself; create it through a client, or leave exclusive out"
        )
    if command.dry_run:
        step.answer(command, Tried())
        return
    queue = make_queue(state, step, name, options, state.queues)
    lifetime.begin(state, queue, step.now)
    if options.exclusive:
        lifetime.own(state, queue, command.session)
    _add_groups(state, step, queue, command)
    step.answer_standing(command, None, Durability.STRONG)


def _of_nothing(command: CreateQueue | DeleteQueue) -> Tried | None:
    """The answer where there is nothing to do."""
    return Tried() if command.dry_run else None


def check_new_queue(state: EngineState, name: str, options: QueueOptions) -> None:
    """Whether there may be such a queue on this broker. Raises InvalidQueueName, InvalidOptions."""
    check_new_queue_name(name)
    options.check_together()
    _check_durability(state, options)
    check_queue_ids(state)


def check_queue_ids(state: EngineState) -> None:
    """Whether another step may make queues. Raises InvalidOptions."""
    if state.next_queue_id >= QUEUE_IDS_END:
        raise InvalidOptions(
            f"this store has given {state.next_queue_id - 1:,} queues and stages their numbers, and has no more; the "
            "queues that are there go on, new ones need another data directory"
        )


def _check_groups(command: CreateQueue) -> None:
    for group in command.groups:
        check_group_name(group)
    for group in command.filters:
        if group not in command.groups:
            raise InvalidOptions(f"there is a filter for group {group[:64]!r}, which is not among the groups to create")


def _add_groups(state: EngineState, step: Step, queue: Queue, command: CreateQueue) -> bool:
    """Whether anything had to be changed."""
    missing = [name for name in command.groups if name not in queue.groups]
    for name in missing:
        group_for(state, step, queue, name, StartAt.BEGINNING, 0)
    changed = [set_filter(step, queue, queue.groups[name], where) for name, where in command.filters.items()]
    return bool(missing) or any(changed)


def _defaults(state: EngineState) -> QueueOptions:
    defaults = state.settings.queue_defaults
    if state.settings.transient_only and defaults.durability is not Durability.TRANSIENT:
        return defaults.with_changes(durability=Durability.TRANSIENT)
    return defaults


def _check_durability(state: EngineState, options: QueueOptions) -> None:
    if state.settings.transient_only and options.durability is not Durability.TRANSIENT:
        raise InvalidOptions(
            f"durability {options.durability.name.lower()} is not possible: this broker's storage keeps nothing over "
            "a restart; create the queue as transient, or configure a durable storage provider"
        )


def _check_match(queue: Queue, options: QueueOptions) -> None:
    has, wanted = options_to_dict(queue.options), options_to_dict(options)
    names = [name for name in has if has[name] != wanted[name]]
    if names:
        different = [
            f"{name} is {option_text(name, has[name])}, not {option_text(name, wanted[name])}" for name in names
        ]
        remedy = (
            "change them with `vibemq-admin queue change` (over HTTP: PATCH)"
            if _bar_to_change(queue, options) is None
            else "delete the queue and create it again"
        )
        raise QueueExists(queue.name, "; ".join([*different, f"{remedy}, or use another name"]))


def _bar_to_change(queue: Queue, options: QueueOptions) -> str | None:
    """Why only another queue can have these options; None: this one can be changed to have them."""
    for name in _FIXED:
        if getattr(options, name) != getattr(queue.options, name):
            return f"{name} of queue {queue.name!r} cannot be changed"
    if (options.durability is Durability.TRANSIENT) != queue.transient:
        return f"queue {queue.name!r} cannot change from or to transient"
    return None


def check_mode(queue: Queue, mode: DeliveryMode) -> None:
    """Whether those who read by this mode read the queue as it is. Raises QueueExists."""
    has, wanted = queue.options, QueueOptions(mode=mode)
    if (has.is_fan_out, has.consumers_settle) != (wanted.is_fan_out, wanted.consumers_settle):
        modes = option_text("mode", int(has.mode)), option_text("mode", int(mode))
        raise QueueExists(queue.name, f"mode is {modes[0]}, not {modes[1]}")


def make_queue(state: EngineState, step: Step, name: str, options: QueueOptions, registry: dict[str, Queue]) -> Queue:
    """`registry`: the state's queues or its stages."""
    queue = Queue(state.next_queue_id, name, options, step.now, state.new_id())
    state.next_queue_id += 1
    state.register(queue, registry)
    if queue.transient:
        _forget_created(state)
        state.being_created[queue.queue_id] = state.next_ticket
    step.note_structure(QueueCreated(queue.queue_id, name, options, step.now, queue.incarnation))
    open_waiting_group(step, queue, Durability.STRONG)
    return queue


def _forget_created(state: EngineState) -> None:
    """Some of the oldest whose outcomes are stored: those that nobody publishes to are asked for by nobody else."""
    for queue_id in list(islice(state.being_created, _FORGOTTEN_TOGETHER)):
        if state.is_being_created(state.queues_by_id[queue_id]):
            return


def change_queue(state: EngineState, step: Step, command: ChangeQueue) -> None:
    queue = find(state, command.queue)
    _check_tag(queue, command.if_tag, command.changes)
    options = options_from_dict(command.changes, queue.options)
    if (why := _bar_to_change(queue, options)) is not None:
        raise InvalidOptions(f"{why}; delete the queue and create it again")
    options.check_together()
    if command.dry_run:
        step.answer(command, Tried())
        return
    if queue.options.hold_behind_failed and not options.hold_behind_failed:
        for group in queue.groups.values():
            if group.held_up:
                group.held_up.clear()
                step.touch(queue, group)
    lives_as_before = options.message_ttl_ms == queue.options.message_ttl_ms
    if options.durability > queue.options.durability:
        state.being_strengthened[queue.queue_id] = state.next_ticket
    queue.options = options
    if not lives_as_before:
        expiry.judge_anew(queue, step.now)
    queue.attended = queue.attended and options.auto_delete
    lifetime.begin(state, queue, step.now)
    step.note_structure(QueueChanged(queue.queue_id, options))
    if queue.attendant_count:
        lifetime.attend(step, queue)
    step.free(queue)
    state.arm(queue, step.now)
    step.answer_standing(command, None, Durability.STRONG)


def _check_tag(queue: Queue, seen: str | None, changes: dict[str, Any]) -> None:
    """Where the queue is changed or deleted: nothing comes in between.

    Raises:
        PreconditionFailed: whoever asks has seen other options. Says what they are now, of those to be changed.
    """
    if seen is None or seen == (tag := options_tag(queue.incarnation, queue.options)):
        return
    current = options_to_dict(queue.options)
    difference = {
        name: {"current": current[name], "wanted": wanted} for name, wanted in changes.items() if name in current
    }
    raise PreconditionFailed(
        f"queue {queue.name!r} has other options, or was made anew, since it was read; nothing was done. Look at it "
        "again, and repeat the request if it is still what you want",
        {"tag": tag, **({"difference": difference} if changes else {})},
    )


def delete_queue(state: EngineState, step: Step, command: DeleteQueue) -> Slices | None:
    queue = state.queues.get(command.queue)
    if queue is None:
        step.answer_standing(command, _of_nothing(command), state.need_of_known, unchanged=True)
        return None
    if command.at_most is not None:
        return _delete_at_most(state, step, queue, command, command.at_most)
    return _delete(state, step, queue, command)


def _delete_at_most(state: EngineState, step: Step, queue: Queue, command: DeleteQueue, at_most: int) -> Slices:
    step = yield from _check_most(step, queue, at_most, held=True)
    if queue.deleted:
        step.answer_standing(command, _of_nothing(command), state.need_of_known, unchanged=True)
    elif (slices := _delete(state, step, queue, command)) is not None:
        yield from slices


def _delete(state: EngineState, step: Step, queue: Queue, command: DeleteQueue) -> Slices | None:
    _check_tag(queue, command.if_tag, {})
    if command.dry_run:
        step.answer(command, Tried())
        return None
    parked = queue.take_parked()
    remove(state, step, queue, state.queues)
    return _deleted(state, step, queue, parked, command)


def _check_most(step: Step, queue: Queue, at_most: int, *, held: bool) -> Generator[None, Step, Step]:
    """Whether no more messages are there, as a queue's description counts them: what is ready and what is delayed, each
    in the group that has most; with `held` also what consumers have. Returns the last slice's step, in which the caller
    decides: nothing comes between. The queue may have been deleted by then.

    Raises:
        PreconditionFailed: there are more.
    """
    if is_crowded(queue):
        step = yield from _catch_up(step, queue)
    if queue.deleted:
        return step
    depth = at_once(depth_steps(queue))
    count = depth.ready + depth.delayed + (depth.in_flight if held else 0)
    if count > at_most:
        where = "ready, delayed or with consumers" if held else "ready or delayed"
        raise PreconditionFailed(
            f"queue {queue.name!r} has {count:,} messages that are {where}, and at_most is {at_most:,}; nothing was "
            "done. Look at the queue again",
            {"count": count},
        )
    return step


def _catch_up(step: Step, queue: Queue) -> Generator[None, Step, Step]:
    """Of very many groups: take in what was published since they were looked at, which costs more than to count."""
    for number, group in enumerate(list(queue.groups.values()), 1):
        group.ready_count  # noqa: B018
        step.work += not number % _CAUGHT_UP_PER_UNIT
        if step.work >= STEP_UNITS:
            step = yield
    return step


def remove(state: EngineState, step: Step, queue: Queue, registry: dict[str, Queue]) -> None:
    """The queue and all that waits in it are gone; its dead letters stay. Its consumers are the caller's to end."""
    queue.deleted = True
    state.unregister(queue, registry)
    if registry is state.queues:
        # Of a stage nobody is told: what it has held is counted where it was moved to.
        state.retired.update(counters_of(queue))
    state.parking.pop(queue, None)
    state.doomed.pop(queue, None)
    state.mortal.pop(queue.name, None)
    if queue.owner and queue.owner in state.sessions:
        state.sessions[queue.owner].own_queues.pop(queue, None)
    state.showing.pop(queue, None)
    state.unshown.pop(queue, None)
    step.freed.pop(queue, None)
    queue.unseen.clear()
    # These refer to consumers and groups, which refer to the queue.
    queue.alarms = PartAlarms()
    queue.log_trim = None
    if queue.tail is not None:
        queue.tail.end()
    step.note_structure(QueueDeleted(queue.queue_id))


def _deleted(state: EngineState, step: Step, queue: Queue, parked: deque[Parked], command: DeleteQueue) -> Slices:
    step = yield from end_everybody(state, step, queue, parked)
    step.answer_standing(command, None, Durability.STRONG)


def end_everybody(state: EngineState, step: Step, queue: Queue, parked: deque[Parked]) -> Generator[None, Step, Step]:
    """Of a deleted queue: tell everybody who waits for something of it, and forget what was imported into it."""
    error = QueueNotFound(queue.name)
    for number, group in enumerate(list(queue.groups.values()), 1):
        step.dirty.pop(group, None)
        step.work += not number % _LEFT_PER_UNIT
        if step.work >= STEP_UNITS:
            step = yield
        for consumer in list(group.consumers):
            end_consumer(step, queue, consumer, error)
            step.work += 1
            if step.work >= STEP_UNITS:
                step = yield
    while queue.requests:
        fail_some(queue)
        step.work += 1
        if step.work >= STEP_UNITS:
            step = yield
    while parked:
        publish = parked.popleft()
        state.waiting_room.leave(publish)
        publish.forget_waiting()
        step.answer(publish, error)
        step.work += 1
        if step.work >= STEP_UNITS:
            step = yield
    imports = [app for user in state.imports.get(queue.queue_id, {}).values() for app in user]
    for at in range(0, len(imports), STEP_UNITS):
        step = yield from _forget_imports(state, step, imports[at : at + STEP_UNITS])
    return step


def _forget_imports(state: EngineState, step: Step, some: list[str]) -> Generator[None, Step, Step]:
    """Whatever a crash leaves of them is forgotten at the start."""
    known = [app for app in some if app in state.transactions]
    for app in known:
        state.drop_transaction(app)
    if known:
        step.note(TransactionsForgotten(known), Durability.ASYNC)
    step.work += len(some)
    if step.work >= STEP_UNITS:
        step = yield
    return step


def end_consumers(
    step: Step, queue: Queue, group_name: str, error: VibeMQError, *, but_session: int | None = None
) -> None:
    """End a group's subscriptions; what they hold is forgotten here and stays counted in the group's `in_flight` (the
    caller says what becomes of it)."""
    group = queue.groups[group_name]
    for consumer in list(group.consumers):
        if consumer.session.number == but_session:
            continue
        end_consumer(step, queue, consumer, error)


def end_consumer(step: Step, queue: Queue, consumer: Consumer, error: VibeMQError) -> None:
    session = consumer.session.number
    if consumer.active:
        step.effects.append(ConsumerEnded(session, consumer.number, queue.name, error))
    else:
        step.effects.append(ConsumerLeft(session, consumer.number))
    if consumer.group.leave(consumer):
        step.leave(queue)
    consumer.session.forget(consumer)
    # Whoever takes it out in slices finds nothing left to give back: that would be said of a group that is gone.
    consumer.unacked.take_all()


def purge_queue(state: EngineState, step: Step, command: PurgeQueue) -> Slices:
    queue = find(state, command.queue)
    if command.at_most is not None:
        step = yield from _check_most(step, queue, command.at_most, held=False)
    last = queue.unseen[0].first if queue.unseen else queue.next_sequence
    yield from _drop(state, step, command, queue, [(1, last - 1)])


def remove_messages(state: EngineState, step: Step, command: RemoveMessages) -> Slices:
    queue = find_same(state, command.queue, command.incarnation)
    return _drop(state, step, command, queue, command.runs)


def _drop(
    state: EngineState, step: Step, command: PurgeQueue | RemoveMessages, queue: Queue, runs: list[Run]
) -> Slices:
    """A slice takes messages out of every group and of the log in one step, so a group that joins between two slices
    gets what is left and nothing else; of very many groups, see `crowds/dropping.py`. Messages that were published
    later stay."""
    count = 0
    for piece, cost in pieces(visible_runs(queue, runs), partial(_cut, queue)):
        if queue.deleted:
            break
        if is_crowded(queue):
            parted = drop_from_groups(step, queue, piece, Reason.PURGED, dry_run=command.dry_run)
            step, dropped, _ = yield from parted
        elif command.dry_run:
            dropped = waiting_among(queue, piece, held_among(queue, piece))
        else:
            dropped = drop_waiting(step, queue, piece, Reason.PURGED)
        step.work += cost
        count += dropped.count
        if step.work >= STEP_UNITS:
            step = yield
    need = state.need_of_known if command.dry_run else _drop_need(queue, count)
    step.answer_standing(command, TriedCount(count) if command.dry_run else Counted(count), need)


def _cut(queue: Queue, first: int, last: int, most: int) -> tuple[int, int]:
    return (last, 1) if is_crowded(queue) else cut_step(queue, first, last, most)


def remove_listed(state: EngineState, step: Step, command: RemoveListed) -> Slices:
    queue = find_same(state, command.queue, command.incarnation)
    removed, held = RunSet(), RunSet()
    wanted = visible_runs(queue, runs_of(set(command.sequences)))
    for piece, cost in pieces(wanted, partial(_cut, queue)):
        if queue.deleted:
            break
        if is_crowded(queue):
            parted = drop_from_groups(step, queue, piece, Reason.PURGED, dry_run=command.dry_run)
            step, chosen, there = yield from parted
        else:
            there = held_among(queue, piece)
            if command.dry_run:
                chosen = waiting_among(queue, piece, there)
            else:
                chosen = drop_waiting(step, queue, piece, Reason.PURGED)
        held.add_all([part for run in piece for part in there.overlap(*run)])
        removed.add_all(chosen.runs())
        step.work += cost
        if step.work >= STEP_UNITS:
            step = yield
    need = state.need_of_known if command.dry_run else _drop_need(queue, removed.count)
    step.answer_standing(command, Removed(removed.runs(), held.runs()), need)


def _drop_need(queue: Queue, count: int) -> Durability:
    return heavy(queue) if count else light(queue)


def give_up(state: EngineState, step: Step, command: GiveUp) -> None:
    """Whoever replies is told that nobody waits. A message that waits in the queue, given to no consumer, leaves it;
    one whose publish is not confirmed yet, or which a consumer has, stays until it expires or is settled."""
    waiting = state.requests.of(command.session, command.address)
    need = Durability.TRANSIENT
    if waiting is not None:
        state.requests.forget(waiting)
        asking.let_others_pass(state, step, waiting)
        queue, sequence = state.queues.get(waiting.queue), waiting.sequence
        if queue is not None and queue.requests is waiting.places and len(queue.groups) <= _LOOKED_AT_FOR_ONE:
            step.work += 1 + len(queue.groups)
            runs = visible_runs(queue, [(sequence, sequence)])
            if runs and drop_waiting(step, queue, runs, Reason.PURGED):
                need = heavy(queue)
    step.answer_standing(command, None, need)
