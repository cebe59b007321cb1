"""A message as it came, before it is a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from vibemq.errors import InvalidMessage
from vibemq.model.arguments import utf16_units
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import check_queue_name
from vibemq.model.rows import pack_row
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.large_json import LISTS_MAX, JsonSplitter, has_many_lists
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import json_text, text_of

TTL_MAX_MS = 1 << 53


@dataclass(slots=True)
class ReceivedMessage:
    """Attributes and properties are headers by now. `topic` is the name of its queue."""

    form: Form
    topic: str
    payload: bytes
    headers: list[tuple[str, str]]
    message_id: str = ""
    """As its sender calls it; empty: it has no name, and gets one of ours."""
    ttl_ms: int = 0
    """0 = none."""
    reply_address: str = ""
    """Of the request that this message answers, where its sender has returned it."""

    def row(self, fresh_id: str, *more: tuple[str, str]) -> bytes:
        """The row; `fresh_id` names a message that has no name of its own.

        Raises:
            InvalidMessage: a name or a value that no header can hold.
        """
        try:
            return pack_row(self.message_id or fresh_id, self.payload, [*self.headers, *more])
        except (ValueError, UnicodeEncodeError) as error:
            raise InvalidMessage(f"the message for topic {self.topic!r}: {error}") from None

    def extra(self, now: int) -> MessageExtra | None:
        """When it expires, if it does."""
        return MessageExtra(expires_at=now + self.ttl_ms) if self.ttl_ms else None

    def check(self, *, headers_max: int, header_value_units_max: int) -> "ReceivedMessage":
        """This message, if it can be published.

        Raises:
            InvalidMessage: too many headers, or too large ones.
            InvalidQueueName: the topic names no queue.
        """
        check_queue_name(self.topic)
        if len(self.headers) > headers_max:
            raise InvalidMessage(
                f"the message has {len(self.headers)} properties; at most {headers_max} are allowed, with "
                "content type and form"
            )
        for name, value in self.headers:
            # Most are far from the limit, and a character is at most two units.
            if 2 * max(len(name), len(value)) <= header_value_units_max:
                continue
            units = max(utf16_units(name), utf16_units(value))
            if units > header_value_units_max:
                raise InvalidMessage(
                    f"the property {name[:64]!r} has {units:,} characters; at most {header_value_units_max:,} "
                    "are allowed"
                )
        return self

    def as_reply(self) -> "ReceivedMessage":
        """The same as the reply to a request: what only brought it home is taken out, and its topic is kept with it."""
        found = {name: value for name, value in self.headers if _plain(name) in names.REPLY_NAMES}
        gone = {*found, names.EVENT + names.REPLY_TOKEN}
        kept = [pair for pair in self.headers if pair[0] not in gone and pair != _ADDED_FOR_OLD_CLIENTS]
        address = next((value for name, value in found.items() if _plain(name) == names.REPLY_TOKEN), "")
        return replace(self, headers=[*kept, (names.TOPIC, self.topic)], reply_address=address)


_ADDED_FOR_OLD_CLIENTS = (names.OLD_REPLY_TO, names.CLUSTER)


def _plain(name: str) -> str:
    return name.removeprefix(names.EVENT)


@dataclass(slots=True)
class PropertyHeaders:
    """Properties of any JSON type, as headers: `plain` ones, and `exact` ones that a header cannot hold as they are."""

    plain: list[tuple[str, str]] = field(default_factory=list)
    exact: dict[str, Any] = field(default_factory=dict)

    def add(self, properties: Mapping[str, Any]) -> None:
        for name, value in properties.items():
            if type(value) is str and value and name and not names.reserved(name):
                self.plain.append((name, value))
                continue
            self.exact[name] = value
            if name and value is not None and not isinstance(value, str) and not names.reserved(name):
                # Consumers of other protocols read the number as text.
                self.plain.append((name, text_of(value, f"the property {name[:64]!r}")))

    def headers(self) -> list[tuple[str, str]]:
        if self.exact:
            self.plain.append((names.EXACT, json_text(self.exact, "the properties").decode()))
        return self.plain


def ttl_of(properties: Mapping[str, Any]) -> int:
    """`ttl` or `TTL`, a number or text, in ms; 0: it has none.

    Raises:
        InvalidMessage: it is no number, or below 0.
    """
    value = properties.get("ttl")
    if value is None:
        value = properties.get("TTL")
    if value is None or value == "":
        return 0
    try:
        ttl_ms = int(value)
    except (ValueError, TypeError, OverflowError):
        ttl_ms = -1
    if not 0 <= ttl_ms <= TTL_MAX_MS or isinstance(value, bool):
        shown = type(value).__name__ if isinstance(value, (dict, list)) else repr(str(value)[:40])
        raise InvalidMessage(f"ttl is {shown}; it must be a whole number of milliseconds, 0 or more")
    return ttl_ms


def json_object(raw: bytes | str | JsonSplitter, what: str) -> dict[str, Any]:
    """Raises InvalidMessage: no JSON, or no object."""
    if isinstance(raw, JsonSplitter):
        return raw.result()
    if has_many_lists(raw):
        raise InvalidMessage(f"{what} has more than {LISTS_MAX:,} JSON lists and objects")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidMessage(f"{what} must be a JSON object, not {type(value).__name__}")
    return value
