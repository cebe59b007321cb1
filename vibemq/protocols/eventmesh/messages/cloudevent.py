"""CloudEvents 1.0 and 0.3 in the JSON format.

    data, data_base64   payload: the data's bytes. Of an inline JSON value, the bytes as they were written
    datacontenttype     header `content-type`
    id                  the row's id, and header `ce-id`
    other attributes    headers `ce-…`; of numbers and booleans, their text
    subject             header `ce-subject`: the topic

Source: docs/spec/eventmesh.md, "Messages and rows"; CloudEvents 1.0.2.
"""

import base64
import re
from collections.abc import Mapping
from json import JSONDecoder
from typing import Any

import orjson

from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.attributes import CORE, check_attribute, is_name, is_readable
from vibemq.protocols.eventmesh.messages.json_scan import values_in
from vibemq.protocols.eventmesh.messages.large_json import (
    LARGE_JSON_BYTES,
    LISTS_MAX,
    VALUES_MAX,
    JsonSplitter,
    has_many_lists,
)
from vibemq.protocols.eventmesh.messages.message import PROPERTIES_MAX, exact_properties
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import json_text, payload_text
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage, json_object, ttl_of

_VERSIONS = ("1.0", "0.3")
_REQUIRED = ("id", "source", "type", "specversion")
_DATA = frozenset({"data", "data_base64", "datacontenttype", "datacontentencoding"})
_JSON_TYPE = re.compile(r"\s*(application|text)/([a-z0-9.+-]*\+)?json\s*(;.*)?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u00(?:61|64|74)")
"""Letters of `data` in another spelling."""
_BLANK = " \t\n\r"
_BLANKS = re.compile(r"[ \t\n\r]*")
_SOURCE, _TYPE = names.CLUSTER, names.MADE_TYPE
_RETURNABLE = "application/cloudevents+json"


def read_event(raw: bytes | str | JsonSplitter) -> ReceivedMessage:
    """Raises InvalidMessage: no event, or one without a subject."""
    fields = json_object(raw, "a CloudEvent")
    return event_of(fields, event_data(fields, raw))


def event_of(attributes: Mapping[str, Any], payload: bytes) -> ReceivedMessage:
    """An event of its attributes, however they came; `data` and its kin among them are passed over.

    Raises:
        InvalidMessage: an attribute is missing or of a wrong type.
    """
    if len(attributes) > PROPERTIES_MAX:
        most = f"at most {PROPERTIES_MAX:,} are allowed"
        raise InvalidMessage(f"a CloudEvent has {len(attributes):,} attributes; {most}")
    _check(attributes)
    headers, exact = [(names.FORM, str(Form.CLOUDEVENT))], dict[str, Any]()
    for name, value in attributes.items():
        if type(value) is str and value and name not in _SPECIAL:
            if not is_readable(name, value):
                check_attribute(name, value)
            headers.append((names.EVENT + name, value))
        elif name == names.EXTENSION_EXACT:
            for kept, text in _kept_headers(value):
                # A message's property of such a name would be mistaken for an extension.
                if kept.startswith(names.EVENT):
                    exact[kept] = text
                else:
                    headers.append((kept, text))
        elif name not in _DATA and value is not None:
            _add(headers, exact, name, value)
    content_type = attributes.get("datacontenttype")
    if content_type:
        headers.append((names.CONTENT_TYPE, content_type))
    if exact:
        headers.append((names.EXACT, orjson.dumps(exact).decode()))
    topic, name = attributes["subject"], attributes["id"]
    return ReceivedMessage(Form.CLOUDEVENT, topic, payload, headers, name, ttl_of(attributes))


_SPECIAL = _DATA | {names.EXTENSION_EXACT}


