"""Consumers and sessions: they come, change their capacity, and leave."""

from vibemq.engine import lifetime
from vibemq.engine.handlers.fan_out import check_group_name, claim, durable_need, group_for, remove_consumer
from vibemq.engine.handlers.publish import forget_parked, refuse_parked
from vibemq.engine.handlers.queues import check_mode, find_or_create
from vibemq.engine.handlers.settle import take_out
from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.queue.consumer import Consumer, SessionState
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.queue.share import Share
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, light
from vibemq.engine.waiting import PER_UNIT
from vibemq.errors import InvalidOptions
from vibemq.model.commands import (
    CloseSession,
    EndConsumers,
    SetCapacity,
    SetFlow,
    SetShare,
    SharedCapacity,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Subscribed
from vibemq.model.options import Durability
from vibemq.model.runs import END

_SUBSCRIBE_UNITS = 3
"""What a subscription costs: a client may make hundreds at once."""


def subscribe(state: EngineState, step: Step, command: Subscribe) -> None:
    step.work += _SUBSCRIBE_UNITS
    existing = state.consumer(command.session, command.consumer)
    if existing is not None and not _may_return(existing, command):
        raise InvalidOptions(f"subscription {command.consumer} of this connection is in use; choose another number")
    if command.weight < 1:
        raise InvalidOptions(f"a consumer's weight is {command.weight}; it must be 1 or more")
    _check_share(state, existing, command)
    name = command.group or None
    if name is not None and name not in _group_names(state, command.queue):
        check_group_name(name)
    created = command.queue not in state.queues
    queue = find_or_create(state, step, command.queue, create=command.create)
    if command.mode is not None:
        check_mode(queue, command.mode)
    next_sequence = queue.open_end()
    if existing is not None:
        group, new = existing.group, False
        _check_selector(group, command)
        _configure(state, existing, command)
        consumer = existing
    else:
        _check_handed_out(queue, name)
        if name is not None or not queue.options.is_fan_out:
            _check_selector(queue.groups.get(name or WAITING_NAME), command)
        shared = _group_beside(state, command)
        if shared is not None:
            _check_selector(shared, command)
            group, new = shared, False
        else:
            group, new = group_for(state, step, queue, name, command.start, command.start_sequence)
        if new:
            claim(step, queue, group, command.user)
        consumer = _consumer(state, queue, group, command)
    group.join(consumer)
    step.touch(queue, group)
    need = Durability.STRONG if created else (durable_need(queue) if new else light(queue))
    if not command.credit:
        # A fetch comes and goes, and does not mean that the queue has found its consumer. It is asked for with all of
        # its credit: who begins with none is given more later.
        need = max(need, lifetime.join(step, consumer))
    step.answer_standing(command, Subscribed(queue.name, group.name, command.consumer, next_sequence), need)


def _group_beside(state: EngineState, command: Subscribe) -> Group | None:
    other = state.consumer(command.session, command.beside) if command.beside is not None else None
    if other is None or not other.active or other.queue.name != command.queue or other.group.durable:
        return None
    return other.group


def _check_handed_out(queue: Queue, name: str | None) -> None:
    group = queue.groups.get(name) if name is not None else None
    if group is not None and group.cursor is not None:
        raise InvalidOptions(
            f"group {name!r} of queue {queue.name!r} is a cursor, which is read by ranges and handed no messages; "
            "subscribe with another group"
        )


def _check_selector(group: Group | None, command: Subscribe) -> None:
    if group is not None and group.routes is not None:
        group.routes.check_room_for(command.where)


def _may_return(consumer: Consumer, command: Subscribe) -> bool:
    """Unsubscribed, but still holding messages of the same group: it takes up where it was."""
    same_queue = not consumer.active and consumer.queue.name == command.queue and not consumer.queue.deleted
    return same_queue and (command.group == consumer.group.name or not command.group)


def _group_names(state: EngineState, queue: str) -> "dict[str, Group]":
    known = state.queues.get(queue)
    return {} if known is None else known.groups


def _consumer(state: EngineState, queue: Queue, group: Group, command: Subscribe) -> Consumer:
    session = state.session(command.session)
    consumer = Consumer(session, command.consumer, queue, group, 0, 0, None, 0, 0)
    _configure(state, consumer, command)
    if command.share is not None and consumer.acknowledges:
        consumer.join_share(_share(state, session, command.share))
    session.consumers[command.consumer] = consumer
    return consumer


def _check_share(state: EngineState, existing: Consumer | None, command: Subscribe) -> None:
    """What a program says in two places is one thing: the last of two numbers would surprise whoever wrote the first.

    Raises:
        InvalidOptions: the share has another capacity, or a consumer that still holds messages has another share.
    """
    wanted = command.share
    if existing is not None and existing.acknowledges:
        has_name = existing.share.name if existing.share is not None else ""
        if has_name != (wanted.name if wanted is not None else ""):
            raise InvalidOptions(
                f"subscription {command.consumer} of this connection still holds messages, which "
                f"{f'share {has_name!r} counts' if has_name else 'no share counts'}; choose another number"
            )
    session = state.sessions.get(command.session)
    share = session.shares.get(wanted.name) if session is not None and wanted is not None else None
    if share is None or wanted is None or not _in_use(share):
        return
    for what, has, asked in (
        ("messages", share.capacity_messages, wanted.messages),
        ("bytes", share.capacity_bytes, wanted.size),
    ):
        if asked is not None and asked != has:
            raise InvalidOptions(
                f"the subscriptions of share {wanted.name!r} hold {has} {what} together, and this one of queue "
                f"{command.queue!r} asks for {asked}; give all of them the same prefetch, or leave it out here, and "
                "change it later with set_prefetch on any of them"
            )


def _share(state: EngineState, session: SessionState, wanted: SharedCapacity) -> Share[Consumer]:
    share = session.shares.get(wanted.name)
    if share is None:
        messages = state.settings.capacity_messages_default if wanted.messages is None else wanted.messages
        share = session.shares[wanted.name] = Share(wanted.name, messages, wanted.size or 0, state.called)
    elif not _in_use(share):
        _set_share(
            share,
            share.capacity_messages if wanted.messages is None else wanted.messages,
            share.capacity_bytes if wanted.size is None else wanted.size,
        )
    return share


def _in_use(share: Share[Consumer]) -> bool:
    """Whether any of its subscriptions goes on; others hold messages that they have not settled."""
    return any(member.active for member in share.members)


def _set_share(share: Share[Consumer], messages: int, size: int) -> None:
    share.capacity_messages = messages
    if size and not share.capacity_bytes:
        for consumer in share.members:
            _weigh(consumer)
    share.capacity_bytes = size


def _configure(state: EngineState, consumer: Consumer, command: Subscribe) -> None:
    consumer.capacity_messages = _capacity(state, command)
    consumer.capacity_bytes = command.capacity_bytes
    consumer.credit = command.credit
    consumer.priority = command.priority
    consumer.weight = command.weight
    consumer.selector = command.where
    consumer.acknowledges = consumer.queue.options.consumers_settle
    timeout = command.ack_timeout_ms
    consumer.ack_timeout_ms = consumer.queue.options.ack_timeout_ms if timeout is None else timeout


def _capacity(state: EngineState, command: Subscribe) -> int:
    if command.capacity_messages is not None:
        return command.capacity_messages
    return END if command.share is not None else state.settings.capacity_messages_default


def unsubscribe(state: EngineState, step: Step, command: Unsubscribe) -> None:
    step.work += 1
    consumer = state.consumer(command.session, command.consumer)
    if consumer is not None and consumer.active:
        consumer.group.retire(consumer)
        step.touch(consumer.queue, consumer.group)
        if not consumer.unacked.count:
            remove_consumer(step, consumer)
    step.end_deliveries(command)


def set_capacity(state: EngineState, step: Step, command: SetCapacity) -> None:
    """New limits count for what is already held, too; 0 messages pauses the consumer."""
    step.work += 1
    consumer = state.consumer(command.session, command.consumer)
    if consumer is not None:
        consumer.capacity_messages = command.capacity_messages
        if command.capacity_bytes and not consumer.capacity_bytes:
            _weigh(consumer)
        consumer.capacity_bytes = command.capacity_bytes
        if consumer.credit is not None:
            consumer.credit += command.add_credit
        consumer.group.offer(consumer)
        step.touch(consumer.queue, consumer.group)
    step.answer(command, None)


def _weigh(consumer: Consumer) -> None:
    """Bytes are only counted where they are limited: count what is held already."""
    consumer.unacked.weigh(consumer.queue.sizes.between)


def set_share(state: EngineState, step: Step, command: SetShare) -> None:
    step.work += 1
    session = state.sessions.get(command.session)
    share = session.shares.get(command.share) if session is not None else None
    if share is not None:
        _set_share(share, command.capacity_messages, command.capacity_bytes)
        share.call()
        for consumer in share.line:
            # Somebody has to be looked at for the line to be called in this step.
            step.touch(consumer.queue, consumer.group)
            break
    step.answer(command, None)


def set_flow(state: EngineState, step: Step, command: SetFlow) -> None:
    session = state.session(command.session)
    if session.open == command.open:
        return
    session.open = command.open
    if command.open:
        for consumer in session.consumers.values():
            consumer.group.offer(consumer)
            step.touch(consumer.queue, consumer.group)


def end_consumers_of(state: EngineState, step: Step, command: EndConsumers) -> Slices:
    session = state.sessions.get(command.session)
    for number, consumer in list(session.consumers.items()) if session is not None else ():
        if step.work >= STEP_UNITS:
            step = yield
        step.work += 1
        error = command.subscriptions(consumer.queue.name)
        if error is None or state.consumer(command.session, number) is not consumer:
            continue
        told, queue = consumer.active, consumer.queue
        step = yield from take_out(state, step, consumer, clean=True)
        if told and not queue.deleted:
            step.effects.append(ConsumerEnded(command.session, number, queue.name, error))
    if command.publishes is not None:
        yield from refuse_parked(state, step, command.session, command.publishes)


def close_session(state: EngineState, step: Step, command: CloseSession) -> Slices | None:
    """Everything of the session goes. Nothing is handed out to it from here on, so nothing comes back to one of its
    consumers."""
    if state.parking:
        forget_parked(state, command.session)
    session = state.sessions.get(command.session)
    if session is None:
        if not state.requests.count(command.session):
            return None
        session = state.session(command.session)
    session.open = False
    return _close(state, step, session, clean=command.clean)


def _close(state: EngineState, step: Step, session: SessionState, *, clean: bool) -> Slices:
    for consumer in list(session.consumers.values()):
        step = yield from take_out(state, step, consumer, clean=clean)
    while state.requests.take_of(session.number, PER_UNIT):
        # Whoever replies to them learns it then.
        step.work += 1
        if step.work >= STEP_UNITS:
            step = yield
    step = yield from lifetime.doom_with(state, step, session)
    state.sessions.pop(session.number, None)
