"""How a reader cuts its batches: a plan says where the batch ends that begins at a position."""

from vibemq.engine.handlers.cursors.lookup import check_epoch, check_expired, find_cursor
from vibemq.engine.handlers.fan_out import check_owner, durable_need
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState, register_of
from vibemq.engine.step import Step, light
from vibemq.errors import InvalidOptions, PlanUnknown
from vibemq.model.commands import PlanBatch
from vibemq.model.options import Durability
from vibemq.model.records import Plan, PlanMade, PlansForgotten, tag_of

TAG_MAX = 64


def plan(state: EngineState, step: Step, command: PlanBatch) -> None:
    """Where the batch that begins at a position ends: where it was said to end before, or else where it is said to now.

    One queue of a reader keeps the plans of all of them, so that a plan is one fact: it is there or it is not.
    """
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    check_epoch(queue, group, cursor, command.epoch)
    if command.empty_mark is not None:
        step.answer_standing(command, _without_rows(state, step, queue, group, cursor, command), durable_need(queue))
        return
    known = cursor.plans.find(command.tag)
    if known is None:
        known = _new_plan(state, step, queue, group, cursor, command)
    # An earlier one may be on its way to the disk yet: this answer waits for it too.
    step.answer_standing(command, known, durable_need(queue))


def _new_plan(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, command: PlanBatch) -> Plan:
    if not 1 <= len(command.tag) <= TAG_MAX or not command.end:
        raise InvalidOptions(f"a plan has a tag of 1 to {TAG_MAX} characters, and an end")
    if not cursor.plans.may_begin(command.tag):
        if not (command.anew or cursor.may_plan_anew()):
            raise unknown_plan(queue, group)
        forget_plans(state, step, queue, group, cursor, cursor.plans.next_number, durable_need(queue), newest=True)
    made_at = state.next_batch_instant(step.now)
    begun_at = made_at if command.elsewhere else 0
    return _add(state, step, queue, group, cursor, Plan(command.tag, command.end, made_at, begun_at=begun_at))


def _add(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, made: Plan) -> Plan:
    number = cursor.plans.next_number
    cursor.plans.add(number, made)
    step.note(PlanMade(queue.queue_id, group.group_id, number, made), durable_need(queue))
    forget_plans(state, step, queue, group, cursor, cursor.plans.beyond_bounds(), light(queue))
    return made


def _without_rows(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, command: PlanBatch
) -> Plan:
    """Count a batch without rows behind the newest plan, once. A reader that repeats older ones adds nothing."""
    mark = command.empty_mark or ""
    if tag_of(command.end) != command.tag or not 1 <= len(mark) <= TAG_MAX:
        raise InvalidOptions(f"a batch without rows ends where it begins, and has a mark of 1 to {TAG_MAX} characters")
    number = cursor.plans.next_number - 1
    newest = cursor.plans.newest()
    if newest is None:
        made_at = state.next_batch_instant(step.now)
        return _add(state, step, queue, group, cursor, Plan(command.tag, command.end, made_at, empty_mark=mark))
    if not cursor.plans.may_begin(command.tag) or newest.empty_mark == mark:
        return newest
    settled = settled_count(state, group, newest)
    before = newest.empty_before if newest.empty_epoch == group.epoch else settled.empty
    counted = settled._replace(
        empty_mark=mark,
        empty_at=state.next_batch_instant(step.now),
        empty=settled.empty + 1,
        empty_epoch=group.epoch,
        empty_before=before,
    )
    put(step, queue, group, cursor, number, counted)
    return counted


def settled_count(state: EngineState, group: Group, plan: Plan) -> Plan:
    """The plan with the number of batches without rows that have followed it. Another source of the query may know it
    better: when it has entered a batch since the last of these was told of, that is this one. Only a number that was
    not entered before says so: when an old batch is entered again, later numbers were used."""
    last = state.transactions.get(register_of(plan.query, group)) if plan.query and plan.empty else None
    if last is None or last.decided_at <= plan.empty_at or last.version <= plan.batch:
        return plan
    return plan._replace(empty=last.version - plan.batch)


def used_behind(state: EngineState, group: Group, plan: Plan) -> int:
    """How many numbers behind the plan may have been used for batches without rows before the reader's present batch.

    Those that this reader has told of are below its batch, whether they are new or were repeated: only those that were
    told of before it joined are compared.
    """
    known = min(plan.empty, settled_count(state, group, plan).empty)
    return min(known, plan.empty_before) if plan.empty_epoch == group.epoch else known


def put(step: Step, queue: Queue, group: Group, cursor: Cursor, number: int, plan: Plan) -> None:
    """What has become known of a plan."""
    cursor.plans.replace(number, plan)
    step.note(PlanMade(queue.queue_id, group.group_id, number, plan), durable_need(queue))


def forget_plans(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    cursor: Cursor,
    below: int,
    need: Durability,
    *,
    newest: bool = False,
) -> None:
    gone = cursor.plans.forget(below, newest=newest)
    if gone:
        step.note(PlansForgotten(queue.queue_id, group.group_id, gone), need)
    if not cursor.plans.is_swept:
        # The timers of the cursor let go of the others.
        state.arm_part(queue, group, step.now)


def unknown_plan(queue: Queue, group: Group) -> PlanUnknown:
    return PlanUnknown(
        f"group {group.name!r} of queue {queue.name!r} has planned batches, but none that begins at this position, and "
        "it is not where the newest one ends: where a batch ended that began here is not known any more, or it was "
        "another reader's"
    )
