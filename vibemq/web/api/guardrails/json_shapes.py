"""How much there is in a JSON text, before it is read: many small values hold the loop fifty times as long as one long
text of the same size. Pure."""

import re

from vibemq.errors import InvalidMessage

MARKS_MAX = 2_000
"""Of a body that is no batch. Each value of a list or an object stands behind one mark: `[`, `{`, `,` or `:`."""
LISTS_MARKS_MAX = 30_000
LISTS_BYTES_MAX = 262_144
"""Of a JSON text with many messages, settlements or ids: 1,000 messages with every field, 10,000 ids."""

# Texts, and what stands between two marks. A text that does not end takes all that is left, so nothing is read twice.
_NO_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"\[{,:]++', re.DOTALL)


def check_shape(text: bytes, marks_max: int = MARKS_MAX) -> None:
    """Marks within texts do not count. Raises InvalidMessage."""
    if _marks_in(text) <= marks_max:
        return
    # In JSON no two of these parts are side by side, so one mark stands beside every second one at least.
    parts_max = 2 * marks_max + 3
    bare, parts = _NO_MARKS.subn(b"", text, count=parts_max)
    if parts == parts_max or _marks_in(bare) > marks_max:
        raise InvalidMessage(f"the JSON has more than {marks_max:,} values; send less at once")


def _marks_in(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{") + text.count(b",") + text.count(b":")
