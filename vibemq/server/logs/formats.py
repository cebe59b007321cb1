"""Records as text or as JSON lines.

Peers choose names, ids and reasons, which end in messages, extras and tracebacks. One record is one line of JSON, or
one line of text with a traceback indented below it, whatever these values hold: characters that end a line, steer a
terminal or reverse the direction of writing are written as escapes. The secrets of access tokens are left out.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

import orjson

from vibemq.auth.tokens import masked

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


_PEER = ("remote", "conn_id", "user")
"""Fields of a record that the text shows behind the message; the one that a peer may choose comes last."""
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Controls (C0, DEL, C1), separators of lines and paragraphs, marks of direction, halves of surrogate pairs."""


def escaped(text: str) -> str:
    """On one line, with `\\n`, `\\x1b` and the like for what would do something rather than be read."""
    return masked(_UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text))


class TextFormatter(logging.Formatter):
    """One line for a record; a traceback follows indented, so that no line of it can pass for a record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # What another handler has made of the traceback would be taken as it is, and ours by the next.
        kept, record.exc_text = record.exc_text, None
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name of logging
        return escaped(super().formatMessage(record) + _peer(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the name of logging
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # the name of logging
        return _indented(super().formatStack(stack_info))


def _peer(record: logging.LogRecord) -> str:
    """Whom the record is about, as far as it says; JSON has these fields, and more, under their names."""
    found = ((name, getattr(record, name, "")) for name in _PEER)
    shown = ", ".join(f"{name}={value}" for name, value in found if value)
    return f" ({shown})" if shown else ""


def _indented(text: str) -> str:
    return "\n".join(f"    {escaped(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, msg, and whatever was given as `extra`. Values are kept exactly, but
    for the secrets of access tokens."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line.update({key: value for key, value in record.__dict__.items() if key not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return masked(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", _json(line)))


def _json(line: dict[str, object]) -> str:
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Half a surrogate pair, or a number beyond 64 bits.
        return json.dumps(line, default=str, skipkeys=True)
