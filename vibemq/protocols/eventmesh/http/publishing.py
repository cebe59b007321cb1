"""Publishes of a request: what was said, as messages for the engine. What is large is read in steps."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import orjson

from vibemq.errors import InvalidMessage, MessageTooLarge
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.http.fields import check_length, json_value, needed, properties_of, read_json_fields
from vibemq.protocols.eventmesh.http.request import HttpRequest
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.cloudevent import event_data, event_of, is_json_type, read_event
from vibemq.protocols.eventmesh.messages.forms import form_named, splitter_of
from vibemq.protocols.eventmesh.messages.json_scan import COST_BYTES, STEP_WORK, JsonScan, Steps, list_items
from vibemq.protocols.eventmesh.messages.large_json import is_large
from vibemq.protocols.eventmesh.messages.message import message_of
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage
from vibemq.protocols.session import SessionLimits

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
FORM_TYPE = "application/x-www-form-urlencoded"
BATCH_MAX = 10_000
_HOW_MANY = f"{{}} must be a JSON list of 1 to {BATCH_MAX:,} messages"
_BLANK = " \t\r\n"
_ESCAPED = re.compile(r"\\(.)")
_EVENT = "ce-"
_KEPT = ("bizseqno", "uniqueid", "producergroup", "tag", "ttl")
"""Fields of a form that consumers of all protocols are shown as properties."""
_KEPT_HEADERS = ("source", "type", "bizseqno", "uniqueid", "ttl", "producergroup")


Messages = Iterator[ReceivedMessage | int]
"""Of a batch, one after the other. A number: that was a step of reading them, and what it has cost."""


def form_message(
    headers: Mapping[str, str], fields: Mapping[str, str], limits: SessionLimits, *, ttl_needed: bool = False
) -> Steps[ReceivedMessage]:
    """The message of a form with `content` (codes 104 and 101), in the form that the headers name.

    Raises:
        EventMeshRefusal, InvalidMessage, MessageTooLarge
    """
    try:
        form = form_named(headers.get("protocoltype", "").lower())
    except InvalidMessage as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_HEADER_ERR, str(error)) from None
    if form is Form.CLOUDEVENT:
        return (yield from _event_of_text(needed(fields, "content"), limits))
    if ttl_needed and "ttl" not in fields:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the field ttl is missing; give milliseconds")
    content, topic = needed(fields, "content", "msg"), needed(fields, "topic")
    return message_of(topic, check_length(content, limits.body_bytes_max), _properties(fields))


def _event_of_text(text: str, limits: SessionLimits) -> Steps[ReceivedMessage]:
    if not is_large(text):
        return read_event(text)
    return (yield from _large_event(text.encode(), "", limits))


def _large_event(raw: bytes, topic: str, limits: SessionLimits) -> Steps[ReceivedMessage]:
    large = splitter_of(Form.CLOUDEVENT, raw, limits.body_bytes_max)
    while not large.step():
        yield STEP_WORK
    if topic:
        large.fields.setdefault("subject", topic)
    return _at(topic, read_event(large))


def _properties(fields: Mapping[str, str]) -> dict[str, Any]:
    properties = properties_of(fields)
    for name in _KEPT:
        if fields.get(name):
            properties.setdefault(name, fields[name])
    return properties


def batch_messages(fields: Mapping[str, str]) -> Messages:
    """Of the field `contents` (code 102). Raises EventMeshRefusal, InvalidMessage when they are read."""
    contents = needed(fields, "contents")
    if contents.lstrip(_BLANK)[:1] == '"':
        contents = _text_in_json(contents)
    count = 0
    for item in _items(contents.encode(), "the field contents"):
        if isinstance(item, int):
            yield item
            continue
        count += 1
        if count > BATCH_MAX:
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, _HOW_MANY.format("contents"))
        yield from _batch_message(count - 1, item, fields)
    size = fields.get("size", "")
    if not count or (size and size != str(count)):
        why = f"the field size is {size[:16]!r}, and contents holds {count} messages"
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why if count else _HOW_MANY.format("contents"))


def _items(raw: bytes, what: str) -> Iterator[bytes | int]:
    """A number: what a step has cost, or what it will cost to read the item that follows beside other items."""
    try:
        for item in list_items(raw, what):
            if item is None:
                yield STEP_WORK
                continue
            if len(item) >= COST_BYTES:
                yield len(item) // COST_BYTES
            yield item
    except InvalidMessage as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, str(error)) from None


def _text_in_json(text: str) -> str:
    """Of JSON in JSON. Raises EventMeshRefusal."""
    # One text is read quickly, whatever stands in it.
    value = json_value(text, is_text=text.lstrip(_BLANK)[:1] == '"')
    if not isinstance(value, str):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, _HOW_MANY.format("contents"))
    return value


def _batch_message(number: int, item: bytes, fields: Mapping[str, str]) -> Messages:
    """Steps, and then the message."""
    steps = read_json_fields(item)
    while True:
        try:
            cost = next(steps)
        except StopIteration as ended:
            folded: dict[str, str] = ended.value
            break
        except EventMeshRefusal as error:
            why = f"message {number} of contents: {error}"
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why) from None
        yield cost
    folded.setdefault("producergroup", fields.get("producergroup", ""))
    yield message_of(needed(folded, "topic"), needed(folded, "msg", "content"), _properties(folded))


def reply_message(
    headers: Mapping[str, str], fields: Mapping[str, str], limits: SessionLimits
) -> Steps[ReceivedMessage]:
    """The reply of a request (code 301). Raises EventMeshRefusal, InvalidMessage, MessageTooLarge."""
    content = needed(fields, "content")
    properties = _properties(fields)
    if headers.get("protocoltype", "").lower() == Form.CLOUDEVENT:
        event = yield from _event_of_text(content, limits)
        known = {name for name, _ in event.headers}
        event.headers += [
            (name, value) for name in names.REPLY_NAMES if (value := properties.get(name)) and name not in known
        ]
        return event.as_reply()
    content = check_length(content, limits.body_bytes_max)
    return message_of(needed(fields, "origtopic", "topic"), content, properties).as_reply()


def is_event(headers: Mapping[str, str]) -> bool:
    """Whether the body itself is one CloudEvent, or several: structured, binary or batched mode of CloudEvents."""
    kind = media_type(headers)
    return kind in (STRUCTURED, BATCH) or "ce-specversion" in headers


def is_batch(headers: Mapping[str, str]) -> bool:
    return media_type(headers) == BATCH


def read_event_of(request: HttpRequest, topic: str, limits: SessionLimits) -> Steps[ReceivedMessage]:
    """The event of such a body. `topic`: of the path; "" = the subject names it.

    Raises:
        EventMeshRefusal, InvalidMessage, MessageTooLarge
    """
    if media_type(request.headers) == STRUCTURED:
        if is_large(request.body):
            return (yield from _large_event(request.body, topic, limits))
        return _structured(request.body, topic)
    attributes: dict[str, Any] = {
        name.removeprefix(_EVENT): _attribute(value)
        for name, value in request.headers.items()
        if name.startswith(_EVENT)
    }
    if "content-type" in request.headers:
        attributes["datacontenttype"] = request.headers["content-type"]
    if topic:
        attributes.setdefault("subject", topic)
    return _at(topic, event_of(attributes, request.body))


def _attribute(value: str) -> str:
    """Of the header of an event in binary mode: perhaps in quotes, and percent-encoded where it is not plain ASCII.
    What is no UTF-8 stays as it came.

    Source: CloudEvents, HTTP protocol binding 1.0.2, 3.1.3.2.
    """
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPED.sub(r"\1", value[1:-1])
    if "%" not in value:
        return value
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value


def events_of(body: bytes, topic: str, limits: SessionLimits) -> Messages:
    """The events of a batch. Raises as `read_event_of`, when they are read."""
    count = 0
    for item in _items(body, "a batch"):
        if isinstance(item, int):
            yield item
            continue
        count += 1
        if count > BATCH_MAX:
            break
        if not is_large(item):
            yield _structured(item, topic)
            continue
        yield (yield from _large_event(item, topic, limits))
    if not 0 < count <= BATCH_MAX:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, _HOW_MANY.format("a batch"))


def _structured(raw: bytes, topic: str) -> ReceivedMessage:
    if topic:
        value = json_value(raw)
        if isinstance(value, dict):
            value.setdefault("subject", topic)
            return _at(topic, event_of(value, event_data(value, raw)))
    return _at(topic, read_event(raw))


def _at(topic: str, message: ReceivedMessage) -> ReceivedMessage:
    """A path names the topic, whatever the event is about."""
    if topic:
        message.topic = topic
    return message


def posted_message(
    request: HttpRequest, topic: str, fields: Mapping[str, str], limits: SessionLimits
) -> Steps[ReceivedMessage]:
    """Any JSON object or form that was posted to `/eventmesh/publish/{topic}`. Raises EventMeshRefusal,
    MessageTooLarge."""
    properties: dict[str, Any] = {name: request.headers[name] for name in _KEPT_HEADERS if request.headers.get(name)}
    if is_json_type(request.headers.get("content-type", "application/json")):
        payload = yield from _posted_object(request.body, limits)
    else:
        _check_form(media_type(request.headers), fields)
        payload = orjson.dumps(dict(fields)).decode()
    return message_of(topic, payload, properties, {"datacontenttype": "application/json"})


def _check_form(kind: str, fields: Mapping[str, str]) -> None:
    """Nothing else is made a JSON object of its own. Raises EventMeshRefusal."""
    if kind != FORM_TYPE:
        why = f"a body of the content type {kind[:64]!r} is not published here; use JSON, a form or a CloudEvent"
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why)
    if any(name.startswith("{") for name in fields):
        why = (
            "the body looks like JSON, but its content type says that it is a form; send content-type: application/json"
        )
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, why)


def _posted_object(body: bytes, limits: SessionLimits) -> Steps[str]:
    """A large one is only measured."""
    if len(body) > limits.body_bytes_max:
        raise MessageTooLarge(f"Event size exceeds the limit: {limits.body_bytes_max}")
    if not is_large(body):
        is_object = isinstance(json_value(body), dict)
    else:
        scan = JsonScan(body, "the body")
        begin = scan.blanks_end(0)
        is_object = body[begin : begin + 1] == b"{"
        if is_object:
            try:
                end = yield from scan.value_end(begin)
                is_object = scan.blanks_end(end) == len(body)
            except InvalidMessage as error:
                raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, str(error)) from None
    if not is_object:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the body must be a JSON object, or a form")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the body is not JSON: {error}") from None


def check_size(message: ReceivedMessage, limits: SessionLimits) -> ReceivedMessage:
    """Raises MessageTooLarge, InvalidMessage, InvalidQueueName."""
    most = limits.body_bytes_max
    size = len(message.payload)
    for name, value in message.headers:
        size += len(name) + 3 * len(value)
    if size > most and len(message.payload) + sum(len(n) + len(v.encode()) for n, v in message.headers) > most:
        raise MessageTooLarge(f"Event size exceeds the limit: {most}")
    return message.check(headers_max=limits.headers_max, header_value_units_max=limits.header_value_units_max)


def media_type(headers: Mapping[str, str]) -> str:
    """Nearly all requests have one of a few."""
    given = headers.get("content-type", "")
    return _known_type(given) if len(given) <= _TYPE_CHARACTERS_MAX else _type_in(given)


def _type_in(given: str) -> str:
    return given.partition(";")[0].strip().lower()


_TYPE_CHARACTERS_MAX = 128
_known_type = lru_cache(maxsize=64)(_type_in)
