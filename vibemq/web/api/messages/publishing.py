"""Messages of a request, as rows for the engine: one raw body with headers `VibeMQ-…`, or many as JSON or lines. Pure.

A body is bytes: as text or as base64, never as a JSON value, so no number and no repeated key of it is touched.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from vibemq.errors import InvalidMessage, InvalidPayload, MessageTooLarge, VibeMQError
from vibemq.model.arguments import utf16_units
from vibemq.model.effects import Published
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import PRIORITY_MAX, Priority
from vibemq.model.quantities import NUMBER_MAX, instant_ms
from vibemq.model.rows import HEADER_VALUE_UNITS_MAX, HEADERS_MAX, LARGE_ROW_BYTES, Rows, pack_row
from vibemq.web.api.guardrails.json_shapes import LISTS_MARKS_MAX, check_shape
from vibemq.web.api.messages.leases import PrincipalKey

MESSAGES_MAX = 1_000
"""Of one request."""
LINE_BYTES_MAX = 1_500_000
"""A body of the largest size as base64 fits."""
LOOKED_AT_BYTES = 16_384
"""Shorter lines are read at once, whatever they are."""
TEXTS_MAX = 256
BETWEEN_BYTES_MAX = 4_096
"""Texts of a message, names of fields and headers included, and bytes outside of them."""
TEXT_BYTES_MAX = 65_535
"""Of an id, and of the name of a header."""
PREFIX = "vibemq-"
OWN_HEADER = "vibemq-header-"
"""Before the name of a header of the message."""
FIELDS = ("payload", "payload_base64", "id", "headers", "content_type")
EXTRAS = ("priority", "ttl_ms", "delay_ms", "deliver_at", "dedup_id")
_REQUEST_HEADERS = {
    "vibemq-message-id": "id",
    "vibemq-content-type": "content_type",
    "vibemq-priority": "priority",
    "vibemq-ttl-ms": "ttl_ms",
    "vibemq-delay-ms": "delay_ms",
    "vibemq-deliver-at": "deliver_at",
    "vibemq-dedup-id": "dedup_id",
    "vibemq-headers": "headers",
}


@dataclass(slots=True)
class NewMessage:
    """One message, checked."""

    row: bytes
    extra: MessageExtra | None


def dedup_id_of(owner: PrincipalKey, key: str) -> str:
    """The dedup id of messages that are published with an Idempotency-Key: a queue's dedup ids are everybody's, and
    the keys of others, who count in the same way, must not meet it."""
    return hashlib.blake2s("\0".join((*map(str, owner), key)).encode(), digest_size=16).hexdigest()


class MessageMaker:
    """Args:
    now: instant from which times to live and delays count.
    size_max: bytes of a message with its headers.
    key: Idempotency-Key of the request; "" = none.
    key_id: the dedup id that stands for it, see `dedup_id_of`.
    new_id: makes ids for messages that bring none.
    """

    def __init__(self, *, now: int, size_max: int, key: str, key_id: str, new_id: Any) -> None:
        self._now = now
        self._size_max = min(size_max, LARGE_ROW_BYTES)
        self._key = key
        self._key_id = key_id
        self._new_id = new_id

    def from_request(self, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> NewMessage:
        """Raises InvalidPayload, MessageTooLarge."""
        fields: dict[str, Any] = {}
        own: list[tuple[str, str]] = []
        for raw_name, raw_value in headers:
            name = raw_name.decode("latin-1").lower()
            if not name.startswith(PREFIX):
                continue
            value = _header_text(name, raw_value)
            if name.startswith(OWN_HEADER) and len(name) > len(OWN_HEADER):
                own.append((name[len(OWN_HEADER) :], value))
            elif name not in _REQUEST_HEADERS:
                known = ", ".join([*_REQUEST_HEADERS, f"{OWN_HEADER}<name>"])
                raise InvalidPayload(f"the header {name[:40]} is unknown here; known are {known}; leave it out", name)
            elif _REQUEST_HEADERS[name] in fields:
                raise InvalidPayload(f"the header {name} is given more than once", name)
            else:
                fields[_REQUEST_HEADERS[name]] = _typed(name, value)
        if self._key:
            if fields.get("dedup_id") not in (None, self._key):
                raise InvalidPayload(
                    "Idempotency-Key and VibeMQ-Dedup-Id differ, and a message has one of them; leave one out",
                    "vibemq-dedup-id",
                )
            fields.setdefault("dedup_id", self._key_id)
        given = fields.get("headers", {})
        if not isinstance(given, dict):
            raise InvalidPayload("the header vibemq-headers must be a JSON object of names and texts", "vibemq-headers")
        fields["headers"] = _joined(given, own)
        try:
            return self._made(fields, body)
        except InvalidPayload as error:
            raise _of_header(error) from None

    def from_json(self, value: Any, index: int) -> NewMessage:
        """`index`: of the message in its batch. Raises InvalidPayload, MessageTooLarge."""
        if not isinstance(value, dict):
            raise InvalidPayload("a message is a JSON object, {…}")
        for name in value:
            if name not in FIELDS and name not in EXTRAS:
                raise InvalidPayload(
                    f"field {name[:40]!r} is unknown; a message has {', '.join((*FIELDS, *EXTRAS))}; leave it out", name
                )
        fields = {name: inner for name, inner in value.items() if inner is not None}
        if self._key:
            fields.setdefault("dedup_id", f"{self._key_id}/{index}")
        return self._made(fields, _payload(fields))

    def from_body(self, body: bytes, index: int) -> NewMessage:
        """A line that is the body itself."""
        return self._made({"dedup_id": f"{self._key_id}/{index}"} if self._key else {}, body)

    def _made(self, fields: Mapping[str, Any], payload: bytes) -> NewMessage:
        message_id = _text(fields, "id", TEXT_BYTES_MAX) or self._new_id()
        headers = _headers(fields)
        priority = _priority(fields)
        if "priority" in fields:
            headers.setdefault("priority", str(priority))
        if len(headers) > HEADERS_MAX:
            raise InvalidPayload(f"{len(headers)} headers; a message may have {HEADERS_MAX}", "headers")
        row = pack_row(message_id, payload, list(headers.items()))
        if len(row) > self._size_max:
            raise MessageTooLarge(
                f"the message has {len(row):,} bytes with its headers; over HTTP it may have {self._size_max:,}. "
                "A larger one is published with a client of the native protocol"
            )
        return NewMessage(row, self._extra(fields, priority))

    def _extra(self, fields: Mapping[str, Any], priority: int) -> MessageExtra | None:
        ttl_ms, delay_ms = _number(fields, "ttl_ms", 1), _number(fields, "delay_ms", 0)
        deliver_at = _instant(fields)
        if deliver_at and delay_ms:
            raise InvalidPayload("delay_ms and deliver_at exclude each other; give one of them", "delay_ms")
        dedup_id = _text(fields, "dedup_id", TEXT_BYTES_MAX)
        extra = MessageExtra(
            priority,
            min(self._now + ttl_ms, NUMBER_MAX) if ttl_ms else 0,
            deliver_at or (min(self._now + delay_ms, NUMBER_MAX) if delay_ms else 0),
            dedup_id.encode(),
        )
        return None if extra == _NOTHING else extra


_NOTHING = MessageExtra()
_HEADER_OF = {field: header for header, field in _REQUEST_HEADERS.items() if field != "headers"}
_FIELD_NAMES = re.compile(rf"(?<!\w)({'|'.join(_HEADER_OF)})(?= (?:must|has|and) )")


def _of_header(error: InvalidPayload) -> InvalidPayload:
    """The same of a request that has written a header, and no field."""
    header = _HEADER_OF.get(error.argument)
    if header is None:
        return error
    return InvalidPayload(_FIELD_NAMES.sub(lambda found: f"the header {_HEADER_OF[found[1]]}", str(error)), header)


class RefusedMessage(NamedTuple):
    """A message of a batch that was not confirmed."""

    number: int
    """Of the message in its batch, from 0."""
    line: int
    """From 1; 0 = it was not a line."""
    error: VibeMQError


@dataclass(slots=True)
class NewMessages:
    """Messages that can be published, and those that cannot."""

    rows: list[bytes] = field(default_factory=list)
    extras: dict[int, MessageExtra] = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)
    """(index, line) of each row."""
    refused: list[RefusedMessage] = field(default_factory=list)
    count: int = 0

    def add(self, make: Any, line: int) -> None:
        """`make(index)` makes the message, or raises what is wrong with it."""
        index = self.count
        try:
            message = make(index)
        except VibeMQError as error:
            self.refuse(error, line)
            return
        self.count += 1
        if message.extra is not None:
            self.extras[len(self.rows)] = message.extra
        self.places.append((index, line))
        self.rows.append(message.row)

    def refuse(self, error: VibeMQError, line: int) -> None:
        self.refused.append(RefusedMessage(self.count, line, error))
        self.count += 1

    def packed(self) -> Rows:
        return Rows.of(self.rows)

    def all_refused(self, published: Published | None) -> list[RefusedMessage]:
        """In the order of the batch."""
        late = {} if published is None else published.refused or {}
        found = [*self.refused, *(RefusedMessage(*self.places[row], error) for row, error in late.items())]
        return sorted(found, key=lambda refused: refused.number)


def read_batch(maker: MessageMaker, value: Any, batch: NewMessages) -> Iterator[None]:
    """Fill the batch from `{"messages": […]}`, a message for each step. Raises InvalidPayload."""
    if not isinstance(value, dict) or set(value) != {"messages"} or not isinstance(value["messages"], list):
        raise InvalidPayload('the body must be {"messages": […]}; one message alone is sent as its bytes', "messages")
    messages = value["messages"]
    if not 1 <= len(messages) <= MESSAGES_MAX:
        raise InvalidPayload(f"messages has {len(messages):,} items; it may have 1 to {MESSAGES_MAX:,}", "messages")
    for message in messages:
        batch.add(lambda index, message=message: maker.from_json(message, index), 0)
        yield


# Lines of which millions fit into a body are passed many at a time.
_BLANK = re.compile(rb"\s*\n")


def read_lines(maker: MessageMaker, body: bytes, batch: NewMessages, *, bodies: bool) -> Iterator[None]:
    """Fill the batch from lines, in short steps; empty lines are left out.

    Args:
        bodies: each line is the body itself.

    Raises:
        InvalidPayload: there are too many, or none.
    """
    start, line = 0, 0
    while start < len(body):
        blank = _BLANK.match(body, start, start + LOOKED_AT_BYTES)
        if blank is not None:
            start, line = blank.end(), line + body.count(b"\n", start, blank.end())
            yield
            continue
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        text, start, line = body[start:end].removesuffix(b"\r"), end + 1, line + 1
        if not text.strip():
            continue
        if batch.count >= MESSAGES_MAX:
            raise InvalidPayload(f"there are more than {MESSAGES_MAX:,} messages, the most of one request; send less")
        if bodies:
            batch.add(lambda index, text=text: maker.from_body(text, index), line)
        else:
            try:
                value = yield from line_json(text)
            except VibeMQError as error:
                batch.refuse(error, line)
            else:
                batch.add(lambda index, value=value: maker.from_json(value, index), line)
        yield
    if not batch.count:
        raise InvalidPayload("the body has no line; send one message in each line")


def line_json(text: bytes) -> Generator[None, None, Any]:
    """A message's line as JSON, in short steps. What cannot be one is refused before it is read: a text of many small
    values takes fifty times as long as a body of the same size.

    Raises:
        InvalidMessage, MessageTooLarge
    """
    if len(text) > LINE_BYTES_MAX:
        raise MessageTooLarge(
            f"the message as a line has {len(text):,} bytes, and {LINE_BYTES_MAX:,} are the most; with its headers it "
            f"may have {LARGE_ROW_BYTES:,} over HTTP. A larger one is published with a client of the native protocol"
        )
    if len(text) <= LOOKED_AT_BYTES:
        return strict_json(text)
    count = yield from _count_texts(text)
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise InvalidMessage(f"this is no JSON: {error}"[:300]) from None
    if _texts_in(value) < count:
        raise InvalidMessage("this is no JSON: a name is there twice in one object")
    yield
    return value


def _count_texts(text: bytes) -> Generator[None, None, int]:
    """Of JSON. A message has few texts, one of them long, and little between them. Raises InvalidMessage."""
    at = between = count = 0
    while (start := text.find(b'"', at)) >= 0:
        between += start - at
        if between > BETWEEN_BYTES_MAX or count == TEXTS_MAX:
            raise _too_many_values()
        at = yield from _end_of_text(text, start + 1)
        count += 1
    if between + len(text) - at > BETWEEN_BYTES_MAX:
        raise _too_many_values()
    return count


def _too_many_values() -> InvalidMessage:
    return InvalidMessage("the line is no message: it has more values than a message can have")


# It never goes back: a text that does not end costs as little as one that does.
_WITHIN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


def _end_of_text(text: bytes, at: int) -> Generator[None, None, int]:
    """Behind the quote that ends it. Raises InvalidMessage."""
    while True:
        found = _WITHIN_TEXT.match(text, at, at + LOOKED_AT_BYTES)
        assert found is not None, "it may be empty"
        end = found.end()
        if text[end : end + 1] == b'"':
            return end + 1
        if end == at or end == len(text):
            raise InvalidMessage("this is no JSON: a text does not end")
        at = end
        yield


def _texts_in(value: Any) -> int:
    """Names among them."""
    count, left = 0, [value]
    while left:
        inner = left.pop()
        if isinstance(inner, dict):
            count += len(inner)
            left += inner.values()
        elif isinstance(inner, list):
            left += inner
        else:
            count += isinstance(inner, str)
    return count


def strict_json(text: bytes) -> Any:
    """As it was written, or refused: a name that is there twice, NaN, text that is no UTF-8, more than a batch has.

    Raises:
        InvalidMessage
    """
    check_shape(text, LISTS_MARKS_MAX)
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        why = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidMessage(f"this is no JSON: {why}"[:300]) from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _payload(fields: Mapping[str, Any]) -> bytes:
    if "payload" in fields and "payload_base64" in fields:
        raise InvalidPayload("a message has payload or payload_base64, not both", "payload")
    if "payload_base64" in fields:
        text = fields["payload_base64"]
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidPayload("payload_base64 is no base64", "payload_base64") from None
    text = fields.get("payload", "")
    if not isinstance(text, str):
        raise InvalidPayload(
            "payload must be text; write JSON as text, or bytes as payload_base64, so that nothing in it is changed",
            "payload",
        )
    return _encoded(text, "payload")


def _joined(given: Mapping[str, Any], own: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The headers of a message from `VibeMQ-Headers` and from those of their own. Raises InvalidPayload."""
    headers = dict(given)
    for name, value in own:
        if name in headers:
            raise InvalidPayload(
                f"the message's header {name[:40]!r} is given more than once; leave out {OWN_HEADER}{name[:40]}, or "
                f"{name[:40]!r} in vibemq-headers",
                f"{OWN_HEADER}{name}",
            )
        headers[name] = value
    return headers


