"""Which error texts say the same: those that differ only in ids, numbers and quoted names have one fingerprint.

Fingerprints stand in stores, so they must never come out differently: another rule needs another version of the store,
whose migration makes the index of dead letters anew. The rules know ASCII alone, for what else is a digit or a letter
changes with the version of Unicode that Python speaks.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from vibemq.model.arguments import has_utf8

LINE_MAX = 512
"""Characters of the line that count."""
SAMPLE_BYTES_MAX = 256
OTHER = 0
"""Stands for all groups that a queue has no room for. No text has this fingerprint."""
KNOWN_LINES = 1024

_TRACEBACK = "Traceback (most recent call last)"
_VARYING = re.compile(
    r"""
      (?<!\w) (?: '[^']*' | "[^"]*" | `[^`]*` ) (?!\w)                                  # quoted; not the ' of "can't"
    | \b [0-9a-fA-F]{8} (?: - [0-9a-fA-F]{4} ){3} - [0-9a-fA-F]{12} \b                  # UUIDs
    | \b 0[xX][0-9a-fA-F]+ \b
    | \b (?= [a-fA-F]*[0-9] ) [0-9a-fA-F]{6,} \b                           # hex that has a digit
    | [0-9]+ (?: [.,][0-9]+ )* (?: [eE][+-]?[0-9]+ (?![0-9a-zA-Z]) )?
    """,
    re.ASCII | re.VERBOSE,
)
_BLANKS = re.compile(r"[ \t\x0b\x0c]+")


def fingerprint(error: str) -> int:
    """A number below 2^64, never 0: a hash of what is the same in texts of one kind."""
    return _of_line(telling_line(error if error.isascii() else _as_stored(error)))


def telling_line(error: str) -> str:
    """The line that says what happened: the first, of a Python traceback the last."""
    text = error.strip("\r\n \t")
    if text.startswith(_TRACEBACK):
        return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :][:LINE_MAX]
    ends = [end for end in (text.find("\n", 0, LINE_MAX), text.find("\r", 0, LINE_MAX)) if end >= 0]
    return text[: min(ends, default=LINE_MAX)]


@lru_cache(maxsize=KNOWN_LINES)
def _of_line(line: str) -> int:
    shape = _BLANKS.sub(" ", _VARYING.sub("#", line)).strip()
    digest = blake2b(shape.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def sample_of(error: str) -> bytes:
    """The beginning of an error text as UTF-8, cut between two characters; of a Python traceback, its telling line."""
    text = _as_stored(error)
    if text.strip("\r\n \t").startswith(_TRACEBACK):
        text = telling_line(text)
    return text[:SAMPLE_BYTES_MAX].encode()[:SAMPLE_BYTES_MAX].decode(errors="ignore").encode()


def _as_stored(error: str) -> str:
    """What is no valid Unicode has U+FFFD in its place in a store."""
    if has_utf8(error):
        return error
    return error.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def fingerprint_text(number: int) -> str:
    """As people see it: 16 hex digits."""
    return f"{number:016x}"


def fingerprint_number(text: str) -> int:
    """Raises ValueError for what `fingerprint_text` does not write."""
    if len(text) != 16 or not re.fullmatch("[0-9a-f]{16}", text, re.ASCII):
        raise ValueError("must be 16 hex digits, as `dlq.groups` shows them")
    return int(text, 16)
