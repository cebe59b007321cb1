"""One message as a JSON object: a line of an exported file (docs/howto/move-messages.md, "The file").

    id or id_base64            required; base64 where the bytes are no UTF-8
    payload or payload_base64  required; base64 too where JSON would take twice the bytes
    headers or headers_base64  an object of texts, none empty; base64 of the header block where an object would not give
                               it again
    priority                   1 if left out
    expires_at, deliver_at     instants in ms; 0 if left out: never, at once
    sequence, published_at, state, attempts    of the message that was exported; not read again

A row becomes a line and a line the same row, byte by byte.
"""

import base64
import struct
from collections.abc import Mapping
from itertools import islice
from typing import Any

import orjson

from vibemq.errors import InvalidPayload
from vibemq.model.arguments import SHORT_CHARACTERS, short
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import PRIORITY_MAX
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.rows import RowView, header_pairs, pack_row

TOLD_ONLY = frozenset({"sequence", "published_at", "state", "attempts"})
_PAIRS = {name: f"{name}_base64" for name in ("id", "payload", "headers")}
_NUMBERS = {"priority": PRIORITY_MAX, "expires_at": NUMBER_MAX, "deliver_at": NUMBER_MAX}
KNOWN = frozenset({*_PAIRS, *_PAIRS.values(), *_NUMBERS, *TOLD_ONLY})
_ID_MAX = 0xFFFF


def message_line(row: bytes, **about: int | str) -> dict[str, Any]:
    """`about`: what is known beside the row; what is 0 is left out."""
    view = RowView(row)
    headers_at, payload = view.headers_at, view.payload
    raw_id = row[2 : headers_at - len(payload) - 4]
    return {
        **{name: value for name, value in about.items() if value},
        **_text_or_base64("id", raw_id),
        **_headers(row, headers_at),
        **_text_or_base64("payload", payload),
    }


def _text_or_base64(name: str, raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode()
        if len(orjson.dumps(text)) <= 2 * len(raw) + 2:
            return {name: text}
    except UnicodeDecodeError:
        pass
    return {f"{name}_base64": base64.b64encode(raw).decode()}


def _headers(row: bytes, at: int) -> dict[str, Any]:
    """What is read again must give the same bytes: not so with keys that are repeated, or texts that are no UTF-8."""
    if row[at:] == b"\0\0":
        return {"headers": {}}
    headers = dict(header_pairs(row, at))
    if _block(headers) == row[at:]:
        return {"headers": headers}
    return {"headers_base64": base64.b64encode(row[at:]).decode()}


def _block(headers: Mapping[str, str]) -> bytes:
    return pack_row(b"x", b"", list(headers.items()))[7:]


def read_message_line(line: Any) -> tuple[bytes, MessageExtra]:
    """The row, and what sets the message apart.

    Raises:
        InvalidPayload: what is wrong with the object.
    """
    if not isinstance(line, dict):
        raise InvalidPayload(f"a message must be an object, not {short(line)}")
    if not line.keys() <= KNOWN:
        names = (str(name)[:SHORT_CHARACTERS] for name in line if name not in KNOWN)
        unknown = ", ".join(sorted(islice(names, SHORT_CHARACTERS)))
        raise InvalidPayload(f"a message has the unknown key {short(unknown)}; known are {', '.join(sorted(KNOWN))}")
    raw_id, payload = _bytes_of(line, "id"), _bytes_of(line, "payload")
    if not 0 < len(raw_id) <= _ID_MAX:
        raise InvalidPayload(f"the id of a message must have 1 to {_ID_MAX:,} bytes, not {len(raw_id):,}")
    extra = _extra_of(line)
    if "headers_base64" in line:
        block = _bytes_of(line, "headers")
        if not _is_block(block):
            raise InvalidPayload("headers_base64 of a message cannot be decoded as headers of the native protocol")
        return pack_row(raw_id, payload)[:-2] + block, extra
    return _packed(raw_id, payload, line.get("headers", {})), extra


def read_message_row(row: bytes, about: Mapping[str, Any]) -> MessageExtra:
    """What sets a message apart whose row has come as it is. `about`: what its line would have of it.

    Raises:
        InvalidPayload: the row is none, or what is wrong with `about`.
    """
    if not about.keys() <= _NUMBERS.keys():
        raise InvalidPayload(f"what is known beside a row may be {', '.join(_NUMBERS)}, not {short(sorted(about))}")
    extra = _extra_of(about)
    try:
        view = RowView(row)
        is_row = bool(view.message_id) and _is_block(row[view.headers_at :])
    except struct.error:
        is_row = False
    if not is_row:
        raise InvalidPayload("a message that came as a row cannot be decoded as one of the native protocol")
    return extra


def _extra_of(line: Mapping[str, Any]) -> MessageExtra:
    numbers = {name: _number(line, name, most) for name, most in _NUMBERS.items()}
    priority = numbers["priority"] if "priority" in line else 1
    return MessageExtra(priority, numbers["expires_at"], numbers["deliver_at"])


def _packed(raw_id: bytes, payload: bytes, headers: Any) -> bytes:
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise InvalidPayload(f"headers of a message must be an object of texts, not {short(headers)}")
    if not all(name and value for name, value in headers.items()):
        raise InvalidPayload(
            "headers of a message must have names and values that are not empty: nobody could read them"
        )
    try:
        return pack_row(raw_id, payload, list(headers.items()))
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidPayload(f"headers of a message cannot be stored: {error}") from None


def _is_block(block: bytes) -> bool:
    """Whether it is a header block, whatever its texts are, and nothing else."""
    try:
        (count,) = struct.unpack_from("!H", block)
        at = 2
        for _ in range(2 * count):
            (size,) = struct.unpack_from("!H", block, at)
            at += 2 + size
    except struct.error:
        return False
    return bool(at == len(block))


def _bytes_of(line: dict[str, Any], name: str) -> bytes:
    text_given, coded_given = name in line, _PAIRS[name] in line
    if text_given == coded_given:
        raise InvalidPayload(f"a message must have either {name} or {_PAIRS[name]}")
    value = line[name] if text_given else line[_PAIRS[name]]
    if not isinstance(value, str):
        raise InvalidPayload(f"{name if text_given else _PAIRS[name]} of a message must be text, not {short(value)}")
    try:
        return value.encode() if text_given else base64.b64decode(value, validate=True)
    except ValueError as error:
        raise InvalidPayload(f"{name} of a message cannot be read: {error}") from None


def _number(line: Mapping[str, Any], name: str, most: int) -> int:
    value = line.get(name, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidPayload(f"{name} of a message must be a whole number, 0 to {most}, not {short(value)}")
    return value