def _headers(fields: Mapping[str, Any]) -> dict[str, str]:
    given = fields.get("headers", {})
    if not isinstance(given, dict):
        raise InvalidPayload("headers must be an object of names and texts", "headers")
    headers: dict[str, str] = {}
    for name, value in given.items():
        if not name:
            raise InvalidPayload("a header has no name; give it one, or leave it out", "headers")
        if not isinstance(value, str) or not value:
            raise InvalidPayload(
                f"the value of header {name[:40]!r} must be text of at least one character, not {str(value)[:40]!r}",
                "headers",
            )
        if len(_encoded(name, "headers")) > TEXT_BYTES_MAX:
            raise InvalidPayload(f"the name of a header has more than {TEXT_BYTES_MAX:,} bytes", "headers")
        _encoded(value, "headers")
        if utf16_units(value) > HEADER_VALUE_UNITS_MAX:
            raise InvalidPayload(f"header {name[:40]!r} has more than {HEADER_VALUE_UNITS_MAX:,} characters", "headers")
        headers[name] = value
    content_type = _text(fields, "content_type", HEADER_VALUE_UNITS_MAX)
    if content_type:
        headers["content-type"] = content_type
    return headers


def _text(fields: Mapping[str, Any], name: str, most: int) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or (name in fields and not value):
        raise InvalidPayload(f"{name} must be text of at least one character", name)
    if len(_encoded(value, name)) > most:
        raise InvalidPayload(f"{name} has more than {most:,} bytes", name)
    return value


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(f"{name} has half of a surrogate pair, which is no character", name) from None


