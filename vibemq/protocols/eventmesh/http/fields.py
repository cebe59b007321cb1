"""What a request says, however it says it: header and field names of all ages and in any case.

Forms, JSON objects and query parameters are read alike. Of a name that comes twice the first value counts.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson

from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal, RetCode
from vibemq.protocols.eventmesh.messages.nesting import text_of

FIELDS_MAX = 256
A_FIELD = "a field of the request"
BASE64 = "base64"
"""What the property `eventmesh-encoding` says of a content that is no text."""


def form_fields(text: bytes) -> dict[str, str]:
    """Raises EventMeshRefusal: it is no form."""
    try:
        pairs = parse_qsl(
            text.decode("ascii" if b"%" in text else "utf-8"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the form cannot be read: {error}") from None
    return _folded(pairs)


def json_fields(body: bytes) -> dict[str, str]:
    """The members of a JSON object as texts. Raises EventMeshRefusal: it is none."""
    value = json_value(body)
    if not isinstance(value, dict):
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, "the body must be a form, or a JSON object")
    return _folded((name, text_of(member, A_FIELD)) for name, member in value.items() if member is not None)


def json_value(body: bytes | str) -> Any:
    """Raises EventMeshRefusal: it is no JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the body is not JSON: {error}") from None


def _folded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields.setdefault(name.lower(), value)
    return fields


def needed(fields: Mapping[str, str], *names: str) -> str:
    """The field of the first of these names that is there and not blank. Raises EventMeshRefusal: none is."""
    for name in names:
        value = fields.get(name, "")
        if value and not value.isspace():
            return value
    raise EventMeshRefusal(RetCode.PROTOCOL_BODY_ERR, f"the field {names[0]} is missing or empty")


def parsed(fields: Mapping[str, str], name: str) -> Any:
    """A field that is JSON. A server answers what cannot be parsed with status 500.

    Raises:
        EventMeshRefusal: it is missing, or no JSON.
    """
    text = needed(fields, name)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EventMeshRefusal(RetCode.RUNTIME_ERR, f"the field {name} is not JSON: {error}", status=500) from None


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
