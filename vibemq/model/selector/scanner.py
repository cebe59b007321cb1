"""Cuts the text of a selector into tokens, each as long as it can be: `x -1` is a name and the number -1."""

import re
from dataclasses import dataclass

from vibemq.errors import InvalidSelector

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_BLANKS = " \t\n"
_TOKEN = re.compile(
    r"""(?P<name>[a-zA-Z][a-zA-Z0-9_.]*)
      | (?P<integer>-?[0-9]+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<symbol>\|\||&&|==|!=|<=|>=|[-+*/%<>!~()])""",
    re.VERBOSE | re.DOTALL,
)
END_KIND = "end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`name`, `integer`, `string`, `symbol` or `end`."""
    text: str
    offset: int
    """Of its first character in the text."""

    @property
    def number(self) -> int:
        return int(self.text)

    @property
    def between_quotes(self) -> bytes:
        """Of a string: what stands between the quotes, backslashes included."""
        return self.text[1:-1].encode(errors="surrogatepass")


def scan(text: str) -> list[Token]:
    """All tokens; the last one is the end.

    Raises:
        InvalidSelector: a character that begins no token, a string without an end, or a number beyond 64 bits.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise InvalidSelector(text, at, _wrong_character(text, at))
        token = Token(found.lastgroup, found.group(), at)
        if token.kind == "integer" and not INT64_MIN <= token.number <= INT64_MAX:
            raise InvalidSelector(text, at, f"the number {token.text} does not fit in 64 bits")
        tokens.append(token)
        at = found.end()
    tokens.append(Token(END_KIND, "", len(text)))
    return tokens


def _wrong_character(text: str, at: int) -> str:
    character = text[at]
    if character == '"':
        return "the string that begins here has no closing quote"
    meant = {"=": "==", "&": "&&", "|": "||", "'": 'double quotes (")'}.get(character)
    return f"{character!r} is not allowed here" + (f"; write {meant}" if meant else "")
