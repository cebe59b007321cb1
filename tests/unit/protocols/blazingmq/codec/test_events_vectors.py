"""Recorded bytes of real clients: each decodes to what it means, and encodes to the same bytes again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vibemq.protocols.blazingmq.codec import json_codec
from vibemq.protocols.blazingmq.codec.acks import build_acks, build_confirms, parse_acks, parse_confirms
from vibemq.protocols.blazingmq.codec.control import (
    decode_control,
    decode_negotiation,
    encode_control,
    encode_negotiation,
)
from vibemq.protocols.blazingmq.codec.events import (
    HEARTBEAT_REQ,
    ControlCodec,
    Event,
    EventReader,
    EventType,
    control_event,
)
from vibemq.protocols.blazingmq.codec.messages import CONTROL, NEGOTIATION, Unserved
from vibemq.protocols.blazingmq.codec.properties import build_area, parse_area
from vibemq.protocols.blazingmq.codec.push import build_pushes, parse_pushes
from vibemq.protocols.blazingmq.codec.put import MESSAGE_PROPERTIES, PutMessage, PutReader, build_puts, put_message
from vibemq.protocols.blazingmq.codec.rows import CompressionType, PayloadInflater

PATH = Path(__file__).parents[4] / "vectors" / "blazingmq.json"
VECTORS: list[dict[str, Any]] = json.loads(PATH.read_text())["vectors"]
NEGOTIATIONS = ("clientIdentity", "brokerResponse")


def of(*events: str) -> list[Any]:
    return [pytest.param(vector, id=vector["id"]) for vector in VECTORS if vector["event"] in events]


def new_reader() -> EventReader:
    return EventReader(event_bytes_max=1 << 20, control_bytes_max=1 << 16)


def the_event(vector: dict[str, Any]) -> Event:
    reader = new_reader()
    reader.receive_data(bytes.fromhex(vector["hex"]))
    [event] = reader.read()
    assert event.type == EventType[vector["event"]]
    return event


@pytest.mark.parametrize("vector", of(*EventType.__members__))
def test_an_event_is_whole_only_with_its_last_byte(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for cut in range(1, len(data), 1 if len(data) < 400 else 97):
        reader = new_reader()
        reader.receive_data(data[:cut])
        assert reader.read() == []
        reader.receive_data(data[cut:])
        [event] = reader.read()
        assert event.data[event.start - 8 : event.end] == data


def test_any_cut_of_the_whole_stream_gives_the_same_events() -> None:
    stream = b"".join(bytes.fromhex(vector["hex"]) for vector in VECTORS)
    for step in (1, 3, 7, 64, 1_000, len(stream)):
        reader = new_reader()
        bodies = []
        for at in range(0, len(stream), step):
            reader.receive_data(stream[at : at + step])
            bodies += [event.body for event in reader.read()]
        assert bodies == [bytes.fromhex(vector["hex"])[8:] for vector in VECTORS]
        assert reader.buffered_bytes == 0


# -- control ----------------------------------------------------------------------------------------------------------


def decoded_and_encoded(vector: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """(what the message is in JSON, the event that is written for it)."""
    event = the_event(vector)
    codec = ControlCodec(event.codec)
    assert codec.name == vector["decoded"]["encoding"]
    if vector["kind"] in NEGOTIATIONS:
        negotiation = decode_negotiation(event)
        text = json_codec.encode_choice(NEGOTIATION, negotiation)
        return json.loads(text), encode_negotiation(codec, negotiation)
    message = decode_control(event)
    assert not isinstance(message.choice, Unserved)
    text = json_codec.encode_request(CONTROL, message.r_id, message.choice)
    return json.loads(text), encode_control(codec, message.r_id, message.choice)


@pytest.mark.parametrize("vector", of("CONTROL"))
def test_control_messages_mean_what_was_recorded(vector: dict[str, Any]) -> None:
    found, _ = decoded_and_encoded(vector)
    assert found == vector["decoded"]["message"]


def as_written_by_java(event: bytes) -> bytes:
    text = event[8 : -event[-1]].decode().replace("/", "\\/")
    escaped = re.sub("[<>&=']", lambda found: f"\\u{ord(found[0]):04x}", text)
    return control_event(ControlCodec.JSON, escaped.encode())


@pytest.mark.parametrize("vector", of("CONTROL"))
def test_control_messages_are_written_as_they_were_recorded(vector: dict[str, Any]) -> None:
    _, written = decoded_and_encoded(vector)
    recorded = bytes.fromhex(vector["hex"])
    if vector["id"] == "cppjson-02":
        # Its writer had the fields of one group in another order.
        assert len(written) == len(recorded)
    elif vector["sdk"].startswith("bmq-sdk-java") and vector["direction"] == "client->broker":
        assert as_written_by_java(written) == recorded
    else:
        assert written == recorded


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", of("PUT"))
def test_puts(vector: dict[str, Any]) -> None:
    reader = PutReader()
    reader.add([the_event(vector)])
    messages = reader.take(100)
    assert not reader
    assert len(messages) == len(vector["decoded"]["messages"])
    for message, expected in zip(messages, vector["decoded"]["messages"], strict=True):
        check_put(message, expected)
    assert build_puts(messages) == bytes.fromhex(vector["hex"])


def check_put(message: PutMessage, expected: dict[str, Any]) -> None:
    assert not message.fault
    assert message.guid.hex() == expected["guid"]
    assert f"{message.crc32c:08x}" == expected["crc32c"]
    flags, compression, schema_id = message.flags, message.compression, message.schema_id
    assert message == put_message(*message[:2], message.data, flags=flags, compression=compression, schema_id=schema_id)
    assert (message.flags, message.compression) == (expected["flags"], expected["compression"])
    assert (message.queue_id, message.schema_id) == (expected["queueId"], expected["schemaWireId"])
    assert len(message.data) == expected["appDataLen"]
    at = 0
    if message.flags & MESSAGE_PROPERTIES:
        properties, at = parse_area(message.data, message.schema_id)
        values = [value.hex() if isinstance(value, bytes) else value for _, _, value in properties]
        found = [[name, of.name, value] for (name, of, _), value in zip(properties, values, strict=True)]
        assert found == expected["properties"]
        assert at == expected["propertiesAreaBytes"]
        assert build_area(properties, message.schema_id) == message.data[:at]
    payload = message.data[at:]
    if message.compression == CompressionType.ZLIB:
        inflater = PayloadInflater(payload, 3_000)
        assert inflater.step()
        assert b"".join(inflater.result()) == b"A" * 3_000
    else:
        assert payload.decode() == expected["payload"]


@pytest.mark.parametrize("vector", of("PUSH"))
def test_pushes(vector: dict[str, Any]) -> None:
    messages = list(parse_pushes(the_event(vector)))
    for message, expected in zip(messages, vector["decoded"]["messages"], strict=True):
        assert message.guid.hex() == expected["guid"]
        assert message.options.hex() == expected["optionsHex"]
        assert (message.flags, message.compression) == (expected["flags"], expected["compression"])
        assert (message.queue_id, message.schema_id) == (expected["queueId"], expected["schemaWireId"])
        if message.flags & MESSAGE_PROPERTIES:
            properties, at = parse_area(message.data, message.schema_id)
            assert build_area(properties, message.schema_id) == message.data[:at]
    assert build_pushes(messages) == [bytes.fromhex(vector["hex"])]


def as_dicts(keys: str, messages: Iterator[tuple[Any, ...]]) -> list[dict[str, Any]]:
    named = [dict(zip(keys.split(), message, strict=True)) for message in messages]
    return [{**found, "guid": found["guid"].hex()} for found in named]


@pytest.mark.parametrize("vector", of("ACK"))
def test_acks(vector: dict[str, Any]) -> None:
    messages = parse_acks(the_event(vector))
    assert as_dicts("status correlationId guid queueId", iter(messages)) == vector["decoded"]["messages"]
    assert build_acks(messages) == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("vector", of("CONFIRM"))
def test_confirms(vector: dict[str, Any]) -> None:
    messages = list(parse_confirms([the_event(vector)]))
    assert as_dicts("queueId guid subQueueId", iter(messages)) == vector["decoded"]["messages"]
    assert build_confirms(messages) == bytes.fromhex(vector["hex"])


def test_a_heartbeat_is_a_bare_header() -> None:
    [vector] = [vector for vector in VECTORS if vector["event"] == "HEARTBEAT_REQ"]
    assert bytes.fromhex(vector["hex"]) == HEARTBEAT_REQ
