"""Endpoints by their path, which need no `code`. Source: docs/spec/eventmesh.md, "URI endpoints"."""

from collections.abc import Callable
from typing import Any

import orjson

from vibemq.errors import VibeMQError
from vibemq.model.commands import DeleteQueue
from vibemq.model.options import check_queue_name
from vibemq.protocols.eventmesh.http import operations
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.http.fields import json_fields, json_value, needed
from vibemq.protocols.eventmesh.http.publishing import is_event, posted_message
from vibemq.protocols.eventmesh.http.replies import EventMeshAnswer, refusal_answer
from vibemq.protocols.eventmesh.http.state import Exchange, HttpState
from vibemq.protocols.eventmesh.http.topic_publish import ask_for_queue, publish_message
from vibemq.protocols.eventmesh.topics import subscription_items, topic_options

_DONE = orjson.dumps({"retMessage": "success", "retCode": 0})


def handler_of(path: str) -> Callable[[HttpState, Exchange], None] | None:
    """None: the path means nothing, and the code decides."""
    if not path.startswith("/eventmesh/"):
        return None
    return next((handler for prefix, handler in _BY_PREFIX.items() if path.startswith(prefix)), None)


def _publish(state: HttpState, exchange: Exchange) -> None:
    request = exchange.request
    topic = request.path.removeprefix(_PUBLISH).strip("/")
    if is_event(request.headers):
        operations.send_events(state, exchange, topic)
        return
    if not topic:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the path names no topic: /eventmesh/publish/{topic}")
    message = posted_message(request, topic, exchange.fields)
    message_id = state.context.new_id()

    def told(error: VibeMQError | None) -> None:
        text = f"successSendResult[topic={topic}, messageId={message_id}]"
        ok = EventMeshAnswer(text=text)
        state.finish(ok if error is None else refusal_answer(error, RetCode.SEND_ASYNC_MSG_ERR))

    publish_message(state, message, message_id, told)


def _subscribe(state: HttpState, exchange: Exchange) -> None:
    items = subscription_items(_topics(exchange))
    operations.subscribe(state, exchange, items, needed(exchange.fields, "url"))


def _unsubscribe(state: HttpState, exchange: Exchange) -> None:
    topics = [item.topic for item in subscription_items(_topics(exchange))]
    operations.unsubscribe(state, exchange, topics, needed(exchange.fields, "url"))


def _topics(exchange: Exchange) -> Any:
    return operations.check_topics(json_value(needed(exchange.fields, "topic")))


def _topic_told(state: HttpState) -> Callable[[Any], None]:
    def told(result: Any) -> None:
        if isinstance(result, VibeMQError):
            state.finish(refusal_answer(result, RetCode.RUNTIME_ERR))
        else:
            state.finish(EventMeshAnswer(body=_DONE))

    return told


def _topic_of(exchange: Exchange) -> str:
    fields = exchange.fields or json_fields(exchange.request.body)
    return check_queue_name(needed(fields, "topic", "name"))


def _create_topic(state: HttpState, exchange: Exchange) -> None:
    options = topic_options(state.context.queue_defaults, state.settings.durability)
    ask_for_queue(state, state.session, _topic_of(exchange), options, _topic_told(state))


def _delete_topic(state: HttpState, exchange: Exchange) -> None:
    state.ask(DeleteQueue(state.session, _topic_told(state), _topic_of(exchange)))


def _query(state: HttpState, exchange: Exchange) -> None:
    subscribers, principal = operations.subscribers_of(state)
    topics = subscribers.topics_of(principal)
    state.finish(EventMeshAnswer(body=orjson.dumps({"localTopicSet": topics, "subsrciption": []})))


def _not_served(state: HttpState, exchange: Exchange) -> None:
    why = f"{exchange.request.path[:64]} is not served here: it joins several servers of EventMesh"
    raise EventMeshRefusal(RetCode.REQUESTCODE_INVALID, why)


_PUBLISH = "/eventmesh/publish"
_BY_PREFIX: dict[str, Callable[[HttpState, Exchange], None]] = {
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
