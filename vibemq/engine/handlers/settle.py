"""Settle, Extend, and the end of a consumer's hold by timeout or lost connection."""

from collections.abc import Generator, Iterator, Sequence

from vibemq.engine.handlers.dead_lettering import turn_down
from vibemq.engine.handlers.fan_out import remove_consumer
from vibemq.engine.handlers.jobs.deaths import note_tried
from vibemq.engine.handlers.requeue import fail, release
from vibemq.engine.pacing import STEP_UNITS, Slices, pieces
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import FORGOTTEN_PER_RUN
from vibemq.engine.queue.unacked import NEVER
from vibemq.engine.requests.failing import NOTED_PER_UNIT, note_acknowledged
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, light
from vibemq.model.commands import Extend, Settle, Settlement
from vibemq.model.effects import SettledRuns
from vibemq.model.options import Durability, LostConnection
from vibemq.model.runs import END, Run, run_count

UNKNOWN_MAX = 65_536
"""Of one command's messages that its consumer does not hold so many are counted: any number can stand in a command."""


def settle(state: EngineState, step: Step, command: Settle) -> Slices | None:
    consumer = state.consumer(command.session, command.consumer)
    if consumer is not None:
        consumer.settled_at = step.now
    if _is_long(consumer, command):
        return _settle_in_slices(state, step, command)
    # What comes back or dies has a record of its own for each command; acknowledgements share one.
    step.work += _cost_of_acks(consumer, command) if command.verb is Settlement.ACK else 1 + _asked(command.runs)
    held = _settle_runs(state, step, consumer, command, command.runs)
    _answer_settled(step, consumer, command, held)
    return None


def _is_long(consumer: Consumer | None, command: Settle | Extend) -> bool:
    """Whether it may be more than the work of one step."""
    runs = command.runs
    if len(runs) > STEP_UNITS:
        return True
    if consumer is None or consumer.unacked.count <= STEP_UNITS or _asked(runs) <= STEP_UNITS:
        return False
    if _by_message(command) or len(runs) > 1 or consumer.unacked.run_count > STEP_UNITS:
        return True
    if consumer.group.attempts and isinstance(command, Settle):
        return True
    if consumer.queue.requests:
        return len(consumer.queue.requests) > NOTED_PER_UNIT * STEP_UNITS
    return False


def _cost_of_acks(consumer: Consumer | None, command: Settle) -> int:
    if consumer is None or not consumer.group.attempts:
        return len(command.runs)
    return len(command.runs) + min(consumer.unacked.count, _asked(command.runs)) // FORGOTTEN_PER_RUN


def _by_message(command: Settle | Extend) -> bool:
    """Whether each message costs something, not each run."""
    return isinstance(command, Settle) and command.verb is not Settlement.ACK


def _settle_in_slices(state: EngineState, step: Step, command: Settle) -> Slices:
    consumer = state.consumer(command.session, command.consumer)
    if consumer is not None:
        # A range must not reach what the consumer is given after it has spoken.
        consumer.settling = True
    held: list[Run] = []
    try:
        for runs, cost in _pieces(state, command):
            step.work += cost
            found = _settle_runs(state, step, state.consumer(command.session, command.consumer), command, runs)
            if command.token is not None:
                held += found
            step = yield
    except Exception:
        # A fault of ours ends the command, not the consumer.
        _end_settling(step, consumer)
        raise
    _end_settling(step, consumer)
    _answer_settled(step, consumer, command, held)


def _end_settling(step: Step, consumer: Consumer | None) -> None:
    if consumer is not None:
        consumer.settling = False
        _after_settling(step, consumer)


def _pieces(state: EngineState, command: Settle | Extend) -> Iterator[tuple[list[Run], int]]:
    def cut(first: int, last: int, most: int) -> tuple[int, int]:
        consumer = state.consumer(command.session, command.consumer)
        if consumer is None:
            return last, 1
        held, requests = consumer.unacked, consumer.queue.requests
        if _by_message(command):
            return held.cut_members(first, last, most)
        if not isinstance(command, Settle):
            return held.cut_runs(first, last, most)
        last, cost = consumer.group.cut_held_by(consumer, first, last, most)
        if requests:
            last, number = requests.cut(first, last, NOTED_PER_UNIT * most)
            cost += number // NOTED_PER_UNIT
        return last, cost

    return pieces(command.runs, cut)


def _settle_runs(
    state: EngineState, step: Step, consumer: Consumer | None, command: Settle, runs: Sequence[Run]
) -> list[Run]:
    """Those that it held."""
    asked = _asked(runs)
    if consumer is None or consumer.queue.deleted:
        # The consumers of a deleted queue end one after the other; what they hold has gone with the queue.
        _count_unknown(state, asked)
        return []
    before = consumer.unacked.count
    held = _take(consumer, runs)
    found = before - consumer.unacked.count
    _count_unknown(state, asked - found)
    if held:
        consumer.group.in_flight -= found
        _apply(state, step, consumer, held, found, command)
        _after_settling(step, consumer)
    return held


def _answer_settled(step: Step, consumer: Consumer | None, command: Settle, held: list[Run]) -> None:
    if command.token is None:
        return
    # A message that another Settle of this consumer has taken is settled by a record that may still be on its way.
    need = Durability.TRANSIENT if consumer is None else light(consumer.queue)
    step.answer_standing(command, SettledRuns(held), need)


