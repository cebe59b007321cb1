"""Golden frames: what .NET and the seed's clients send and read, byte for byte."""

import json
from pathlib import Path

import pytest

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body, encode_message
from vibemq.protocols.session import Authenticate, Principal
from vibemq.testing.session_conformance import context

VECTORS = json.loads(Path(__file__).parents[3].joinpath("vectors/native.json").read_text(encoding="utf-8"))
REQUESTS = json.loads(Path(__file__).parents[3].joinpath("vectors/requests.json").read_text(encoding="utf-8"))
LOSSY = {"duplicate_header_last_wins"}
"""Valid, but no writer of ours makes it."""


def names(vectors):
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


def body_of(vector) -> bytes:
    reader = NativeFrameReader()
    reader.receive_data(bytes.fromhex(vector["hex"]))
    [body] = reader.bodies()
    assert reader.buffered == 0
    return body


@pytest.mark.parametrize("vector", names(VECTORS["valid"]))
def test_decodes_to_what_is_expected(vector) -> None:
    message, expect = decode_body(body_of(vector)), vector["expect"]
    assert message.version == expect["version"]
    assert message.type == expect["type"]
    assert message.id == expect["id"]
    assert message.queue == (expect["queue"] or "")
    assert message.payload == (None if expect["payload"] is None else expect["payload"].encode())
    assert message.headers == (expect["headers"] or {})
    assert (message.error_code, message.error_message) == (expect["errorCode"], expect["errorMessage"])


@pytest.mark.parametrize("vector", names(v for v in VECTORS["valid"] if v["name"] not in LOSSY))
def test_encodes_to_the_same_bytes(vector) -> None:
    body = body_of(vector)
    again = encode_message(decode_body(body))
    assert again == body[: len(body) - vector["trailing"]]
    frame = bytes.fromhex(vector["hex"])
    if frame[4] == 0 and not vector["trailing"]:
        assert encode_frame(again) == frame


@pytest.mark.parametrize("vector", names(REQUESTS["valid"]))
def test_requests_and_responses_are_these_bytes(vector) -> None:
    body, expect = body_of(vector), vector["expect"]
    row = bytes.fromhex(expect["row"])
    if expect["type"] == CommandType.REQUEST:
        asked = extensions.parse_request(body)
        assert (asked.id, asked.queue, asked.timeout_ms) == (expect["id"], expect["queue"], expect["timeout_ms"])
        assert (asked.extra, asked.row) == (expect["extra"], row)
        again = extensions.request(asked.id, asked.queue, asked.row, asked.timeout_ms, asked.extra)
    else:
        said = extensions.parse_response(body)
        assert (said.id, said.address, said.row) == (expect["id"], expect["address"], row)
        again = extensions.response(said.id, said.address, said.row)
    assert encode_frame(again).hex() == vector["hex"]
    assert body[1] == expect["type"]


def test_known_offsets_of_a_ping() -> None:
    frame = encode_frame(encode_body(CommandType.PING, "0" * 32))
    assert (len(frame), frame[:4], frame[4], frame[5], frame[6]) == (49, b"\0\0\0\x2c", 0, 1, 10)


def ended_by(data: bytes) -> tuple[bool, bytes]:
    """(whether the session gave up the connection, its last bytes) after a handshake, `data` and the end of stream."""
    session = NativeSession(context(), NativeSettings())
    session.receive_data(encode_frame(encode_body(CommandType.CONNECT, "c")))
    [request] = session.commands()
    assert isinstance(request, Authenticate)
    session.authenticated(request.token, Principal("anonymous"))
    session.data_to_send()
    session.receive_data(data)
    session.receive_data(b"")
    try:
        assert list(session.commands()) == []
    except RemoteProtocolError:
        assert session.closing
        return True, session.data_to_send()
    return session.closing, session.data_to_send()


@pytest.mark.parametrize("vector", names(VECTORS["invalid"]))
def test_invalid_frames_end_the_connection(vector) -> None:
    closed, last_words = ended_by(bytes.fromhex(vector["hex"]))
    assert closed
    if vector["name"] == "truncated_body":
        assert last_words == b"", "a cut stream is nobody's mistake"
    elif vector["name"] != "error_without_code":
        reader = NativeFrameReader()
        reader.receive_data(last_words)
        [body] = reader.bodies()
        error = decode_body(body)
        assert error.type == CommandType.ERROR
        assert error.error_code == "INVALID_MESSAGE"
        assert len(error.error_message or "") > 20


@pytest.mark.parametrize(
    "vector", names(v for v in VECTORS["invalid"] if v["name"] not in ("truncated_body", "payload_not_json"))
)
def test_the_client_refuses_them_too(vector) -> None:
    reader = NativeFrameReader()
    reader.receive_data(bytes.fromhex(vector["hex"]))
    with pytest.raises(RemoteProtocolError):
        [decode_body(body) for body in reader.bodies()]
