"""Frames of rows and runs from a client: 60 PublishMany, 63 Settle, 64 ExtendMany, 65 Flow of batch/1, 68 Request
and 69 Response of request/1, and 73 Stage of cursor/1."""

from collections.abc import Callable
from typing import Any

from vibemq.errors import InvalidMessage, InvalidQueueName, RemoteProtocolError, VibeMQError
from vibemq.model.commands import (
    Extend,
    GiveUp,
    Publish,
    Requester,
    Respond,
    SetCapacity,
    SetShare,
    Settle,
    Settlement,
    Stage,
)
from vibemq.model.effects import Published
from vibemq.model.extras.columns import columns_of
from vibemq.model.extras.message_extra import Extras, MessageExtra
from vibemq.model.options import PRIORITY_MAX, Priority, check_queue_name
from vibemq.model.rows import Rows, RowView
from vibemq.model.runs import END
from vibemq.model.steps import Steps
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.extra_columns import EXTRA_ROWS_MAX, INSTANT_MAX, WireColumns, too_many_extras
from vibemq.protocols.native.codec.row_check import check_rows, check_rows_in_steps
from vibemq.protocols.native.codec.wire import STR16_MAX, U16, CommandType, str16
from vibemq.protocols.native.replies import Plain, PublishedMany, Requested, Staged
from vibemq.protocols.native.state import NativeState

_STAGE_TEXT_MAX = 256
_REQUEST_ID_MAX = 256


def publish_many(state: NativeState, body: bytes) -> Steps[None]:
    """The steps of it: very many headers are to be looked at, perhaps."""
    return publish(state, extensions.parse_publish_many(body))


def publish(state: NativeState, frame: extensions.PublishMany) -> Steps[None]:
    """As `publish_many`."""
    token = PublishedMany(frame.id, frame.queue)
    try:
        if not frame.queue:
            raise InvalidQueueName("PUBLISH_MANY needs a queue name in the frame's queue field")
        check_queue_name(frame.queue)
        yield from check_rows_in_steps(frame.rows, state.headers)
        extras = message_extras(frame.extras or {}, frame.rows.count, state.now)
        if extras:
            extras = yield from columns_of(extras).short_ids_in_steps()
    except VibeMQError as error:
        token.refuse(state, error)
        return
    if frame.rows.count:
        state.ask(Publish(state.session, token, frame.queue, frame.rows, extras))
    else:
        token.answer(state, Published(frame.queue, 0, 0))


def message_extras(extras: dict[int, Any] | WireColumns, count: int, now: int) -> Extras | None:
    """Raises InvalidMessage naming the entry that cannot be used, or the limit that there are more of them than."""
    if isinstance(extras, WireColumns):
        return extras.at(now, count)
    if len(extras) > EXTRA_ROWS_MAX:
        raise too_many_extras(f"{len(extras):,}")
    made: dict[int, MessageExtra] = {}
    for index, entry in extras.items():
        if not 0 <= index < count or not isinstance(entry, dict):
            raise InvalidMessage(f"extras for index {index} do not belong to any of the {count} rows, or are no object")
        if not entry.keys() <= _EXTRA_KEYS:
            raise InvalidMessage(
                f"extras of row {index} may have {', '.join(sorted(_EXTRA_KEYS))}; not {sorted(entry)}"
            )
        ttl_ms = _number(entry, "ttl_ms", index, 1)
        delay_ms = _number(entry, "delay_ms", index, 0)
        deliver_at = _number(entry, "deliver_at", index, 0) or (now + delay_ms if delay_ms else 0)
        priority = min(_number(entry, "priority", index, 0, int(Priority.NORMAL)), PRIORITY_MAX)
        made[index] = MessageExtra(priority, now + ttl_ms if ttl_ms else 0, deliver_at, _dedup_id(entry, index))
    return made or None


_EXTRA_KEYS = frozenset({"priority", "ttl_ms", "delay_ms", "deliver_at", "dedup_id"})


def _number(entry: dict[str, Any], name: str, index: int, least: int, default: int = 0) -> int:
    value = entry.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= INSTANT_MAX:
        raise InvalidMessage(f"{name} of row {index} is {str(value)[:40]}; it must be a whole number, {least} or more")
    return value


def _dedup_id(entry: dict[str, Any], index: int) -> bytes:
    value = entry.get("dedup_id", "")
    if not isinstance(value, str) or len(raw := value.encode(errors="replace")) > STR16_MAX:
        raise InvalidMessage(f"dedup_id of row {index} must be text of at most 65,535 bytes")
    return raw


def request(state: NativeState, body: bytes) -> None:
    """A message whose sender waits for the reply: checked like a publish, with an address in its headers."""
    frame = extensions.parse_request(body)
    if not (frame.timeout_ms or frame.row):
        _give_up(state, frame.id)
        return
    token = Requested(frame.id)
    try:
        if not frame.queue:
            raise InvalidQueueName("REQUEST needs a queue name in the frame's queue field")
        check_queue_name(frame.queue)
        if not frame.timeout_ms:
            raise InvalidMessage("the timeout_ms of a Request is 0; it must be 1 or more")
        rows = Rows.of([frame.row])
        check_rows(rows, state.headers)
        extra = frame.extra or {}
        if not extra.keys() <= {"priority"}:
            raise InvalidMessage(f"the extra of a Request may have priority; not {sorted(extra)}")
        extras = message_extras({0: extra} if extra else {}, 1, state.now)
        address = state.context.new_id()
        rows = Rows.of([_with_address(frame, address, state.context.limits.headers_max)])
    except VibeMQError as error:
        token.refuse(state, error)
        return
    token.address = address
    state.asked[frame.id] = token
    requester = Requester(address, token, frame.timeout_ms)
    state.ask(Publish(state.session, token, frame.queue, rows, extras, requester=requester))


