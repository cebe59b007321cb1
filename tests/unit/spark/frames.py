"""Columns frames made by hand from docs/spec/cursor.md, with nothing of the product."""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any


def offsets(values: Sequence[bytes]) -> bytes:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return struct.pack(f"<{len(ends)}i", *ends)


def texts(*values: bytes) -> list[bytes]:
    return [offsets(values), b"".join(values)]


def longs(*values: int) -> list[bytes]:
    return [struct.pack(f"<{len(values)}q", *values)]


def bytes_of(*values: int) -> list[bytes]:
    return [struct.pack(f"<{len(values)}b", *values)]


def header_pairs(*rows: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    pairs = [pair for row in rows for pair in row]
    counts = offsets([b"." * len(row) for row in rows])
    return [counts, *texts(*(key for key, _ in pairs)), *texts(*(value for _, value in pairs))]


def columns_body(
    count: int,
    columns: Mapping[str, list[bytes] | dict[str, Any]],
    *,
    request_id: str = "7",
    queue: str = "orders",
    **meta: Any,
) -> bytearray:
    """The body of the frame: version, type, id, queue, meta size, meta, zeros, buffers.

    A column is its buffers, or as in the meta, with the rows themselves in the place of where they stand.
    """
    places: dict[str, Any] = {}
    blob = b""
    for name, buffers in columns.items():
        if isinstance(buffers, dict):
            places[name] = dict(buffers)
            if "rows" in buffers:
                places[name]["rows"] = [len(blob), len(buffers["rows"])]
                blob += buffers["rows"] + bytes(-len(buffers["rows"]) % 8)
            continue
        spans = []
        for buffer in buffers:
            spans.append([len(blob), len(buffer)])
            blob += buffer + bytes(-len(buffer) % 8)
        places[name] = spans if len(spans) > 1 else spans[0]
    facts = {"first": 1, "next": count + 1, "gaps": [], "incarnation": "x", **meta}
    text = json.dumps({"count": count, "buffers": places, **facts}).encode()
    start = b"\x01\x48" + _str16(request_id) + _str16(queue) + struct.pack("!I", len(text)) + text
    return bytearray(start + bytes(-len(start) % 8) + blob)


def _str16(text: str) -> bytes:
    return struct.pack("!H", len(text.encode())) + text.encode()
