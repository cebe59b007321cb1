"""An instant for each of many sequences, in little memory: neighbours share a page of plain 64-bit numbers.

A page with few entries is a dict. One with many is an array of four bytes for each sequence of its stretch, counted
from a base, or of eight where the instants are further apart than 49 days. So a million delayed messages in order cost
four megabytes, where a dict takes more than a hundred. Copies share their pages until one of them changes a page.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import compress
from typing import cast

from vibemq.model.runs import Run, runs_of

PAGE_SHIFT = 10
PAGE = 1 << PAGE_SHIFT
_DENSE = PAGE // 10
"""From so many entries on an array is smaller than a dict."""
_ROW_LEAST = PAGE // 16
"""From so many neighbours on it is cheaper to make their page anew."""
_MASK = PAGE - 1
_SPAN = 1 << 32
"""Behind the instants of a page of four bytes is the base from which they are counted, its lower half first."""

Values = int | Sequence[int]
"""One number that all have, or one for each."""

_NO_NUMBERS: list[int] = []
_NO_FILL: dict[int, int] = {}
_Page = dict[int, int] | array  # type: ignore[type-arg]  # array is not generic at run time before 3.12

_NO_PAGES: dict[int, _Page] = {}
_NONE_SHARED: set[int] = set()


class Instants(MutableMapping[int, int]):
    """Sequence -> instant, which is not 0. Iterates in order of the sequences."""

    __slots__ = ("_count", "_fill", "_numbers", "_pages", "_shared")

    def __init__(self, values: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        # Empty ones share these, which nothing is ever put into: most queues never have an instant.
        self._pages: dict[int, _Page] = _NO_PAGES
        """By number: sequence within the page -> instant."""
        self._numbers: list[int] = _NO_NUMBERS
        """Of the pages, ascending."""
        self._fill: dict[int, int] = _NO_FILL
        """How many entries an array has."""
        self._count = 0
        self._shared: set[int] = _NONE_SHARED
        """Numbers of the pages that a copy may have as well: they are copied before they are changed."""
        if isinstance(values, Instants):
            if values:
                self._pages, self._shared, values._shared = values._pages.copy(), set(values._pages), set(values._pages)
                self._numbers, self._fill, self._count = values._numbers.copy(), values._fill.copy(), values._count
        elif values:
            self.update(values)

    def clear(self) -> None:
        self._pages, self._numbers, self._fill, self._count = _NO_PAGES, _NO_NUMBERS, _NO_FILL, 0
        self._shared = _NONE_SHARED

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and self.get(sequence, 0) != 0

    def __getitem__(self, sequence: int) -> int:
        page = self._pages.get(sequence >> PAGE_SHIFT)
        if page is not None:
            found = _at(page, sequence & _MASK) if isinstance(page, array) else page.get(sequence & _MASK, 0)
            if found:
                return found
        raise KeyError(sequence)

    def get(self, sequence: int, default: int = 0) -> int:  # type: ignore[override]  # no instant is 0
        page = self._pages.get(sequence >> PAGE_SHIFT)
        if page is None:
            return default
        found = _at(page, sequence & _MASK) if isinstance(page, array) else page.get(sequence & _MASK, 0)
        return found or default

    def __setitem__(self, sequence: int, instant: int) -> None:
        self.put(sequence, instant)

    def put(self, sequence: int, instant: int) -> int:
        """Set it, and return what it was; 0 when it was not there."""
        number, place = sequence >> PAGE_SHIFT, sequence & _MASK
        page = self._pages.get(number)
        if page is None:
            page = {}
            self._add_page(number, page)
        elif number in self._shared:
            page = self._own(number, page)
        if isinstance(page, array):
            before = _at(page, place)
            if not before:
                self._count += 1
                self._fill[number] += 1
            offset = instant - _base_of(page)
            if not 0 < offset < _SPAN and len(page) > PAGE:
                row = _values(page)
                row[place] = instant
                self._pages[number] = _packed(row)
            else:
                page[place] = offset
            return before
        before = page.get(place, 0)
        page[place] = instant
        if not before:
            self._count += 1
            if len(page) >= _DENSE:
                self._pages[number] = _packed(self._row(number))
                self._fill[number] = len(page)
        return before

    def put_columns(self, sequences: Sequence[int], instants: Values) -> None:
        """As `put` of each; neighbours in ascending order are put a page at a time."""
        if isinstance(instants, int):
            instants = [instants] * len(sequences)
        if len(sequences) < _ROW_LEAST or sequences[-1] - sequences[0] + 1 != len(sequences):
            for sequence, instant in zip(sequences, instants, strict=True):
                self.put(sequence, instant)
            return
        first, at = sequences[0], 0
        while at < len(instants):
            number, place = (first + at) >> PAGE_SHIFT, (first + at) & _MASK
            some = instants[at : at + PAGE - place]
            if len(some) < _ROW_LEAST:
                for sequence, instant in enumerate(some, first + at):
                    self.put(sequence, instant)
            else:
                self._put_row(number, place, some)
            at += len(some)

    def _put_row(self, number: int, place: int, instants: Sequence[int]) -> None:
        page = self._pages.get(number)
        if isinstance(page, array) and self._put_within(number, page, place, instants):
            return
        row = self._row(number)
        before = len(row) - row.count(0)
        row[place : place + len(instants)] = instants
        self._shared.discard(number)
        if number in self._pages:
            self._pages[number] = _packed(row)
        else:
            self._add_page(number, _packed(row))
        self._fill[number] = len(row) - row.count(0)
        self._count += self._fill[number] - before

    def _put_within(self, number: int, page: "array[int]", place: int, instants: Sequence[int]) -> bool:
        """Put them into an array as it is, cheaper than to make it anew; False: they do not fit its numbers."""
        base, lowest = _base_of(page), min(instants)
        if lowest <= base or (len(page) > PAGE and max(instants) - base >= _SPAN):
            return False
        if number in self._shared:
            self._own(number, page)
            page = cast("array[int]", self._pages[number])
        end = place + len(instants)
        added = page[place:end].count(0)
        page[place:end] = array(page.typecode, [instant - base for instant in instants] if base else instants)
        self._fill[number] += added
        self._count += added
        return True

    def _row(self, number: int) -> list[int]:
        """The instants of a page by place, 0 where there is none."""
        page = self._pages.get(number)
        if isinstance(page, array):
            return _values(page)
        row = [0] * PAGE
        for at, value in (page or {}).items():
            row[at] = value
        return row

    def span(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """(sequences, instants) of those in [first, last], ascending."""
        sequences, instants = self.within(first, last), list[int]()
        if len(sequences) < _ROW_LEAST or len(sequences) != last - first + 1:
            return sequences, [self[sequence] for sequence in sequences]
        for number in range(first >> PAGE_SHIFT, (last >> PAGE_SHIFT) + 1):
            base = number << PAGE_SHIFT
            instants += self._row(number)[max(first - base, 0) : last - base + 1]
        return sequences, instants

    def __delitem__(self, sequence: int) -> None:
        number, place = sequence >> PAGE_SHIFT, sequence & _MASK
        page = self._pages.get(number)
        if page is None:
            raise KeyError(sequence)
        if number in self._shared:
            page = self._own(number, page)
        if isinstance(page, array):
            if not page[place]:
                raise KeyError(sequence)
            page[place] = 0
            self._fill[number] -= 1
            if not self._fill[number]:
                del self._fill[number]
                self._drop(number)
        else:
            if place not in page:
                raise KeyError(sequence)
            del page[place]
            if not page:
                self._drop(number)
        self._count -= 1

    def remove_all(self, sequences: Sequence[int]) -> None:
        """All of them are here, each once and ascending."""
        if len(sequences) == self._count:
            self.clear()
            return
        at = 0
        while at < len(sequences):
            number = sequences[at] >> PAGE_SHIFT
            end = bisect_left(sequences, number + 1 << PAGE_SHIFT, at)
            if end - at == self._size_of(number):
                self._drop(number)
                self._fill.pop(number, None)
                self._count -= end - at
            else:
                for sequence in sequences[at:end]:
                    del self[sequence]
            at = end

    def _size_of(self, number: int) -> int:
        page = self._pages[number]
        return self._fill[number] if isinstance(page, array) else len(page)

    def _own(self, number: int, page: _Page) -> _Page:
        """A copy of a shared page in its place."""
        self._shared.discard(number)
        own = self._pages[number] = page[:] if isinstance(page, array) else page.copy()
        return own

    def _add_page(self, number: int, page: _Page) -> None:
        if not self._numbers:
            self._pages, self._numbers, self._fill = {}, [], {}
        self._pages[number] = page
        insort(self._numbers, number)

    def update(self, values: Mapping[int, int] | Iterable[tuple[int, int]] = (), /, **_: int) -> None:  # type: ignore[override]
        """Whole pages are taken at once."""
        if isinstance(values, Mapping) and len(values) >= _DENSE:
            number = min(values) >> PAGE_SHIFT
            if number == max(values) >> PAGE_SHIFT and number not in self._pages:
                row = [0] * PAGE
                for sequence, instant in values.items():
                    row[sequence & _MASK] = instant
                self._add_page(number, _packed(row))
                self._fill[number] = len(values)
                self._count += len(values)
                return
        for sequence, instant in values.items() if isinstance(values, Mapping) else values:
            self[sequence] = instant

    def _drop(self, number: int) -> None:
        del self._pages[number]
        self._shared.discard(number)
        del self._numbers[bisect_left(self._numbers, number)]

    def __iter__(self) -> Iterator[int]:
        for number in list(self._numbers):
            yield from self._of_page(number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Instants({dict(self.items())})"

    def __copy__(self) -> "Instants":
        return Instants(self)

    def copy(self) -> "Instants":
        return Instants(self)

    def _of_page(self, number: int, low: int = 0, high: int = _MASK) -> list[int]:
        """Those of a page from one place to another."""
        page = self._pages.get(number)
        if page is None:
            return []
        base = number << PAGE_SHIFT
        if isinstance(page, array):
            if self._fill[number] == PAGE:
                return list(range(base + low, base + high + 1))
            return list(compress(range(base + low, base + high + 1), page[low : high + 1]))
        return [base + place for place in sorted(page) if low <= place <= high]

    def columns(self) -> "tuple[array[int], array[int]]":
        """(sequences, instants), in order of the sequences."""
        sequences, instants = array("Q"), array("Q")
        for number in self._numbers:
            page = self._pages[number]
            some = self._of_page(number)
            sequences.extend(some)
            if isinstance(page, array):
                instants.extend(array("Q", filter(None, _values(page))))
            else:
                instants.extend([page[sequence & _MASK] for sequence in some])
        return sequences, instants

    def of_pages(self, number: int, most: int) -> tuple[list[int], int | None]:
        """The instants of up to so many pages from that number on, and the number to go on with; None: that is all."""
        at = bisect_left(self._numbers, number)
        found: list[int] = []
        for place in self._numbers[at : at + most]:
            page = self._pages[place]
            found += filter(None, _values(page)) if isinstance(page, array) else page.values()
        return found, self._numbers[at + most] if at + most < len(self._numbers) else None

    @property
    def first(self) -> int:
        """The lowest sequence. Raises IndexError when empty."""
        return self._of_page(self._numbers[0])[0]

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last], ascending."""
        if first == last:
            return [first] if first in self else []
        low = bisect_left(self._numbers, first >> PAGE_SHIFT)
        high = bisect_right(self._numbers, last >> PAGE_SHIFT)
        found: list[int] = []
        for number in self._numbers[low:high]:
            base = number << PAGE_SHIFT
            found += self._of_page(number, max(first - base, 0), min(last - base, _MASK))
        return found

    def lowest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the lowest sequences from `start` on."""
        found: list[int] = []
        for number in self._numbers[bisect_left(self._numbers, start >> PAGE_SHIFT) :] if start else self._numbers:
            if len(found) >= count:
                break
            found += self._of_page(number, max(start - (number << PAGE_SHIFT), 0))
        return found[:count]

    def runs(self) -> list[Run]:
        """The sequences as runs."""
        runs: list[Run] = []
        for number in self._numbers:
            if self._fill.get(number) == PAGE:
                some = [(number << PAGE_SHIFT, (number + 1 << PAGE_SHIFT) - 1)]
            else:
                some = runs_of(self._of_page(number))
            if runs and some and runs[-1][1] + 1 == some[0][0]:
                some[0] = (runs.pop()[0], some[0][1])
            runs += some
        return runs

    def until(self, now: int) -> list[int]:
        """The sequences whose instant is at or before now, ascending."""
        found: list[int] = []
        for number in self._numbers:
            page, base = self._pages[number], number << PAGE_SHIFT
            if isinstance(page, array):
                found += [base + place for place, instant in enumerate(_values(page)) if 0 < instant <= now]
            else:
                found += sorted(base + place for place, instant in page.items() if instant <= now)
        return found


def _packed(row: list[int]) -> "array[int]":
    """The page of the instants by place; 0 is none."""
    some = list(filter(None, row))
    base = max(0, min(some) - _SPAN // 2)
    if max(some) - base >= _SPAN:
        return array("Q", row)
    page = array("I", [instant and instant - base for instant in row])
    page.extend((base % _SPAN, base // _SPAN))
    return page


def _base_of(page: "array[int]") -> int:
    return page[PAGE] + (page[PAGE + 1] << 32) if len(page) > PAGE else 0


def _at(page: "array[int]", place: int) -> int:
    """The instant at the place; 0 when there is none."""
    found: int = page[place]
    return found + page[PAGE] + (page[PAGE + 1] << 32) if found and len(page) > PAGE else found


def _values(page: "array[int]") -> list[int]:
    """The instants by place, 0 where there is none."""
    base = _base_of(page)
    return [found and found + base for found in page[:PAGE]]
