"""Messages that a group's consumers are not to be given, and nobody else will ask for: the consumer of a passing group
does not want them, or the filter of the group does not match them."""

from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.requests.failing import note_acknowledged
from vibemq.engine.step import Step
from vibemq.model.runs import END, Run, run_count


def settle_unwanted(step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    """As if the consumer had acknowledged them."""
    group.forget_history(runs)
    taken = [part for run in runs for part in group.take_waiting(*run)]
    if not taken:
        return
    group.counters.settled += run_count(taken)
    if queue.requests:
        note_acknowledged(queue, taken)
    step.note_settled(queue, group, taken)
    step.free(queue)


def outranked_since(queue: Queue, group: Group) -> int:
    """From which message on each consumer of the group, a passing one, has a lower priority than another consumer that
    wants the same; END: not all have."""
    if group.durable or not queue.ranks:
        return END
    return max(queue.outranked_since(consumer) for consumer in group.consumers if consumer.active)


def settle_unheard(step: Step, queue: Queue, group: Group) -> int:
    """What waits where nobody has subscribed, if the queue is for those who are there; returns what it has cost."""
    if queue.options.consumers_settle or group.name != WAITING_NAME:
        return 0
    return settle_outranked(step, queue, group, 1)


def settle_outranked(step: Step, queue: Queue, group: Group, since: int) -> int:
    """What waits of that which was published since consumers of a higher priority came; returns what it has cost, 0
    when there was nothing."""
    before = group.waiting
    if not before:
        return 0
    last, cost = group.cut_waiting(since, END - 1, _RUNS_AT_ONCE)
    settle_unwanted(step, queue, group, [(since, last)])
    if group.waiting == before:
        return 0
    if group.waiting:
        step.touch(queue, group)
    return cost + 1


_RUNS_AT_ONCE = 150