def _number(fields: Mapping[str, Any], name: str, least: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is not int or not least <= value <= NUMBER_MAX:
        raise InvalidPayload(f"{name} must be a whole number of milliseconds, {least} or more", name)
    return value


def _priority(fields: Mapping[str, Any]) -> int:
    value = fields.get("priority")
    if value is None:
        return int(Priority.NORMAL)
    if isinstance(value, str) and value.upper() in Priority.__members__:
        return int(Priority[value.upper()])
    if type(value) is int and 0 <= value <= PRIORITY_MAX:
        return value
    names = ", ".join(name.lower() for name in Priority.__members__)
    raise InvalidPayload(f"priority must be {names}, or a number from 0 to {PRIORITY_MAX}", "priority")


def _instant(fields: Mapping[str, Any]) -> int:
    value = fields.get("deliver_at")
    if value is None:
        return 0
    if type(value) is int and 1 <= value <= NUMBER_MAX:
        return value
    try:
        instant = instant_ms(value) if isinstance(value, str) else 0
    except (ValueError, OverflowError):
        instant = 0
    if instant < 1:
        raise InvalidPayload(
            "deliver_at must be an instant with its zone, as 2026-11-26T00:35:00Z, or milliseconds since 1970",
            "deliver_at",
        )
    return instant


def _header_text(name: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidPayload(f"the header {name[:40]} is no UTF-8", name[:40]) from None


def _typed(name: str, value: str) -> Any:
    """Numbers are numbers; `VibeMQ-Headers` is a JSON object."""
    if name == "vibemq-headers":
        try:
            return strict_json(value.encode())
        except InvalidMessage as error:
            raise InvalidPayload(f"the header {name}: {error}", name) from None
    digits = value.isascii() and value.isdecimal() and len(value) < 20
    if name in ("vibemq-priority", "vibemq-ttl-ms", "vibemq-delay-ms", "vibemq-deliver-at") and digits:
        return int(value)
    return value
