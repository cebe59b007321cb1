"""Plain frames of an authenticated peer, one function for each type: frame to engine command.

Publish (20) and Ack (30) in their usual form never come here; they have intakes of their own.
"""

from collections.abc import Callable
from typing import Any

import orjson

from vibemq.errors import InvalidMessage, InvalidPayload, InvalidQueueName, UnknownCommand
from vibemq.model.commands import (
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    Extend,
    ListQueues,
    Settle,
    Settlement,
    SharedCapacity,
    StartAt,
    Subscribe,
)
from vibemq.model.options import check_queue_name
from vibemq.model.selector import Selector
from vibemq.protocols.native import handshake, users
from vibemq.protocols.native.codec.extensions import (
    ADMIN_EXTENSION,
    CURSOR_EXTENSION,
    SETTLE_EXTENSION,
    WHERE_EXTENSION,
)
from vibemq.protocols.native.codec.json_check import LISTS_MAX, NAMES_MAX, is_read_at_once
from vibemq.protocols.native.codec.options import options_of
from vibemq.protocols.native.codec.wire import CommandType, WireMessage
from vibemq.protocols.native.replies import (
    AdminDescribed,
    Administered,
    AskedRequest,
    Described,
    Listed,
    Plain,
    SubscribeAsked,
    acknowledge_subscribe,
    acknowledge_unsubscribe,
    ask_plain,
    leave,
)
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.session import Goodbye, OperationRequest

_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
_SHARE_MAX = 256
_SUBSCRIPTION_ID_MAX = 256
"""With batch/1 it stands in every frame that delivers something."""


def dispatch(state: NativeState, message: WireMessage) -> None:
    """Turn one frame into requests or an immediate answer. Raises errors of the family to be answered with its id."""
    handler = _HANDLERS.get(message.type)
    if handler is None:
        raise _unknown(message.type)
    if message.type in _NEEDS_QUEUE:
        if not message.queue:
            raise InvalidQueueName(f"{CommandType(message.type).name} needs a queue name in the frame's queue field")
        check_queue_name(message.queue)
    handler(state, message)


def _unknown(kind: int) -> UnknownCommand:
    try:
        name = CommandType(kind).name
    except ValueError:
        return UnknownCommand(f"command type {kind} is not known; see docs/spec/native.md for those that are")
    return UnknownCommand(f"{name} ({kind}) is not a command for this broker, or its extension was not agreed on")


def subscribe(state: NativeState, message: WireMessage) -> None:
    if state.bulk:
        _subscribe_bulk(state, message)
        return
    existing = state.subscriptions.of_queue(message.queue)
    if existing is not None and existing.active:
        acknowledge_subscribe(state, existing, message.id)
        return
    if existing is not None and existing.asked_by:
        existing.asked_by.append(message.id)
        return
    if existing is not None:
        # Only a renewal, which would not create the queue; this Subscribe takes its place.
        state.subscriptions.forget_name(existing)
    state.wanted.discard(message.queue)
    # Each is a subscription that waits for its queue: without a bound they would gather, and all are looked at often.
    state.subscriptions.check_room(sum(state.subscriptions.of_queue(queue) is None for queue in state.wanted))
    ask_plain(state, message.queue, [message.id])


