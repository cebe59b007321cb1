"""JSON that is large, passed over in steps: where a value ends, what a text says. Brackets are counted; what stands
between them is not looked at.

Each step looks at a bounded number of bytes and of pieces, whatever they are, so that none takes longer than about a
millisecond.
"""

import re
from collections.abc import Generator, Iterator
from typing import TypeVar

import orjson

from vibemq.errors import InvalidMessage

T = TypeVar("T")
Steps = Generator[int, None, T]
"""What is done in steps. Each yields what it has cost, in messages of a batch."""
STEP_WORK = 20
"""What a step of this module costs."""
COST_BYTES = 2_048
"""Reading so much JSON, and writing it again, costs as much as a small message of a batch does."""
TEXT_AT_ONCE = 131_072
"""Of a text, in bytes."""
_PIECES_AT_ONCE = 500
_BYTES_AT_ONCE = 131_072
_PIECES_OF_QUOTE = 3
"""Looking at a quote within a text costs as much as so many pieces."""
_BACKSLASHES = b"\\" * 65_536
_BLANKS_MAX = 65_536
"""In a row."""

# Possessive, so that nothing is looked at twice, and with bounds, so that no match is long. Of what is beyond the
# bounds a smaller piece matches.
_TEXT = rb'"[^"\\]{0,1024}+(?:\\.[^"\\]{0,256}+){0,64}+"'
_FLAT = rb'[\[{][^\[\]{}"]{0,4096}+(?:' + _TEXT + rb'[^\[\]{}"]{0,1024}+){0,20}+[\]}]'
_PIECE = re.compile(rb'[^\[\]{}"]{0,16384}+(?:(' + _TEXT + rb")|(" + _FLAT + rb')|([\[{])|([\]}])|(")|())', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\[{\" \t\r\n]{1,1024}+")
_ESCAPES = re.compile(rb'[^"\\]{0,64}+(?:\\.[^"\\]{0,64}+){0,4000}+', re.DOTALL)
_BLANK = re.compile(rb"[ \t\r\n]{0,%d}+" % _BLANKS_MAX)
_ESCAPE_BEGUN = re.compile(rb"\\(?:u[0-9A-Fa-f]{0,3})?\Z")
_PAIR_BEGUN = re.compile(rb"\\u[dD][89abAB][0-9A-Fa-f]{2}\Z")


class StepMeter:
    """Says when a step is due: after so many bytes that were read, or so many pieces of whatever size."""

    def __init__(self, pieces_at_once: int) -> None:
        self._pieces_at_once = pieces_at_once
        self._bytes = self._pieces = 0

    def is_due(self, size: int) -> bool:
        self._bytes += size
        self._pieces += 1
        if self._bytes < STEP_WORK * COST_BYTES and self._pieces < self._pieces_at_once:
            return False
        self._bytes = self._pieces = 0
        return True


class JsonScan:
    """Its steps go on from one value to the next: many small values take as many steps as a large one.

    Args:
        what: it is called in errors.
    """

    def __init__(self, raw: bytes, what: str) -> None:
        self.raw = raw
        self.what = what
        self._begin_step(0)

    def _begin_step(self, at: int) -> None:
        self._step_end = at + _BYTES_AT_ONCE
        self._pieces_left = _PIECES_AT_ONCE

    def fault(self, at: int, why: str) -> InvalidMessage:
        return InvalidMessage(f"{self.what} is not JSON: {why}: at byte {at}")

    def blanks_end(self, at: int) -> int:
        found = _BLANK.match(self.raw, at)
        assert found is not None
        return found.end()

    def value_end(self, start: int) -> Steps[int]:
        """Returns where the value ends that begins there. Raises InvalidMessage."""
        raw, match = self.raw, _PIECE.match
        if start > self._step_end or self._pieces_left <= 0:
            self._begin_step(start)
            yield STEP_WORK
        first = raw[start : start + 1]
        if first == b'"':
            return (yield from self._text_end(start, start + 1))
        if first not in (b"[", b"{"):
            scalar = _SCALAR.match(raw, start)
            if scalar is None:
                raise self.fault(start, "a value is expected")
            self._pieces_left -= 1
            return scalar.end()
        depth, at, left, step_end = 0, start, self._pieces_left, self._step_end
        while True:
            while left > 0 and at <= step_end:
                piece = match(raw, at)
                assert piece is not None
                kind = piece.lastindex
                if kind == 6 and piece.end() == at:
                    raise self.fault(start, "the value has no end")
                at = piece.end()
                left -= 1
                if kind == 3:
                    depth += 1
                elif kind == 4:
                    depth -= 1
                elif kind == 5:
                    self._pieces_left = left
                    at = yield from self._text_end(start, at)
                    left, step_end = self._pieces_left, self._step_end
                if depth <= 0:
                    self._pieces_left = left
                    return at
            self._begin_step(at)
            left, step_end = self._pieces_left, self._step_end
            yield STEP_WORK

    def _text_end(self, start: int, at: int) -> Steps[int]:
        """The same of a text, from behind its quote on."""
        raw = self.raw
        while True:
            while self._pieces_left > 0 and at <= self._step_end:
                end = raw.find(b'"', at)
                if end < 0:
                    raise self.fault(start, "the text has no end")
                self._pieces_left -= _PIECES_OF_QUOTE
                if raw[end - 1] != 0x5C or _is_quoted(raw, at, end):
                    return end + 1
                escapes = _ESCAPES.match(raw, end + 1)
                assert escapes is not None
                at = escapes.end()
            self._begin_step(at)
            yield STEP_WORK

    def text(self, start: int, end: int) -> Steps[str]:
        """What a text says. Raises InvalidMessage: it is none."""
        parts: list[str] = []
        at, last = start + 1, end - 1
        while last - at > TEXT_AT_ONCE:
            cut = self._cut(at)
            parts.append(self._loaded(b'"%b"' % self.raw[at:cut], at))
            at = cut
            yield STEP_WORK
        parts.append(self._loaded(b'"%b"' % self.raw[at:last], at))
        return parts[0] if len(parts) == 1 else "".join(parts)

    def _cut(self, at: int) -> int:
        """Where a text may be cut, about `TEXT_AT_ONCE` behind: within no character and within no escape."""
        raw, cut = self.raw, at + TEXT_AT_ONCE
        while raw[cut] & 0xC0 == 0x80 and cut > at + 8:
            cut -= 1
        for _ in range(2):
            window = raw[max(at, cut - 16) : cut]
            begun = _ESCAPE_BEGUN.search(window) or _PAIR_BEGUN.search(window)
            if begun is None:
                break
            backslash = cut - len(window) + begun.start()
            if not _is_quoted(raw, at, backslash):
                # It ends an escape and begins none.
                break
            cut = backslash
        return cut

    def _loaded(self, text: bytes, at: int) -> str:
        try:
            return str(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise self.fault(at, str(error)) from None


def _is_quoted(raw: bytes, start: int, at: int) -> bool:
    """Whether an even number of backslashes stands before it: what is there is not escaped."""
    begin = at
    while begin > start:
        part = raw[max(start, begin - len(_BACKSLASHES) if begin < at else begin - 64) : begin]
        if part != _BACKSLASHES[: len(part)]:
            begin -= len(part) - len(part.rstrip(b"\\"))
            break
        begin -= len(part)
    return (at - begin) % 2 == 0


def list_items(raw: bytes, what: str) -> Iterator[bytes | None]:
    """The items of a JSON list, each as its bytes. None: that was a step.

    Raises:
        InvalidMessage: it is no list. What the items are is not looked at.
    """
    scan = JsonScan(raw, what)
    at = scan.blanks_end(0)
    if raw[at : at + 1] != b"[":
        raise InvalidMessage(f"{what} must be a JSON list")
    at = scan.blanks_end(at + 1)
    last = raw[at : at + 1] == b"]"
    at += last
    while not last:
        start = at
        steps = scan.value_end(start)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                at = ended.value
                break
            yield None
        yield raw[start:at]
        at = scan.blanks_end(at)
        sign = raw[at : at + 1]
        if sign not in (b",", b"]"):
            raise scan.fault(at, "a comma or the end of the list is expected")
        last = sign == b"]"
        at = scan.blanks_end(at + 1) if not last else at + 1
    if scan.blanks_end(at) != len(raw):
        raise scan.fault(at, "nothing may stand behind the list")


def values_in(raw: bytes | str, start: int = 0, end: int | None = None) -> int:
    """About how many values JSON has, at most."""
    if isinstance(raw, str):
        return sum(raw.count(each, start, end) for each in ",[{")
    return sum(raw.count(each, start, end) for each in (b",", b"[", b"{"))
