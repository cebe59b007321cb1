"""Which batch of which query a plan is.

A sink knows a batch by its query and its number, and leaves out what it has under them. So under one number a query
must never have other rows than the first time. The reader that plans does not know the number; its tasks do, and enter
the batch before they read it. What they are compared with:

the plan        the batch of the query for which these rows were read before
its neighbours  numbers ascend along the chain, and batches without rows lie between
the query       the highest number that any of its readers has entered, and when: who planned later is not that batch.
                This is kept where the versions of applications are, so it outlives groups, and their names
"""

from vibemq.engine.handlers.cursors.lookup import check_epoch, check_expired, find_cursor
from vibemq.engine.handlers.cursors.plans import put, unknown_plan, used_behind
from vibemq.engine.handlers.fan_out import check_owner, durable_need
from vibemq.engine.handlers.transactions import remember
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState, register_of
from vibemq.engine.step import Step
from vibemq.errors import BatchChanged, InvalidOptions
from vibemq.model.commands import EnterBatch
from vibemq.model.records import Plan, tag_of

QUERY_MAX = 200


def enter(state: EngineState, step: Step, command: EnterBatch) -> None:
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    check_epoch(queue, group, cursor, command.epoch)
    if len(command.query.encode()) > QUERY_MAX:
        raise InvalidOptions(f"a query is named by at most {QUERY_MAX} bytes")
    number = cursor.plans.number_of(command.tag)
    plan = cursor.plans.at(number)
    if plan is None or not plan.has_rows:
        raise unknown_plan(queue, group)
    if tag_of(plan.end) != command.end_tag:
        raise BatchChanged(f"group {group.name!r} of queue {queue.name!r} has planned another end of this batch")
    if command.query:
        _number(state, step, queue, group, cursor, number, command)
    elif not plan.begun_at:
        put(step, queue, group, cursor, number, plan._replace(begun_at=step.now))
    step.answer(command, plan, durable_need(queue))


def _number(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, number: int, command: EnterBatch
) -> None:
    """Raises BatchChanged when the plan cannot be the batch of this number."""
    plan, register = cursor.plans.at(number), register_of(command.query, group)
    assert plan is not None
    if (plan.query, plan.batch) != (command.query, command.batch):
        why = _why_not(state, group, cursor, number, plan, command)
        if why:
            raise BatchChanged(
                f"group {group.name!r} of queue {queue.name!r}: batch {command.batch} of query {command.query} {why}"
            )
        entered = plan._replace(query=command.query, batch=command.batch, begun_at=plan.begun_at or step.now)
        put(step, queue, group, cursor, number, entered)
        known = state.transactions.get(register)
        if known is None or known.version < command.batch:
            remember(state, step, register, command.batch)


def _why_not(state: EngineState, group: Group, cursor: Cursor, number: int, plan: Plan, command: EnterBatch) -> str:
    """Why the plan cannot be this batch; "" = it can."""
    query, batch = command.query, command.batch
    before, between = cursor.plans.before_it(number)
    if plan.query == query:
        return f"would have the rows that batch {plan.batch} had"
    if plan.query and not cursor.begun and (before is None or before.query != query):
        return f"would have the rows that batch {plan.batch} of query {plan.query} had"
    if before is not None and before.query != query and not cursor.begun:
        return f"would follow batch {before.batch} of query {before.query}"
    least = _least(state, group, cursor, number, query, before, between)
    if batch < least:
        return f"was run before without these rows; the first that can have them is batch {least}"
    after = cursor.plans.at(number + 1)
    if after is not None and after.query == query and after.batch <= batch:
        return f"would have the rows of a batch before batch {after.batch}"
    last = state.transactions.get(register_of(query, group))
    if last is not None and batch <= last.version and plan.made_at > last.decided_at:
        return f"was run before (the last one was batch {last.version}), and these rows were planned later"
    return ""


def _least(
    state: EngineState, group: Group, cursor: Cursor, number: int, query: str, before: Plan | None, between: int
) -> int:
    """The lowest number that a batch of the query may have here."""
    if before is None:
        return 0 if cursor.begun else between
    if before.query != query:
        return 0
    if cursor.plans.at(number - 1) is before:
        between = used_behind(state, group, cursor, number - 1, before)
    return before.batch + 1 + between
