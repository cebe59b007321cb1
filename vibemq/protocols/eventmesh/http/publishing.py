"""Publishes of a request: what was said, as messages for the engine."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from vibemq.errors import InvalidMessage, MessageTooLarge
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.http.fields import A_FIELD, json_value, needed, parsed, properties_of
from vibemq.protocols.eventmesh.http.request import HttpRequest
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.cloudevent import event_of, is_json_type, read_event
from vibemq.protocols.eventmesh.messages.forms import form_named, splitter_of
from vibemq.protocols.eventmesh.messages.large_json import LARGE_JSON_BYTES, JsonSplitter
from vibemq.protocols.eventmesh.messages.message import message_of
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import json_text, text_of
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage
from vibemq.protocols.session import SessionLimits

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BATCH_MAX = 10_000
_EVENT = "ce-"
_KEPT = ("bizseqno", "uniqueid", "producergroup", "tag", "ttl")
"""Fields of a form that consumers of all protocols are shown as properties."""
_KEPT_HEADERS = ("source", "type", "bizseqno", "uniqueid", "ttl", "producergroup")


class MessageList(NamedTuple):
    """Of a batch, to be read some at a time."""

    size: int
    messages: Iterator[ReceivedMessage]


def form_message(headers: Mapping[str, str], fields: Mapping[str, str], *, ttl_needed: bool = False) -> ReceivedMessage:
    """The message of a form with `content` (codes 104 and 101), in the form that the headers name.

    Raises:
        EventMeshRefusal, InvalidMessage
    """
    try:
        form = form_named(headers.get("protocoltype", "").lower())
    except InvalidMessage as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_HEADER_ERR, str(error)) from None
    if form is Form.CLOUDEVENT:
        return read_event(needed(fields, "content"))
    if ttl_needed and "ttl" not in fields:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the field ttl is missing; give milliseconds")
    content, topic = needed(fields, "content", "msg"), needed(fields, "topic")
    return message_of(topic, content, _properties(fields))


def _properties(fields: Mapping[str, str]) -> dict[str, Any]:
    properties = properties_of(fields)
    for name in _KEPT:
        if fields.get(name):
            properties.setdefault(name, fields[name])
    return properties


def batch_messages(fields: Mapping[str, str]) -> MessageList:
    """Of the field `contents` (code 102). Raises EventMeshRefusal; InvalidMessage when they are read."""
    contents = parsed(fields, "contents")
    if isinstance(contents, str):
        contents = json_value(contents)
    if not isinstance(contents, list) or not 0 < len(contents) <= BATCH_MAX:
        why = f"the field contents must be a JSON list of 1 to {BATCH_MAX:,} messages"
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why)
    size = fields.get("size", "")
    if size and size != str(len(contents)):
        why = f"the field size is {size[:16]!r}, and contents holds {len(contents)} messages"
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why)
    return MessageList(len(contents), (_batch_message(number, item, fields) for number, item in enumerate(contents)))


def _batch_message(number: int, item: Any, fields: Mapping[str, str]) -> ReceivedMessage:
    if not isinstance(item, dict):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"message {number} of contents is no JSON object")
    folded = {name.lower(): text_of(value, A_FIELD) for name, value in item.items() if value is not None}
    folded.setdefault("producergroup", fields.get("producergroup", ""))
    return message_of(needed(folded, "topic"), needed(folded, "msg", "content"), _properties(folded))


def reply_message(headers: Mapping[str, str], fields: Mapping[str, str]) -> ReceivedMessage:
    """The reply of a request (code 301). Raises EventMeshRefusal, InvalidMessage."""
    content = needed(fields, "content")
    properties = _properties(fields)
    if headers.get("protocoltype", "").lower() == Form.CLOUDEVENT:
        event = read_event(content)
        known = {name for name, _ in event.headers}
        event.headers += [
            (name, value) for name in names.REPLY_NAMES if (value := properties.get(name)) and name not in known
        ]
        return event.as_reply()
    return message_of(needed(fields, "origtopic", "topic"), content, properties).as_reply()


def is_event(headers: Mapping[str, str]) -> bool:
    """Whether the body itself is one CloudEvent, or several: structured, binary or batched mode of CloudEvents."""
    kind = _media_type(headers)
    return kind in (STRUCTURED, BATCH) or "ce-specversion" in headers


def events_of(request: HttpRequest, topic: str) -> MessageList:
    """The events of such a body. `topic`: of the path; "" = the subject names it.

    Raises:
        EventMeshRefusal, InvalidMessage
    """
    kind = _media_type(request.headers)
    if kind == BATCH:
        values = json_value(request.body)
        if not isinstance(values, list) or not 0 < len(values) <= BATCH_MAX:
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"a batch is a JSON list of 1 to {BATCH_MAX:,} events")
        return MessageList(
            len(values), (_structured(json_text(value, "an event of the batch"), topic) for value in values)
        )
    if kind == STRUCTURED:
        return MessageList(1, iter([_structured(request.body, topic)]))
    attributes: dict[str, Any] = {
        name.removeprefix(_EVENT): value for name, value in request.headers.items() if name.startswith(_EVENT)
    }
    if "content-type" in request.headers:
        attributes["datacontenttype"] = request.headers["content-type"]
    if topic:
        attributes.setdefault("subject", topic)
    return MessageList(1, iter([_at(topic, event_of(attributes, request.body))]))


def large_event(request: HttpRequest) -> JsonSplitter | None:
    """What takes a large event apart whose body is JSON; None: it is no such event."""
    if len(request.body) <= LARGE_JSON_BYTES or _media_type(request.headers) != STRUCTURED:
        return None
    return splitter_of(Form.CLOUDEVENT, request.body)


def event_taken_apart(large: JsonSplitter, topic: str) -> ReceivedMessage:
    """Raises InvalidMessage."""
    if topic:
        large.fields.setdefault("subject", topic)
    return _at(topic, read_event(large))


def _structured(raw: bytes, topic: str) -> ReceivedMessage:
    if topic:
        value = json_value(raw)
        if isinstance(value, dict) and "subject" not in value:
            raw = json_text({**value, "subject": topic}, "the event")
    return _at(topic, read_event(raw))


def _at(topic: str, message: ReceivedMessage) -> ReceivedMessage:
    """A path names the topic, whatever the event is about."""
    if topic:
        message.topic = topic
    return message


def posted_message(request: HttpRequest, topic: str, fields: Mapping[str, str]) -> ReceivedMessage:
    """Any JSON object or form that was posted to `/eventmesh/publish/{topic}`. Raises EventMeshRefusal."""
    properties: dict[str, Any] = {name: request.headers[name] for name in _KEPT_HEADERS if request.headers.get(name)}
    if is_json_type(request.headers.get("content-type", "application/json")):
        if not isinstance(json_value(request.body), dict):
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the body must be a JSON object, or a form")
        payload = request.body.decode()
    else:
        payload = orjson.dumps(dict(fields)).decode()
    return message_of(topic, payload, properties, {"datacontenttype": "application/json"})


def check_size(message: ReceivedMessage, limits: SessionLimits) -> ReceivedMessage:
    """Raises MessageTooLarge, InvalidMessage, InvalidQueueName."""
    most = limits.body_bytes_max
    size = len(message.payload) + sum(len(name) + 3 * len(value) for name, value in message.headers)
    if size > most and len(message.payload) + sum(len(n) + len(v.encode()) for n, v in message.headers) > most:
        raise MessageTooLarge(f"Event size exceeds the limit: {most}")
    return message.check(headers_max=limits.headers_max, header_value_units_max=limits.header_value_units_max)


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()
