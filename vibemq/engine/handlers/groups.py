"""SeekGroup, FilterGroup and DeleteGroup: what an operator or an owner does to a durable group."""

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
)
from vibemq.engine.handlers.queues import end_consumers, find
from vibemq.engine.queue.queue import WAITING_NAME
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.engine.views import group_info
from vibemq.errors import GroupFenced, GroupNotFound, InvalidOptions
from vibemq.model.commands import DeleteGroup, FilterGroup, SeekGroup


def seek_group(state: EngineState, step: Step, command: SeekGroup) -> None:
    """Create the group, or fence its consumers of other sessions and move its cursor."""
    queue = find(state, command.queue)
    need = durable_need(queue)
    group = queue.groups.get(command.group)
    if group is None:
        name = check_group_name(command.group)
        group, _ = group_for(state, step, queue, name, command.start, command.start_sequence)
        claim(step, queue, group, command.user)
    elif not group.durable:
        raise GroupNotFound(f"group {command.group!r} of queue {queue.name!r} belongs to one subscriber alone")
    else:
        check_owner(queue, group, command.user, manage=command.manage)
        move_group(state, step, queue, group, command.start, command.start_sequence, need)
        fenced = GroupFenced(f"group {command.group!r} of queue {queue.name!r} has a new reader; this one must stop")

        end_consumers(step, queue, group.name, fenced, but_session=command.session)
        for consumer in [c for c in group.consumers if not c.active]:
            remove_consumer(step, consumer)
        moved(step, queue, group)
    step.answer_standing(command, group_info(group, queue.next_sequence), need)


def filter_group(state: EngineState, step: Step, command: FilterGroup) -> None:
    """Create the group if it is missing, and give it the filter. Its consumers go on."""
    queue = find(state, command.queue)
    group = queue.groups.get(command.group)
    if group is not None and (not group.durable or command.group == WAITING_NAME):
        raise GroupNotFound(f"group {command.group!r} of queue {queue.name!r} has no name, and cannot have a filter")
    check_filter(queue, group)
    if group is None:
        name = check_group_name(command.group)
        group, _ = group_for(state, step, queue, name, command.start, command.start_sequence)
        claim(step, queue, group, command.user)
    else:
        check_owner(queue, group, command.user, manage=command.manage)
    set_filter(step, queue, group, command.where)
    step.answer_standing(command, group_info(group, queue.next_sequence), durable_need(queue))


def drop_group(state: EngineState, step: Step, command: DeleteGroup) -> None:
    queue = find(state, command.queue)
    need = durable_need(queue)
    group = queue.groups.get(command.group)
    if group is None or (command.group == WAITING_NAME and queue.options.is_fan_out):
        raise GroupNotFound(f"queue {queue.name!r} has no group {command.group!r}")
    if command.group == WAITING_NAME:
        raise InvalidOptions(f"the default group of queue {queue.name!r} cannot be deleted; purge the queue instead")
    check_owner(queue, group, command.user, manage=command.manage)
    error = GroupNotFound(f"group {command.group!r} of queue {queue.name!r} was deleted")
    end_consumers(step, queue, group.name, error)
    delete_group(step, queue, group, need)
    if not queue.groups:
        open_waiting_group(step, queue, need)
    step.answer_standing(command, None, need)
