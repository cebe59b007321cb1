"""Which pages of LMDB's file nothing uses, and what they are good for.

A value that does not fit into a leaf takes neighbouring pages: of a thousand free pages here and there it can use none,
and then the file grows. Runs of free pages therefore count for what values of a certain size can use of them.
"""

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vibemq.storage.lmdb.environment.pages import (
    BIG,
    LEAF,
    NO_PAGE,
    NODE,
    NUMBER,
    PAGE,
    PAGE_BYTES,
    Tree,
    header_on,
    page_bytes_of,
)

PAGES_MAX = 1 << 18
"""Looked at, a GiB of them: it takes a tenth of a second. A disk on which more are unused is not short."""
HEAD_BYTES = 256
"""What a value takes in its pages beside its bytes."""


class UnusedPages(NamedTuple):
    """Of one file."""

    runs: tuple[tuple[int, int], ...] = ()
    """(length, number): so many runs of so many free pages. There are never more than 724 lengths."""
    holes: int = 0
    """Bytes of free pages that were never written: they have no place on the disk."""
    page_bytes: int = PAGE_BYTES

    def for_values(self, size: int) -> int:
        """Bytes that values can use of which none has more than `size`."""
        pages = -(-(size + HEAD_BYTES) // self.page_bytes)
        usable = sum((length - length % pages) * number for length, number in self.runs) * self.page_bytes
        return max(0, usable - self.holes)


def unused_pages(path: Path) -> UnusedPages:
    """Of a store that nobody writes meanwhile."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            size = page_bytes_of(view)
            header = max((header_on(view, size, page) for page in (0, 1)), key=lambda found: found.transaction)
            runs = Counter(_runs(_free_pages(view, size, header.free)))
    holes = max(0, (header.last_page + 1) * size - stat.st_blocks * 512)
    return UnusedPages(tuple(runs.items()), holes, size)


def _runs(pages: list[int]) -> Iterator[int]:
    """Lengths of the runs of consecutive numbers."""
    pages.sort()
    start = 0
    for index in range(1, len(pages) + 1):
        if index == len(pages) or pages[index] != pages[index - 1] + 1:
            yield index - start
            start = index


def _free_pages(view: memoryview, size: int, tree: Tree) -> list[int]:
    found: list[int] = []
    if tree.root != NO_PAGE:
        for value in _values(view, size, tree.root):
            (count,) = NUMBER.unpack_from(value)
            found += value[NUMBER.size : (count + 1) * NUMBER.size].cast("Q").tolist()
            if len(found) >= PAGES_MAX:
                break
    return found


def _values(view: memoryview, page_bytes: int, page: int) -> Iterator[memoryview]:
    """Those of the leaves at or below the page, in the order of their keys."""
    content = view[page * page_bytes : (page + 1) * page_bytes]
    _, _, flags, lower, _ = PAGE.unpack_from(content)
    for offset in content[PAGE.size : lower].cast("H").tolist():
        low, high, kind, key_size = NODE.unpack_from(content, offset)
        if flags != LEAF:
            yield from _values(view, page_bytes, low | high << 16 | kind << 32)
            continue
        at, size = offset + NODE.size + key_size, low | high << 16
        if kind == BIG:
            start = NUMBER.unpack_from(content, at)[0] * page_bytes + PAGE.size
            yield view[start : start + size]
        else:
            yield content[at : at + size]
