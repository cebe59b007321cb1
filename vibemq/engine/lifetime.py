"""Queues that go away by themselves: unused for too long, left by their last consumer, or with their connection.

Here stands what makes a queue's time begin, begin again, and end. A queue whose time has ended is *doomed*: it is
deleted in one of the next steps (`departure.py`), and before anything else is done to it.
"""

from collections.abc import Generator

from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.consumer import Consumer, SessionState
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import QueueExclusive
from vibemq.model.commands import Command
from vibemq.model.effects import Departure
from vibemq.model.options import Durability
from vibemq.model.records import QueueAttended, QueueChanged, Record
from vibemq.model.runs import END

DOOMED_PER_UNIT = 32
"""Queues of a session that ends. To doom one is much less work than a unit."""


def begin(state: EngineState, queue: Queue, now: int) -> None:
    """The queue is there from now on, or has other options."""
    queue.unused_since = now
    if not queue.options.goes_away:
        state.mortal.pop(queue.name, None)
        return
    state.mortal[queue.name] = queue
    arm(state, queue)


def own(state: EngineState, queue: Queue, session: int) -> None:
    """The queue belongs to the session and goes with it."""
    queue.owner = session
    state.session(session).own_queues[queue] = None


def arm(state: EngineState, queue: Queue) -> None:
    at = expires_at(queue)
    if at < END:
        state.arm(queue, at)


def expires_at(queue: Queue) -> int:
    """When it has been unused for so long that it goes, if nobody uses it until then."""
    expires_ms = queue.options.expires_ms
    return queue.unused_since + expires_ms if expires_ms and not queue.consumer_count else END


def join(step: Step, consumer: Consumer) -> Durability:
    """The consumer is more than a fetch; what the answer needs that says so."""
    queue = consumer.queue
    if not consumer.attends:
        consumer.attends = True
        queue.attendant_count += 1
    return attend(step, queue)


def attend(step: Step, queue: Queue) -> Durability:
    """The queue has a consumer that is no fetch; what the answer needs that says so."""
    if queue.attended or not queue.options.auto_delete:
        return Durability.TRANSIENT
    queue.attended = True
    need = Durability.ASYNC if queue.transient else Durability.STRONG
    step.note_structure(QueueAttended(queue.queue_id), need)
    return need


def forget_attended(state: EngineState, failed: list[Record]) -> None:
    """The subscriptions of these records have failed, and so has every later one."""
    for record in failed:
        if isinstance(record, QueueAttended) and record.queue_id in state.queues_by_id:
            state.queues_by_id[record.queue_id].attended = False


def attend_changed(state: EngineState, step: Step, failed: list[Record]) -> None:
    """Queues whose change is owed have got the option under consumers that are still there."""
    for record in failed:
        queue = state.queues_by_id.get(record.queue_id) if isinstance(record, QueueChanged) else None
        if queue is not None and queue.attendant_count:
            attend(step, queue)


def note_consumer_left(state: EngineState, queue: Queue) -> None:
    """A consumer may have left the queue: the last one ends its time, or begins it anew."""
    options = queue.options
    if not options.goes_away or queue.consumer_count or queue.deleted:
        return
    if queue.attended and options.auto_delete:
        doom(state, queue, Departure.AUTO_DELETE)
    else:
        arm(state, queue)


def doom(state: EngineState, queue: Queue, why: Departure) -> None:
    if not queue.deleted:
        state.doomed.setdefault(queue, why)


def check_owner(queue: Queue, command: Command) -> None:
    """Raises QueueExclusive: the queue belongs to another connection than the one that asks."""
    asks = getattr(command, "asked_by", 0) or getattr(command, "session", 0)
    if queue.owner and queue.owner != asks:
        raise QueueExclusive(queue.name)


def doom_at_start(state: EngineState, queue: Queue) -> None:
    """Every connection of the last run is gone."""
    if queue.options.exclusive:
        doom(state, queue, Departure.EXCLUSIVE)
    elif queue.options.auto_delete and queue.attended:
        doom(state, queue, Departure.AUTO_DELETE)


def doom_with(state: EngineState, step: Step, session: SessionState) -> Generator[None, Step, Step]:
    """The session ends, and its queues with it; returns the last slice's step."""
    for number, queue in enumerate(list(session.own_queues), 1):
        doom(state, queue, Departure.EXCLUSIVE)
        if not number % DOOMED_PER_UNIT:
            step.work += 1
            if step.work >= STEP_UNITS:
                step = yield
    return step
