"""What comes back from a consumer: failed deliveries and released ones.

Every function here is told runs that were just taken from their holder, and gives them a new place.
"""

from vibemq.engine.backoff import retry_delay_ms
from vibemq.engine.handlers.dead_lettering import bury, discard_failed, remove_from_group
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, light
from vibemq.model.records import Attempts, Reason, Returned
from vibemq.model.runs import Run, runs_of

_FIRST = Attempts()


def fail(
    state: EngineState, step: Step, queue: Queue, group: Group, runs: list[Run], error: str, delay_ms: int | None
) -> None:
    """Count a failed delivery of each; hand it out again after `delay_ms` (None: the queue's backoff), or never."""
    returned: dict[int, Attempts] = {}
    doomed: list[int] = []
    for first, last in runs:
        for sequence in range(first, last + 1):
            history = _failed(group.attempts.get(sequence, _FIRST), step.now, error)
            group.remember(sequence, history)
            if history.failed >= queue.options.max_attempts:
                doomed.append(sequence)
            else:
                returned[sequence] = _with_due(state, step, queue, history, delay_ms)
    _give_back(state, step, queue, group, returned)
    if doomed:
        _give_up(state, step, queue, group, doomed, error)


def release(state: EngineState, step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    """Back to their places unharmed, at once."""
    attempts = group.attempts
    _give_back(
        state,
        step,
        queue,
        group,
        {s: attempts.get(s, _FIRST)._replace(due_at=0) for first, last in runs for s in range(first, last + 1)},
    )


def _failed(history: Attempts, now: int, error: str) -> Attempts:
    return Attempts(
        acquired=history.acquired,
        failed=history.failed + 1,
        first_failed_at=history.first_failed_at or now,
        last_failed_at=now,
        error=error or history.error,
    )


def _with_due(state: EngineState, step: Step, queue: Queue, history: Attempts, delay_ms: int | None) -> Attempts:
    if queue.options.hold_behind_failed:
        # Without a delay of its own it waits where it is, in front of the others. Else they do not wait for it.
        return history if delay_ms is None else history._replace(due_at=step.now + delay_ms)
    if delay_ms is None:
        delay_ms = retry_delay_ms(
            history.failed,
            base_ms=queue.options.retry_base_ms,
            max_ms=queue.options.retry_max_ms,
            jitter=state.jitter(),
        )
    return history._replace(due_at=step.now + delay_ms) if delay_ms > 0 else history


def _give_back(state: EngineState, step: Step, queue: Queue, group: Group, returned: dict[int, Attempts]) -> None:
    if not returned:
        return
    expired = [s for s in returned if queue.is_expired(s, step.now)]
    for sequence, history in returned.items():
        group.remember(sequence, history)
    step.note(Returned(queue.queue_id, group.group_id, returned), light(queue))
    if expired:
        gone = set(expired)
        returned = {s: history for s, history in returned.items() if s not in gone}
    at_once, later, dues = list[int](), list[int](), list[int]()
    # A consumer may settle them in any order.
    for sequence, history in sorted(returned.items()):
        if history.due_at > step.now:
            later.append(sequence)
            dues.append(history.due_at)
        else:
            at_once.append(sequence)
    if later:
        group.postpone_some(later, dues)
        state.arm_part(queue, group, min(dues))
    for first, last in runs_of(at_once):
        group.ready.add(first, last)
    step.touch(queue, group)
    remove_from_group(state, step, queue, group, runs_of(expired), Reason.EXPIRED)


def _give_up(state: EngineState, step: Step, queue: Queue, group: Group, doomed: list[int], error: str) -> None:
    if queue.options.dead_letter:
        bury(state, step, queue, group, doomed, Reason.MAX_ATTEMPTS, error=error, acquired=1)
    else:
        discard_failed(state, step, queue, group, runs_of(doomed), Reason.MAX_ATTEMPTS, error)
    step.touch(queue, group)
