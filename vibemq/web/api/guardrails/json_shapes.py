"""How much there is in a JSON text, before it is read: many small values hold the loop fifty times as long as one long
text of the same size. Pure."""

import re
from functools import cache

from vibemq.errors import InvalidMessage

MARKS_MAX = 2_000
"""Of a body that is no batch. Each value of a list or an object stands behind one mark: `[`, `{`, `,` or `:`."""
LISTS_MARKS_MAX = 30_000
LISTS_BYTES_MAX = 262_144
"""Of a JSON text with many messages, settlements or ids: 1,000 messages with every field, 10,000 ids."""

_WINDOW_BYTES = 65_536
_MARK = rb"[\[{,:]"
# Texts, and what stands between two marks; in JSON at most a text with something before and behind it. A text that does
# not end takes all that is left, so nothing is read twice.
_BETWEEN = rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"\[{,:]++){0,3}+'


def check_shape(text: bytes, marks_max: int = MARKS_MAX) -> None:
    """Marks within texts do not count. What is no JSON passes when fewer marks stand before the place where reading it
    ends. Raises InvalidMessage."""
    if _may_have_more(text, marks_max) and more_marks_than(marks_max).match(text) is not None:
        raise InvalidMessage(f"the JSON has more than {marks_max:,} values; send less at once")


@cache
def more_marks_than(marks: int) -> re.Pattern[bytes]:
    """It fits the beginning of a text up to where there are too many."""
    return re.compile(rb"(?:%b%b){%d}+" % (_BETWEEN, _MARK, marks + 1), re.DOTALL)


def _may_have_more(text: bytes, marks_max: int) -> bool:
    """With the marks in texts."""
    count = 0
    for start in range(0, len(text), _WINDOW_BYTES):
        end = start + _WINDOW_BYTES
        count += sum(text.count(mark, start, end) for mark in (b"[", b"{", b",", b":"))
        if count > marks_max:
            return True
    return False