def _subscribe_bulk(state: NativeState, message: WireMessage) -> None:
    headers = message.headers
    if len(message.id) > _SUBSCRIPTION_ID_MAX:
        raise InvalidMessage(
            f"the id of a Subscribe has {len(message.id):,} characters; with batch/1 it may have {_SUBSCRIPTION_ID_MAX}"
        )
    start, start_sequence = _start(headers.get("start", "default"))
    command = Subscribe(
        state.session,
        None,
        0,
        message.queue,
        group=headers.get("group"),
        capacity_messages=number(message, "prefetch", _U32_MAX),
        capacity_bytes=number(message, "prefetch-bytes", _U64_MAX) or 0,
        credit=number(message, "credit", _U32_MAX),
        priority=number(message, "consumer-priority", _U32_MAX) or 0,
        ack_timeout_ms=number(message, "ack-timeout-ms", _U32_MAX),
        start=start,
        start_sequence=start_sequence,
        weight=number(message, "consumer-weight", _U32_MAX) or 1,
    )
    where = headers.get("where", "")
    if where and WHERE_EXTENSION in state.extensions:
        command.where = Selector.parse(where)
    share = headers.get("share", "")
    if len(share) > _SHARE_MAX:
        raise InvalidMessage(f"header share has {len(share):,} characters; it may have {_SHARE_MAX}")
    if share:
        size = number(message, "prefetch-bytes", _U64_MAX)
        command.share = SharedCapacity(share, command.capacity_messages, size)
        command.capacity_messages, command.capacity_bytes = None, 0
    subscription = state.subscriptions.add(message.id, message.queue, plain=False, share=share)
    command.consumer = subscription.consumer
    command.token = SubscribeAsked(subscription)
    state.ask(command)


def _start(text: str) -> tuple[StartAt, int]:
    name, _, sequence = text.strip().lower().partition(":")
    if name == "sequence" and sequence.isdecimal() and len(sequence) < 20:
        return StartAt.SEQUENCE, int(sequence)
    if not sequence and name in _STARTS:
        return _STARTS[name], 0
    raise InvalidMessage(f"header start is {text[:40]!r}; use default, beginning, now or sequence:N")


_STARTS = {"default": StartAt.DEFAULT, "beginning": StartAt.BEGINNING, "now": StartAt.NOW}


def number(message: WireMessage, name: str, most: int) -> int | None:
    """A header that is a whole number; None when it is absent."""
    text = message.headers.get(name)
    if text is None:
        return None
    value = int(text) if text.isdecimal() and len(text) <= 20 else -1
    if not 0 <= value <= most:
        raise InvalidMessage(f"header {name} is {text[:40]!r}; it must be a whole number from 0 to {most}")
    return value


def unsubscribe(state: NativeState, message: WireMessage) -> None:
    subscription_id = message.headers.get("subscription-id", "")
    if state.bulk:
        subscription = state.subscriptions.of_id(subscription_id)
    else:
        subscription = state.subscriptions.of_queue(message.queue)
        state.wanted.discard(message.queue)
    if subscription is None or (subscription.plain and not subscription.active and not subscription.asked_by):
        if subscription is not None:
            state.subscriptions.forget_name(subscription)
        acknowledge_unsubscribe(state, message.id, message.queue, subscription_id or message.id)
    else:
        leave(state, message.id, subscription)


def nack(state: NativeState, message: WireMessage) -> None:
    _need(state, message, SETTLE_EXTENSION)
    name = message.headers.get("verb", "retry").lower()
    if name not in _NACK_VERBS:
        raise InvalidMessage(f"header verb is {name[:40]!r}; use retry, release or reject")
    delay_ms = number(message, "delay-ms", _U32_MAX)
    held = state.delivery_index.take(message.headers.get("messageId", message.id).encode())
    if held is not None:
        consumer, sequence, *_ = held
        reason = message.headers.get("reason", "")
        state.ask(Settle(state.session, None, consumer, _NACK_VERBS[name], [(sequence, sequence)], delay_ms, reason))


_NACK_VERBS = {"retry": Settlement.RETRY, "release": Settlement.RELEASE, "reject": Settlement.REJECT}


def extend(state: NativeState, message: WireMessage) -> None:
    _need(state, message, SETTLE_EXTENSION)
    ack_timeout_ms = number(message, "ack-timeout-ms", _U32_MAX)
    held = state.delivery_index.find(message.headers.get("messageId", message.id).encode())
    if held is not None:
        consumer, sequence, *_ = held
        state.ask(Extend(state.session, None, consumer, [(sequence, sequence)], ack_timeout_ms))


