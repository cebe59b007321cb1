"""A JSON object with a large member, taken apart in steps.

Reading a megabyte of JSON makes up to a million objects of it, which takes many milliseconds in one piece. Of a large
message nobody wants them: its data is passed on as it came. So only the members of the object itself are read, and a
large list or object among them is only measured: its brackets are counted. What stands between these is its sender's.
"""

import re
from collections.abc import Generator, Iterator
from typing import Any

import orjson

from vibemq.errors import InvalidMessage

LARGE_JSON_BYTES = 131_072
"""What is smaller is read at once, in two milliseconds at most."""
PARSED_BYTES = 16_384
"""A list or an object up to this size is read."""
VALUES_MAX = 8_192
"""Of a larger one, unless it is the data: these take some milliseconds at most."""
_MEMBERS_MAX = 1_024
_MEMBERS_AT_ONCE = 64
_PIECES_AT_ONCE = 600
"""Brackets, or pairs of them with texts between, or texts: they are passed over in less than a millisecond."""

# Possessive, so that nothing is looked at twice, and with a bound, so that no step is long.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+){0,500}+"'
_FLAT = rb'[\[{][^\[\]{}"]*+(?:' + _TEXT + rb'[^\[\]{}"]*+){0,64}+[\]}]'
_PIECE = re.compile(rb'[^\[\]{}"]*+(?:(' + _TEXT + rb")|(" + _FLAT + rb')|([\[{])|([\]}])|("))', re.DOTALL)
_TEXT_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+){0,20000}+("?)', re.DOTALL)
_BEGIN = re.compile(rb"[ \t\r\n]*+\{[ \t\r\n]*+(\}?)")
_NAME = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+){0,500}+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\[{\" \t\r\n]++")
_AFTER = re.compile(rb"[ \t\r\n]*+([,}])[ \t\r\n]*+")


class JsonSplitter:
    """
    Args:
        what: it is called in errors.
        opaque: the member whose value is not read if it is a large list or object.
    """

    def __init__(self, raw: bytes, what: str, opaque: str) -> None:
        self._raw = raw
        self._what = what
        self._opaque = opaque
        self.fields: dict[str, Any] = {}
        """The members, once it is done. Of one that was not read, its text."""
        self.text = b""
        """The value of `opaque`, as it came; b"": there is none."""
        self.unread = False
        """The value of `opaque` was not read."""
        self.error: InvalidMessage | None = None
        self._steps = self._split()

    def step(self) -> bool:
        """Go on for about a millisecond; whether that was the last step."""
        try:
            return next(self._steps, self) is self
        except InvalidMessage as error:
            self.error = error
            return True

    def result(self) -> dict[str, Any]:
        """Raises InvalidMessage: it is no JSON object, or one that cannot be a message."""
        if self.error is not None:
            raise self.error
        return self.fields

    def _split(self) -> Iterator[None]:
        raw = self._raw
        begin = _BEGIN.match(raw)
        if begin is None:
            raise self._fault(0, "a JSON object is expected")
        at = begin.end()
        last = bool(begin[1])
        while not last:
            name = _NAME.match(raw, at)
            if name is None:
                raise self._fault(at, "a name and a colon are expected")
            start = name.end()
            end = yield from self._value_end(start)
            self._take(self._read(name[1], at), start, end)
            if len(self.fields) > _MEMBERS_MAX:
                raise InvalidMessage(f"{self._what} has more than {_MEMBERS_MAX:,} members")
            after = _AFTER.match(raw, end)
            if after is None:
                raise self._fault(end, "a comma or the end of the object is expected")
            at = after.end()
            last = after[1] == b"}"
            if len(self.fields) % _MEMBERS_AT_ONCE == 0:
                yield
        if raw[at:].strip(b" \t\r\n"):
            raise self._fault(at, "nothing may stand behind the object")

    def _value_end(self, start: int) -> Generator[None, None, int]:
        """Returns where the value ends."""
        raw, depth, at, match = self._raw, 0, start, _PIECE.match
        if raw[start : start + 1] not in (b'"', b"[", b"{"):
            scalar = _SCALAR.match(raw, start)
            if scalar is None:
                raise self._fault(start, "a value is expected")
            return scalar.end()
        while True:
            for _ in range(_PIECES_AT_ONCE):
                piece = match(raw, at)
                if piece is None:
                    raise self._fault(start, "the value has no end")
                at = piece.end()
                kind = piece.lastindex
                if kind == 3:
                    depth += 1
                elif kind == 4:
                    depth -= 1
                elif kind == 5:
                    at = yield from self._text_end(start, at)
                if depth <= 0:
                    return at
            yield

    def _text_end(self, start: int, at: int) -> Generator[None, None, int]:
        """The same of a text with very many escapes, from behind its quote on."""
        while True:
            rest = _TEXT_REST.match(self._raw, at)
            assert rest is not None
            if rest[1]:
                return rest.end()
            if rest.end() >= len(self._raw) - 1:
                raise self._fault(start, "the text has no end")
            at = rest.end()
            yield

    def _take(self, name: str, start: int, end: int) -> None:
        raw = self._raw
        self.fields.pop(name, None)
        if name == self._opaque:
            self.text, self.unread = raw[start:end], False
        if end - start > PARSED_BYTES and raw[start : start + 1] != b'"':
            if name == self._opaque:
                self.unread = True
                try:
                    self.fields[name] = self.text.decode()
                except UnicodeDecodeError as error:
                    raise InvalidMessage(f"{self._what} is not JSON: {error}") from None
                return
            if values_in(raw, start, end) > VALUES_MAX:
                raise InvalidMessage(f"the member {name[:64]!r} of {self._what} is too large")
        self.fields[name] = self._read(raw[start:end], start)

    def _read(self, text: bytes, at: int) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self._fault(at, str(error)) from None

    def _fault(self, at: int, why: str) -> InvalidMessage:
        return InvalidMessage(f"{self._what} is not JSON: {why}: at byte {at}")


def values_in(raw: bytes, start: int = 0, end: int | None = None) -> int:
    """About how many values JSON has, at most."""
    return sum(raw.count(each, start, end) for each in (b",", b"[", b"{"))
