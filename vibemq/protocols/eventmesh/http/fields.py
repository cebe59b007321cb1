"""What a request says, however it says it: header and field names of all ages and in any case.

Forms, JSON objects and query parameters are read alike, large ones in steps. Of a name that comes twice the first value
counts.
"""

import base64
import binascii
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from vibemq.errors import InvalidMessage, MessageTooLarge
from vibemq.model.steps import at_once
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.messages.json_scan import (
    STEP_WORK,
    StepMeter,
    Steps,
    list_items,
    values_in,
)
from vibemq.protocols.eventmesh.messages.large_json import (
    LARGE_JSON_BYTES,
    PARSED_BYTES_MAX,
    VALUES_MAX,
    JsonSplitter,
    is_large,
)
from vibemq.protocols.eventmesh.messages.nesting import text_of

FIELDS_MAX = 256
NAME_BYTES_MAX = 4_096
A_FIELD = "a field of the request"
BASE64 = "base64"
"""What the property `eventmesh-encoding` says of a content that is no text."""
_PIECE_BYTES = 32_768
"""Of a form, that are decoded in a step; of one with broken escapes, a sixteenth."""
_BLANK_MAX = 65_536
"""A longer field is not looked through for something that is no blank."""
_ENTITY_BYTES_MAX = 16_384
_ENTITIES_AT_ONCE = 100
_SOFT_BREAK = re.compile(rb"%[\r\n]")
_UTF8 = getincrementaldecoder("utf-8")


def form_fields(text: bytes) -> dict[str, str]:
    """Of a form that is not large. Raises EventMeshRefusal: it is no form."""
    return at_once(read_form(text))


def read_form(text: bytes) -> Steps[dict[str, str]]:
    """Raises EventMeshRefusal: it is no form."""
    if text.count(b"&") >= FIELDS_MAX:
        raise _no_form(f"it has more than {FIELDS_MAX} fields")
    if b"%" in text and not text.isascii():
        raise _no_form("what is not ASCII must be escaped, as the rest is")
    fields: dict[str, str] = {}
    if len(text) <= NAME_BYTES_MAX and b"%" not in text:
        try:
            plain = text.replace(b"+", b" ").decode()
        except UnicodeDecodeError as error:
            raise _no_form(error) from None
        for each in plain.split("&"):
            if each:
                field, _, said = each.partition("=")
                fields.setdefault(field.lower(), said)
        return fields
    meter = StepMeter(FIELDS_MAX)
    for pair in text.split(b"&"):
        if meter.is_due(len(pair)):
            yield STEP_WORK
        if pair:
            name, _, value = pair.partition(b"=")
            if len(name) > NAME_BYTES_MAX:
                raise _no_form(f"a name has {len(name):,} bytes")
            known = (yield from _decoded(name)).lower()
            if known not in fields:
                fields[known] = yield from _decoded(value)
    return fields


def _no_form(why: object) -> EventMeshRefusal:
    return EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the form cannot be read: {why}")


def _decoded(text: bytes) -> Steps[str]:
    """Raises EventMeshRefusal: it is not UTF-8."""
    try:
        if len(text) <= _PIECE_BYTES and b"%" not in text:
            return text.replace(b"+", b" ").decode()
        decode = _UTF8("strict").decode
        parts: list[str] = []
        at = 0
        while at < len(text):
            piece = text[at : at + _PIECE_BYTES]
            if at + len(piece) < len(text):
                begun = piece.rfind(b"%", len(piece) - 2)
                piece = piece[:begun] if begun >= 0 else piece
            at += len(piece)
            plain = piece.replace(b"+", b" ")
            parts.append(decode((yield from _unescaped(plain)) if b"%" in plain else plain, at >= len(text)))
            if at < len(text):
                yield STEP_WORK
    except UnicodeDecodeError as error:
        raise _no_form(error) from None
    return "".join(parts)


def _unescaped(piece: bytes) -> Steps[bytes]:
    """Quoted-printable says `=41` where a form says `%41`, and has a decoder that is fast."""
    escapes = piece.count(b"%")
    if _SOFT_BREAK.search(piece) is None:
        made = binascii.a2b_qp(piece.replace(b"=", b"=3D").replace(b"%", b"="))
        if len(made) == len(piece) - 2 * escapes:
            return made
    # Some of the escapes are none, and stay as they are.
    parts: list[bytes] = []
    at, size = 0, _PIECE_BYTES // 16
    while at < len(piece):
        part = piece[at : at + size]
        begun = part.rfind(b"%", len(part) - 2) if at + len(part) < len(piece) else -1
        part = part[:begun] if begun > 0 else part
        at += len(part)
        parts.append(unquote_to_bytes(part))
        yield STEP_WORK
    return b"".join(parts)


