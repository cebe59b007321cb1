"""Which dedup ids are remembered, and what of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

DEDUP_SEQUENCE_BITS = 64
DEDUP_SEQUENCE_MASK = (1 << DEDUP_SEQUENCE_BITS) - 1

PAGE_IDS_MAX = 87_000
"""A dict moves all its entries into a larger table when it has 43,690 of them, and again at 87,381: that one takes 4 to
7 ms."""
_FRONT = 2_000
"""Ids that are found together when the first one is wanted."""


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

    __slots__ = ("_front", "_older", "_room", "_youngest")

    def __init__(self, known: Mapping[bytes, int] | None = None) -> None:
        self._youngest: dict[bytes, int] = {}
        self._older: list[dict[bytes, int]] = []
        """The oldest page first."""
        self._room = PAGE_IDS_MAX
        """Ids that the youngest page still takes. A dict gets no room back for what is deleted from it."""
        self._front: list[tuple[bytes, int]] = []
        """The first ids when they were looked for, in reverse. To find the first entry of a dict takes a walk through
        the places of all that were deleted before it."""
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

    def forget_first(self, most: int, surplus: int, is_over: Callable[[int], bool]) -> list[int]:
        """Forget so many of those that came first, and those behind them up to one that is not over, `most` together.
        An id that is put again must have been deleted before.

        Args:
            is_over: for what is remembered of an id.
        Returns: what was remembered of them.
        """
        gone: list[int] = []
        front = self._front
        while len(gone) < most and (self._youngest or self._older):
            if not front:
                front += islice(self.oldest_first(), _FRONT)
                front.reverse()
            dedup_id, known = front[-1]
            page = self._page_of(dedup_id)
            # Otherwise it has been deleted since then, and perhaps put again.
            if page.get(dedup_id) == known:
                if len(gone) >= surplus and not is_over(known):
                    break
                del page[dedup_id]
                gone.append(known)
                if not page:
                    self._drop_empty()
                    front = self._front
                    continue
            front.pop()
        return gone

    def clear(self) -> None:
        self._youngest, self._older, self._room, self._front = {}, [], PAGE_IDS_MAX, []

    def _drop_empty(self) -> None:
        while self._older and not self._older[0]:
            del self._older[0]
        if not self._youngest and not self._older:
            self.clear()

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
