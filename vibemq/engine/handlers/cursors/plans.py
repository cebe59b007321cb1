"""How a reader cuts its batches: a plan says where the batch ends that begins at a position."""

from vibemq.engine.handlers.cursors.lookup import check_epoch, check_expired, find_cursor
from vibemq.engine.handlers.fan_out import check_owner, durable_need
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, light
from vibemq.errors import InvalidOptions, PlanUnknown
from vibemq.model.commands import PlanBatch
from vibemq.model.options import Durability
from vibemq.model.records import Plan, PlanMade, PlansForgotten

TAG_MAX = 64


def plan(state: EngineState, step: Step, command: PlanBatch) -> None:
    """Where the batch that begins at a position ends: where it was said to end before, or else where it is said to now.

    One queue of a reader keeps the plans of all of them, so that a plan is one fact: it is there or it is not.
    """
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    check_epoch(queue, group, cursor, command.epoch)
    known = cursor.plans.find(command.tag)
    if known is None:
        known = _new_plan(step, queue, group, cursor, command)
    # An earlier one may be on its way to the disk yet: this answer waits for it too.
    step.answer(command, known, durable_need(queue))


def _new_plan(step: Step, queue: Queue, group: Group, cursor: Cursor, command: PlanBatch) -> Plan:
    if not 1 <= len(command.tag) <= TAG_MAX or not command.end:
        raise InvalidOptions(f"a plan has a tag of 1 to {TAG_MAX} characters, and an end")
    if not cursor.plans.may_begin(command.tag):
        if not command.anew:
            raise unknown_plan(queue, group)
        forget_plans(step, queue, group, cursor, cursor.plans.next_number, durable_need(queue), newest=True)
    made = Plan(command.tag, command.end)
    number = cursor.plans.next_number
    cursor.plans.add(number, made)
    step.note(PlanMade(queue.queue_id, group.group_id, number, made), durable_need(queue))
    forget_plans(step, queue, group, cursor, cursor.plans.beyond_bounds(), light(queue))
    return made


def forget_plans(
    step: Step, queue: Queue, group: Group, cursor: Cursor, below: int, need: Durability, *, newest: bool = False
) -> None:
    gone = cursor.plans.forget(below, newest=newest)
    if gone:
        step.note(PlansForgotten(queue.queue_id, group.group_id, gone), need)


def unknown_plan(queue: Queue, group: Group) -> PlanUnknown:
    return PlanUnknown(
        f"group {group.name!r} of queue {queue.name!r} has planned batches, but none that begins at this position, and "
        "it is not where the newest one ends: where a batch ended that began here is not known any more, or it was "
        "another reader's"
    )
