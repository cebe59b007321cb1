"""SeekGroup, FilterGroup and DeleteGroup: what an operator or an owner does to a durable group."""

from collections.abc import Collection, Generator
from dataclasses import replace

from vibemq.engine.handlers.cursors.ranges import describe, described_anew
from vibemq.engine.handlers.cursors.requests import moved
from vibemq.engine.handlers.fan_out import (
    check_filter,
    check_group_name,
    check_owner,
    claim,
    delete_group,
    durable_need,
    group_for,
    move_group,
    open_waiting_group,
    remove_consumer,
    set_filter,
    where_moved,
    where_new,
)
from vibemq.engine.handlers.queues import end_consumers, find
from vibemq.engine.handlers.settle import take_out
from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.engine.views import group_info, head_from
from vibemq.errors import GroupFenced, GroupNotFound, InvalidOptions, VibeMQError
from vibemq.model.commands import DeleteGroup, FilterGroup, SeekGroup
from vibemq.model.effects import ConsumerEnded, CursorInfo
from vibemq.model.runs import END
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import GroupInfo

_RETIRED_PER_UNIT = 8
"""Consumers that are handed nothing more, for the cost of one run."""


def seek_group(state: EngineState, step: Step, command: SeekGroup) -> Slices | None:
    """Create the group, or fence its consumers of other sessions and move its cursor."""
    queue = find(state, command.queue)
    group = _to_be_moved(queue, command)
    if command.dry_run:
        step.answer(command, _would_be_sought(state, queue, group, command, step.now))
        return None
    if group is None or len(group.consumers) <= STEP_UNITS:
        _seek(state, step, command)
        return None
    return _seek_crowded(state, step, command, queue, group)


def _to_be_moved(queue: Queue, command: SeekGroup) -> Group | None:
    """None: it is missing, and may be made. Raises what refuses the move."""
    group = queue.groups.get(command.group)
    if group is None:
        check_group_name(command.group)
    elif not group.durable:
        raise GroupNotFound(f"group {command.group!r} of queue {queue.name!r} belongs to one subscriber alone")
    else:
        check_owner(queue, group, command.user, manage=command.manage)
    return group


def _would_be_sought(
    state: EngineState, queue: Queue, group: Group | None, command: SeekGroup, now: int
) -> GroupInfo | CursorInfo:
    """The group as a dry run tells of it, with its present epoch."""
    if group is None:
        return _would_be_made(queue, command, now)
    begin, wanted = where_moved(queue, group, command.start, command.start_sequence, now)
    if group.cursor is not None:
        return described_anew(queue, describe(queue, group, group.cursor), begin, wanted)
    session = state.sessions.get(command.session)
    mine = [] if session is None else [c for c in session.consumers.values() if c.group is group and c.active]
    texts = {"" if consumer.selector is None else consumer.selector.text for consumer in mine}
    return replace(
        group_info(group, queue.next_sequence),
        head=head_from(wanted.first if wanted else END, begin, queue.next_sequence),
        waiting=wanted.count,
        in_flight=0,
        consumers=len(mine),
        selectors=_selectors(group.where, texts),
    )


def _would_be_made(queue: Queue, command: SeekGroup | FilterGroup, now: int) -> GroupInfo:
    """It has no epoch yet."""
    begin, wanted = where_new(queue, command.start, command.start_sequence, now)
    return GroupInfo(
        command.group,
        durable=True,
        head=head_from(wanted.first if wanted else END, begin, queue.next_sequence),
        waiting=wanted.count,
        in_flight=0,
        consumers=0,
        epoch=0,
        user=command.user,
    )


def _selectors(where: Selector | None, texts: Collection[str]) -> int:
    """How many a group tells of. `texts`: of its active consumers, "" for those without one."""
    return len(texts) if where is not None or any(texts) else 0


def _seek_crowded(state: EngineState, step: Step, command: SeekGroup, queue: Queue, group: Group) -> Slices:
    step = yield from _end_crowd(state, step, queue, group, _fenced(queue, group), but_session=command.session)
    _seek(state, step, command)


def _fenced(queue: Queue, group: Group) -> GroupFenced:
    return GroupFenced(f"group {group.name!r} of queue {queue.name!r} was moved; subscribe again to go on where it is")


