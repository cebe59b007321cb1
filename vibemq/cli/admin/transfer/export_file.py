"""The file of an exported queue: JSON Lines, whose last line tells a whole file from one that was cut.

first line    {"vibemq_export": 1, "queue", "incarnation", "options", "exported_at", "broker"}
one each      a message: see `vibemq.model.message_lines`
last line     {"messages": count, "sha256": of all bytes before this line}
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from vibemq.cli.exits import CommandFailed, ExitCode
from vibemq.cli.progress import Tracker
from vibemq.errors import InvalidPayload
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.message_lines import read_message_line

VERSION = 1
VERSION_KEY = "vibemq_export"
HEAD_KEYS = {VERSION_KEY, "queue", "incarnation", "options", "exported_at", "broker"}
TAIL_KEYS = {"messages", "sha256"}
LINE_BYTES_MAX = 513 << 20
"""More than any message takes: a body of 256 MiB, the largest there is, has at most twice as many bytes here."""


class ExportWriter:
    def __init__(self, stream: BinaryIO, head: dict[str, Any]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.count = 0
        self._write({VERSION_KEY: VERSION, **head})

    def add(self, message: dict[str, Any]) -> None:
        self._write(message)
        self.count += 1

    def finish(self) -> None:
        self._stream.write(orjson.dumps({"messages": self.count, "sha256": self._digest.hexdigest()}) + b"\n")

    def _write(self, value: dict[str, Any]) -> None:
        line = orjson.dumps(value) + b"\n"
        self._digest.update(line)
        self._stream.write(line)


class FileInvalid(CommandFailed):
    """The file cannot be imported."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="FILE_INVALID", exit_code=ExitCode.USAGE)


class ImportLine(NamedTuple):
    number: int
    """Of the line in the file, from 1."""
    text: bytes
    value: dict[str, Any]
    row_size: int
    extra: MessageExtra


class ExportFile:
    """A file to import, read line by line, as often as wanted."""

    def __init__(self, path: Path, name: str = "") -> None:
        """`name`: what errors call it."""
        self.path = path
        self._name = name or str(path)
        self.head: dict[str, Any] = {}
        self.count = 0
        self.sha256 = ""
        self._checked = False

    def check(self, progress: Tracker = lambda done, total: None) -> None:
        """Read all of it.

        Raises:
            FileInvalid: it is cut short, changed, of another format, or a message of it is not one.
        """
        self.head, self.count = {}, 0
        for _ in self.messages():
            self.count += 1
            progress(self.count, 0)
        self._checked = True

    def messages(self) -> Iterator[ImportLine]:
        """Every message. The file is known to be whole when the last one has come. Raises FileInvalid."""
        digest = hashlib.sha256()
        found, tail = 0, False
        with self.path.open("rb") as stream:
            for number, text in enumerate(iter(partial(stream.readline, LINE_BYTES_MAX), b""), 1):
                if len(text) == LINE_BYTES_MAX:
                    raise self._invalid(number, f"it is longer than {LINE_BYTES_MAX:,} bytes")
                if tail:
                    raise self._invalid(number, "it follows the last line of an export")
                value = self._object(number, text)
                if number == 1:
                    self._check_head(value)
                elif value.keys() == TAIL_KEYS:
                    self._check_tail(number, value, found, digest.hexdigest())
                    tail = True
                else:
                    yield self._message(number, text, value)
                    found += 1
                digest.update(text)
        if not tail:
            raise self._invalid(found + 1, "the file ends here, without the last line of an export: it was cut short")

    def _invalid(self, line: int, reason: str) -> FileInvalid:
        so_far = "the file was changed while it was imported" if self._checked else "nothing was imported"
        return FileInvalid(f"{self._name} line {line}: {reason}; {so_far}")

    def _object(self, number: int, text: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self._invalid(number, f"it is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise self._invalid(number, "it is not a JSON object")
        return value

    def _check_head(self, value: dict[str, Any]) -> None:
        version = value.get(VERSION_KEY)
        if version is None:
            raise self._invalid(1, "it is not the first line of an export of `vibemq-admin queue export`")
        if version != VERSION:
            raise self._invalid(1, f"the format has version {version!r}; this program reads version {VERSION}")
        if value.keys() != HEAD_KEYS or not isinstance(value["options"], dict):
            raise self._invalid(1, f"the first line must have the keys {', '.join(sorted(HEAD_KEYS))}")
        self.head = value

    def _check_tail(self, number: int, value: dict[str, Any], found: int, sha256: str) -> None:
        if value["messages"] != found:
            raise self._invalid(number, f"it says {value['messages']!r} messages, but {found} precede it")
        if value["sha256"] != sha256:
            raise self._invalid(number, "the checksum does not fit the lines before it: the file was changed")
        self.sha256 = sha256

    def _message(self, number: int, text: bytes, value: dict[str, Any]) -> ImportLine:
        try:
            row, extra = read_message_line(value)
        except InvalidPayload as error:
            raise self._invalid(number, str(error)) from None
        return ImportLine(number, text.rstrip(b"\n"), value, len(row), extra)
