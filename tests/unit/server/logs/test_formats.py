"""Log lines hold what peers sent; none of it may begin a line of its own or steer the reader's terminal."""

import io
import json
import logging
import re
import sys

import pytest

from vibemq.server.logs.formats import JsonFormatter, TextFormatter

HOSTILE = [
    "a\n2026-01-01 00:00:00,000 INFO    vibemq.broker: all is well",
    "a\r\nb\x0bc\x0cd\x1ce\x1df\x1eg",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m\x85next",
    "tab\there, null\x00, delete\x7f",
    "line\u2028paragraph\u2029end",
    "\u202eright to left\u2066 isolated\u2069 mark\u200f\u061c\ufeff",
    "half a pair \ud800",
    "plain, with ümlauts and 日本語 and 🎈",
    '"},\n{"ts":"now","msg":"forged"',
]
LOGGERS = ("vibemq", "vibemq.broker", "vibemq.connection", "vibemq.protocols.native", "uvicorn.error")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def said(formatter: logging.Formatter, name: str, value: str) -> str:
    """What the handler of the root logger, as `ProcessLog` installs it, writes of three records with a hostile value.

    It is the only one meanwhile: pytest's own would put what they hear into reports, and no worker can send half a
    surrogate pair.
    """
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(formatter)
    root, log = logging.getLogger(), logging.getLogger(name)
    others, level, own_level = root.handlers, root.level, log.level
    root.handlers = [handler]
    root.setLevel(logging.DEBUG)
    log.setLevel(logging.DEBUG)
    try:
        log.info("verb %s failed: %r", value, value, extra={"verb": value, "more": {value: [value]}, "big": 2**70})
        log.info(value.replace("%", "%%"))
        try:
            raise ValueError(value)
        except ValueError:
            log.exception("failed %s", value)
    finally:
        root.handlers = others
        root.setLevel(level)
        log.setLevel(own_level)
    return handler.stream.getvalue()


@pytest.mark.parametrize("value", HOSTILE, ids=map(str, range(len(HOSTILE))))
@pytest.mark.parametrize("name", LOGGERS)
def test_hostile_values_stay_within_their_record(name: str, value: str) -> None:
    text = said(TextFormatter(), name, value)
    assert not UNSAFE.search(text)
    records = [line for line in text.splitlines() if not line.startswith("    ")]
    assert len(records) == 3
    assert all(f" {name}: " in line for line in records)


@pytest.mark.parametrize("value", HOSTILE, ids=map(str, range(len(HOSTILE))))
@pytest.mark.parametrize("name", LOGGERS)
def test_json_keeps_hostile_values_in_one_object_exactly(name: str, value: str) -> None:
    text = said(JsonFormatter(), name, value)
    assert not UNSAFE.search(text)
    lines = text.splitlines()
    assert len(lines) == 3
    first, second, third = (json.loads(line) for line in lines)
    assert first["logger"] == name
    assert first["verb"] == value
    assert first["more"] == {value: [value]}
    assert second["msg"] == value.replace("%", "%%")
    assert value in third["exception"]


def test_stack_and_nested_causes_are_indented() -> None:
    formatter = TextFormatter()
    try:
        try:
            raise ValueError("inner\n2026-01-01 forged")
        except ValueError as error:
            raise RuntimeError("outer\nforged") from error
    except RuntimeError:
        record = logging.LogRecord("x", logging.INFO, "p", 1, "m", None, sys.exc_info(), sinfo="Stack\nforged")
    assert [line for line in formatter.format(record).splitlines() if not line.startswith("    ")][1:] == []


def test_text_ends_with_whom_the_record_is_about() -> None:
    record = logging.makeLogRecord({"msg": "authentication failed", "levelname": "WARNING", "name": "vibemq.requests"})
    record.__dict__.update(event="auth.failed", user="ann\nben", conn_id="7", remote="192.0.2.1")
    assert (
        TextFormatter()
        .format(record)
        .endswith("vibemq.requests: authentication failed (remote=192.0.2.1, conn_id=7, user=ann\\nben)")
    )
    plain = logging.makeLogRecord({"msg": "listening", "levelname": "INFO", "name": "vibemq.broker"})
    assert TextFormatter().format(plain).endswith("vibemq.broker: listening")


def test_secrets_of_tokens_are_in_no_line() -> None:
    whole = f"vmq_0123456789ab_{'5e' * 32}"
    for formatter in (TextFormatter(), JsonFormatter()):
        line = said(formatter, "vibemq.broker", whole)
        assert "5e5e" not in line
        assert "vmq_0123456789ab_" in line