def _check(attributes: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        value = attributes.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidMessage(f"a CloudEvent needs {name!r}, a text that is not empty")
    if attributes["specversion"] not in _VERSIONS:
        raise InvalidMessage(f"specversion is {attributes['specversion'][:16]!r}; known are {', '.join(_VERSIONS)}")
    subject = attributes.get("subject")
    if not isinstance(subject, str) or not subject:
        raise InvalidMessage("a CloudEvent for a topic needs a `subject`, which names the topic")
    content_type = attributes.get("datacontenttype")
    if content_type is not None and not isinstance(content_type, str):
        raise InvalidMessage("`datacontenttype` of a CloudEvent must be text")


def _add(headers: list[tuple[str, str]], exact: dict[str, Any], name: str, value: Any) -> None:
    """An attribute that is no text, or an empty one."""
    if isinstance(value, (dict, list)):
        raise InvalidMessage(f"the attribute {name[:64]!r} of a CloudEvent must be text, a number or a boolean")
    check_attribute(name, value)
    if isinstance(value, str):
        exact[name] = value
    else:
        headers.append((names.EVENT + name, orjson.dumps(value).decode()))


def _kept_headers(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, str) and has_many_lists(value):
        return []
    try:
        kept = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return []
    if not isinstance(kept, dict):
        return []
    mine = (names.FORM, names.TOPIC)
    return [(name, text) for name, text in kept.items() if name and text and type(text) is str and name not in mine]


def event_data(fields: Mapping[str, Any], raw: bytes | str | JsonSplitter) -> bytes:
    """The bytes of an event's data. `raw`: the event, as it came, or taken apart.

    Raises:
        InvalidMessage: they are not base64, as the event says; or they nest too deeply.
    """
    if isinstance(raw, JsonSplitter) and raw.unread:
        return raw.text
    encoded = fields.get("data_base64")
    if encoded is None and fields.get("datacontentencoding") == "base64":
        encoded = fields.get("data")
    if encoded is not None:
        return _decoded(encoded)
    data = fields.get("data")
    if data is None:
        return b""
    content_type = fields.get("datacontenttype") or "application/json"
    if isinstance(data, str) and not is_json_type(str(content_type)):
        return data.encode()
    if isinstance(raw, JsonSplitter):
        return raw.text
    # Mostly they were written as we would write them; then their bytes are known without a second look.
    written = json_text(data, "the data of a CloudEvent")
    if b'"data":' + written in (raw.encode() if isinstance(raw, str) else raw):
        return written
    text = raw if isinstance(raw, str) else raw.decode()
    try:
        return (_last_data(text, fields) or _raw_member(text, "data")).encode()
    except RecursionError:
        raise InvalidMessage("a CloudEvent nests too deeply; send its data as text or as base64") from None


def _decoded(encoded: Any) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidMessage(f"the data of a CloudEvent is not base64: {error}") from None


def is_json_type(content_type: str) -> bool:
    return _JSON_TYPE.fullmatch(content_type) is not None


def _last_data(text: str, fields: Mapping[str, Any]) -> str:
    """As `_raw_member` of `data`, without looking at each value in it: of an object or a list that is the last member,
    while no other member is one; "": it is not known to be that."""
    if not isinstance(fields["data"], (dict, list)):
        return ""
    name = '"data"'
    before, _, behind = text.partition(name)
    try:
        # That this can be read shows that the name is no part of a text or of a value.
        first = orjson.loads(f"{before}{name}:0}}")
    except orjson.JSONDecodeError:
        return ""
    # Another member behind it would end in another character, or be one of these again.
    if first.keys() != fields.keys() or any(isinstance(fields[each], (dict, list)) for each in first if each != "data"):
        return ""
    value = behind[_after(_BLANKS.match, behind, 0) + 1 :].rstrip(_BLANK)[:-1].strip(_BLANK)
    again = name in value or _ESCAPED.search(value) is not None
    return value if value.endswith(("}", "]")) and not again else ""


def _raw_member(text: str, wanted: str) -> str:
    """The text of a member's value in a sound JSON object; of several of that name, the last."""
    scan, blanks = _DECODER.raw_decode, _BLANKS.match
    found = ""
    at = _after(blanks, text, _after(blanks, text, 0) + 1)
    while text[at] == '"':
        name, at = scan(text, at)
        start = _after(blanks, text, _after(blanks, text, at) + 1)
        _, end = scan(text, start)
        if name == wanted:
            found = text[start:end]
        at = _after(blanks, text, end)
        if text[at] == "}":
            break
        at = _after(blanks, text, at + 1)
    return found


_DECODER = JSONDecoder(strict=False)


def _after(blanks: Any, text: str, at: int) -> int:
    return int(blanks(text, at).end())


def write_event(
    topic: str,
    message_id: str,
    payload: bytes,
    headers: Mapping[str, str],
    more: Mapping[str, str],
    *,
    returnable: bool = False,
) -> bytes:
    """The JSON of a row of any origin.

    The data is `data_base64`, which clients of all ages read; inline only where the content type is exactly
    `application/json`, or text. JSON of very many values is not looked through for that, and goes as base64, too.

    Args:
        more: extensions that are added.
        returnable: a client of Java can send it back.

    Raises:
        InvalidMessage: as `write_message`.
    """
    fields = event_attributes(topic, message_id, payload, headers)
    fields.update(more)
    if returnable:
        _make_returnable(fields, payload, was_event="ce-specversion" in headers)
    if not payload:
        return orjson.dumps(fields)
    content_type = fields.get("datacontenttype", "")
    if content_type == "application/json" and _is_json(payload):
        return orjson.dumps(fields)[:-1] + b',"data":' + payload + b"}"
    text = payload_text(payload) if content_type.partition(";")[0].strip() == "text/plain" else None
    if text is not None:
        fields["data"] = text
    elif fields["specversion"] == "0.3":
        fields |= {"datacontentencoding": "base64", "data": base64.b64encode(payload).decode()}
    else:
        fields["data_base64"] = base64.b64encode(payload).decode()
    return orjson.dumps(fields)


def _make_returnable(fields: dict[str, Any], payload: bytes, *, was_event: bool) -> None:
    """A consumer mostly replies with the event that it was given, changed; and a Java client sends events of one
    content type alone, and ends its connection at the others."""
    is_json = not was_event or is_json_type(fields.get("datacontenttype") or _RETURNABLE)
    if is_json and (not payload or _is_json(payload)):
        fields["datacontenttype"] = _RETURNABLE


def event_attributes(topic: str, message_id: str, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The attributes and extensions that a row is as an event, without its data."""
    if "ce-specversion" in headers:
        fields: dict[str, Any] = {}
        content_type = headers.get(names.CONTENT_TYPE)
    else:
        fields = {"specversion": "1.0", "id": message_id, "source": _SOURCE, "type": _TYPE, "subject": topic}
        content_type = headers.get(names.CONTENT_TYPE) or _guessed_type(payload)
    if content_type:
        fields["datacontenttype"] = content_type
    is_message = headers.get(names.FORM) == Form.MESSAGE
    kept = _take_headers(fields, headers, is_message=is_message)
    exact = exact_properties(headers) if names.EXACT in headers else {}
    if not is_message:
        empty = (name for name, value in exact.items() if value == "" and name not in _DATA)
        fields.update((name, "") for name in empty if is_readable(name, ""))
        exact = {}
    if exact:
        kept[names.EXACT] = headers[names.EXACT]
    if kept:
        fields[names.EXTENSION_EXACT] = orjson.dumps(kept).decode()
    fields.setdefault("subject", topic)
    return _completed(fields, message_id)


def _take_headers(fields: dict[str, Any], headers: Mapping[str, str], *, is_message: bool) -> dict[str, str]:
    """Add those that are attributes or extensions of an event; return the others that have to be kept."""
    kept: dict[str, str] = {}
    for name, value in headers.items():
        plain = name.removeprefix(names.EVENT)
        if plain in _DATA and plain != name:
            continue
        if plain != name and (not is_message or plain in CORE) and is_readable(plain, value):
            fields[plain] = value
        elif is_name(name) and name not in fields and name not in CORE and name not in _DATA:
            fields[name] = value
        elif name not in _NEVER_KEPT:
            kept[name] = value
    return kept


_NEVER_KEPT = frozenset(
    {names.FORM, names.TOPIC, names.EXACT, names.CONTENT_TYPE, names.SENT_BY, names.REPLY_TO, names.CORRELATION_ID}
)


def _completed(fields: dict[str, Any], message_id: str) -> dict[str, Any]:
    """Somebody else may have written headers of an event that lack what an event must have."""
    for name, value in (("id", message_id), ("source", _SOURCE), ("type", _TYPE)):
        if not fields.get(name):
            fields[name] = value
    if fields["specversion"] not in _VERSIONS:
        fields["specversion"] = "1.0"
    return fields


def _guessed_type(payload: bytes) -> str:
    return "application/octet-stream" if payload_text(payload) is None else "text/plain"


def _is_json(payload: bytes) -> bool:
    if len(payload) > LARGE_JSON_BYTES and values_in(payload) > VALUES_MAX:
        return False
    # It is read once, and nothing is made of it: more than of what a client is to be answered for.
    if has_many_lists(payload, 3 * LISTS_MAX):
        return False
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return False
    return True
