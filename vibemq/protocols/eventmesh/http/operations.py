"""Operations by `code`. Source: docs/spec/eventmesh.md, "HTTP".

Each answers the request, now or when the engine has decided; a refusal that it raises is answered by the session.
"""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from vibemq.errors import InvalidMessage, NoReply, VibeMQError
from vibemq.model.commands import Respond
from vibemq.model.options import check_queue_name
from vibemq.model.rows import Rows, RowView
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RequestCode, RetCode
from vibemq.protocols.eventmesh.http.fields import BASE64, heartbeat_items, needed, parsed, text_payload
from vibemq.protocols.eventmesh.http.publishing import (
    batch_messages,
    check_size,
    events_of,
    form_message,
    is_batch,
    is_event,
    read_event_of,
    reply_message,
)
from vibemq.protocols.eventmesh.http.replies import EventMeshAnswer, refusal_answer
from vibemq.protocols.eventmesh.http.state import Exchange, HttpState, Subscribers
from vibemq.protocols.eventmesh.http.topic_publish import publish_all, publish_message, publish_request
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.json_scan import STEP_WORK, Steps
from vibemq.protocols.eventmesh.messages.message import message_properties
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage
from vibemq.protocols.eventmesh.topics import SubscriptionMode, check_group, subscription_items
from vibemq.protocols.session import Principal

_ITEMS_IN_STEP = 100
_HEARD_TOGETHER = 100
Work = Iterator[int] | None
"""What is still to be done for a request, in steps, each of which yields its cost. None: the engine has it."""
INVALID_CODE = "requestCode can't be null, or must be number"


def begin(state: HttpState, exchange: Exchange) -> Work:
    """Raises VibeMQError: the refusal that is the answer."""
    text = exchange.style.code
    if is_event(exchange.request.headers) and text in ("0", "", "104", "102"):
        return send_events(state, exchange, "")
    handler = _BY_CODE.get(_code_in(text))
    if handler is None:
        raise EventMeshRefusal(RetCode.REQUESTCODE_INVALID, INVALID_CODE, status=400)
    _check_headers(exchange)
    return handler(state, exchange)


def otherwise(exchange: Exchange) -> RetCode:
    """What the operation answers to a failure that has no number of its own."""
    return _OTHERWISE.get(_code_in(exchange.style.code), RetCode.SEND_ASYNC_MSG_ERR)


