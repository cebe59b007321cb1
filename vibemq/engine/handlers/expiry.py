"""Time to live: of single messages and of a whole queue.

What waits expires when its time has come; what is in flight, when it comes back. To a cursor a message that its
sender let expire is counted and skipped; what the queue's own TTL takes away unread is a loss.
"""

from vibemq.engine.handlers.dead_lettering import remove_from_group
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.records import Reason
from vibemq.model.runs import Run, runs_of


def expire(state: EngineState, step: Step, queue: Queue) -> None:
    """Take out of every group what has expired by now."""
    if queue.next_expiry() > step.now:
        return
    own = runs_of(queue.pop_expired(step.now))
    of_queue: list[Run] = []
    ttl = queue.options.message_ttl_ms
    if ttl:
        upto = queue.sizes.last_at(step.now - ttl)
        if queue.unseen:
            upto = min(upto, queue.unseen[0].first - 1)
        if upto > queue.swept:
            queue.swept = upto
            of_queue = [(1, upto)]
    for runs, lost in ((own, False), (of_queue, True)):
        if runs:
            for group in list(queue.groups.values()):
                remove_from_group(state, step, queue, group, _take(group, runs), Reason.EXPIRED, lost=lost)
    queue.collect()


def _take(group: Group, runs: list[Run]) -> list[Run]:
    return sorted(taken for first, last in runs for taken in group.take_waiting(first, last))
