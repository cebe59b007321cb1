"""EventMeshMessage, called AccessMessage before 1.3: `{"topic", "properties", "headers", "body"}`.

    body                     payload, UTF-8
    properties               headers of the same names
    headers.datacontenttype  header `content-type`
    other headers            header `eventmesh-headers`, JSON

Source: docs/spec/eventmesh.md, "Messages and rows".
"""

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.attributes import CORE
from vibemq.protocols.eventmesh.messages.large_json import JsonSplitter, has_many_lists
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import check_depth, json_text, payload_text
from vibemq.protocols.eventmesh.messages.received import PropertyHeaders, ReceivedMessage, json_object, ttl_of

PROPERTIES_MAX = 1_024
"""More are refused before anything is made of them; the broker's own limit (`limits.headers_max`) is far below."""
_DATA_CONTENT_TYPE = "datacontenttype"


def read_message(raw: bytes | str | JsonSplitter) -> ReceivedMessage:
    """Raises InvalidMessage: no such message."""
    fields = json_object(raw, "an EventMeshMessage")
    return message_of(fields.get("topic"), fields.get("body"), fields.get("properties"), fields.get("headers"))


def message_of(topic: Any, body: Any, properties: Any = None, headers: Any = None) -> ReceivedMessage:
    """A message of its fields, however they came.

    Raises:
        InvalidMessage: a field is missing or of a wrong type.
    """
    if not isinstance(topic, str) or not topic:
        raise InvalidMessage("an EventMeshMessage needs a `topic`, a text that is not empty")
    properties = _object(properties, "properties")
    payload = _payload(body, properties)
    if "eventmesh-encoding" in properties:
        properties = {name: value for name, value in properties.items() if name != names.ENCODING}
    made = PropertyHeaders([(names.FORM, Form.MESSAGE)])
    made.add(properties)
    if headers:
        _add_headers(made, dict(_object(headers, "headers")))
    return ReceivedMessage(Form.MESSAGE, topic, payload, made.headers(), ttl_ms=ttl_of(properties))


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidMessage(f"`{name}` of an EventMeshMessage must be a JSON object, not {type(value).__name__}")
    if len(value) > PROPERTIES_MAX:
        most = f"at most {PROPERTIES_MAX:,} are allowed"
        raise InvalidMessage(f"`{name}` of an EventMeshMessage has {len(value):,} members; {most}")
    check_depth(value, f"`{name}` of an EventMeshMessage")
    return value


def _payload(body: Any, properties: Mapping[str, Any]) -> bytes:
    if body is None:
        return b""
    if not isinstance(body, str):
        return json_text(body, "the body of an EventMeshMessage")
    if properties.get(names.ENCODING) != "base64":
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise InvalidMessage(f"the body is not base64, as its property {names.ENCODING} says: {error}") from None


def _add_headers(made: PropertyHeaders, headers: dict[str, Any]) -> None:
    content_type = headers.get(_DATA_CONTENT_TYPE)
    if isinstance(content_type, str) and content_type:
        del headers[_DATA_CONTENT_TYPE]
        made.plain.append((names.CONTENT_TYPE, content_type))
    if headers:
        made.plain.append((names.HEADERS, orjson.dumps(headers).decode()))


def write_message(
    topic: str, payload: bytes, headers: Mapping[str, str], more: Mapping[str, str], *, with_headers: bool = True
) -> bytes:
    """The JSON of a row of any origin.

    Args:
        more: properties that are added.
        with_headers: whether its reader knows the field `headers`, since 1.9.

    Raises:
        InvalidMessage: somebody else has written headers of ours whose JSON nests too deeply.
    """
    properties, text = message_properties(headers), payload_text(payload)
    if text is None:
        text = base64.b64encode(payload).decode()
        properties[names.ENCODING] = "base64"
    properties.update(more)
    fields: dict[str, Any] = {"topic": topic, "properties": properties}
    if with_headers:
        fields["headers"] = _headers(headers)
    fields["body"] = text
    return orjson.dumps(fields)


def message_properties(headers: Mapping[str, str]) -> dict[str, Any]:
    """The properties that a row's headers are. Extensions of a CloudEvent lose their `ce-`.

    Raises:
        InvalidMessage: as `write_message`.
    """
    if headers.get(names.FORM) != Form.MESSAGE and "ce-specversion" in headers:
        properties: dict[str, Any] = _event_properties(headers)
    else:
        properties = {name: value for name, value in headers.items() if name not in _NO_PROPERTIES}
    if names.EXACT in headers:
        properties.update(exact_properties(headers))
    return properties


_NO_PROPERTIES = names.KEPT_BACK | {names.CONTENT_TYPE, names.ENCODING}
"""What the encoding is, is said by who writes the message."""


def exact_properties(headers: Mapping[str, str]) -> dict[str, Any]:
    """Of the header that holds what no header can hold; one that somebody else has written may be anything.

    Raises:
        InvalidMessage: it nests too deeply to be written.
    """
    return _json_header(headers, names.EXACT)


def _json_header(headers: Mapping[str, str], name: str) -> dict[str, Any]:
    if has_many_lists(headers[name]):
        return {}
    try:
        value = orjson.loads(headers[name])
    except orjson.JSONDecodeError:
        return {}
    check_depth(value, f"the header {name}")
    return {key: _no_list(each) for key, each in value.items()} if isinstance(value, dict) else {}


def _no_list(value: Any) -> Any:
    """A client of Java reads texts, and what it can take for one; at a list or an object it ends its connection."""
    return orjson.dumps(value).decode() if isinstance(value, (dict, list)) else value


def _event_properties(headers: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    was_message = headers.get("ce-source") == names.CLUSTER and headers.get("ce-type") == names.MADE_TYPE
    for name, value in headers.items():
        plain = name.removeprefix(names.EVENT)
        if name in _NO_PROPERTIES or name == "ce-subject" or (was_message and plain in CORE):
            continue
        if plain == name or plain in CORE or plain in headers:
            properties[name] = value
        else:
            properties[plain] = value
    return properties


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if names.CONTENT_TYPE in headers:
        made[_DATA_CONTENT_TYPE] = headers[names.CONTENT_TYPE]
    if names.HEADERS in headers:
        made.update(_json_header(headers, names.HEADERS))
    return made