def _code_in(text: str) -> int:
    """0 = it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _check_headers(exchange: Exchange) -> None:
    """A client that says which process it is says a number; what else its headers say is its own business."""
    pid = exchange.request.headers.get("pid", "")
    if pid and not (pid.isascii() and pid.isdigit()):
        raise EventMeshRefusal(RetCode.PROTOCOL_HEADER_ERR, f"the header pid is {pid[:32]!r}; it must be a number")


def group_of(exchange: Exchange) -> str:
    """The consumer group; clients before 1.2 name none, but say who they are. Raises EventMeshRefusal."""
    fields, headers = exchange.fields, exchange.request.headers
    group = fields.get("consumergroup", "")
    if not group.strip() and headers.get("sys") and headers.get("dcn"):
        group = f"{headers['sys']}-{headers['dcn']}"
    return check_group(group or needed(fields, "consumerGroup".lower()))


def _teller(state: HttpState, success: str, failure: RetCode) -> Callable[[VibeMQError | None], None]:
    def told(error: VibeMQError | None) -> None:
        state.finish(EventMeshAnswer(text=success) if error is None else refusal_answer(error, failure))

    return told


# -- publishing -------------------------------------------------------------------------------------------------------


def _message_of(state: HttpState, exchange: Exchange, *, ttl_needed: bool = False) -> Steps[ReceivedMessage]:
    request, limits = exchange.request, state.context.limits
    return form_message(request.headers, exchange.fields, limits, ttl_needed=ttl_needed)


def _send_async(state: HttpState, exchange: Exchange) -> Steps[None]:
    message = yield from _message_of(state, exchange)
    message_id = message.message_id or state.context.new_id()
    text = f"successSendResult[topic={message.topic}, messageId={message_id}]"
    publish_message(state, message, message_id, _teller(state, text, RetCode.SEND_ASYNC_MSG_ERR))


def _send_batch_v2(state: HttpState, exchange: Exchange) -> Steps[None]:
    message = yield from _message_of(state, exchange)
    publish_message(state, message, state.context.new_id(), _teller(state, "success", RetCode.SEND_BATCHLOG_MSG_ERR))


def _send_batch(state: HttpState, exchange: Exchange) -> Iterator[int]:
    return publish_all(state, batch_messages(exchange.fields), _batch_teller(state))


def send_events(state: HttpState, exchange: Exchange, topic: str) -> Iterator[int]:
    """A body that is one CloudEvent, or several."""
    request, limits = exchange.request, state.context.limits
    if is_batch(request.headers):
        return publish_all(state, events_of(request.body, topic, limits), _batch_teller(state))
    return _send_event(state, read_event_of(request, topic, limits))


def _send_event(state: HttpState, reading: Steps[ReceivedMessage]) -> Steps[None]:
    event = yield from reading
    text = f"successSendResult[topic={event.topic}, messageId={event.message_id}]"
    told = _teller(state, text, RetCode.SEND_ASYNC_MSG_ERR)
    publish_message(state, event, event.message_id, told)


def _batch_teller(state: HttpState) -> Callable[[int, list[VibeMQError]], None]:
    def told(count: int, refusals: list[VibeMQError]) -> None:
        if refusals:
            why = (
                f"of {count} messages, those of {len(refusals)} topics were not taken; the first because: {refusals[0]}"
            )
            code = refusal_answer(refusals[0], RetCode.SEND_BATCHLOG_MSG_ERR).ret_code
            state.finish(EventMeshAnswer(code, why))
        else:
            state.finish(EventMeshAnswer())

    return told


# -- requests and replies ---------------------------------------------------------------------------------------------


class RequestAsked:
    """Token of a request: it comes back with the reply, or with the reason why there is none."""

    def __init__(self, state: HttpState, topic: str) -> None:
        self._state = state
        self._topic = topic
        self._exchange = state.exchange

    def __call__(self, result: Rows | VibeMQError) -> None:
        if self._state.exchange is not self._exchange:
            return
        if isinstance(result, VibeMQError):
            text = str(result)
            if isinstance(result, NoReply):
                text = f"eventMesh waiting rr msg error: {text}"
            self._state.finish(EventMeshAnswer(RetCode.WAITING_RR_MSG_ERR, text))
            return
        view = RowView(result[0])
        headers = view.headers
        content, encoded = text_payload(view.payload)
        try:
            properties = dict(message_properties(headers))
        except InvalidMessage as error:
            self._state.finish(EventMeshAnswer(RetCode.WAITING_RR_MSG_ERR, f"the reply cannot be told: {error}"))
            return
        if encoded:
            properties[names.ENCODING] = BASE64
        reply = {
            "topic": headers.get(names.TOPIC, self._topic),
            "body": content.decode(),
            "properties": properties,
        }
        self._state.finish(EventMeshAnswer(text=orjson.dumps(reply).decode()))


def _send_sync(state: HttpState, exchange: Exchange) -> Steps[None]:
    message = yield from _message_of(state, exchange, ttl_needed=True)

    def told(error: VibeMQError | None) -> None:
        if error is not None:
            state.finish(refusal_answer(error, RetCode.SEND_SYNC_MSG_ERR))

    publish_request(state, message, RequestAsked(state, message.topic), told)


def _reply(state: HttpState, exchange: Exchange) -> Steps[None]:
    limits = state.context.limits
    reply = check_size((yield from reply_message(exchange.request.headers, exchange.fields, limits)), limits)
    if not reply.reply_address:
        why = f"extFields must hold what the pushed request had in {', '.join(names.REPLY_NAMES)}"
        raise EventMeshRefusal(RetCode.REPLY_MSG_ERR, why)
    row = reply.row(state.context.new_id())
    teller = _teller(state, "success", RetCode.REPLY_MSG_ERR)

    def told(result: Any) -> None:
        teller(result if isinstance(result, VibeMQError) else None)

    state.ask(Respond(state.session, told, reply.reply_address, Rows.of([row])))


# -- subscriptions ----------------------------------------------------------------------------------------------------


def subscribers_of(state: HttpState) -> tuple[Subscribers, Principal]:
    assert state.subscribers is not None, "a session that serves has its listener's subscribers"
    assert state.principal is not None, "a request is begun when its sender is known"
    return state.subscribers, state.principal


def _subscribe(state: HttpState, exchange: Exchange) -> Steps[None]:
    fields = exchange.fields
    yield from subscribe(state, exchange, parsed(fields, "topic"), needed(fields, "url"))


def subscribe(state: HttpState, exchange: Exchange, topics: Any, url: str) -> Steps[None]:
    """`topics`: parsed JSON."""
    subscribers, principal = subscribers_of(state)
    items = subscription_items(topics)
    if not items:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the list of topics is empty")
    for number, item in enumerate(items):
        if number % _ITEMS_IN_STEP == _ITEMS_IN_STEP - 1:
            yield STEP_WORK
        check_queue_name(item.topic)
        if item.mode is None:
            items[number] = item.model_copy(update={"mode": SubscriptionMode.CLUSTERING})
    told = _teller(state, "success", RetCode.SUBSCRIBE_ERR)
    subscribers.subscribe(principal, group_of(exchange), items, url, state.now, told)


def _unsubscribe(state: HttpState, exchange: Exchange) -> Steps[None]:
    fields = exchange.fields
    yield from unsubscribe(state, exchange, parsed(fields, "topic"), needed(fields, "url"))


def unsubscribe(state: HttpState, exchange: Exchange, given: Any, url: str) -> Steps[None]:
    """`given`: parsed JSON."""
    subscribers, principal = subscribers_of(state)
    topics = [item.topic for item in subscription_items(given)]
    if len(topics) > _ITEMS_IN_STEP:
        yield 2 * STEP_WORK
    told = _teller(state, "success", RetCode.UNSUBSCRIBE_ERR)
    subscribers.unsubscribe(principal, group_of(exchange), topics, url, told)


def _heartbeat(state: HttpState, exchange: Exchange) -> Steps[None]:
    """Those before one that is none count."""
    subscribers, principal = subscribers_of(state)
    needed(exchange.fields, "clienttype")
    group = group_of(exchange)
    heard: list[tuple[str, str]] = []
    for item in heartbeat_items(exchange.fields):
        if item is None:
            yield STEP_WORK
            continue
        topic, url = (item.get("topic"), item.get("url")) if isinstance(item, dict) else (None, None)
        if not isinstance(topic, str) or (url is not None and not isinstance(url, str)):
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "each of heartbeatEntities needs a topic and a url")
        heard.append((topic, url or ""))
        if len(heard) >= _HEARD_TOGETHER:
            subscribers.heard(principal, group, heard, state.now)
            heard = []
    subscribers.heard(principal, group, heard, state.now)
    state.finish(EventMeshAnswer())


_Handler = Callable[[HttpState, Exchange], Work]
_BY_CODE: dict[int, _Handler] = {
    RequestCode.MSG_SEND_SYNC: _send_sync,
    RequestCode.MSG_BATCH_SEND: _send_batch,
    RequestCode.MSG_SEND_ASYNC: _send_async,
    RequestCode.MSG_BATCH_SEND_V2: _send_batch_v2,
    RequestCode.HEARTBEAT: _heartbeat,
    RequestCode.SUBSCRIBE: _subscribe,
    RequestCode.UNSUBSCRIBE: _unsubscribe,
    RequestCode.REPLY_MESSAGE: _reply,
}
_OTHERWISE: dict[int, RetCode] = {
    RequestCode.MSG_SEND_SYNC: RetCode.SEND_SYNC_MSG_ERR,
    RequestCode.MSG_BATCH_SEND: RetCode.SEND_BATCHLOG_MSG_ERR,
    RequestCode.MSG_BATCH_SEND_V2: RetCode.SEND_BATCHLOG_MSG_ERR,
    RequestCode.HEARTBEAT: RetCode.HEARTBEAT_ERR,
    RequestCode.SUBSCRIBE: RetCode.SUBSCRIBE_ERR,
    RequestCode.UNSUBSCRIBE: RetCode.UNSUBSCRIBE_ERR,
    RequestCode.REPLY_MESSAGE: RetCode.REPLY_MSG_ERR,
}
