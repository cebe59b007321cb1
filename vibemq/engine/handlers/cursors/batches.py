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
from vibemq.engine.handlers.transactions import check_own, forget_old, remember
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState, register_of, registrar_of
from vibemq.engine.step import Step
from vibemq.errors import BatchChanged, InvalidOptions
from vibemq.model.commands import EnterBatch
from vibemq.model.records import Plan, tag_of

QUERY_MAX = 200
QUERIES_MAX = 20_000
"""Of one user. Each takes about 700 bytes of memory."""


def enter(state: EngineState, step: Step, command: EnterBatch) -> None:
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    check_epoch(queue, group, cursor, command.epoch)
    if len(command.query.encode()) > QUERY_MAX:
        raise InvalidOptions(f"a query is named by at most {QUERY_MAX} bytes")
    if command.end_tag == command.tag:
        _enter_without_rows(state, step, group, command)
        step.answer_standing(command, Plan(command.tag, ""), durable_need(queue))
        return
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
    step.answer_standing(command, plan, durable_need(queue))


def _enter_without_rows(state: EngineState, step: Step, group: Group, command: EnterBatch) -> None:
    """The first batch of a query, of which its reader has no rows. Nothing of it is compared, and its number is used
    from now on: rows that are planned later are not this batch."""
    if command.query:
        _use(state, step, register_of(command.query, group), command.batch)


def _use(state: EngineState, step: Step, register: str, batch: int) -> None:
    """The query has used the number. Raises InvalidOptions when there is no room for one more query."""
    known = state.transactions.get(register)
    if known is None:
        check_own(register)
        _check_room(state, step, register)
    if known is None or known.version < batch:
        remember(state, step, register, batch, at=state.next_batch_instant(step.now))


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
        _use(state, step, register, command.batch)
        entered = plan._replace(query=command.query, batch=command.batch, begun_at=plan.begun_at or step.now)
        put(step, queue, group, cursor, number, entered)


def _check_room(state: EngineState, step: Step, register: str) -> None:
    """Raises InvalidOptions when the user has too many queries: to forget one would let it use its numbers again."""
    forget_old(state, step)
    registrar = registrar_of(register)
    if state.registers[registrar] >= QUERIES_MAX:
        raise InvalidOptions(
            f"the broker knows {QUERIES_MAX} queries of this user whose batches were read in the last 30 days, and "
            "keeps no more, so the batches of a new one cannot be told apart. A query is forgotten 30 days after its "
            "last batch. Go on with the checkpoints of the queries that there are, use another user, or have the "
            f"broker's operator reset queries that are over, with transaction.forget of {registrar}QUERY"
        )


def _why_not(state: EngineState, group: Group, cursor: Cursor, number: int, plan: Plan, command: EnterBatch) -> str:
    """Why the plan cannot be this batch; "" = it can."""
    query, batch = command.query, command.batch
    before, between = cursor.plans.before_it(number)
    if plan.query == query:
        return f"would have the rows that batch {plan.batch} had"
    # Whoever begins without a position asks for a plan that is there in its batch 0. A later number is that of a
    # checkpoint whose batch 0 had no rows, when another query had not read these yet.
    begins = cursor.begun and not batch
    if plan.query and not begins and (before is None or before.query != query):
        return f"would have the rows that batch {plan.batch} of query {plan.query} had"
    if before is not None and before.query != query and not cursor.begun:
        return f"would follow batch {before.batch} of query {before.query}"
    if batch < _least(state, group, cursor, number, query, before, between):
        return _run_without(group, before, batch)
    after = cursor.plans.at(number + 1)
    if after is not None and after.query == query and after.batch <= batch:
        return f"would have the rows of a batch before batch {after.batch}"
    last = state.transactions.get(register_of(query, group))
    if last is not None and batch <= last.version and plan.made_at > last.decided_at:
        return f"was run before (the last one was batch {last.version}), and these rows were planned later"
    return ""


def _run_without(group: Group, before: Plan | None, batch: int) -> str:
    """No number is named: batches without rows that were repeated may count twice."""
    if before is not None and batch <= before.batch:
        return f"was run before without these rows: they come behind those of batch {before.batch}"
    behind = "before the first batch with rows" if before is None else f"behind batch {before.batch}"
    back = "" if before is None else f"roll the checkpoint back to before batch {before.batch}, or "
    return (
        f"was run before without these rows, as far as is known: {behind} the reader has told of batches without "
        "rows, and those that it has repeated after one start may count again after the next. To repeat them as they "
        f"were, {back}use the newest checkpoint. If you are certain that the sink has no batch with this number (a "
        f"file sink lists its batches in _spark_metadata), move the group {group.name!r} to where the checkpoint has "
        "this queue, with `vibemq-admin group seek`: that forgets what was counted"
    )


def _least(
    state: EngineState, group: Group, cursor: Cursor, number: int, query: str, before: Plan | None, between: int
) -> int:
    """The lowest number that a batch of the query may have here."""
    if before is None:
        return 0 if cursor.begun else between
    if before.query != query:
        return 0
    if cursor.plans.at(number - 1) is before:
        between = used_behind(state, group, before)
    return before.batch + 1 + between
