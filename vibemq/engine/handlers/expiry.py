"""Time to live: of single messages and of a whole queue.

What waits expires when its time has come; what is in flight, when it comes back. To a cursor a message that its
sender let expire is counted and skipped; what the queue's own TTL takes away unread is a loss.
"""

from collections import deque

from vibemq.engine.handlers.dead_lettering import remove_from_group
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.collecting import collect
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.parts.expiries import Expiring
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.records import Reason
from vibemq.model.runs import Run, run_count, runs_of

_TOGETHER_LEAST = 16
"""With very many groups so many messages are taken out of each at once: each look at a group costs something, too."""


def expire(state: EngineState, step: Step, queue: Queue) -> bool:
    """Take out of every group what has expired by now, as far as that is the work of one step; whether that is all.

    Groups whose turn has not come hand nothing of it out: `Queue.is_expired` knows it.
    """
    if queue.expiring is None and queue.next_expiry() > step.now:
        return True
    ends = max(STEP_UNITS, step.work + 1)
    while step.work < ends:
        expiring = queue.expiring or _next(queue, step.now, max(1, ends - step.work))
        if expiring is None:
            collect(queue)
            return True
        queue.expiring = expiring
        if expiring.upto:
            _cut(step, queue, expiring, ends)
        else:
            _take_out(state, step, queue, expiring, ends)
    collect(queue)
    return False


def judge_anew(queue: Queue, now: int) -> None:
    """The queue has another TTL. What is with a consumer, or in a log, has not expired if it would not have by this
    one."""
    if queue.expiring is not None and queue.expiring.lost:
        # Some groups have not been seen to.
        queue.expiring, queue.swept = None, 0
    queue.swept = min(queue.swept, _overdue(queue, now))


def _next(queue: Queue, now: int, units: int) -> Expiring | None:
    """What goes next: single messages, or what the queue's TTL says."""
    groups = deque(queue.groups.values())
    most = units // max(1, len(groups))
    most = max(1 if len(groups) == 1 else _TOGETHER_LEAST, most)
    if own := queue.pop_expired(now, most):
        return Expiring(runs_of(own), groups, lost=False)
    upto = _overdue(queue, now)
    return Expiring([], groups, lost=True, upto=upto, most=most) if upto > queue.swept else None


def _cut(step: Step, queue: Queue, expiring: Expiring, ends: int) -> None:
    """Ask the groups how far of what has expired their messages reach that are taken out at once."""
    groups, first, by_message = expiring.groups, queue.swept + 1, queue.options.dead_letter
    while groups and step.work < ends:
        upto, cost = groups.popleft().cut_waiting(first, expiring.upto, expiring.most, by_message=by_message)
        expiring.upto = upto
        step.work += max(1, cost) if groups else cost
    if not groups:
        queue.swept = expiring.upto
        expiring.runs, expiring.upto = [(1, queue.swept)], 0
        expiring.groups = deque(queue.groups.values())


def _take_out(state: EngineState, step: Step, queue: Queue, expiring: Expiring, ends: int) -> None:
    groups = expiring.groups
    while groups and step.work < ends:
        group = groups.popleft()
        if queue.groups.get(group.name) is group:
            taken = _take(group, expiring.runs)
            step.work += 1 + (run_count(taken) if queue.options.dead_letter else len(taken))
            remove_from_group(state, step, queue, group, taken, Reason.EXPIRED, lost=expiring.lost)
    if not groups:
        queue.expiring = None


def _overdue(queue: Queue, now: int) -> int:
    """Up to which visible message the queue's TTL has passed."""
    ttl = queue.options.message_ttl_ms
    if not ttl:
        return 0
    upto = queue.sizes.last_at(now - ttl)
    return min(upto, queue.unseen[0].first - 1) if queue.unseen else upto


def _take(group: Group, runs: list[Run]) -> list[Run]:
    return sorted(taken for first, last in runs for taken in group.take_waiting(first, last))
