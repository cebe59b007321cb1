"""Time to live: of single messages and of a whole queue.

What waits expires when its time has come; what is in flight, when it comes back. To a cursor a message that its
sender let expire is counted and skipped; what the queue's own TTL takes away unread is a loss.
"""

from vibemq.engine.handlers.dead_lettering import remove_from_group
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.collecting import collect
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.records import Reason
from vibemq.model.runs import Run, runs_of


def expire(state: EngineState, step: Step, queue: Queue) -> bool:
    """Take out of every group what has expired by now, as far as that is the work of one step; whether that is all."""
    if queue.next_expiry() > step.now:
        return True
    most = max(1, (STEP_UNITS - step.work) // max(1, len(queue.groups)))
    own = queue.pop_expired(step.now, most)
    step.work += len(own) * len(queue.groups)
    upto = _overdue(queue, step.now)
    swept = _sweep(step, queue, upto, most) if upto > queue.swept and len(own) < most else 0
    for runs, lost in ((runs_of(own), False), ([(1, swept)] if swept else [], True)):
        if runs:
            for group in list(queue.groups.values()):
                remove_from_group(state, step, queue, group, _take(group, runs), Reason.EXPIRED, lost=lost)
    collect(queue)
    return len(own) < most and queue.swept >= upto


def _overdue(queue: Queue, now: int) -> int:
    """Up to which visible message the queue's TTL has passed."""
    ttl = queue.options.message_ttl_ms
    if not ttl:
        return 0
    upto = queue.sizes.last_at(now - ttl)
    return min(upto, queue.unseen[0].first - 1) if queue.unseen else upto


def _sweep(step: Step, queue: Queue, upto: int, most: int) -> int:
    """How far of it one step goes."""
    for group in queue.groups.values():
        upto, cost = group.cut_waiting(queue.swept + 1, upto, most, by_message=queue.options.dead_letter)
        step.work += cost
    queue.swept = upto
    return upto


def _take(group: Group, runs: list[Run]) -> list[Run]:
    return sorted(taken for first, last in runs for taken in group.take_waiting(first, last))
