"""S-expressions as sexplib writes and reads them: bytes in, values out, however the network cut them.

A value is an atom (`bytes`) or a list (`tuple` of values).

    blank      space, tab, LF, CR, FF
    comment    ; to the end of the line · #| nested, honouring strings |# · #; and the next value
    atom       up to a blank or one of ( ) " ;   backslashes stand for themselves; #| and |# are errors
    string     "…" with backslash and one of \\ " ' n t b r, ddd (decimal), xHH, or a line's end, which is skipped with
               the blanks after it; any other backslash stands for itself

Source: docs/spec/omq.md, "S-expressions".
"""

import re
import sys
from collections.abc import Iterator
from typing import TypeAlias, Union

Sexp: TypeAlias = Union[bytes, "tuple[Sexp, ...]"]

_LPAREN, _RPAREN, _QUOTE, _SEMICOLON, _HASH, _BAR = b'()";#|'

_BLANKS = re.compile(rb"[ \t\n\r\f]+")
_ATOM = re.compile(rb'[^ \t\n\r\f()";]+')
_PLAIN = re.compile(rb'[^"\\]+')
_INDENT = re.compile(rb"[ \t]+")
_ESCAPE = re.compile(
    rb"\\(?:(?P<decimal>[0-9]{3})|x(?P<hex>[0-9a-fA-F]{2})|(?P<line>\r?\n)|(?P<return>\r(?=[^\n]))|(?P<other>[^0-9x\r\n]))",
    re.DOTALL,
)
_PART_OF_ESCAPE = re.compile(rb"\\(?:[0-9]{0,2}|x[0-9a-fA-F]?|\r)")
_USUAL = re.compile(rb'\(([^()";|#\v]*+)(?:\(([^()";|#\v]*+)\))?[ \t\n\r\f]*+\)')
"""Atoms without anything special about them, perhaps with a list of such at the end: nearly every command there is."""
_COMMENT_MARK = re.compile(rb'"|#\||\|#')
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b"r": b"\r", b"\\": b"\\", b'"': b'"', b"'": b"'"}


class SexpError(ValueError):
    """Bytes that no reader of S-expressions can read on from."""


class SexpTooLarge(SexpError):
    """Longer or deeper than allowed."""


_BETWEEN, _IN_ATOM, _IN_STRING, _IN_INDENT, _IN_LINE_COMMENT, _IN_BLOCK_COMMENT = range(6)
"""What the next byte belongs to; an indent is what follows an escaped line's end in a string."""


