"""An instant for each of many sequences, in little memory: neighbours share a page of plain 64-bit numbers.

A page with few entries is a dict. One with many is an array of four bytes for each sequence of its stretch, counted
from a base, or of eight where the instants are further apart than 49 days. So a million delayed messages in order cost
four megabytes, where a dict takes more than a hundred. Neighbours with one instant are that instant, and a bit each.
Copies share their pages until one of them changes a page.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import compress, repeat
from typing import cast

from vibemq.model.runs import END, Run, runs_of_ascending

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
_Even = tuple[int, int]
"""The instant of all entries of a page, and a bit for each place that has one."""
_Uneven = dict[int, int] | array  # type: ignore[type-arg]  # array is not generic at run time before 3.12
_Page = _Uneven | _Even
_DIGITS = bytes.maketrans(b"01", b"\0\1")

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
        if page is not None and (found := _found(page, sequence & _MASK)):
            return found
        raise KeyError(sequence)

    def get(self, sequence: int, default: int = 0) -> int:  # type: ignore[override]  # no instant is 0
        page = self._pages.get(sequence >> PAGE_SHIFT)
        return default if page is None else _found(page, sequence & _MASK) or default

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
        if isinstance(page, tuple):
            if page[0] == instant:
                self._pages[number] = instant, page[1] | 1 << place
                self._count += not page[1] >> place & 1
                return _found(page, place)
            page = self._make_uneven(number, page)
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
                self._make_dense(number, page)
        return before

    def _make_dense(self, number: int, page: dict[int, int]) -> None:
        row = self._row(number)
        if len(set(page.values())) == 1:
            self._pages[number] = max(row), _bits_of(row)
        else:
            self._pages[number] = _packed(row)
            self._fill[number] = len(page)

    def put_columns(self, sequences: Sequence[int], instants: Values) -> None:
        """As `put` of each; neighbours in ascending order are put a page at a time."""
        if len(sequences) < _ROW_LEAST or sequences[-1] - sequences[0] + 1 != len(sequences):
            each = repeat(instants, len(sequences)) if isinstance(instants, int) else instants
            for sequence, instant in zip(sequences, each, strict=True):
                self.put(sequence, instant)
            return
        first, at = sequences[0], 0
        while at < len(sequences):
            number, place = (first + at) >> PAGE_SHIFT, (first + at) & _MASK
            count = min(PAGE - place, len(sequences) - at)
            some = instants if isinstance(instants, int) else instants[at : at + count]
            if isinstance(some, int) or _is_even(some):
                self._put_even(number, place, some if isinstance(some, int) else some[0], count)
            elif count < _ROW_LEAST:
                for sequence, instant in enumerate(some, first + at):
                    self.put(sequence, instant)
            else:
                self._put_row(number, place, some)
            at += count

    def _put_even(self, number: int, place: int, instant: int, count: int) -> None:
        """So many neighbours have one instant."""
        page = self._pages.get(number)
        bits = ((1 << count) - 1) << place
        if page is None:
            self._add_page(number, (instant, bits))
            self._count += count
        elif isinstance(page, tuple) and page[0] == instant:
            self._pages[number] = instant, page[1] | bits
            self._count += count - (page[1] & bits).bit_count()
        elif count < _ROW_LEAST:
            base = (number << PAGE_SHIFT) + place
            for sequence in range(base, base + count):
                self.put(sequence, instant)
        else:
            self._put_row(number, place, [instant] * count)

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

    def _make_uneven(self, number: int, page: _Even) -> _Uneven:
        """The page with room for other instants, in its place."""
        self._shared.discard(number)
        instant, bits = page
        uneven: _Uneven
        if bits.bit_count() < _DENSE:
            uneven = dict.fromkeys(places_of(bits), instant)
        else:
            uneven = _based(instant - _base_for(instant), bits, _base_for(instant))
            self._fill[number] = bits.bit_count()
        self._pages[number] = uneven
        return uneven

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
        if isinstance(page, tuple):
            return list(map(page[0].__mul__, _digits_of(page[1])))
        row = [0] * PAGE
        for at, value in (page or {}).items():
            row[at] = value
        return row

    def span(self, first: int, last: int) -> tuple[Sequence[int], Values]:
        """(sequences, instants) of those in [first, last], ascending; one instant when all have it."""
        if instant := self._common(first, last):
            return range(first, last + 1), instant
        sequences, instants = self.within(first, last), list[int]()
        if len(sequences) < _ROW_LEAST or len(sequences) != last - first + 1:
            return sequences, [self[sequence] for sequence in sequences]
        for number in range(first >> PAGE_SHIFT, (last >> PAGE_SHIFT) + 1):
            base = number << PAGE_SHIFT
            instants += self._slice(number, max(first - base, 0), min(last - base, _MASK) + 1)
        return sequences, instants

    def _slice(self, number: int, low: int, high: int) -> list[int]:
        """The instants of a page from one place to another, all of which have one."""
        page = self._pages[number]
        if isinstance(page, array) and len(page) > PAGE:
            base = _base_of(page)
            return [found + base for found in page[low:high]]
        return self._row(number)[low:high]

    def _common(self, first: int, last: int) -> int:
        """The instant that all of [first, last] have, as far as the pages tell; 0: they do not."""
        instant = 0
        for number in range(first >> PAGE_SHIFT, (last >> PAGE_SHIFT) + 1):
            page, base = self._pages.get(number), number << PAGE_SHIFT
            if not isinstance(page, tuple) or page[0] != (instant or page[0]):
                return 0
            low, high = max(first - base, 0), min(last - base, _MASK)
            if (page[1] >> low) + 1 & (1 << high - low + 1) - 1:
                return 0
            instant = page[0]
        return instant

    def __delitem__(self, sequence: int) -> None:
        number, place = sequence >> PAGE_SHIFT, sequence & _MASK
        page = self._pages.get(number)
        if page is None:
            raise KeyError(sequence)
        if number in self._shared:
            page = self._own(number, page)
        if isinstance(page, tuple):
            if not page[1] >> place & 1:
                raise KeyError(sequence)
            self._keep_bits(number, page, ~(1 << place))
            return
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

    def _keep_bits(self, number: int, page: _Even, mask: int) -> None:
        """Of a page with one instant these places only."""
        bits = page[1] & mask
        self._count -= page[1].bit_count() - bits.bit_count()
        if bits:
            self._pages[number] = page[0], bits
        else:
            self._drop(number)

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
            elif sequences[end - 1] - sequences[at] + 1 == end - at:
                self._remove_run(number, sequences[at] & _MASK, end - at)
            elif isinstance(page := self._pages[number], tuple):
                self._keep_bits(number, page, ~_bits_at(sequences[at:end]))
            else:
                for sequence in sequences[at:end]:
                    del self[sequence]
            at = end

    def _remove_run(self, number: int, place: int, count: int) -> None:
        """Neighbours, all of which are here, beside others of their page."""
        page = self._pages[number]
        if number in self._shared:
            page = self._own(number, page)
        if isinstance(page, tuple):
            self._keep_bits(number, page, ~(((1 << count) - 1) << place))
            return
        if isinstance(page, array):
            page[place : place + count] = array(page.typecode, bytes(page.itemsize * count))
            self._fill[number] -= count
        else:
            for at in range(place, place + count):
                del page[at]
        self._count -= count

    def remove_ranges(self, ranges: Sequence[Run]) -> set[int]:
        """Remove what is in the ranges, which ascend and do not overlap. Costs what is there, however long they are.

        Returns:
            A sequence of each page that had some of it, in or beside the ranges.
        """
        changed: set[int] = set()
        at = 0
        while at < len(ranges) and self._numbers:
            first, last = ranges[at]
            if first >> PAGE_SHIFT == last >> PAGE_SHIFT and first >> PAGE_SHIFT in self._pages:
                if self._remove_part(first >> PAGE_SHIFT, first & _MASK, last & _MASK):
                    changed.add(first & ~_MASK)
                at += 1
                continue
            index = bisect_left(self._numbers, first >> PAGE_SHIFT)
            if index == len(self._numbers):
                break
            start = self._numbers[index] << PAGE_SHIFT
            if start > last:
                # On with the range that reaches up to the next page.
                at = bisect_left(ranges, start, at + 1, key=_last_of)
                continue
            whole_first, whole_last = first + _MASK >> PAGE_SHIFT, (last + 1 >> PAGE_SHIFT) - 1
            for number in {first >> PAGE_SHIFT, last >> PAGE_SHIFT}:
                base = number << PAGE_SHIFT
                if not whole_first <= number <= whole_last and self._remove_part(
                    number, max(first - base, 0), min(last - base, _MASK)
                ):
                    changed.add(base)
            if whole_first <= whole_last:
                changed.update(number << PAGE_SHIFT for number in self._drop_pages(whole_first, whole_last))
            at += 1
        if not self._count:
            self.clear()
        return changed

    def _remove_part(self, number: int, low: int, high: int) -> bool:
        """Remove what is in a page from one place to another; whether anything was."""
        page = self._pages.get(number)
        if page is None or not _has_any(page, low, high):
            return False
        if number in self._shared:
            page = self._own(number, page)
        if isinstance(page, tuple):
            self._keep_bits(number, page, ~((1 << high - low + 1) - 1 << low))
            return True
        if isinstance(page, array):
            width = high - low + 1
            gone = width - page[low : high + 1].count(0)
            page[low : high + 1] = array(page.typecode, bytes(page.itemsize * width))
            self._fill[number] -= gone
            if not self._fill[number]:
                del self._fill[number]
                self._drop(number)
        else:
            before = len(page)
            for place in _places_in(page, low, high):
                del page[place]
            gone = before - len(page)
            if not page:
                self._drop(number)
        self._count -= gone
        return True

    def _drop_pages(self, first: int, last: int) -> list[int]:
        """Drop the pages of these numbers; those that were there."""
        low, high = bisect_left(self._numbers, first), bisect_right(self._numbers, last)
        numbers = self._numbers[low:high]
        for number in numbers:
            self._count -= self._size_of(number)
            del self._pages[number]
            self._fill.pop(number, None)
            self._shared.discard(number)
        del self._numbers[low:high]
        return numbers

    def _size_of(self, number: int) -> int:
        page = self._pages[number]
        if isinstance(page, tuple):
            return page[1].bit_count()
        return self._fill[number] if isinstance(page, array) else len(page)

    def _own(self, number: int, page: _Page) -> _Page:
        """A copy of a shared page in its place."""
        self._shared.discard(number)
        if isinstance(page, tuple):
            return page
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
                self._take_page(number, values)
                return
        for sequence, instant in values.items() if isinstance(values, Mapping) else values:
            self[sequence] = instant

    def _take_page(self, number: int, values: Mapping[int, int]) -> None:
        """The first ones of a page, many of them."""
        row = [0] * PAGE
        for sequence, instant in values.items():
            row[sequence & _MASK] = instant
        self._count += len(values)
        if len(set(values.values())) == 1:
            self._add_page(number, (max(row), _bits_of(row)))
            return
        self._add_page(number, _packed(row))
        self._fill[number] = len(values)

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
        if isinstance(page, tuple):
            return places_of(page[1] >> low & (1 << high - low + 1) - 1, base + low)
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
            if isinstance(page, tuple):
                instants.extend(array("Q", (page[0],)) * len(some))
            elif isinstance(page, array):
                instants.extend(array("Q", filter(None, _values(page))))
            else:
                instants.extend([page[sequence & _MASK] for sequence in some])
        return sequences, instants

    def of_pages(self, number: int, most: int) -> tuple[list[int], int | None]:
        """Every instant of up to so many pages from that number on, and the number to go on with; None: that is all."""
        at = bisect_left(self._numbers, number)
        found: list[int] = []
        for place in self._numbers[at : at + most]:
            page = self._pages[place]
            if isinstance(page, tuple):
                found.append(page[0])
            else:
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

    def meets(self, first: int, last: int) -> bool:
        """Whether there is any in [first, last]."""
        if first >> PAGE_SHIFT == last >> PAGE_SHIFT:
            page = self._pages.get(first >> PAGE_SHIFT)
            return page is not None and _has_any(page, first & _MASK, last & _MASK)
        low = bisect_left(self._numbers, first >> PAGE_SHIFT)
        high = bisect_right(self._numbers, last >> PAGE_SHIFT)
        # Of three pages one lies within, and none is empty.
        return high - low > 2 or any(
            _has_any(self._pages[number], max(first - base, 0), min(last - base, _MASK))
            for number in self._numbers[low:high]
            for base in (number << PAGE_SHIFT,)
        )

    def runs_within(self, first: int, last: int) -> list[Run]:
        """The same as runs."""
        return runs_of_ascending(self.within(first, last))

    def lowest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the lowest sequences from `start` on."""
        found: list[int] = []
        for number in self._numbers[bisect_left(self._numbers, start >> PAGE_SHIFT) :] if start else self._numbers:
            if len(found) >= count:
                break
            found += self._of_page(number, max(start - (number << PAGE_SHIFT), 0))
        return found[:count]

    def reach(self, start: int, most: int) -> tuple[int, int] | None:
        """(first, last): from which sequence to which about so many reach, or twice as many that have the instant of
        their neighbours. `last` is END when fewer are left; None: none is."""
        first, most = 0, 2 * most
        for number in self._numbers[bisect_left(self._numbers, start >> PAGE_SHIFT) :]:
            found = self._of_page(number, max(start - (number << PAGE_SHIFT), 0))
            if not found:
                continue
            first = first or found[0]
            weight = 1 if isinstance(self._pages[number], tuple) else 2
            if weight * len(found) >= most:
                return first, found[-(-most // weight) - 1]
            most -= weight * len(found)
        return (first, END) if first else None

    def runs(self) -> list[Run]:
        """The sequences as runs."""
        runs: list[Run] = []
        for number in self._numbers:
            if self._size_of(number) == PAGE:
                some = [(number << PAGE_SHIFT, (number + 1 << PAGE_SHIFT) - 1)]
            else:
                some = runs_of_ascending(self._of_page(number))
            if runs and some and runs[-1][1] + 1 == some[0][0]:
                some[0] = (runs.pop()[0], some[0][1])
            runs += some
        return runs

    def until(self, now: int) -> list[int]:
        """The sequences whose instant is at or before now, ascending."""
        found: list[int] = []
        for number in self._numbers:
            page, base = self._pages[number], number << PAGE_SHIFT
            if isinstance(page, tuple):
                found += places_of(page[1], base) if page[0] <= now else ()
            elif isinstance(page, array):
                found += [base + place for place, instant in enumerate(_values(page)) if 0 < instant <= now]
            else:
                found += sorted(base + place for place, instant in page.items() if instant <= now)
        return found


def _is_even(instants: Sequence[int]) -> bool:
    return instants[0] == instants[-1] and instants.count(instants[0]) == len(instants)


def places_of(bits: int, start: int = 0) -> list[int]:
    """The places that have a bit, counted from `start`."""
    if bits & bits + 1 == 0:
        return list(range(start, start + bits.bit_length()))
    digits = f"{bits:b}".encode().translate(_DIGITS)
    return list(compress(range(start, start + len(digits)), reversed(digits)))


def _bits_of(row: list[int]) -> int:
    """A bit for each place that is not 0."""
    return int("".join("1" if instant else "0" for instant in reversed(row)), 2)


def _bits_at(sequences: Sequence[int]) -> int:
    """A bit for the place of each, all of which are of one page."""
    digits = bytearray(b"0" * PAGE)
    for sequence in sequences:
        digits[~sequence & _MASK] = ord("1")
    return int(digits, 2)


def _found(page: _Page, place: int) -> int:
    """The instant at the place; 0 when there is none."""
    if isinstance(page, dict):
        return page.get(place, 0)
    if isinstance(page, tuple):
        return page[0] if page[1] >> place & 1 else 0
    return _at(page, place)


def _has_any(page: _Page, low: int, high: int) -> bool:
    """Whether the page has an instant from one place to another."""
    if isinstance(page, tuple):
        return page[1] >> low & (1 << high - low + 1) - 1 != 0
    if isinstance(page, array):
        return any(page[low : high + 1])
    return bool(_places_in(page, low, high))


def _places_in(page: dict[int, int], low: int, high: int) -> list[int]:
    """The places of a page from one to another, found by walking whichever is shorter."""
    if high - low < len(page):
        return [place for place in range(low, high + 1) if place in page]
    return [place for place in page if low <= place <= high]


def _last_of(run: Run) -> int:
    return run[1]


def _packed(row: list[int]) -> "array[int]":
    """The page of the instants by place; 0 is none."""
    some = list(filter(None, row))
    base = _base_for(min(some))
    if max(some) - base >= _SPAN:
        return array("Q", row)
    page = array("I", [instant and instant - base for instant in row])
    page.extend((base % _SPAN, base // _SPAN))
    return page


def _based(offset: int, bits: int, base: int) -> "array[int]":
    """The page that has the offset at the place of each bit."""
    page = array("I", map(offset.__mul__, _digits_of(bits)))
    page.extend((base % _SPAN, base // _SPAN))
    return page


def _base_for(instant: int) -> int:
    """Of a page whose first instant this is."""
    return max(0, instant - _SPAN // 2)


def _digits_of(bits: int) -> bytes:
    """0 or 1 for each place of a page."""
    return f"{bits:0{PAGE}b}".encode().translate(_DIGITS)[::-1]


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
