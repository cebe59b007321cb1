"""Which dedup ids are remembered, and what of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

DEDUP_SEQUENCE_BITS = 64
DEDUP_SEQUENCE_MASK = (1 << DEDUP_SEQUENCE_BITS) - 1

PAGE_IDS_MAX = 87_000
"""A dict moves all its entries into a larger table when it has 43,690 of them, and again at 87,381: that one takes 4 to
7 ms."""


def remembered(sequence: int, published_at: int) -> int:
    """What is remembered of a dedup_id. One number: of a tuple for each of very many ids Python's collector would look
    at all of them, again and again."""
    return published_at << DEDUP_SEQUENCE_BITS | sequence


def remembered_parts(known: int) -> tuple[int, int]:
    """(sequence, published_at)"""
    return known & DEDUP_SEQUENCE_MASK, known >> DEDUP_SEQUENCE_BITS


class DedupTable(Mapping[bytes, int]):
    """dedup_id -> what is `remembered` of it, in the order in which the ids came.

    Behaves as one dict, and is made of several, the pages, none of which grows so large that growing holds up the event
    loop. An id stands in one page. Only the youngest page is added to; the others shrink.
    """

    __slots__ = ("_older", "_room", "_youngest")

    def __init__(self, known: Mapping[bytes, int] | None = None) -> None:
        self._youngest: dict[bytes, int] = {}
        self._older: list[dict[bytes, int]] = []
        """The oldest page first."""
        self._room = PAGE_IDS_MAX
        """Ids that the youngest page still takes. A dict gets no room back for what is deleted from it."""
        for dedup_id, value in (known or {}).items():
            self[dedup_id] = value

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, ids: Sequence[bytes], values: Sequence[int]) -> None:
        """Remember each id with its value, also those that are known already."""
        self._room -= len(ids)
        if self._room < 0:
            self._older.append(self._youngest)
            self._youngest = {}
            self._room = PAGE_IDS_MAX - len(ids)
        self._youngest.update(zip(ids, values, strict=True))
        if self._older:
            self._forget_in_older(ids)

    def __setitem__(self, dedup_id: bytes, value: int) -> None:
        self.add((dedup_id,), (value,))

    def _forget_in_older(self, ids: Sequence[bytes]) -> None:
        for page in self._older:
            if not page.keys().isdisjoint(ids):
                for dedup_id in ids:
                    page.pop(dedup_id, None)
        self._drop_empty()

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def __delitem__(self, dedup_id: bytes) -> None:
        del self._page_of(dedup_id)[dedup_id]
        self._drop_empty()

    def forget_published(self, ids: Iterable[bytes], published_at: int) -> None:
        """Forget those among them that are known as published at this instant."""
        pages = (*self._older, self._youngest)
        for dedup_id in ids:
            for page in pages:
                known = page.get(dedup_id)
                if known is not None:
                    if known >> DEDUP_SEQUENCE_BITS == published_at:
                        del page[dedup_id]
                    break
        self._drop_empty()

    def clear(self) -> None:
        self._youngest, self._older, self._room = {}, [], PAGE_IDS_MAX

    def _drop_empty(self) -> None:
        while self._older and not self._older[0]:
            del self._older[0]

    # -- questions ----------------------------------------------------------------------------------------------------

    def isdisjoint(self, ids: Iterable[bytes]) -> bool:
        """Whether none of them is known."""
        if not self._youngest.keys().isdisjoint(ids):
            return False
        return not self._older or all(page.keys().isdisjoint(ids) for page in self._older)

    def _page_of(self, dedup_id: bytes) -> dict[bytes, int]:
        for page in self._older:
            if dedup_id in page:
                return page
        return self._youngest

    def __getitem__(self, dedup_id: bytes) -> int:
        return self._page_of(dedup_id)[dedup_id]

    def get(self, dedup_id: bytes, default: Any = None) -> Any:
        for page in self._older:
            known = page.get(dedup_id)
            if known is not None:
                return known
        return self._youngest.get(dedup_id, default)

    def __contains__(self, dedup_id: object) -> bool:
        return dedup_id in self._youngest or any(dedup_id in page for page in self._older)

    def __len__(self) -> int:
        return len(self._youngest) + sum(map(len, self._older))

    def __iter__(self) -> Iterator[bytes]:
        return chain(*self._older, self._youngest)

    def oldest_first(self) -> Iterator[tuple[bytes, int]]:
        """As `items()`, without a look-up for each."""
        return chain.from_iterable(page.items() for page in (*self._older, self._youngest))

    def latest_first(self) -> Iterator[tuple[bytes, int]]:
        return chain.from_iterable(reversed(page.items()) for page in (self._youngest, *reversed(self._older)))
