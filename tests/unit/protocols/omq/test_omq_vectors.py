"""What real OCaml writes, accepts and refuses (sexplib 0.15.1, ppx_sexp_conv 0.15), row by row."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from vibemq.protocols.omq.commands import (
    Ack,
    Connect,
    FromBeginning,
    FromCurrent,
    FromMessage,
    NotACommand,
    OmqSubscribe,
    OmqUnsubscribe,
    Replay,
    parse_command,
    print_command,
)
from vibemq.protocols.omq.frames import Topic, parse_topic, print_topic
from vibemq.protocols.omq.scalars import CoreTime
from vibemq.protocols.omq.sexp import Sexp, SexpError, SexpReader, print_sexp

VECTORS = json.loads(Path(__file__).parents[3].joinpath("vectors/omq.json").read_text(encoding="utf-8"))
NOT_OURS_TO_READ = 160
"""Refused by a program whose Time.t is a float. Ours must also serve those whose Time.t is Core's."""


def rows(kind: str, *types: str) -> list[Any]:
    found = [vector for vector in VECTORS if vector["kind"] == kind and (not types or vector["type"] in types)]
    assert found
    return [pytest.param(vector, id=f"{vector['n']}-{vector['description'].replace(' ', '-')}") for vector in found]


def read(text: bytes) -> Sexp:
    """One value that is the whole text. Raises ValueError."""
    reader = SexpReader()
    # As after the end of the line: an unquoted atom ends with the byte behind it.
    reader.receive_data(text + b"\n")
    values = list(reader.values())
    if len(values) != 1 or reader.unfinished:
        raise ValueError(f"{len(values)} values")
    return values[0]


def text(value: dict[str, str]) -> bytes:
    return bytes.fromhex(value["hex"])


def replay(value: Any) -> Replay:
    if isinstance(value, list):
        return FromMessage(int(value[1]["int"]))
    return {"From_beginning": FromBeginning(), "From_current": FromCurrent()}[value]


def command(vector: dict[str, Any]) -> Connect | OmqSubscribe | OmqUnsubscribe | Ack:
    value = vector["value"]
    match vector["constructor"]:
        case "Connect":
            return Connect(int(value[0]["int"]), text(value[1]))
        case "Subscribe":
            return OmqSubscribe(text(value[0]), replay(value[1]))
        case "Unsubscribe":
            return OmqUnsubscribe(text(value[0]))
    if "float" in value[0]:
        return Ack(float.fromhex(value[0]["float"]))
    seconds, micros = value[0]["epoch"].split(".")
    zone_s = 0 if vector["description"] == "zone UTC" else -5 * 3600
    return Ack(CoreTime(int(seconds) * 1_000_000 + int(micros), zone_s))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Ack) and isinstance(one.time, float) and math.isnan(one.time):
        return isinstance(other, Ack) and isinstance(other.time, float) and math.isnan(other.time)
    return bool(one == other)


def test_every_row_is_tested() -> None:
    assert {vector["kind"] for vector in VECTORS} == {"print", "parse_ok", "parse_error"}
    assert len(VECTORS) == 152


@pytest.mark.parametrize("vector", rows("print"))
def test_both_forms_read_alike_and_print_as_written(vector: dict[str, Any]) -> None:
    machine, human = vector["sexp"].encode(), vector["sexp_hum"].encode()
    value = read(machine)
    assert read(human) == value
    assert print_sexp(value) == machine
    assert vector["hum_is_multiline"] == (b"\n" in human)


@pytest.mark.parametrize("vector", rows("print", "Client.t", "Client.t (Time.t = Core.Time)"))
def test_commands_print_and_read_as_in_ocaml(vector: dict[str, Any]) -> None:
    expected = command(vector)
    assert print_command(expected) == vector["sexp"].encode()
    assert same(parse_command(read(vector["sexp_hum"].encode())), expected)


@pytest.mark.parametrize("vector", rows("print", "Topic.t"))
def test_topics_print_and_read_as_in_ocaml(vector: dict[str, Any]) -> None:
    expected = Topic(vector["value"]["id"], text(vector["value"]["topic"]))
    assert print_topic(expected) == vector["sexp"].encode()
    assert parse_topic(read(vector["sexp_hum"].encode())) == expected


@pytest.mark.parametrize("vector", rows("parse_ok", "Client.t"))
def test_commands_that_ocaml_accepts(vector: dict[str, Any]) -> None:
    assert print_command(parse_command(read(bytes.fromhex(vector["sexp_hex"])))) == vector["canonical"].encode()


@pytest.mark.parametrize("vector", rows("parse_ok", "Topic.t"))
def test_topics_that_ocaml_accepts(vector: dict[str, Any]) -> None:
    assert print_topic(parse_topic(read(bytes.fromhex(vector["sexp_hex"])))) == vector["canonical"].encode()


@pytest.mark.parametrize("vector", rows("parse_error"))
def test_what_ocaml_refuses(vector: dict[str, Any]) -> None:
    parse = parse_topic if vector["type"] == "Topic.t" else parse_command
    raw = bytes.fromhex(vector["sexp_hex"])
    if vector["n"] == NOT_OURS_TO_READ:
        assert parse_command(read(raw)) == Ack(CoreTime(1_700_000_000_000_000))
        return
    # Errors of the reader's end the connection, those of a type do not: which one it is matters.
    kind = NotACommand if vector["error"].startswith("Of_sexp_error") else (SexpError, ValueError)
    with pytest.raises(kind) as caught:
        parse(read(raw))
    if not vector["error"].startswith("Of_sexp_error"):
        assert not isinstance(caught.value, NotACommand)
