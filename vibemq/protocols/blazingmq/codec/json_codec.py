"""The control messages as JSON, by the same schema. Java's SDK speaks nothing else.

Keys and enumerations go by name, bytes as base64; fields that are None are left out. Unknown keys are ignored. Source:
docs/spec/blazingmq.md, "JSON".
"""

import base64
import binascii
from typing import Any

import orjson

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec import schema
from vibemq.protocols.blazingmq.codec.schema import Choice, Element, Scalar, SchemaMismatch

_CONTAINERS = (dict, list)


def encode_choice(of: Choice, value: Any) -> bytes:
    return orjson.dumps({of.of_class[type(value)][1]: _object(value)})


def encode_request(of: Choice, r_id: int | None, value: Any) -> bytes:
    selected = {of.of_class[type(value)][1]: _object(value)}
    return orjson.dumps(selected if r_id is None else {"rId": r_id, **selected})


def _object(value: Any) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for part in schema.elements_of(type(value)):
        held = getattr(value, part.attribute)
        if held is None:
            continue
        if part.is_array:
            held = [_object(item) for item in held]
        elif schema.is_sequence(part.type):
            held = _object(held)
        elif schema.is_enumeration(part.type):
            held = held.name
        elif part.type is Scalar.BYTES:
            held = base64.b64encode(held).decode()
        written[part.name] = held
    return written


# -- reading ----------------------------------------------------------------------------------------------------------


def decode_choice(of: Choice, data: bytes) -> Any:
    """As `ber.decode_choice`."""
    return _selection(of, _parsed(data))


def decode_request(of: Choice, data: bytes) -> tuple[int | None, Any]:
    """As `ber.decode_request`."""
    found = _parsed(data)
    r_id = found.get("rId")
    if r_id is not None:
        r_id = _number(Scalar.INT, "rId", r_id)
    try:
        return r_id, _selection(of, found)
    except SchemaMismatch as mismatch:
        return r_id, mismatch


def _parsed(data: bytes) -> dict[str, Any]:
    if data.count(b"[") + data.count(b"{") > schema.VALUES_MAX:
        raise RemoteProtocolError(f"a control message has more than {schema.VALUES_MAX:,} JSON lists and objects")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"a control message is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RemoteProtocolError("a control message in JSON is an object")
    _measure(found)
    return found


def _measure(found: dict[str, Any]) -> None:
    """Refuse what is too deep or too much, unknown fields included."""
    level: list[Any] = [found]
    depth = values = 0
    while level:
        depth += 1
        if depth > schema.DEPTH_MAX:
            raise RemoteProtocolError(f"more than {schema.DEPTH_MAX} levels of JSON values")
        values += sum(map(len, level))
        if values > schema.VALUES_MAX:
            raise RemoteProtocolError(f"more than {schema.VALUES_MAX} values in a JSON message")
        inner = []
        for group in level:
            members = group.values() if type(group) is dict else group
            inner += [member for member in members if type(member) in _CONTAINERS]
        level = inner


def _selection(of: Choice, found: dict[str, Any]) -> Any:
    selected = [name for name in found if name in of.by_name]
    if not selected:
        return None
    if len(selected) > 1:
        raise SchemaMismatch(f"{' and '.join(selected)} in one message")
    return _sequence(of.by_name[selected[0]], selected[0], found[selected[0]])


def _sequence(cls: type[Any], name: str, found: Any) -> Any:
    if not isinstance(found, dict):
        raise SchemaMismatch(f"{name} is no object")
    values = {}
    for part in schema.elements_of(cls):
        held = found.get(part.name)
        if held is not None:
            values[part.attribute] = _value(part, held)
    return schema.build(cls, values)


def _value(part: Element, held: Any) -> Any:
    if part.is_array:
        if not isinstance(held, list):
            raise SchemaMismatch(f"{part.name} is no array")
        return tuple(_sequence(part.type, part.name, item) for item in held)
    if schema.is_sequence(part.type):
        return _sequence(part.type, part.name, held)
    if schema.is_enumeration(part.type):
        if isinstance(held, str):
            return schema.named_member(part.type, part.name, held)
        return schema.checked_member(part.type, part.name, _number(Scalar.INT, part.name, held))
    if part.type is Scalar.BOOL:
        if not isinstance(held, bool):
            raise SchemaMismatch(f"{part.name} is neither true nor false")
        return held
    if part.type is Scalar.STRING or part.type is Scalar.BYTES:
        if not isinstance(held, str):
            raise SchemaMismatch(f"{part.name} is no string")
        return held if part.type is Scalar.STRING else _decoded(part.name, held)
    return _number(part.type, part.name, held)


def _number(of: Scalar, name: str, held: Any) -> int:
    if type(held) is not int:
        raise SchemaMismatch(f"{name} is no whole number")
    return schema.checked_number(of, name, held)


def _decoded(name: str, held: str) -> bytes:
    try:
        return base64.b64decode(held, validate=True)
    except (binascii.Error, ValueError):
        raise SchemaMismatch(f"{name} is not base64") from None
