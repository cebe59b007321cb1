"""Edits LMDB's pages in place, as a flipped bit or a lost write would: pointers, node headers, counts."""

import struct
from pathlib import Path

PAGE = 4096
_TREE_COUNTS_AT = 72 + 8
"""Of the main tree, in a header page behind its 16 bytes: branch, leaf and overflow pages, entries, root."""


class PageEditor:
    """One data file; `save` writes it back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content = bytearray(path.read_bytes())
        numbers = [struct.unpack_from("=Q", self.content, at + 16 + 128)[0] for at in (0, PAGE)]
        self._header = PAGE * numbers.index(max(numbers)) + 16

    def save(self) -> None:
        self._path.write_bytes(self.content)

    @property
    def root(self) -> int:
        return self._count(4)

    def _count(self, index: int) -> int:
        return int(struct.unpack_from("=Q", self.content, self._header + _TREE_COUNTS_AT + 8 * index)[0])

    def add_to_count(self, index: int, change: int) -> None:
        """0: branch pages, 1: leaf pages, 2: overflow pages, 3: entries."""
        at = self._header + _TREE_COUNTS_AT + 8 * index
        struct.pack_into("=Q", self.content, at, self._count(index) + change)

    def is_branch(self, page: int) -> bool:
        return bool(self._u16(page * PAGE + 10) & 1)

    def _u16(self, at: int) -> int:
        return int(struct.unpack_from("=H", self.content, at)[0])

    def nodes(self, page: int) -> list[int]:
        """Offsets of the page's nodes in the file."""
        start = page * PAGE
        return [start + self._u16(start + at) for at in range(16, self._u16(start + 12), 2)]

    def key(self, node: int) -> bytes:
        return bytes(self.content[node + 8 : node + 8 + self._u16(node + 6)])

    def child(self, node: int) -> int:
        low, high, flags = struct.unpack_from("=HHH", self.content, node)
        return int(low | high << 16 | flags << 32)

    def leaves(self) -> list[int]:
        found: list[int] = []
        pages = [self.root]
        while pages:
            page = pages.pop(0)
            if self.is_branch(page):
                pages += map(self.child, self.nodes(page))
            else:
                found.append(page)
        return found

    def find(self, key: bytes) -> tuple[int, int]:
        """(page, index of the node) of a key, or of the first that starts with it."""
        for page in self.leaves():
            for index, node in enumerate(self.nodes(page)):
                if self.key(node).startswith(key):
                    return page, index
        raise AssertionError(f"no such key: {key!r}")

    def drop_node(self, page: int, index: int) -> None:
        """Take one pointer out of a page; the node itself becomes garbage in its room."""
        start = page * PAGE
        lower = self._u16(start + 12)
        pointers = start + 16
        del self.content[pointers + 2 * index : pointers + 2 * index + 2]
        self.content[start + lower - 2 : start + lower - 2] = b"\0\0"
        struct.pack_into("=H", self.content, start + 12, lower - 2)

    def hide(self, key: bytes) -> None:
        """Hide a key as if it had never been there: LMDB's own counts agree."""
        self.drop_node(*self.find(key))
        self.add_to_count(3, -1)

    def swap_pointers(self, page: int, one: int, other: int) -> None:
        at = [page * PAGE + 16 + 2 * index for index in (one, other)]
        a, b = (self._u16(place) for place in at)
        struct.pack_into("=H", self.content, at[0], b)
        struct.pack_into("=H", self.content, at[1], a)

    def copy_pointer(self, page: int, source: int, target: int) -> None:
        struct.pack_into("=H", self.content, page * PAGE + 16 + 2 * target, self._u16(page * PAGE + 16 + 2 * source))

    def put_u16(self, at: int, value: int) -> None:
        struct.pack_into("=H", self.content, at, value)
