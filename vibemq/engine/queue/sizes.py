"""Sizes and ages of a queue's messages without the messages.

Neighbouring publishes share a chunk of up to 256 messages or 256 KiB, so a deep backlog costs one chunk per few
hundred messages. Within a chunk, sizes are taken as even. A chunk of a slow queue spans up to a minute; marks in it,
sixteen bytes each, tell the age of its messages to within a second.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from vibemq.model.runs import END, Run, RunSet
from vibemq.model.stored import Chunk

CHUNK_MESSAGES_MAX = 256
CHUNK_BYTES_MAX = 256 * 1024
SPAN_MS_MAX = 60_000
"""How far apart the oldest and the youngest message of a chunk may be when no TTL asks for better."""

MARK_MS = 1_000
"""How far apart the marks in a chunk are."""

STORED_SPAN_MS = 1_000
"""A stored chunk tells the age of its oldest message; where age decides, the others are at most so much younger."""


def span_for(ttl_ms: int | None) -> int:
    """How coarse ages may be: 1 % of the TTL, at least 100 ms."""
    return max(100, ttl_ms // 100) if ttl_ms else SPAN_MS_MAX


class Sizes:
    __slots__ = (
        "_firsts",
        "_froms",
        "_halfway",
        "_lag",
        "_lag_from",
        "_lasts",
        "_mark_ats",
        "_mark_firsts",
        "_marked_at",
        "_messages",
        "_sizes",
        "_starts",
        "_tos",
        "total",
    )

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._sizes: list[int] = []
        self._starts: list[int] = []
        """Bytes of everything before the chunk, so that a span is two look-ups; `_lag` more from `_lag_from` on."""
        self._lag = 0
        """Bytes of chunks that were forgotten and are still in the numbers of those behind them."""
        self._lag_from = 0
        self._halfway = False
        """Something is wanted of the chunk in the middle of which the last call of `forget` ended."""
        self._froms: list[int] = []
        """published_at of the oldest in the chunk."""
        self._tos: list[int] = []
        """published_at of the youngest."""
        self._mark_firsts: array[int] | None = None
        """Sequences inside chunks from which on messages are at least MARK_MS younger than those before."""
        self._mark_ats: array[int] | None = None
        """When they were published."""
        self._marked_at = 0
        self._messages = 0
        """In all chunks; between them there may be very many that are forgotten."""
        self.total = 0

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int, size: int, published_at: int, span_ms: int, *, apart: bool = False) -> None:
        """`apart`: something fell due between what is here and these; they do not share a chunk."""
        self.total += size
        self._messages += last - first + 1
        lasts = self._lasts
        if (
            lasts
            and not apart
            and lasts[-1] + 1 == first
            and last - self._firsts[-1] < CHUNK_MESSAGES_MAX
            and self._sizes[-1] + size <= CHUNK_BYTES_MAX
            and published_at - self._froms[-1] <= span_ms
        ):
            lasts[-1] = last
            self._sizes[-1] += size
            self._tos[-1] = max(published_at, self._tos[-1])
            if published_at - self._marked_at >= MARK_MS:
                self._mark(first, published_at)
            return
        self._marked_at = published_at
        self._firsts.append(first)
        lasts.append(last)
        self._sizes.append(size)
        self._starts.append(self.total - size + self._lag)
        self._froms.append(published_at)
        self._tos.append(max(published_at, self._tos[-1]) if self._tos else published_at)

    def _mark(self, first: int, published_at: int) -> None:
        self._marked_at = published_at
        if self._mark_firsts is None or self._mark_ats is None:
            self._mark_firsts, self._mark_ats = array("Q"), array("Q")
        self._mark_firsts.append(first)
        self._mark_ats.append(published_at)

    def pieces(self, first: int, last: int, most: int) -> Iterator[tuple[int, int, int]]:
        """(first, last, size) of neighbouring chunks that reach into [first, last], in at most about so many pieces."""
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        together = -(-(high - low) // most) if high > low else 1
        for index in range(low, high, together):
            start = max(first, self._firsts[index])
            stop = min(last, self._lasts[min(index + together, high) - 1])
            yield start, stop, self.between(start, stop)

    @property
    def mark_count(self) -> int:
        return 0 if self._mark_firsts is None else len(self._mark_firsts)

    def restore(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._firsts.append(chunk.first)
            self._lasts.append(chunk.last)
            self._sizes.append(chunk.size)
            self._starts.append(self.total)
            self._froms.append(chunk.published_at)
            self._tos.append(chunk.published_at + STORED_SPAN_MS)
            self._messages += chunk.last - chunk.first + 1
            self.total += chunk.size

    def _bytes_before(self, sequence: int) -> int:
        index = bisect_left(self._lasts, sequence)
        if index == len(self._lasts):
            return self.total
        first = self._firsts[index]
        start = self._starts[index] - (self._lag if index >= self._lag_from else 0)
        if sequence <= first:
            return start
        count = self._lasts[index] - first + 1
        return start + self._sizes[index] * (sequence - first) // count

    def between(self, first: int, last: int) -> int:
        """Estimated bytes of the messages first … last."""
        return self._bytes_before(last + 1) - self._bytes_before(first)

    def reach(self, first: int, last: int, size: int) -> int:
        """The last sequence up to `last` such that first … it have at most about `size` bytes; `first` at least."""
        target = self._bytes_before(first) + size
        low, high = first, last
        while low < high:
            middle = (low + high + 1) // 2
            if self._bytes_before(middle + 1) <= target:
                low = middle
            else:
                high = middle - 1
        return low

    def front(self, runs: list[Run], size: int) -> list[Run]:
        """The first of these messages that have at least about so many bytes together; all, if they have fewer."""
        taken: list[Run] = []
        for first, last in runs:
            part = self.between(first, last)
            if part >= size:
                stop = self.reach(first, last, size)
                taken.append((first, stop if self.between(first, stop) >= size else stop + 1))
                break
            taken.append((first, last))
            size -= part
        return taken

    def average(self) -> int:
        """Estimated bytes of one message, whichever."""
        return self.total // self._messages if self._messages else 0

    def of_runs(self, runs: list[Run]) -> int:
        return sum(self.between(first, last) for first, last in runs)

    def published_at(self, sequence: int) -> int:
        """When the message was published, never too late; 0 when nothing is known.

        To within a second, or within its chunk when it was published before the restart.
        """
        index = bisect_left(self._lasts, sequence)
        if index == len(self._lasts):
            return 0
        marks, ats = self._mark_firsts, self._mark_ats
        if marks is not None and ats is not None:
            place = bisect_right(marks, sequence) - 1
            if place >= 0 and marks[place] >= self._firsts[index]:
                return ats[place]
        return self._froms[index]

    def begun_at(self, sequence: int) -> int:
        """When the oldest of its chunk was published. Nothing fell due between that and when the message was."""
        index = bisect_left(self._lasts, sequence)
        return self._froms[index] if index < len(self._froms) else END

    def last_begun_at(self, instant: int) -> int:
        """The last sequence of the newest chunk that was begun at or before the instant; 0 if none."""
        index = bisect_right(self._froms, instant)
        return self._lasts[index - 1] if index else 0

    def last_at(self, instant: int) -> int:
        """The last sequence of the newest chunk that was published wholly at or before the instant; 0 if none."""
        index = bisect_right(self._tos, instant)
        return self._lasts[index - 1] if index else 0

    def first_after(self, instant: int) -> int | None:
        """The first sequence of the oldest chunk that has something published at or after the instant."""
        index = bisect_left(self._tos, instant)
        return self._firsts[index] if index < len(self._firsts) else None

    def next_at(self, sequence: int) -> int | None:
        """When the first chunk that reaches beyond `sequence` was complete."""
        index = bisect_right(self._lasts, sequence)
        return self._tos[index] if index < len(self._lasts) else None

    def first_from(self, sequence: int) -> int:
        """The first sequence from there on that a chunk has; END when none has."""
        index = bisect_left(self._lasts, sequence)
        return max(sequence, self._firsts[index]) if index < len(self._firsts) else END

    def reach_of_chunks(self, first: int, most: int) -> int:
        """The last sequence of the first `most` chunks that reach `first`; END when they are all."""
        index = bisect_left(self._lasts, first) + most - 1
        return self._lasts[index] if index < len(self._lasts) else END

    def forget(self, first: int, last: int, wanted: RunSet) -> None:
        """Forget the chunks that end in [first, last] and have nothing that is wanted. The very last one stays open for
        its neighbours. Each call goes on where the one before ended, and `renumber` follows the last one."""
        low = bisect_left(self._lasts, first)
        high = min(bisect_right(self._lasts, last), len(self._lasts) - 1)
        if not self._lag:
            self._lag_from = low
        at, lag = self._lag_from, self._lag
        kept: list[int] = []
        for index in range(at, high):
            self._starts[index] -= lag
            if index < low or self._halfway or wanted.meets(self._firsts[index], self._lasts[index]):
                kept.append(index)
                self._halfway = False
            else:
                lag += self._sizes[index]
                self._messages -= self._lasts[index] - self._firsts[index] + 1
        if 0 <= high < len(self._firsts) and self._firsts[high] <= last:
            self._halfway = self._halfway or wanted.meets(self._firsts[high], last)
        if len(kept) < high - at:
            self.total -= lag - self._lag
            for values in (self._firsts, self._lasts, self._sizes, self._starts, self._froms, self._tos):
                values[at:high] = [values[index] for index in kept]
        self._lag, self._lag_from = lag, max(at, at + len(kept))

    def renumber(self, most: int) -> bool:
        """Take what was forgotten off the numbers behind it, of up to so many chunks; whether that is all."""
        end = min(len(self._starts), self._lag_from + most)
        if self._lag:
            for index in range(self._lag_from, end):
                self._starts[index] -= self._lag
            self._lag_from = end
            if end < len(self._starts):
                return False
            self._lag = 0
        self._lag_from, self._halfway = 0, False
        if self._mark_firsts and self._mark_ats and self._firsts:
            gone = bisect_left(self._mark_firsts, self._firsts[0])
            del self._mark_firsts[:gone], self._mark_ats[:gone]
        return True
