"""Rows of received messages, at the speed of a stream: messages that differ in text and id alone share what was worked
out for the first of them."""

import struct
from dataclasses import dataclass
from typing import Any

import orjson

from vibemq.errors import InvalidMessage
from vibemq.model.rows import RowView, pack_row
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.cloudevent import event_data, event_of
from vibemq.protocols.eventmesh.messages.large_json import JsonSplitter
from vibemq.protocols.eventmesh.messages.message import message_of
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage, json_object
from vibemq.protocols.eventmesh.messages.recurring import Recurring

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_ID = b"\x00\x05ce-id"


@dataclass(frozen=True, slots=True)
class ReadyRow:
    topic: str
    row: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class _Known:
    topic: str
    count: int
    pairs: bytes
    """Headers, packed, but for an event's id."""
    ttl_ms: int


class RowsOf:
    def __init__(self, *, headers_max: int, header_value_units_max: int) -> None:
        self._limits = {"headers_max": headers_max, "header_value_units_max": header_value_units_max}
        self._recurring = Recurring[_Known]()

    def row(self, form: Form, raw: bytes | JsonSplitter, fresh_id: bytes) -> ReadyRow:
        """The row of a message; `fresh_id` names one that has no name of its own. `raw`: as it came, or taken apart.

        Raises:
            InvalidMessage, InvalidQueueName: it is no message of that form, or may not be published.
        """
        return self._event(raw) if form is Form.CLOUDEVENT else self._message(raw, fresh_id)

    def _message(self, raw: bytes | JsonSplitter, fresh_id: bytes) -> ReadyRow:
        fields = json_object(raw, "an EventMeshMessage")
        text = fields.get("body")
        topic, properties, headers = fields.get("topic"), fields.get("properties"), fields.get("headers")
        self._check_count(properties)
        self._check_count(headers)
        key = _key([topic, properties, headers])
        known = self._recurring.known.get(key)
        if known is None:
            message = message_of(topic, text, properties, headers).check(**self._limits)
            known = self._learned(key, message, keep=type(text) is str and b"eventmesh-" not in key)
            payload = message.payload
        elif type(text) is str:
            payload = text.encode()
        else:
            payload = message_of(topic, text, properties, headers).payload
        return ReadyRow(
            known.topic,
            b"".join((_U16.pack(len(fresh_id)), fresh_id, _U32.pack(len(payload)), payload))
            + _U16.pack(known.count)
            + known.pairs,
            known.ttl_ms,
        )

    def _event(self, raw: bytes | JsonSplitter) -> ReadyRow:
        fields = json_object(raw, "a CloudEvent")
        payload = event_data(fields, raw)
        fields.pop("data", None)
        fields.pop("data_base64", None)
        self._check_count(fields)
        name = fields.get("id")
        fields["id"] = name and "id"
        key = _key(fields)
        known = self._recurring.known.get(key)
        if known is None or not isinstance(name, str):
            fields["id"] = name
            message = event_of(fields, payload).check(**self._limits)
            message.headers.remove(("ce-id", message.message_id))
            known = self._learned(key, message, keep=names.EXTENSION_EXACT not in fields)
        raw_id = str(name).encode()
        if len(raw_id) > self._limits["header_value_units_max"]:
            raise InvalidMessage(f"the id of a CloudEvent has {len(raw_id):,} bytes; that is too long")
        size = _U16.pack(len(raw_id))
        parts = (size, raw_id, _U32.pack(len(payload)), payload, _U16.pack(known.count + 1), _ID, size, raw_id)
        return ReadyRow(known.topic, b"".join(parts) + known.pairs, known.ttl_ms)

    def _check_count(self, fields: Any) -> None:
        """Before anything is made of so many."""
        most = self._limits["headers_max"]
        if isinstance(fields, dict) and len(fields) > most:
            raise InvalidMessage(f"the message has {len(fields):,} properties; at most {most} are allowed")

    def _learned(self, key: bytes, message: ReceivedMessage, *, keep: bool) -> _Known:
        try:
            block = pack_row(b"-", b"", message.headers)
        except (ValueError, UnicodeEncodeError) as error:
            raise InvalidMessage(f"the message for topic {message.topic!r}: {error}") from None
        at = RowView(block).headers_at
        known = _Known(message.topic, _U16.unpack_from(block, at)[0], block[at + 2 :], message.ttl_ms)
        if keep:
            self._recurring.remember(key, known)
        return known


def _key(value: Any) -> bytes:
    """What it is known by; empty: it nests too deeply, and whoever reads it says where."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b""
