"""Where the structure of a database file lies: page headers, pointers, node headers and keys, everything but values.

Values have a checksum, so a sample of their bits is enough; of the structure the proof flips every bit. Only pages that
the newest header leads to are looked at: whatever lies in others is garbage already.
"""

import struct
from collections.abc import Iterator

Span = tuple[int, int]
"""(offset, size) in the file."""

# -- LMDB (mdb.c): native byte order, 4 KiB pages -----------------------------------------------------------------

LMDB_PAGE = 4096
_HEADER = struct.Struct("=QHHHH")
"""page number | padding | flags | lower, upper (of an overflow page: how many pages, as one u32)."""
_META_BYTES = 152
_BRANCH, _LEAF, _OVERFLOW_VALUE, _NO_PAGE = 1, 2, 1, 2**64 - 1


def lmdb_structure(content: bytes) -> list[Span]:
    spans: list[Span] = [(0, _META_BYTES), (LMDB_PAGE, _META_BYTES)]
    metas = [content[at + 16 : at + _META_BYTES] for at in (0, LMDB_PAGE)]
    newest = max(metas, key=lambda meta: struct.unpack_from("=Q", meta, 128)[0])
    for record_at in (24, 72):
        (root,) = struct.unpack_from("=Q", newest, record_at + 40)
        if root != _NO_PAGE:
            spans += _lmdb_tree(content, root)
    return spans


def _lmdb_tree(content: bytes, page: int) -> Iterator[Span]:
    start = page * LMDB_PAGE
    _, _, flags, lower, _ = _HEADER.unpack_from(content, start)
    yield start, lower
    for at in range(_HEADER.size, lower, 2):
        node = start + struct.unpack_from("=H", content, start + at)[0]
        low, high, node_flags, key_size = struct.unpack_from("=HHHH", content, node)
        if flags & _BRANCH:
            yield node, 8 + key_size
            yield from _lmdb_tree(content, low | high << 16 | node_flags << 32)
        elif node_flags & _OVERFLOW_VALUE:
            yield node, 8 + key_size + 8
            (overflow,) = struct.unpack_from("=Q", content, node + 8 + key_size)
            yield overflow * LMDB_PAGE, _HEADER.size
        elif flags & _LEAF:
            yield node, 8 + key_size


# -- SQLite (fileformat2.html): big-endian, the table is a b-tree of whole records --------------------------------


def sqlite_structure(content: bytes) -> list[Span]:
    (page_bytes,) = struct.unpack_from("!H", content, 16)
    spans: list[Span] = [(0, 100)]
    for page in range(1, len(content) // page_bytes + 1):
        start = (page - 1) * page_bytes
        kind = content[start + (100 if page == 1 else 0)]
        if kind in (2, 5, 10, 13):
            spans += _sqlite_page(content, start, 100 if page == 1 else 0, kind)
        else:
            # An overflow page begins with the number of the next one.
            spans.append((start, 4))
    return spans


def _sqlite_page(content: bytes, start: int, skipped: int, kind: int) -> Iterator[Span]:
    header = 12 if kind in (2, 5) else 8
    at = start + skipped
    (cells,) = struct.unpack_from("!H", content, at + 3)
    yield at, header + 2 * cells
    for number in range(cells):
        cell = start + struct.unpack_from("!H", content, at + header + 2 * number)[0]
        begin = cell + (4 if kind in (2, 5) else 0)
        _, after = _varint(content, begin)
        if kind in (2, 10):
            head_size, _ = _varint(content, after)
            key_type = _varint(content, after + 1)[0]
            after += head_size + max(0, key_type - 12) // 2
        yield cell, min(after, start + len(content)) - cell


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    number = 0
    for index in range(8):
        byte = content[at + index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + index + 1
    return number << 8 | content[at + 8], at + 9


def sqlite_log_structure(content: bytes) -> list[Span]:
    """The header, and the header of each frame; pages have the checksum of their frame."""
    (page_bytes,) = struct.unpack_from("!I", content, 8)
    return [(0, 32), *((at, 24) for at in range(32, len(content) - 24, 24 + page_bytes))]


STRUCTURES = {
    "store/data.mdb": lmdb_structure,
    "vibemq.sqlite": sqlite_structure,
    "vibemq.sqlite-wal": sqlite_log_structure,
}


def others(spans: list[Span], size: int) -> list[Span]:
    """What of a file of that size the spans leave over."""
    left: list[Span] = []
    end = 0
    for offset, length in sorted(spans):
        if offset > end:
            left.append((end, offset - end))
        end = max(end, offset + length)
    return [*left, (end, size - end)] if end < size else left