class SexpReader:
    """Cuts a byte stream into values: in time linear to its length, and in memory bounded by `bytes_max`.

    A value ends with its closing parenthesis or quote; an unquoted atom with the byte after it. What lies between
    values (blanks, comments) is neither kept nor counted. After a SexpError the reader is of no more use.
    """

    def __init__(self, *, bytes_max: int = 65_536, nesting_max: int = 64) -> None:
        self._bytes_max = bytes_max
        self._nesting_max = nesting_max
        self._data = b""
        self._at = 0
        """Everything in `_data` before it is understood."""
        self._stop = 0
        """How far the unfinished value may reach: the end of `_data`, or less when it has used up its bytes."""
        self._begun: int | None = None
        """Where in `_data` the unfinished value begins; negative when that was in earlier data."""
        self._lists: list[list[Sexp]] = [[]]
        """The open lists, the outermost of which gathers finished values."""
        self._skips = [0]
        """For each of them, how many of the values to come are commented out."""
        self._text = bytearray()
        """Of the unfinished atom."""
        self._comments = 0
        """Block comments that are open."""
        self._enough = False
        self._in = _BETWEEN

    @property
    def unread(self) -> bool:
        """Whether `values` stopped because it had done enough."""
        return self._enough and self._at < self._stop

    @property
    def unfinished(self) -> bool:
        """Whether the stream must not end here: within a value, a block comment, or behind a #;."""
        inside = self._begun is not None or self._comments > 0 or self._skips[0] > 0
        return inside or self._at < len(self._data)

    def receive_data(self, data: bytes) -> None:
        """Call it after `values` has stopped: usually at most four bytes are left over from before."""
        if self._begun is not None:
            self._begun -= self._at
        self._data = self._data[self._at :] + data
        self._at = 0
        self._limit()

    def values(self, tokens_max: int = sys.maxsize) -> Iterator[Sexp]:
        """Yield each finished value; stop when more bytes are needed, or after so many tokens: a value of the usual
        kind is one, of others every part.

        Raises:
            SexpTooLarge, SexpError: after the values before it were yielded.
        """
        finished = self._lists[0]
        self._enough = False
        while self._at < self._stop and self._step():
            tokens_max -= 1
            self._enough = tokens_max <= 0
            if finished:
                yield finished.pop()
            if self._enough:
                return
        if self._stop < len(self._data):
            raise SexpTooLarge(f"longer than {self._bytes_max:,} bytes")

    def _step(self) -> bool:
        """Understand one token or a part of it; False when that takes more bytes."""
        now = self._in
        if now == _BETWEEN:
            return self._token()
        if now == _IN_ATOM:
            return self._atom()
        if now == _IN_STRING:
            return self._string()
        if now == _IN_INDENT:
            return self._indent()
        return self._line_comment() if now == _IN_LINE_COMMENT else self._block_comment()

    def _limit(self) -> None:
        self._stop = len(self._data)
        if self._begun is not None:
            self._stop = min(self._stop, self._begun + self._bytes_max)

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _token(self) -> bool:
        data, at = self._data, self._at
        byte = data[at]
        if byte == _LPAREN:
            if self._begun is not None or self._skips[0] or not self._usual():
                self._open()
        elif byte == _RPAREN:
            self._close()
        elif byte == _QUOTE:
            self._begin(_IN_STRING)
            self._at = at + 1
            return self._at == self._stop or self._string()
        elif byte == _SEMICOLON:
            self._in = _IN_LINE_COMMENT
        elif blanks := _BLANKS.match(data, at, self._stop):
            self._at = blanks.end()
        elif byte == _HASH and (at + 1 == self._stop or data[at + 1] in b"|;"):
            return self._hash()
        else:
            self._begin(_IN_ATOM)
            return self._atom()
        return True

    def _usual(self) -> bool:
        """Read a whole value at once if it is of the usual kind."""
        found = _USUAL.match(self._data, self._at, min(self._stop, self._at + self._bytes_max))
        if found is None:
            return False
        atoms, nested = found.groups()
        value: tuple[Sexp, ...] = tuple(atoms.split())
        self._lists[0].append(value if nested is None else (*value, tuple(nested.split())))
        self._at = found.end()
        return True

    def _hash(self) -> bool:
        if self._at + 1 == self._stop:
            return False
        if self._data[self._at + 1] == _BAR:
            self._comments = 1
            self._in = _IN_BLOCK_COMMENT
        else:
            self._skips[-1] += 1
        self._at += 2
        return True

    def _begin(self, what: int) -> None:
        self._in = what
        if self._begun is None:
            self._begun = self._at
            self._limit()

    def _open(self) -> None:
        if len(self._lists) > self._nesting_max:
            raise SexpTooLarge(f"more than {self._nesting_max} parentheses open")
        self._begin(_BETWEEN)
        self._lists.append([])
        self._skips.append(0)
        self._at += 1

    def _close(self) -> None:
        if len(self._lists) == 1:
            raise SexpError("a closing parenthesis that nothing opened")
        if self._skips.pop():
            raise SexpError("nothing follows #;")
        self._at += 1
        self._finish(tuple(self._lists.pop()))

    def _finish(self, value: Sexp) -> None:
        self._in = _BETWEEN
        if self._skips[-1]:
            self._skips[-1] -= 1
        else:
            self._lists[-1].append(value)
        if len(self._lists) == 1:
            self._begun = None
            self._stop = len(self._data)

    def _atom(self) -> bool:
        found = _ATOM.match(self._data, self._at, self._stop)
        text = found[0] if found is not None else b""
        self._at += len(text)
        if self._at == self._stop:
            self._text += text
            return True
        if self._text:
            text = self._take_text() + text
        if b"#|" in text or b"|#" in text:
            raise SexpError("#| or |# within an atom")
        self._finish(text)
        return True

    def _take_text(self) -> bytes:
        text = bytes(self._text)
        self._text.clear()
        return text

    # -- strings ----------------------------------------------------------------------------------------------------

    def _string(self) -> bool:
        data, at = self._data, self._at
        if plain := _PLAIN.match(data, at, self._stop):
            self._add(plain[0])
            self._at = plain.end()
        elif data[at] == _QUOTE:
            self._at = at + 1
            if self._comments:
                self._in = _IN_BLOCK_COMMENT
            else:
                self._finish(self._take_text())
        else:
            return self._escape()
        return True

    def _escape(self) -> bool:
        found = _ESCAPE.match(self._data, self._at, self._stop)
        if found is None:
            if _PART_OF_ESCAPE.fullmatch(self._data, self._at, self._stop):
                return False
            raise SexpError("an escape in a string is neither \\ddd nor \\xHH")
        self._at = found.end()
        kind, what = str(found.lastgroup), found[found.lastindex or 0]
        match kind:
            case "decimal":
                if int(what) > 255:
                    raise SexpError("an escape in a string is above \\255")
                self._add(bytes((int(what),)))
            case "hex":
                self._add(bytes.fromhex(what.decode()))
            case "line":
                self._in = _IN_INDENT
            case "return":
                self._add(what)
            case _:
                self._add(_ESCAPED.get(what, b"\\" + what))
        return True

    def _add(self, text: bytes) -> None:
        # Strings within comments are read so that nothing in them ends the comment; their text is nobody's.
        if not self._comments:
            self._text += text

    def _indent(self) -> bool:
        if found := _INDENT.match(self._data, self._at, self._stop):
            self._at = found.end()
        else:
            self._in = _IN_STRING
        return True

    # -- comments ---------------------------------------------------------------------------------------------------

    def _line_comment(self) -> bool:
        end = self._data.find(b"\n", self._at, self._stop)
        if end < 0:
            self._at = self._stop
        else:
            self._at = end + 1
            self._in = _BETWEEN
        return True

    def _block_comment(self) -> bool:
        mark = _COMMENT_MARK.search(self._data, self._at, self._stop)
        if mark is None:
            # The last byte may be the first half of a mark.
            self._at = max(self._at, self._stop - (self._data[self._stop - 1] in b"#|"))
            return False
        self._at = mark.end()
        if mark[0] == b'"':
            self._in = _IN_STRING
        else:
            self._comments += 1 if mark[0] == b"#|" else -1
            if not self._comments:
                self._in = _BETWEEN
        return True


