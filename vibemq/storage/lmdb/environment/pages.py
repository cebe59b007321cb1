"""LMDB's pages, looked at before LMDB does.

LMDB trusts its pages: a wild length or page number in one ends the process that reads it (SIGBUS, a failed assertion),
a wrong free list makes it write over live pages later. So the whole tree is walked when a store is opened, and by
`check`: branch and leaf pages, not the values, which have their own checksums.

    page     number u64 | padding u16 | flags u16 | lower u16 | upper u16 | offsets of nodes u16 ... | room | nodes
    overflow number u64 | padding u16 | flags u16 | how many pages u32 | value, over all of them
    node     low u16 | high u16 | flags u16 | key size u16 | key | value, or the overflow page's number u64
    header   page of flags 8: magic u32 | version u32 | address u64 | map size u64 | free tree | main tree |
             last page u64 | transaction u64
    tree     padding u32 | flags u16 | depth u16 | branch pages, leaf pages, overflow pages, entries, root: u64 each

In a leaf, low and high are the value's size; in a branch, with the flags, the child's page number. All native (mdb.c).

The free tree's padding is the size of the file's pages: that of the system on which the file was made, and that it
keeps on every other one.
"""

import mmap
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vibemq.errors import StorageDamaged

MAGIC = 0xBEEFC0DE
PAGE_SIZES = tuple(1 << shift for shift in range(12, 16))
"""LMDB makes no bigger pages, whatever the system's are."""
HEAD_BYTES = 2 * PAGE_SIZES[-1]
"""Both headers are in them, however big the pages are."""
PAGE_BYTES = min(os.sysconf("SC_PAGE_SIZE"), PAGE_SIZES[-1])
"""Of a file that is made on this system."""
NO_PAGE = 2**64 - 1
HINT = "restore a backup, or save the rest with `vibemq-admin check --repair`"

_BRANCH, LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_INTEGER_KEYS = 8
"""The kind of the free tree; ours is of kind 0."""
BIG = 1
_DEPTH_MAX = 32
PAGE = struct.Struct("=QHHHH")
NODE = struct.Struct("=HHHH")
NUMBER = struct.Struct("=Q")
_COUNT = struct.Struct("=I")
_TREE = struct.Struct("=IHH5Q")
_ENDS = struct.Struct("=QQ")
_TREES_AT = PAGE.size + 24
_ENDS_AT = _TREES_AT + 2 * _TREE.size
_MARK = struct.Struct("=I")

Fetch = Callable[[list[int]], None]
"""Has pages read ahead of a look at them."""


class Tree(NamedTuple):
    padding: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflow: int
    entries: int
    root: int


class Header(NamedTuple):
    free: Tree
    main: Tree
    last_page: int
    transaction: int


class _Bad(Exception):
    def __init__(self, page: int, what: str) -> None:
        super().__init__(page, what)
        self.page, self.what = page, what


