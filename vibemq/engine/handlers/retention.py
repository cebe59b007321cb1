"""Log retention: what the log keeps is limited by age, number and bytes, whoever has read it or not."""

from vibemq.engine.handlers.crowds import log_trimming
from vibemq.engine.handlers.crowds.log_trimming import SURPLUS_PART
from vibemq.engine.handlers.dead_lettering import cut_step, drop_logged
from vibemq.engine.pacing import STEP_UNITS, is_crowded
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.records import Reason
from vibemq.model.runs import END, RunSet


def trim_log(state: EngineState, step: Step, queue: Queue) -> None:
    """Drop the oldest messages beyond the limits, and come back when the next one is too old, or at once when they are
    more than the work of one step. Of very many groups each lets go by itself, with the next ticks."""
    log = queue.log
    if not log or queue.log_trim is not None:
        return
    cut = _too_old(queue, step.now)
    if not is_crowded(queue) or _is_far_beyond(queue, log):
        cut = max(cut, _too_many(queue, log), _too_big(queue, log))
    if cut >= log.first:
        if is_crowded(queue):
            log_trimming.begin(state, step, queue, cut)
            return
        stop, cost = cut_step(queue, log.first, cut, STEP_UNITS)
        step.work += cost
        drop_logged(step, queue, log.overlap(1, stop), Reason.RETENTION)
        if log and log.first <= cut:
            state.arm(queue, step.now)
            return
    if queue.options.retain_ms and log:
        complete_at = queue.sizes.next_at(log.first - 1)
        if complete_at is not None:
            state.arm(queue, complete_at + queue.options.retain_ms)


def _is_far_beyond(queue: Queue, log: RunSet) -> bool:
    """Whether it is worth while to look at very many groups for what is too much."""
    messages, size = queue.options.retain_messages, queue.options.retain_bytes
    if messages and len(log) > messages + messages // SURPLUS_PART:
        return True
    return bool(size) and queue.sizes.between(log.first, END) > size + size // SURPLUS_PART


def _too_old(queue: Queue, now: int) -> int:
    """The last sequence whose whole chunk is too old."""
    if not queue.options.retain_ms:
        return 0
    return queue.sizes.last_at(now - queue.options.retain_ms)


def _too_many(queue: Queue, log: RunSet) -> int:
    limit = queue.options.retain_messages
    excess = len(log) - limit
    if not limit or excess <= 0:
        return 0
    return log.front(excess)[-1][1]


def _too_big(queue: Queue, log: RunSet) -> int:
    """Cuts at a whole run of equal sizes: found by halving, since sizes are known for spans."""
    limit = queue.options.retain_bytes
    if not limit or not log or queue.sizes.between(log.first, END) <= limit:
        return 0
    low, high = log.first, log.last
    while low < high:
        middle = (low + high) // 2
        if queue.sizes.between(middle + 1, END) <= limit:
            high = middle
        else:
            low = middle + 1
    return low
