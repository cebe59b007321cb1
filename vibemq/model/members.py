"""Some of the sequences whose instants are known elsewhere: a bit each."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from vibemq.model.instants import PAGE, PAGE_SHIFT, Instants, Values, places_of
from vibemq.model.runs import Run, runs_of_ascending

_MASK = PAGE - 1


class InstantsOfSome:
    """Like `Instants` of these sequences, which take what they are due at from another one."""

    __slots__ = ("_count", "_known", "_numbers", "_pages")

    def __init__(self, known: Instants, runs: Iterable[Run] = ()) -> None:
        self._known = known
        self._pages: dict[int, int] = {}
        """By number: a bit for each sequence within the page."""
        self._numbers: list[int] = []
        """Of the pages, ascending."""
        self._count = 0
        for run in runs:
            self._put_run(*run)

    def _put_run(self, first: int, last: int) -> None:
        for number in range(first >> PAGE_SHIFT, (last >> PAGE_SHIFT) + 1):
            base = number << PAGE_SHIFT
            low, high = max(first - base, 0), min(last - base, _MASK)
            self._set(number, ((1 << (high - low + 1)) - 1) << low)
        self._count += last - first + 1

    def _set(self, number: int, bits: int) -> None:
        page = self._pages.get(number)
        if page is None:
            insort(self._numbers, number)
            page = 0
        self._pages[number] = page | bits

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        return bool(self._pages.get(sequence >> PAGE_SHIFT, 0) >> (sequence & _MASK) & 1)

    def __getitem__(self, sequence: int) -> int:
        return self._known[sequence]

    def get(self, sequence: int, default: int = 0) -> int:
        return self._known[sequence] if sequence in self else default

    def put(self, sequence: int, instant: int) -> int:
        """It is one of them, and is due as is known already. Returns the instant if it was one; 0 when it was not."""
        if sequence in self:
            return instant
        self._set(sequence >> PAGE_SHIFT, 1 << (sequence & _MASK))
        self._count += 1
        return 0

    def put_columns(self, sequences: Sequence[int], instants: Values) -> None:
        """They are some of them, none was, and they are due as is known already."""
        for first, last in runs_of_ascending(sequences):
            self._put_run(first, last)

    def __delitem__(self, sequence: int) -> None:
        self._clear(sequence >> PAGE_SHIFT, 1 << (sequence & _MASK))
        self._count -= 1

    def remove_all(self, sequences: Sequence[int]) -> None:
        """All of them are here, each once and ascending."""
        for first, last in runs_of_ascending(sequences):
            for number in range(first >> PAGE_SHIFT, (last >> PAGE_SHIFT) + 1):
                base = number << PAGE_SHIFT
                low, high = max(first - base, 0), min(last - base, _MASK)
                self._clear(number, ((1 << (high - low + 1)) - 1) << low)
        self._count -= len(sequences)

    def _clear(self, number: int, bits: int) -> None:
        page = self._pages[number] & ~bits
        if page:
            self._pages[number] = page
        else:
            del self._pages[number]
            del self._numbers[bisect_left(self._numbers, number)]

    def _of_page(self, number: int, low: int = 0, high: int = _MASK) -> list[int]:
        """Those of a page from one place to another."""
        bits = self._pages[number] >> low & (1 << high - low + 1) - 1
        return places_of(bits, (number << PAGE_SHIFT) + low)

    @property
    def first(self) -> int:
        """The lowest sequence. Raises IndexError when there is none."""
        number = self._numbers[0]
        bits = self._pages[number]
        return (number << PAGE_SHIFT) + (bits & -bits).bit_length() - 1

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last], ascending."""
        if first == last:
            return [first] if first in self else []
        found: list[int] = []
        begin, end = bisect_left(self._numbers, first >> PAGE_SHIFT), bisect_right(self._numbers, last >> PAGE_SHIFT)
        for number in self._numbers[begin:end]:
            base = number << PAGE_SHIFT
            found += self._of_page(number, max(first - base, 0), min(last - base, _MASK))
        return found

    def runs_within(self, first: int, last: int) -> list[Run]:
        """What of [first, last] is among them; ascending, some may adjoin. Whole stretches cost nothing to find."""
        runs: list[Run] = []
        begin, end = bisect_left(self._numbers, first >> PAGE_SHIFT), bisect_right(self._numbers, last >> PAGE_SHIFT)
        for number in self._numbers[begin:end]:
            start = max(first, number << PAGE_SHIFT)
            low, high = start & _MASK, min(last - (number << PAGE_SHIFT), _MASK)
            bits = self._pages[number] >> low & (1 << high - low + 1) - 1
            if bits and bits & bits + 1 == 0:
                runs.append((start, start + bits.bit_length() - 1))
            elif bits:
                runs += runs_of_ascending(places_of(bits, start))
        return runs

    def lowest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the lowest sequences from `start` on."""
        found: list[int] = []
        for index in range(bisect_left(self._numbers, start >> PAGE_SHIFT), len(self._numbers)):
            if len(found) >= count:
                break
            number = self._numbers[index]
            found += self._of_page(number, max(start - (number << PAGE_SHIFT), 0))
        return found[:count]

    def runs(self) -> list[Run]:
        """The sequences as runs."""
        runs: list[Run] = []
        for number in self._numbers:
            some = runs_of_ascending(self._of_page(number))
            if runs and runs[-1][1] + 1 == some[0][0]:
                some[0] = (runs.pop()[0], some[0][1])
            runs += some
        return runs
