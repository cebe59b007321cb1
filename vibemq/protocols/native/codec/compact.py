"""Columns that need no buffers of their own: cut out of the rows as they are stored, or the same in every row.

The reader cuts them out, at the speed of Arrow's kernels and on its own processor; the broker copies whole rows and
looks at none. Only for readers that say they can. Source: docs/spec/cursor.md, "Compact columns".
"""

from collections.abc import Callable
from typing import Any

from vibemq.model.effects import Fetched
from vibemq.model.rows import header_pairs

Buffer = list[bytes]
"""One buffer in pieces."""
Place = list[int]
"""[offset, size]."""

NORMAL_PRIORITY = 1
_WASTE = 4
"""Whole rows travel when at least all but one in so many of their bytes are wanted."""


def compact_places(fetched: Fetched, add: Callable[[Buffer], Place]) -> dict[str, Any]:
    """Where to find each column that can be had like this; the others need buffers.

    Args:
        add: takes a buffer and says where it will be.
    """
    places: dict[str, Any] = {}
    if "priority" in fetched.columns and not fetched.priorities:
        places["priority"] = {"same": NORMAL_PRIORITY}
    if "headers" in fetched.columns:
        pairs = _common_pairs(fetched)
        if pairs is not None:
            places["headers"] = {"same": pairs}
    return _strided(fetched, add, places) | places


def _strided(fetched: Fetched, add: Callable[[Buffer], Place], others: dict[str, Any]) -> dict[str, Any]:
    """Ids, bodies and headers of rows that are all framed alike: each stands at the same place of every row."""
    shapes = {part.rows.shape() for part in fetched.slices}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is None:
        return {}
    id_size, size, tail = shape
    width = 2 + id_size + 4 + size + tail
    found = {"message_id": (2, id_size), "body": (2 + id_size + 4, size)}
    wanted = {name: place for name, place in found.items() if name in fetched.columns and place[1]}
    headers = _header_places(fetched) if "headers" in fetched.columns - others.keys() else None
    used = sum(length for _, length in wanted.values()) + (tail if headers else 0)
    if used * _WASTE < (_WASTE - 1) * width:
        return {}
    rows = {"rows": add([part.rows.data for part in fetched.slices]), "width": width}
    places: dict[str, Any] = {name: {**rows, "at": at, "size": length} for name, (at, length) in wanted.items()}
    if headers:
        places["headers"] = {**rows, "pairs": headers}
    return places


def _header_places(fetched: Fetched) -> list[tuple[str, int, int]] | None:
    """[key, at, size] of each header, when all rows have the same keys and none is empty or twice there."""
    known = {part.rows.header_places() for part in fetched.slices}
    places = known.pop() if len(known) == 1 else None
    if not places:
        return None
    keys = [key.decode(errors="replace") for key, _, _ in places]
    if len(set(keys)) < len(keys) or not all(keys) or not all(size for _, _, size in places):
        return None
    return [(key, at, size) for key, (_, at, size) in zip(keys, places, strict=True)]


def _common_pairs(fetched: Fetched) -> list[tuple[str, str]] | None:
    blocks = {part.rows.common_headers() for part in fetched.slices}
    block = blocks.pop() if len(blocks) == 1 else None
    # Of equal keys the last wins.
    return None if block is None else list(dict(header_pairs(block, 0)).items())