def _count_unknown(state: EngineState, number: int) -> None:
    state.totals.unknown_settles += min(number, UNKNOWN_MAX)


def _asked(runs: Sequence[Run]) -> int:
    if len(runs) == 1:
        return max(0, runs[0][1] - runs[0][0] + 1)
    return sum(last - first + 1 for first, last in runs if first <= last)


def _take(consumer: Consumer, runs: Sequence[Run]) -> list[Run]:
    if len(runs) == 1:
        return consumer.unacked.take(*runs[0])
    return [run for first, last in runs for run in consumer.unacked.take(first, last)]


def _apply(state: EngineState, step: Step, consumer: Consumer, held: list[Run], count: int, command: Settle) -> None:
    queue, group = consumer.queue, consumer.group
    match command.verb:
        case Settlement.ACK:
            group.forget_history(held)
            group.counters.settled += count
            if queue.requests:
                note_acknowledged(queue, held)
            if state.jobs.awaiting_ack:
                note_tried(state, step, queue, held)
            step.note_settled(queue, group, held)
        case Settlement.RETRY:
            fail(state, step, queue, group, held, command.reason, command.delay_ms)
        case Settlement.RELEASE:
            release(state, step, queue, group, held)
        case Settlement.REJECT:
            turn_down(state, step, queue, group, held, command.reason)


def _after_settling(step: Step, consumer: Consumer) -> None:
    if consumer.active:
        consumer.group.offer(consumer)
        step.touch(consumer.queue, consumer.group)
    elif not (consumer.unacked.count or consumer.settling):
        remove_consumer(step, consumer)


def extend(state: EngineState, step: Step, command: Extend) -> Slices | None:
    if _is_long(state.consumer(command.session, command.consumer), command):
        return _extend_in_slices(state, step, command)
    step.work += len(command.runs)
    step.answer(command, SettledRuns(_extend_runs(state, step, command, command.runs)))
    return None


def _extend_in_slices(state: EngineState, step: Step, command: Extend) -> Slices:
    held: list[Run] = []
    for runs, cost in _pieces(state, command):
        step.work += cost
        held += _extend_runs(state, step, command, runs)
        step = yield
    step.answer(command, SettledRuns(held))


def _extend_runs(state: EngineState, step: Step, command: Extend, runs: Sequence[Run]) -> list[Run]:
    """Those that the consumer holds, where somebody is to be told of them."""
    consumer = state.consumer(command.session, command.consumer)
    held: list[Run] = []
    found = 0
    if consumer is not None:
        timeout = consumer.ack_timeout_ms if command.ack_timeout_ms is None else command.ack_timeout_ms
        deadline = deadline_of(step.now, timeout)
        for first, last in runs:
            if command.token is not None:
                held += consumer.unacked.overlap(first, last)
            found += consumer.unacked.extend(first, last, deadline)
        if found:
            state.arm_part(consumer.queue, consumer, deadline)
    if not command.own:
        _count_unknown(state, _asked(runs) - found)
    return held


def deadline_of(now: int, ack_timeout_ms: int) -> int:
    return now + ack_timeout_ms if ack_timeout_ms else NEVER


def time_out(state: EngineState, step: Step, consumer: Consumer) -> None:
    """Take back what is overdue, as much as one step can: a failed delivery of each such message; the consumer lives
    on."""
    overdue = consumer.unacked.due(step.now, max(1, STEP_UNITS - step.work))
    if not overdue:
        return
    step.work += run_count(overdue)
    for first, last in overdue:
        consumer.unacked.take(first, last)
    consumer.group.in_flight -= run_count(overdue)
    fail(state, step, consumer.queue, consumer.group, overdue, "not settled in time", None)
    _after_settling(step, consumer)


def take_back(state: EngineState, step: Step, consumer: Consumer, *, clean: bool, limit: int = END) -> None:
    """The consumer is gone: what it holds, the `limit` lowest of it, goes back to its place and to others."""
    held = consumer.unacked.take_front(limit) if consumer.unacked.count > limit else consumer.unacked.take_all()
    if not held:
        return
    queue, group = consumer.queue, consumer.group
    group.in_flight -= run_count(held)
    if clean or queue.options.lost_connection is LostConnection.RELEASE:
        release(state, step, queue, group, held)
    else:
        # Others get it at once, unless they have to wait for what has failed.
        fail(state, step, queue, group, held, "connection lost", None if queue.options.hold_behind_failed else 0)


def take_out(state: EngineState, step: Step, consumer: Consumer, *, clean: bool) -> Generator[None, Step, Step]:
    """The consumer ends, and what it holds goes back; returns the last slice's step."""
    consumer.group.retire(consumer)
    while consumer.unacked.count and not consumer.queue.deleted:
        step.work += min(consumer.unacked.count, STEP_UNITS)
        take_back(state, step, consumer, clean=clean, limit=STEP_UNITS)
        if step.work >= STEP_UNITS and consumer.unacked.count:
            step = yield
    remove_consumer(step, consumer)
    step.work += 1
    if step.work >= STEP_UNITS:
        step = yield
    return step
