"""A publish that asks for a reply, from its acceptance to the end of the waiting."""

from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.engine.waiting import PER_UNIT, RequestTable, Waiting
from vibemq.errors import NoReply, RateLimited, VibeMQError
from vibemq.model.commands import Publish, Requester
from vibemq.model.effects import Responded
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.extras.message_extra import Extras
from vibemq.model.runs import END

_ONE = range(1)
REQUESTS_MAX = 16_384
"""Requests of one session that wait at a time."""


def check_room(table: RequestTable, session: int) -> None:
    """Raises RateLimited: the session waits for too many replies."""
    if table.count(session) >= REQUESTS_MAX:
        raise RateLimited(
            f"{REQUESTS_MAX:,} requests of this connection wait for their replies, which is the limit; wait for some "
            "of them, or open another connection"
        )


def begin(table: RequestTable, step: Step, command: Publish, requester: Requester) -> Waiting:
    """The waiting begins; the message lives as long. Raises RateLimited: see `check_room`."""
    check_room(table, command.session)
    command.extras = _expiring(command.extras, step.now + requester.timeout_ms)
    waiting = Waiting(command.session, requester, command.queue, step.now + requester.timeout_ms, table)
    table.add(waiting)
    return waiting


def _expiring(extras: Extras | None, instant: int) -> Extras:
    """Of the one message, which expires then, unless it does before."""
    if not extras:
        return ExtraColumns(_ONE, expires_at=instant)
    extra = extras[0]
    ids = (extra.dedup_id,) if extra.dedup_id else ()
    return ExtraColumns(_ONE, extra.priority, min(extra.expires_at or END, instant), extra.deliver_at, ids)


def expire(state: EngineState, step: Step) -> None:
    """Those that were not answered in time, as many as are the work of one step; the others stay due."""
    room = PER_UNIT * max(1, STEP_UNITS - step.work)
    for waiting in state.requests.take_due(step.now, room):
        let_others_pass(state, step, waiting)
        step.effects.append(_told(waiting, overdue(waiting)))


def let_others_pass(state: EngineState, step: Step, ended: Waiting) -> None:
    """Its message may be the first of those that wait for room, and the next ones may fit."""
    queue = None if ended.sequence else state.queues.get(ended.queue)
    if queue is not None:
        step.free(queue)


def overdue(waiting: Waiting) -> NoReply:
    if waiting.sequence:
        then = "a consumer may still work on it"
    else:
        then = "the queue was full all the time, and the request was not published"
    return NoReply(
        f"no reply to the request to queue {waiting.queue!r} within {waiting.requester.timeout_ms / 1000:g} s; {then}"
    )


def tell_failed(table: RequestTable, step: Step) -> None:
    """Tell the requesters of what will never be answered, as many as are the work of one step; a tick tells the others.

    Behind the records of the step: nobody hears of a dead letter that is not kept.
    """
    effects = step.after_append if step.records else step.effects
    for _ in range(min(len(table.failed), PER_UNIT * STEP_UNITS)):
        waiting, error = table.failed.popleft()
        effects.append(_told(waiting, error))


def _told(waiting: Waiting, error: VibeMQError) -> Responded:
    return Responded(waiting.session, waiting.requester.token, error)
