"""Settle, Extend, and the end of a consumer's hold by timeout or lost connection."""

from vibemq.engine.handlers.dead_lettering import turn_down
from vibemq.engine.handlers.fan_out import remove_consumer
from vibemq.engine.handlers.requeue import fail, release
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.unacked import NEVER
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, light
from vibemq.model.commands import Extend, Settle, Settlement
from vibemq.model.options import Durability, LostConnection
from vibemq.model.runs import Run, run_count


def settle(state: EngineState, step: Step, command: Settle) -> None:
    consumer = state.consumer(command.session, command.consumer)
    asked = _asked(command.runs)
    if consumer is not None:
        before = consumer.held.count
        held = _take(consumer, command.runs)
        found = before - consumer.held.count
        state.totals.unknown_settles += asked - found
        if held:
            consumer.group.in_flight -= found
            _apply(state, step, consumer, held, found, command)
            _after_settling(step, consumer)
    else:
        state.totals.unknown_settles += asked
    # A message that another Settle of this consumer has taken is settled by a record that may still be on its way.
    step.answer(command, None, Durability.TRANSIENT if consumer is None else light(consumer.queue))


def _asked(runs: list[Run]) -> int:
    if len(runs) == 1:
        return max(0, runs[0][1] - runs[0][0] + 1)
    return sum(last - first + 1 for first, last in runs if first <= last)


def _take(consumer: Consumer, runs: list[Run]) -> list[Run]:
    if len(runs) == 1:
        return consumer.held.take(*runs[0])
    return [run for first, last in runs for run in consumer.held.take(first, last)]


def _apply(state: EngineState, step: Step, consumer: Consumer, held: list[Run], count: int, command: Settle) -> None:
    queue, group = consumer.queue, consumer.group
    match command.verb:
        case Settlement.ACK:
            group.forget_history(held)
            group.tally.settled += count
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
    elif not consumer.held.count:
        remove_consumer(step, consumer)


def extend(state: EngineState, step: Step, command: Extend) -> None:
    consumer = state.consumer(command.session, command.consumer)
    asked = _asked(command.runs)
    found = 0
    if consumer is not None:
        timeout = consumer.ack_timeout_ms if command.ack_timeout_ms is None else command.ack_timeout_ms
        deadline = deadline_of(step.now, timeout)
        for first, last in command.runs:
            found += consumer.held.extend(first, last, deadline)
        if found:
            state.arm_part(consumer.queue, consumer, deadline)
    state.totals.unknown_settles += asked - found
    step.answer(command, None)


def deadline_of(now: int, ack_timeout_ms: int) -> int:
    return now + ack_timeout_ms if ack_timeout_ms else NEVER


def time_out(state: EngineState, step: Step, consumer: Consumer) -> None:
    """Take back what is overdue: a failed delivery of each such message; the consumer lives on."""
    overdue = consumer.held.due(step.now)
    if not overdue:
        return
    for first, last in overdue:
        consumer.held.take(first, last)
    consumer.group.in_flight -= run_count(overdue)
    fail(state, step, consumer.queue, consumer.group, overdue, "not settled in time", None)
    _after_settling(step, consumer)


def take_back(state: EngineState, step: Step, consumer: Consumer, *, clean: bool, limit: int | None = None) -> None:
    """The consumer is gone: what it holds, the `limit` lowest of it or all, goes back to its place and to others."""
    held = consumer.held.take_all() if limit is None else consumer.held.take_front(limit)
    if not held:
        return
    queue, group = consumer.queue, consumer.group
    group.in_flight -= run_count(held)
    if clean or queue.options.lost_connection is LostConnection.RELEASE:
        release(state, step, queue, group, held)
    else:
        fail(state, step, queue, group, held, "connection lost", 0)
