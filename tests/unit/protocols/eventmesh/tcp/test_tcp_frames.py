"""Frames of clients of five ages, recorded and built, cut anywhere; and what is no frame."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.tcp.frames import (
    EventMeshDialect,
    EventMeshFrame,
    EventMeshFrameReader,
    FrameLimits,
    encode_frame,
)
from vibemq.protocols.eventmesh.tcp.package import Cmd, answer_frame, plain_frame, push_header, push_seq, read_package

FILE = json.loads(Path(__file__).parents[4].joinpath("vectors/eventmesh.json").read_text(encoding="utf-8"))
VECTORS: list[dict[str, Any]] = FILE["vectors"]
DIALECTS = {dialect.name.lower(): dialect for dialect in EventMeshDialect}
LIMITS = FrameLimits(4 * 1024 * 1024 + 13, 65_536)


def named(vectors: list[dict[str, Any]]) -> list[Any]:
    assert vectors
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


def hello(dialect: EventMeshDialect) -> bytes:
    return encode_frame(dialect, b'{"command":"HELLO_REQUEST"}', b'{"purpose":"pub"}')


def read(*pieces: bytes) -> tuple[EventMeshFrameReader, list[EventMeshFrame]]:
    reader, frames = EventMeshFrameReader(LIMITS), []
    for piece in pieces:
        reader.receive_data(piece)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return reader, frames


@pytest.mark.parametrize("vector", named(VECTORS))
def test_a_frame_is_read_however_it_was_cut(vector: dict[str, Any]) -> None:
    raw, dialect = bytes.fromhex(vector["hex"]), DIALECTS[vector["dialect"]]
    stream = hello(dialect) + raw
    wanted = EventMeshFrame(vector["header"].encode(), (vector["body"] or "").encode())
    for at in range(len(stream)):
        reader, frames = read(stream[:at], stream[at:])
        assert frames[1:] == [wanted]
        assert reader.dialect is dialect
        assert not reader.size
    assert read(*(stream[at : at + 1] for at in range(len(stream))))[1][1:] == [wanted]


def test_pieces_of_a_few_bytes_are_kept_together() -> None:
    body = b"x" * 200_000
    stream = hello(EventMeshDialect.EM13) + encode_frame(EventMeshDialect.EM13, b"{}", body)
    reader = EventMeshFrameReader(LIMITS)
    reader.receive_data(stream[:80_000])
    reader.next_frame()
    assert reader.next_frame() is None
    for at in range(80_000, len(stream), 3):
        reader.receive_data(stream[at : at + 3])
        assert len(reader._more) < 20
    assert reader.next_frame() == EventMeshFrame(b"{}", body)


@pytest.mark.parametrize("vector", named(VECTORS))
def test_a_frame_is_written_as_clients_write_it(vector: dict[str, Any]) -> None:
    written = encode_frame(DIALECTS[vector["dialect"]], vector["header"].encode(), (vector["body"] or "").encode())
    assert written.hex() == vector["hex"]


@pytest.mark.parametrize("vector", named([v for v in VECTORS if 'HELLO_REQUEST"' in v["header"]]))
def test_the_first_frame_tells_the_dialect(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    for at in range(len(raw)):
        reader, frames = read(raw[:at], raw[at:] + raw)
        assert reader.dialect is DIALECTS[vector["dialect"]]
        assert len(frames) == 2


@pytest.mark.parametrize("vector", named([v for v in VECTORS if v["direction"] == "C->S"]))
def test_headers_of_all_ages_are_read(vector: dict[str, Any]) -> None:
    header = json.loads(vector["header"])
    package = read_package(EventMeshFrame(vector["header"].encode(), (vector["body"] or "").encode()))
    assert package.cmd == header.get("cmd", header.get("command"))
    assert json.loads(package.seq or b"null") == header.get("seq")
    assert package.old is ("cmd" not in header)
    assert package.protocol_type == (header.get("properties") or {}).get("protocoltype", "")
    assert package.body != b"null"


@pytest.mark.parametrize("vector", named([v for v in VECTORS if v["name"] in ("em13-hello-response", "em13-listen")]))
def test_an_answer_has_every_spelling(vector: dict[str, Any]) -> None:
    if vector["direction"] == "S->C":
        seq = json.dumps(json.loads(vector["header"])["seq"]).encode()
        ours = json.loads(answer_frame(EventMeshDialect.EM13, Cmd.HELLO_RESPONSE, seq)[21:])
        assert ours.items() >= {"cmd": "HELLO_RESPONSE", "command": "HELLO_RESPONSE", "code": 0}.items()
        assert ours["desc"] == ours["msg"] == "success"


def test_a_redirect_has_neither_seq_nor_text() -> None:
    (vector,) = [v for v in VECTORS if v["name"] == "em13-redirect-server"]
    header = json.loads(plain_frame(EventMeshDialect.EM13, Cmd.REDIRECT_TO_CLIENT)[21:])
    assert header == {**json.loads(vector["header"]), "properties": {}}


def test_a_push_names_its_form() -> None:
    header = json.loads(push_header(Cmd.ASYNC_MESSAGE_TO_CLIENT, Form.CLOUDEVENT) % 7)
    assert header["seq"] == "7"
    assert header["properties"] == {"protocoltype": "cloudevents"}


@pytest.mark.parametrize(
    ("seq", "number"), [(b'"12"', 12), (b"12", 12), (b'"-1"', -1), (b'"x"', -1), (b"", -1), (b'"99999999999"', -1)]
)
def test_acknowledgements_name_a_push_as_text_or_number(seq: bytes, number: int) -> None:
    assert push_seq(seq) == number


@pytest.mark.parametrize("vector", named(FILE["invalid"]))
@pytest.mark.parametrize("dialect", [None, *EventMeshDialect])
def test_what_is_no_frame_is_refused(vector: dict[str, Any], dialect: EventMeshDialect | None) -> None:
    """As the first frame, and behind a hello of each dialect."""
    raw = bytes.fromhex(vector["hex"])
    stream = (hello(dialect) if dialect else b"") + raw
    if dialect is EventMeshDialect.EM8:
        # Five bytes more belong to such a frame in this dialect.
        stream += bytes(5)
    with pytest.raises(RemoteProtocolError):
        list(map(read_package, read(stream)[1]))


@pytest.mark.parametrize("first", EventMeshDialect)
@pytest.mark.parametrize("then", EventMeshDialect)
def test_a_connection_has_one_dialect(first: EventMeshDialect, then: EventMeshDialect) -> None:
    header = b'{"cmd":"HEARTBEAT_REQUEST"}'
    stream = hello(first) + encode_frame(then, header, b"{}")
    if first is then:
        assert read(stream)[1][1] == (header, b"{}")
    elif first.start != then.start:
        with pytest.raises(RemoteProtocolError, match="begins with"):
            read(stream)
    elif first is EventMeshDialect.EM13:
        with pytest.raises(RemoteProtocolError, match="header of"):
            read(hello(first) + encode_frame(then, header, b""))


def test_nothing_is_kept_for_a_length_alone() -> None:
    reader = EventMeshFrameReader(LIMITS)
    reader.receive_data(hello(EventMeshDialect.EM13))
    assert reader.next_frame() is not None
    reader.receive_data(encode_frame(EventMeshDialect.EM13, b"{}", bytes(4_000_000))[:30])
    assert reader.next_frame() is None
    assert reader.size == 30
    assert not reader.ready


@pytest.mark.parametrize(
    ("total", "header_size", "why"),
    [(4 * 1024 * 1024 + 14, 10, "frame of"), (100_000, 65_537, "header of"), (100, 0, "needs a header")],
)
def test_limits(total: int, header_size: int, why: str) -> None:
    for begun in (b"", hello(EventMeshDialect.EM13)):
        raw = EventMeshDialect.EM13.start + total.to_bytes(4, "big") + header_size.to_bytes(4, "big")
        with pytest.raises(RemoteProtocolError, match=why):
            read(begun + raw)


@given(
    st.sampled_from(EventMeshDialect),
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=60)), max_size=6),
    st.data(),
)
def test_any_cut_gives_the_same_frames(
    dialect: EventMeshDialect, sent: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    stream = hello(dialect) + b"".join(encode_frame(dialect, *frame) for frame in sent)
    pieces = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:cut])
        stream = stream[cut:]
    assert read(*pieces)[1][1:] == sent


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_garbage_is_refused_or_waited_for(pieces: list[bytes]) -> None:
    try:
        for frame in read(*pieces)[1]:
            read_package(frame)
    except RemoteProtocolError:
        pass