def _give_up(state: NativeState, request_id: str) -> None:
    """The sender does not wait for the reply any more, and is told nothing."""
    asked = state.asked.pop(request_id, None)
    if asked is not None:
        asked.ended = True
        state.ask(GiveUp(state.session, None, asked.address))


def _with_address(frame: extensions.RequestFrame, address: str, headers_max: int) -> bytes:
    row = frame.row
    at = RowView(row).headers_at
    count = row[at] << 8 | row[at + 1]
    if count > headers_max - 2:
        raise InvalidMessage(f"{count} headers; a request may have {headers_max - 2}, the broker adds two")
    if len(frame.id) > _REQUEST_ID_MAX:
        raise InvalidMessage(f"the id of a Request has {len(frame.id):,} characters; it may have {_REQUEST_ID_MAX}")
    # They win over equal ones before them.
    added = (_REPLY_TO_KEY, str16(address), _CORRELATION_ID_KEY, str16(frame.id))
    return b"".join((row[:at], U16.pack(count + 2), row[at + 2 :], *added))


REPLY_TO, CORRELATION_ID = "reply-to", "correlation-id"
"""Headers of a request: where its reply goes, and how its sender calls it."""
_REPLY_TO_KEY, _CORRELATION_ID_KEY = str16(REPLY_TO), str16(CORRELATION_ID)


def respond(state: NativeState, body: bytes) -> None:
    frame = extensions.parse_response(body)
    token = Plain(CommandType.PUBLISH_ACK, frame.id)
    rows = Rows.of([frame.row])
    try:
        check_rows(rows, state.headers)
    except VibeMQError as error:
        token.refuse(state, error)
        return
    state.ask(Respond(state.session, token, frame.address, rows))


def settle(state: NativeState, body: bytes) -> None:
    frame = extensions.parse_settle(body)
    if frame.verb not in _VERBS:
        raise RemoteProtocolError(f"a Settle has the verb {frame.verb}; known are 0 ack, 1 retry, 2 release, 3 reject")
    consumer = state.subscriptions.consumer_of(frame.id)
    if consumer is not None and frame.runs:
        verb = Settlement(frame.verb)
        state.ask(Settle(state.session, None, consumer, verb, frame.runs, frame.delay_ms, frame.reason))


_VERBS = frozenset(int(verb) for verb in Settlement)


def extend_many(state: NativeState, body: bytes) -> None:
    frame = extensions.parse_extend_many(body)
    consumer = state.subscriptions.consumer_of(frame.id)
    if consumer is not None and frame.runs:
        state.ask(Extend(state.session, None, consumer, frame.runs, frame.ack_timeout_ms))


def flow(state: NativeState, body: bytes) -> None:
    frame = extensions.parse_flow(body)
    subscription = state.subscriptions.of_id(frame.id)
    if subscription is None:
        return
    session, consumer = state.session, subscription.consumer
    messages, size = frame.capacity_messages, frame.capacity_bytes
    if subscription.share:
        state.ask(SetShare(session, None, subscription.share, messages, size))
        messages, size = END, 0
    if frame.add_credit or not subscription.share:
        state.ask(SetCapacity(session, None, consumer, messages, size, frame.add_credit))


def stage(state: NativeState, body: bytes) -> Steps[None]:
    """A piece of a transaction (cursor/1): checked like a publish, in steps."""
    frame = extensions.parse_stage(body)
    token = Staged(frame.id, frame.queue, frame.rows.count)
    try:
        if not frame.queue:
            raise InvalidQueueName("STAGE needs a queue name in the frame's queue field")
        check_queue_name(frame.queue)
        yield from check_rows_in_steps(frame.rows, state.headers)
        extras = message_extras(frame.extras or {}, frame.rows.count, state.now)
        app, name = _text(frame.stage, "app"), _text(frame.stage, "stage")
        version, chunk = _whole(frame.stage, "version"), _whole(frame.stage, "chunk")
    except VibeMQError as error:
        token.refuse(state, error)
        return
    delayed = extras is not None and columns_of(extras).delayed_after(state.now)
    state.ask(Stage(state.session, token, frame.queue, app, version, name, chunk, frame.rows, extras, delayed=delayed))


def _text(about: dict[str, Any], name: str) -> str:
    value = about.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= _STAGE_TEXT_MAX:
        raise InvalidMessage(f"{name} of a Stage must be text of 1 to {_STAGE_TEXT_MAX} characters")
    return value


def _whole(about: dict[str, Any], name: str) -> int:
    value = about.get(name)
    if type(value) is not int or not 0 <= value <= INSTANT_MAX:
        raise InvalidMessage(f"{name} of a Stage must be a whole number, 0 or more")
    return value


OF_REQUESTS: dict[int, Callable[[NativeState, bytes], None]] = {
    CommandType.REQUEST: request,
    CommandType.RESPONSE: respond,
}
HANDLERS: dict[int, Callable[[NativeState, bytes], None]] = {
    CommandType.SETTLE: settle,
    CommandType.EXTEND_MANY: extend_many,
    CommandType.FLOW: flow,
}