def read_json_fields(body: bytes) -> Steps[dict[str, str]]:
    """The members of a JSON object as texts; large lists and objects among them as they came.

    Raises:
        EventMeshRefusal: it is none.
    """
    if is_large(body):
        splitter = JsonSplitter(body, "the body", None)
        while not splitter.step():
            yield STEP_WORK
        try:
            value: Any = splitter.result()
        except InvalidMessage as error:
            raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, str(error)) from None
    else:
        value = json_value(body)
    if not isinstance(value, dict):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the body must be a form, or a JSON object")
    fields: dict[str, str] = {}
    meter = StepMeter(FIELDS_MAX)
    for name, member in value.items():
        if member is not None:
            text = text_of(member, A_FIELD)
            fields.setdefault(name.lower(), text)
            if meter.is_due(len(name) + len(text)):
                yield STEP_WORK
    return fields


def json_value(body: bytes | str, *, is_text: bool = False) -> Any:
    """`is_text`: it begins as a text, of which nothing but that is read.

    Raises:
        EventMeshRefusal: it is no JSON, or has too many values.
    """
    if not is_text or len(body) > LARGE_JSON_BYTES:
        _check_values(body, "the body")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the body is not JSON: {error}") from None


def _check_values(text: bytes | str, what: str) -> None:
    """What is read at once is read in a few milliseconds."""
    if not is_large(text):
        return
    if len(text) > PARSED_BYTES_MAX or values_in(text) > VALUES_MAX:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"{what} has more JSON than is read at once")


def needed(fields: Mapping[str, str], *names: str) -> str:
    """The field of the first of these names that is there and not blank. Raises EventMeshRefusal: none is."""
    for name in names:
        value = fields.get(name, "")
        if value and not (len(value) <= _BLANK_MAX and value.isspace()):
            return value
    raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the field {names[0]} is missing or empty")


def parsed(fields: Mapping[str, str], name: str) -> Any:
    """A field that is JSON. A server answers what cannot be parsed with status 500.

    Raises:
        EventMeshRefusal: it is missing, is no JSON, or has too many values.
    """
    text = needed(fields, name)
    _check_values(text, f"the field {name}")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EventMeshRefusal(RetCode.RUNTIME_ERR, f"the field {name} is not JSON: {error}", status=500) from None


def heartbeat_items(fields: Mapping[str, str]) -> Iterator[Any]:
    """Of the field `heartbeatEntities`, one after the other. None: that was a step, or an item that is none.

    Raises:
        EventMeshRefusal: it is missing, or no list. What is no JSON is answered with status 500, as by `parsed`.
    """
    text = needed(fields, "heartbeatentities")
    if text.lstrip(" \t\r\n")[:1] in ("{", '"'):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the field heartbeatEntities must be a JSON list")
    meter = StepMeter(_ENTITIES_AT_ONCE)
    try:
        for item in list_items(text.encode(), "the field heartbeatEntities"):
            if item is None:
                yield None
                continue
            if len(item) > _ENTITY_BYTES_MAX:
                raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "each of heartbeatEntities needs a topic and a url")
            if meter.is_due(len(item)):
                yield None
            yield orjson.loads(item) or {}
    except (InvalidMessage, orjson.JSONDecodeError) as error:
        why = f"the field heartbeatEntities is not JSON: {error}"
        raise EventMeshRefusal(RetCode.RUNTIME_ERR, why, status=500) from None


def check_length(text: str, most: int) -> str:
    """Before anything is made of it. Raises MessageTooLarge."""
    if len(text) > most:
        raise MessageTooLarge(f"Event size exceeds the limit: {most}")
    return text


def properties_of(fields: Mapping[str, str]) -> dict[str, Any]:
    """The field `extFields`. Raises EventMeshRefusal: it is no JSON object."""
    if not fields.get("extfields"):
        return {}
    value = parsed(fields, "extfields")
    if not isinstance(value, dict):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the field extFields must be a JSON object")
    return value


def text_payload(payload: bytes) -> tuple[bytes, bool]:
    """Forms and JSON hold text: what is none goes as base64, and a property says so (the second value)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(payload), True
    return payload, False
