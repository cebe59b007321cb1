"""A JSON object with a large member, taken apart in steps.

Reading a megabyte of JSON makes up to a million objects of it, which takes many milliseconds in one piece. Of a large
message nobody wants them: its data is passed on as it came. So only the members of the object itself are read, and a
large list or object among them is only measured: its brackets are counted. What stands between these is its sender's.
"""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from vibemq.errors import InvalidMessage, MessageTooLarge
from vibemq.protocols.eventmesh.messages.json_scan import STEP_WORK, JsonScan, StepMeter, Steps, values_in

LARGE_JSON_BYTES = 131_072
"""What is smaller is read at once, in three milliseconds at most, unless it is made of lists and objects."""
LISTS_MAX = 4_096
"""Lists and objects of what is read at once: each takes as long to make as several numbers."""
PARSED_BYTES = 16_384
"""A list or an object up to this size is read."""
PARSED_BYTES_MAX = 1 << 20
VALUES_MAX = 8_192
"""A larger one, unless it is the data, has no more bytes and values: these take some milliseconds at most."""
_MEMBERS_MAX = 1_024
_MEMBERS_AT_ONCE = 64

_NAME = re.compile(rb'("[^"\\]{0,4096}+(?:\\.[^"\\]{0,256}+){0,500}+")[ \t\r\n]{0,256}+:[ \t\r\n]{0,256}+', re.DOTALL)


def is_large(raw: bytes | str) -> bool:
    """Whether JSON takes longer to read than one may at once."""
    return len(raw) > LARGE_JSON_BYTES or has_many_lists(raw)


def has_many_lists(raw: bytes | str, most: int = LISTS_MAX) -> bool:
    """Whether JSON has more lists and objects than that. Brackets in its texts count as well."""
    if len(raw) <= 2 * most:
        return False
    if isinstance(raw, str):
        return raw.count("[") + raw.count("{") > most
    return len(raw) - len(raw.translate(None, b"[{")) > most


class JsonSplitter:
    """
    Args:
        what: it is called in errors.
        opaque: the member whose value is not read if it is a large list or object; None: each.
        opaque_bytes_max: of that member.
    """

    def __init__(self, raw: bytes, what: str, opaque: str | None, opaque_bytes_max: int | None = None) -> None:
        self._scan = JsonScan(raw, what)
        self._what = what
        self._opaque = opaque
        self._opaque_bytes_max = len(raw) if opaque_bytes_max is None else opaque_bytes_max
        self.fields: dict[str, Any] = {}
        """The members, once it is done. Of one that was not read, its text."""
        self.text = b""
        """The value of `opaque`, as it came; b"": there is none."""
        self.unread = False
        """The value of `opaque` was not read."""
        self.error: InvalidMessage | MessageTooLarge | None = None
        self._steps: Iterator[int] = self._split()

    def step(self) -> bool:
        """Go on for about a millisecond; whether that was the last step."""
        try:
            return next(self._steps, 0) == 0
        except (InvalidMessage, MessageTooLarge) as error:
            self.error = error
            return True

    def result(self) -> dict[str, Any]:
        """Raises InvalidMessage, MessageTooLarge: it is no JSON object, or one that cannot be a message."""
        if self.error is not None:
            raise self.error
        return self.fields

    def _split(self) -> Steps[None]:
        scan, raw = self._scan, self._scan.raw
        at = scan.blanks_end(0)
        if raw[at : at + 1] != b"{":
            raise scan.fault(at, "a JSON object is expected")
        at = scan.blanks_end(at + 1)
        last = raw[at : at + 1] == b"}"
        at += last
        meter = StepMeter(_MEMBERS_AT_ONCE)
        while not last:
            begin = at
            name = _NAME.match(raw, at)
            if name is None:
                raise scan.fault(at, "a name and a colon are expected")
            start = name.end()
            end = yield from scan.value_end(start)
            yield from self._take(self._read(name[1], at), start, end)
            if len(self.fields) > _MEMBERS_MAX:
                raise InvalidMessage(f"{self._what} has more than {_MEMBERS_MAX:,} members")
            at = scan.blanks_end(end)
            sign = raw[at : at + 1]
            if sign not in (b",", b"}"):
                raise scan.fault(at, "a comma or the end of the object is expected")
            last = sign == b"}"
            at = at + 1 if last else scan.blanks_end(at + 1)
            if meter.is_due(end - begin):
                yield STEP_WORK
        if scan.blanks_end(at) != len(raw):
            raise scan.fault(at, "nothing may stand behind the object")

    def _take(self, name: str, start: int, end: int) -> Steps[None]:
        raw = self._scan.raw
        self.fields.pop(name, None)
        is_opaque = name == self._opaque
        if is_opaque:
            self.text, self.unread = raw[start:end], False
            yield STEP_WORK
        if raw[start : start + 1] == b'"':
            self.fields[name] = yield from self._scan.text(start, end)
            return
        if end - start > PARSED_BYTES:
            if is_opaque or self._opaque is None:
                self.fields[name] = self._unread(start, end)
                self.unread = is_opaque
                yield STEP_WORK
                return
            if end - start > PARSED_BYTES_MAX or values_in(raw, start, end) > VALUES_MAX:
                raise InvalidMessage(f"the member {name[:64]!r} of {self._what} is too large")
        self.fields[name] = self._read(raw[start:end], start)

    def _unread(self, start: int, end: int) -> str:
        if end - start > self._opaque_bytes_max:
            raise MessageTooLarge(f"Event size exceeds the limit: {self._opaque_bytes_max}")
        try:
            return self._scan.raw[start:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"{self._what} is not JSON: {error}") from None

    def _read(self, text: bytes, at: int) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self._scan.fault(at, str(error)) from None