def check_pages(path: Path, transaction: int | None = None) -> bool:
    """Walk all pages of the file; an empty file is fine. False: that transaction's header is written over already.

    Args:
        transaction: whose view of a file that is in use, held open by the caller; None: the newest, and nobody writes.

    Raises:
        StorageDamaged: names the place.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            size = page_bytes_of(view)
            # Of each big value one page is looked at: to read ahead would be to read the whole backlog.
            content.madvise(mmap.MADV_RANDOM)
            if transaction is not None and transaction not in _transactions(view, size):
                return False
            found = _find(view, size, transaction, partial(_fetch, content, size))
    if found is not None:
        page, what = found
        raise StorageDamaged(f"LMDB page {page} is damaged ({what})", path=str(path), offset=page * size, hint=HINT)
    return True


def page_bytes_of(head: bytes | memoryview) -> int:
    """The size of the pages of a file that begins so; of one without any header that of a new one."""
    for at in (0, *PAGE_SIZES):
        if len(head) < at + _TREES_AT + _MARK.size or _MARK.unpack_from(head, at + PAGE.size)[0] != MAGIC:
            continue
        (size,) = _MARK.unpack_from(head, at + _TREES_AT)
        if size in PAGE_SIZES and at in (0, size):
            return int(size)
    return PAGE_BYTES


def _transactions(view: memoryview, size: int) -> list[int]:
    """Those of the two headers."""
    return [_ENDS.unpack_from(view, page * size + _ENDS_AT)[1] for page in (0, 1)]


def _fetch(content: mmap.mmap, size: int, pages: list[int]) -> None:
    """Have the disk read these pages at once: one after the other, each would be waited for."""
    last = len(content) // size
    for page in pages:
        if page < last:
            # Of the system's pages, which may be bigger, the one that it is in.
            start = page * size // mmap.PAGESIZE * mmap.PAGESIZE
            content.madvise(mmap.MADV_WILLNEED, start, (page + 1) * size - start)


def _find(view: memoryview, size: int, transaction: int | None, fetch: Fetch) -> tuple[int, str] | None:
    """The first damaged page, and what is wrong with it."""
    try:
        _check(view, size, transaction, fetch)
    except _Bad as bad:
        return bad.page, bad.what
    except struct.error as error:
        return 0, f"the file ends too soon: {error}"
    return None


def _check(view: memoryview, size: int, transaction: int | None, fetch: Fetch) -> None:
    headers = [header_on(view, size, page) for page in (0, 1)]
    if transaction is None:
        newest = max(headers, key=lambda header: header.transaction)
        for page, header in enumerate(headers):
            # Transactions take turns with the two pages.
            if header.transaction and header.transaction % 2 != page:
                raise _Bad(page, f"transaction {header.transaction} belongs in the other header")
            if newest.transaction - header.transaction > 1:
                raise _Bad(page, f"its transaction {header.transaction} is not the one before {newest.transaction}")
    else:
        newest = next(header for header in headers if header.transaction == transaction)
    walk = _Walk(view, size, newest.last_page, fetch)
    walk.main(newest.main)
    walk.free(newest.free)
    walk.need_all()


def header_on(view: memoryview, size: int, page: int) -> Header:
    at = page * size
    if PAGE.unpack_from(view, at)[2] != _META:
        raise _Bad(page, "it is no header")
    free, main = (Tree(*_TREE.unpack_from(view, at + _TREES_AT + index * _TREE.size)) for index in (0, 1))
    if free.padding != size:
        raise _Bad(page, f"it is for pages of {free.padding} bytes")
    if free.flags != _INTEGER_KEYS or main.flags:
        raise _Bad(page, f"its trees are of kinds {free.flags:#x} and {main.flags:#x}")
    return Header(free, main, *_ENDS.unpack_from(view, at + _ENDS_AT))


def _big_values(content: bytes, offsets: list[int]) -> list[int]:
    """The first pages of the values that do not fit into the leaf."""
    pages: list[int] = []
    for offset in offsets:
        _, _, flags, key_size = NODE.unpack_from(content, offset)
        at = offset + NODE.size + key_size
        if flags == BIG and at + NUMBER.size <= len(content):
            pages.append(NUMBER.unpack_from(content, at)[0])
    return pages


class _Walk:
    """One look at every page; `claim` and `need_all` see to it that each is used once, or free."""

    def __init__(self, view: memoryview, size: int, last_page: int, fetch: Fetch) -> None:
        self._view = view
        self._size = size
        self._fetch = fetch
        self._last_page = last_page
        self._used = bytearray(min(last_page + 1, len(view) // size))
        self._used[0:2] = b"\1\1"
        self._free_behind = 0

    def main(self, tree: Tree) -> None:
        """The values are sealed, and none of this one's business."""
        self._tree(tree, None)

    def free(self, tree: Tree) -> None:
        """Each value is a list of free pages: how many, and their numbers; the keys are numbers of transactions."""
        lists: list[tuple[int, memoryview]] = []
        self._tree(tree, lists)
        for page, value in lists:
            self._claim_free(page, value)

    def need_all(self) -> None:
        lost = self._used.find(0)
        if lost >= 0 or len(self._used) + self._free_behind != self._last_page + 1:
            raise _Bad(max(lost, 0), "it is neither used nor free")

    def _tree(self, tree: Tree, lists: list[tuple[int, memoryview]] | None) -> None:
        self._counts = [0, 0, 0, 0]
        self._lists = lists
        self._before = b""
        if tree.root != NO_PAGE:
            self._page(tree.root, tree.depth, b"", None)
        if self._counts != [tree.branches, tree.leaves, tree.overflow, tree.entries]:
            raise _Bad(0 if tree.root == NO_PAGE else tree.root, "the tree below it is not whole")

    def _claim(self, page: int, count: int = 1) -> None:
        if page < 2 or page + count > len(self._used):
            raise _Bad(page, "it is outside the file")
        if self._used.find(1, page, page + count) >= 0:
            raise _Bad(page, "it is in use twice")
        self._used[page : page + count] = b"\1" * count

    def _claim_free(self, page: int, value: memoryview) -> None:
        numbers = [number for (number,) in NUMBER.iter_unpack(value[: len(value) // 8 * 8])]
        if not numbers or numbers[0] + 1 > len(numbers):
            raise _Bad(page, "a list of free pages is cut short")
        for number in numbers[1 : numbers[0] + 1]:
            if len(self._used) <= number <= self._last_page:
                # Freed before it was ever written; the file may end before it.
                self._free_behind += 1
                continue
            if not 2 <= number < len(self._used) or self._used[number]:
                raise _Bad(page, f"it calls page {number} free")
            self._used[number] = 1

    def _page(self, page: int, depth: int, low: bytes, high: bytes | None) -> None:
        """The page and all below it; its keys are from `low` on and before `high`."""
        self._claim(page)
        content = bytes(self._view[page * self._size : (page + 1) * self._size])
        number, _, flags, lower, upper = PAGE.unpack_from(content)
        kind = LEAF if depth == 1 else _BRANCH
        if number != page or flags != kind or not 1 <= depth <= _DEPTH_MAX:
            raise _Bad(page, f"page {number} of kind {flags} stands there")
        if lower < PAGE.size or lower % 2 or not lower <= upper <= self._size:
            raise _Bad(page, f"its room is from {lower} to {upper}")
        offsets = memoryview(content)[PAGE.size : lower].cast("H").tolist()
        if not offsets or min(offsets) < upper or max(offsets) > self._size - NODE.size:
            raise _Bad(page, "a node is not where nodes are")
        if kind == LEAF:
            self._counts[1] += 1
            self._leaf(page, content, offsets, low, high)
        else:
            self._counts[0] += 1
            self._branch(page, content, offsets, depth, low, high)

    def _branch(
        self, page: int, content: bytes, offsets: list[int], depth: int, low: bytes, high: bytes | None
    ) -> None:
        nodes = [NODE.unpack_from(content, offset) for offset in offsets]
        # The first key of a branch is never looked at.
        keys = [low]
        for offset, node in zip(offsets[1:], nodes[1:], strict=True):
            begin = offset + NODE.size
            keys.append(self._key(page, content[begin : begin + node[3]], node[3]))
        ends = [*keys[1:], high]
        if len(keys) < 2 or any(end is not None and key >= end for key, end in zip(keys, ends, strict=True)):
            raise _Bad(page, "its keys are out of order")
        children = [lo | hi << 16 | flags << 32 for lo, hi, flags, _ in nodes]
        self._fetch(children)
        for child, key, end in zip(children, keys, ends, strict=True):
            self._page(child, depth - 1, key, end)

    def _leaf(self, page: int, content: bytes, offsets: list[int], low: bytes, high: bytes | None) -> None:
        unpack, lists, before = NODE.unpack_from, self._lists, self._before
        self._fetch(_big_values(content, offsets))
        first = True
        for offset in offsets:
            lo, hi, flags, key_size = unpack(content, offset)
            begin = offset + 8
            at = begin + key_size
            key = content[begin:at]
            if lists is not None:
                key = self._key(page, key, key_size)
            if key <= before or at > len(content) or (first and key < low):
                raise _Bad(page, f"the key {key.hex()} is out of order")
            before, first = key, False
            size = lo | hi << 16
            if flags == BIG and at + NUMBER.size <= len(content):
                start = self._overflow(page, NUMBER.unpack_from(content, at)[0], size)
            elif flags or at + size > len(content):
                raise _Bad(page, f"a value of {size} bytes and kind {flags} does not fit into it")
            else:
                start = page * len(content) + at
            if lists is not None:
                lists.append((page, self._view[start : start + size]))
        if high is not None and before >= high:
            raise _Bad(page, f"the key {before.hex()} is out of order")
        self._before = before
        self._counts[3] += len(offsets)

    def _key(self, page: int, key: bytes, size: int) -> bytes:
        """A key in a form that compares as LMDB does; of `size` bytes, if the page has that many."""
        if len(key) != size or (self._lists is not None and size != NUMBER.size):
            raise _Bad(page, f"a key of {size} bytes does not fit")
        if self._lists is None:
            return key
        number: int = NUMBER.unpack(key)[0]
        return number.to_bytes(NUMBER.size, "big")

    def _overflow(self, page: int, first: int, size: int) -> int:
        """Claim the pages of a big value; return where it begins."""
        start = first * self._size
        number, _, flags, _, _ = PAGE.unpack_from(self._view, start) if 1 < first < len(self._used) else (0,) * 5
        if (number, flags) != (first, _OVERFLOW):
            raise _Bad(first, f"page {number} of kind {flags} stands where page {page} has a value")
        (count,) = _COUNT.unpack_from(self._view, start + PAGE.size - _COUNT.size)
        # A smaller value may have taken the place of a bigger one.
        if not size <= count * self._size - PAGE.size:
            raise _Bad(first, f"a value of {size} bytes does not fit into {count} pages")
        self._claim(first, count)
        self._counts[2] += count
        return start + PAGE.size