# -- out ------------------------------------------------------------------------------------------------------------

_MUST_QUOTE = re.compile(rb'[\x00-\x20\x7f-\xff"();\\]|#\||\|#|\A\Z')
_MUST_ESCAPE = re.compile(rb'[\x00-\x1f\x7f-\xff"\\]')
_ESCAPES = {byte: b"\\%03d" % byte for byte in (*range(32), *range(127, 256))} | {
    ord("\n"): b"\\n",
    ord("\t"): b"\\t",
    ord("\r"): b"\\r",
    ord("\b"): b"\\b",
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
}


def print_atom(text: bytes) -> bytes:
    if _MUST_QUOTE.search(text) is None:
        return text
    return b'"%b"' % _MUST_ESCAPE.sub(lambda found: _ESCAPES[found[0][0]], text)


def print_sexp(value: Sexp) -> bytes:
    """The machine form (`Sexp.to_string`): a blank only between two unquoted atoms."""
    parts: list[bytes] = []
    _print(value, parts)
    return b"".join(parts)


def _print(value: Sexp, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        atom = print_atom(value)
        if parts and parts[-1][-1] not in b'()"' and atom[:1] != b'"':
            parts.append(b" ")
        parts.append(atom)
        return
    parts.append(b"(")
    for item in value:
        _print(item, parts)
    parts.append(b")")
