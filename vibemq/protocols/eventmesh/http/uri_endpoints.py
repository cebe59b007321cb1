"""Endpoints by their path, which need no `code`. Source: docs/spec/eventmesh.md, "URI endpoints"."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from vibemq.errors import VibeMQError
from vibemq.model.commands import CreateQueue, DeleteQueue
from vibemq.model.options import check_queue_name
from vibemq.protocols.eventmesh.http import operations
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.http.fields import json_value, needed
from vibemq.protocols.eventmesh.http.publishing import FORM_TYPE, is_event, media_type, posted_message
from vibemq.protocols.eventmesh.http.replies import EventMeshAnswer, refusal_answer
from vibemq.protocols.eventmesh.http.request import HttpRequest
from vibemq.protocols.eventmesh.http.state import Exchange, HttpState
from vibemq.protocols.eventmesh.http.topic_publish import publish_message
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.eventmesh.topics import topic_options

_DONE = orjson.dumps({"retMessage": "success", "retCode": 0})


_Handler = Callable[[HttpState, Exchange], operations.Work]


def handler_of(path: str) -> _Handler | None:
    """None: the path means nothing, and the code decides."""
    if not path.startswith("/eventmesh/"):
        return None
    return next((handler for prefix, handler in _BY_PREFIX.items() if path.startswith(prefix)), None)


def takes_body(request: HttpRequest) -> bool:
    """Whether the body is itself what is published, and not read for fields."""
    return request.path.startswith(f"{_PUBLISH}/") and media_type(request.headers) != FORM_TYPE


def _publish(state: HttpState, exchange: Exchange) -> Iterator[int]:
    request = exchange.request
    topic = request.path.removeprefix(_PUBLISH).strip("/")
    if is_event(request.headers):
        return operations.send_events(state, exchange, topic)
    if not topic:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the path names no topic: /eventmesh/publish/{topic}")
    return _publish_posted(state, exchange, topic)


def _publish_posted(state: HttpState, exchange: Exchange, topic: str) -> Steps[None]:
    message = yield from posted_message(exchange.request, topic, exchange.fields, state.context.limits)
    message_id = state.context.new_id()

    def told(error: VibeMQError | None) -> None:
        text = f"successSendResult[topic={topic}, messageId={message_id}]"
        ok = EventMeshAnswer(text=text)
        state.finish(ok if error is None else refusal_answer(error, RetCode.SEND_ASYNC_MSG_ERR))

    publish_message(state, message, message_id, told)


def _subscribe(state: HttpState, exchange: Exchange) -> Steps[None]:
    yield from operations.subscribe(state, exchange, _topics(exchange), needed(exchange.fields, "url"))


def _unsubscribe(state: HttpState, exchange: Exchange) -> Steps[None]:
    yield from operations.unsubscribe(state, exchange, _topics(exchange), needed(exchange.fields, "url"))


def _topics(exchange: Exchange) -> Any:
    return json_value(needed(exchange.fields, "topic"))


def _topic_told(state: HttpState) -> Callable[[Any], None]:
    def told(result: Any) -> None:
        if isinstance(result, VibeMQError):
            state.finish(refusal_answer(result, RetCode.RUNTIME_ERR))
        else:
            state.finish(EventMeshAnswer(body=_DONE))

    return told


def _topic_of(exchange: Exchange) -> str:
    return check_queue_name(needed(exchange.fields, "topic", "name"))


def _create_topic(state: HttpState, exchange: Exchange) -> None:
    options = topic_options(state.context, state.settings.durability)
    state.ask(CreateQueue(state.session, _topic_told(state), _topic_of(exchange), options))


def _delete_topic(state: HttpState, exchange: Exchange) -> None:
    state.ask(DeleteQueue(state.session, _topic_told(state), _topic_of(exchange)))


def _query(state: HttpState, exchange: Exchange) -> Steps[None]:
    subscribers, principal = operations.subscribers_of(state)
    topics = yield from subscribers.topics_of(principal)
    state.finish(EventMeshAnswer(body=orjson.dumps({"localTopicSet": topics, "subsrciption": []})))


def _not_served(state: HttpState, exchange: Exchange) -> None:
    why = f"{exchange.request.path[:64]} is not served here: it joins several servers of EventMesh"
    raise EventMeshRefusal(RetCode.REQUESTCODE_INVALID, why)


_PUBLISH = "/eventmesh/publish"
_BY_PREFIX: dict[str, _Handler] = {
    "/eventmesh/publish/": _publish,
    "/eventmesh/subscribe/local": _subscribe,
    "/eventmesh/unsubscribe/local": _unsubscribe,
    "/eventmesh/subscribe/remote": _not_served,
    "/eventmesh/unsubscribe/remote": _not_served,
    "/eventmesh/bridge/publish": _not_served,
    "/eventmesh/topic/create": _create_topic,
    "/eventmesh/topic/delete": _delete_topic,
    "/eventmesh/subscrition/query": _query,
}