def _end_crowd(
    state: EngineState, step: Step, queue: Queue, group: Group, error: VibeMQError, *, but_session: int | None = None
) -> Generator[None, Step, Step]:
    """End the subscriptions of a group that has very many of them, in slices; what they hold goes back. Those that
    come meanwhile are the caller's to end. Returns the last slice's step."""
    told: list[Consumer] = []
    for number, consumer in enumerate(list(group.consumers), 1):
        if consumer.active and consumer.session.number != but_session:
            # Before any of them gives something back: it is not for the others.
            group.retire(consumer)
            told.append(consumer)
        step.work += not number % _RETIRED_PER_UNIT
        if step.work >= STEP_UNITS:
            step = yield
    for consumer in told:
        session = consumer.session.number
        if state.consumer(session, consumer.number) is consumer:
            step = yield from take_out(state, step, consumer, clean=True)
            if not queue.deleted:
                step.effects.append(ConsumerEnded(session, consumer.number, queue.name, error))
    return step


def _seek(state: EngineState, step: Step, command: SeekGroup) -> None:
    queue = find(state, command.queue)
    need = durable_need(queue)
    group = _to_be_moved(queue, command)
    if group is None:
        group, _ = group_for(state, step, queue, command.group, command.start, command.start_sequence)
        claim(step, queue, group, command.user)
    else:
        move_group(state, step, queue, group, command.start, command.start_sequence, need)
        end_consumers(step, queue, group.name, _fenced(queue, group), but_session=command.session)
        for consumer in [c for c in group.consumers if not c.active]:
            remove_consumer(step, consumer)
        moved(step, queue, group)
    cursor = group.cursor
    info = group_info(group, queue.next_sequence) if cursor is None else describe(queue, group, cursor)
    step.answer_standing(command, info, need)


def filter_group(state: EngineState, step: Step, command: FilterGroup) -> None:
    """Create the group if it is missing, and give it the filter. Its consumers go on."""
    queue = find(state, command.queue)
    group = queue.groups.get(command.group)
    if group is not None and (not group.durable or command.group == WAITING_NAME):
        raise GroupNotFound(f"group {command.group!r} of queue {queue.name!r} has no name, and cannot have a filter")
    if group is not None:
        check_owner(queue, group, command.user, manage=command.manage)
    check_filter(queue, group)
    if group is None:
        check_group_name(command.group)
    if command.dry_run:
        if group is None:
            info, texts = _would_be_made(queue, command, step.now), []
        else:
            info, texts = group_info(group, queue.next_sequence), _texts(group)
        text = "" if command.where is None else command.where.text
        step.answer(command, replace(info, where=text, selectors=_selectors(command.where, texts)))
        return
    if group is None:
        group, _ = group_for(state, step, queue, command.group, command.start, command.start_sequence)
        claim(step, queue, group, command.user)
    set_filter(step, queue, group, command.where)
    step.answer_standing(command, group_info(group, queue.next_sequence), durable_need(queue))


def _texts(group: Group) -> list[str]:
    """The selectors of its active consumers, each once; "" for those without one."""
    return list(group.routes.lines) if group.routes is not None else [""] * bool(group.active)


def drop_group(state: EngineState, step: Step, command: DeleteGroup) -> Slices | None:
    queue, group = _to_be_dropped(state, command)
    if command.dry_run:
        step.answer(command, None)
        return None
    if len(group.consumers) > STEP_UNITS:
        return _drop_crowded(state, step, command, queue, group)
    _drop(state, step, command)
    return None


def _drop_crowded(state: EngineState, step: Step, command: DeleteGroup, queue: Queue, group: Group) -> Slices:
    step = yield from _end_crowd(state, step, queue, group, _deleted(queue, group))
    _drop(state, step, command)


def _to_be_dropped(state: EngineState, command: DeleteGroup) -> tuple[Queue, Group]:
    """Raises what refuses the deletion."""
    queue = find(state, command.queue)
    group = queue.groups.get(command.group)
    if group is None or (command.group == WAITING_NAME and queue.options.is_fan_out):
        raise GroupNotFound(f"queue {queue.name!r} has no group {command.group!r}")
    if command.group == WAITING_NAME:
        raise InvalidOptions(f"the default group of queue {queue.name!r} cannot be deleted; purge the queue instead")
    check_owner(queue, group, command.user, manage=command.manage)
    return queue, group


def _deleted(queue: Queue, group: Group) -> GroupNotFound:
    return GroupNotFound(f"group {group.name!r} of queue {queue.name!r} was deleted")


def _drop(state: EngineState, step: Step, command: DeleteGroup) -> None:
    queue, group = _to_be_dropped(state, command)
    need = durable_need(queue)
    end_consumers(step, queue, group.name, _deleted(queue, group))
    delete_group(step, queue, group, need)
    if not queue.groups:
        open_waiting_group(step, queue, need)
    step.answer_standing(command, None, need)