def create_queue(state: NativeState, message: WireMessage) -> None:
    options = options_of(message.payload, message.headers, state.context.queue_defaults)
    token = Plain(CommandType.CREATE_QUEUE, message.id, message.queue)
    state.ask(CreateQueue(state.session, token, message.queue, options))


def delete_queue(state: NativeState, message: WireMessage) -> None:
    token = Plain(CommandType.DELETE_QUEUE, message.id, message.queue)
    state.ask(DeleteQueue(state.session, token, message.queue))


def queue_info(state: NativeState, message: WireMessage) -> None:
    token = Described(CommandType.QUEUE_INFO, message.id, message.queue)
    state.ask(DescribeQueue(state.session, token, message.queue))


def list_queues(state: NativeState, message: WireMessage) -> None:
    state.ask(ListQueues(state.session, Listed(CommandType.LIST_QUEUES, message.id)))


def disconnect(state: NativeState, message: WireMessage) -> None:
    state.left = True
    state.ask(Goodbye())


def administer(state: NativeState, message: WireMessage) -> None:
    _need(state, message, ADMIN_EXTENSION)
    name, arguments = _named(message, "an Admin frame")
    kind = AdminDescribed if name == "queue.info" else Administered
    state.ask(OperationRequest(kind(CommandType.ADMIN, message.id), name, arguments))


def ask_cursor(state: NativeState, message: WireMessage) -> None:
    _need(state, message, CURSOR_EXTENSION)
    name, arguments = _named(message, "a CursorRequest")
    if message.queue:
        check_queue_name(message.queue)
        arguments = {**arguments, "queue": message.queue}
    elif not name.startswith("transaction."):
        raise InvalidQueueName(f"{name[:64]} needs a queue name in the frame's queue field")
    state.ask(OperationRequest(AskedRequest(CommandType.CURSOR_REPLY, message.id, message.queue), name, arguments))


def _named(message: WireMessage, what: str) -> tuple[str, dict[str, Any]]:
    """The name of an operation and its arguments. Raises InvalidPayload."""
    if not is_read_at_once(message.payload or b""):
        raise InvalidPayload(f"the payload of {what} is too large: {NAMES_MAX:,} names and {LISTS_MAX:,} lists at most")
    try:
        payload = orjson.loads(message.payload or b"")
    except orjson.JSONDecodeError as error:
        raise InvalidPayload(f"the payload of {what} cannot be read: {error}") from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f"the payload of {what} must be a JSON object")
    name, arguments = payload.get("verb"), payload.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise InvalidPayload('the payload must be {"verb": "…", "arguments": {…}}')
    return name, arguments


def _need(state: NativeState, message: WireMessage, extension: str) -> None:
    if extension not in state.extensions:
        raise _unknown(message.type)


_NEEDS_QUEUE = frozenset(
    {
        CommandType.SUBSCRIBE,
        CommandType.UNSUBSCRIBE,
        CommandType.CREATE_QUEUE,
        CommandType.DELETE_QUEUE,
        CommandType.QUEUE_INFO,
    }
)

_HANDLERS: dict[int, Callable[[NativeState, WireMessage], None]] = {
    CommandType.CONNECT: handshake.connect,
    CommandType.DISCONNECT: disconnect,
    CommandType.SUBSCRIBE: subscribe,
    CommandType.UNSUBSCRIBE: unsubscribe,
    CommandType.NACK: nack,
    CommandType.EXTEND: extend,
    CommandType.CREATE_QUEUE: create_queue,
    CommandType.DELETE_QUEUE: delete_queue,
    CommandType.QUEUE_INFO: queue_info,
    CommandType.LIST_QUEUES: list_queues,
    CommandType.ADMIN: administer,
    CommandType.CURSOR_REQUEST: ask_cursor,
    **dict.fromkeys(users.TYPES, users.ask),
}
