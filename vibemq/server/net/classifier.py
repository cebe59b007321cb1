"""Answers the engine's questions which selectors match which messages.

It reads the rows as deliveries do, and of them only the headers that the selectors name. On the loop it works in steps
of the pacer; rows that are large, or of a provider that blocks, are read and looked at in threads.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat

from vibemq.model.commands import Classified, Command
from vibemq.model.effects import Classify
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.model.selector import SelectorSet
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.pacer import Pacer
from vibemq.storage.reading import ReadsRows, leading, read_piece

ROWS_AT_ONCE = 64
"""Read in one step on the loop."""
ANSWERS_AT_ONCE = 256
"""Of one selector about one row: these of a step take from 0.2 to 2 ms."""
BYTES_AT_ONCE = 131_072
ROWS_IN_THREAD = 1_024
BYTES_IN_THREAD = 1 << 20
_RUNS_AT_ONCE = 32


@dataclass(slots=True)
class Look:
    """A question while it is looked at."""

    question: Classify
    rest: list[Run]
    matched: list[tuple[int, int, int]] = field(default_factory=list)

    def read(self, storage: ReadsRows, rows: int, size: int) -> None:
        """Look at the next of them, about so many. May run in a thread, while nobody else has it."""
        for _ in self.steps(storage, rows, size):
            pass

    def steps(self, storage: ReadsRows, rows: int, size: int) -> Iterator[None]:
        """The same in steps."""
        wanted, later = leading(self.rest, rows, _RUNS_AT_ONCE)
        piece = read_piece(storage, self.question.queue_id, wanted, size)
        selectors = SelectorSet(self.question.selectors)
        at_once = max(1, ANSWERS_AT_ONCE // len(selectors))
        for part in piece.slices:
            for place, bits in enumerate(matching(part.rows, selectors)):
                if bits:
                    self.note(part.first_sequence + place, part.first_sequence + place, bits)
                if place % at_once == at_once - 1:
                    yield
        for first, last in piece.damaged:
            # It is handed out, and dealt with as every damaged message is.
            self.note(first, last, (1 << len(selectors)) - 1)
        self.rest = piece.rest + later

    def note(self, first: int, last: int, bits: int) -> None:
        if self.matched and self.matched[-1][1:] == (first - 1, bits):
            self.matched[-1] = (self.matched[-1][0], last, bits)
        else:
            self.matched.append((first, last, bits))


def matching(rows: Rows, selectors: SelectorSet) -> Iterator[int]:
    """Of each row, a bit for each selector that matches it."""
    common = rows.common_headers()
    if common is not None:
        yield from repeat(selectors.matching_block(common, 0), rows.count)
        return
    known: dict[bytes, int] = {}
    for block in rows.header_blocks():
        bits = known.get(block)
        if bits is None:
            bits = known[block] = selectors.matching_block(block, 0)
        yield bits


class Classifier:
    """
    Args:
        decide: takes the answer to the engine.
        failed: called with whatever a read raises apart from damage.
    """

    def __init__(
        self,
        store: Store,
        pacer: Pacer,
        *,
        decide: Callable[[Sequence[Command]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._pacer = pacer
        self._decide = decide
        self._failed = failed

    def take(self, question: Classify) -> None:
        """Answer it, in a later turn of the loop, and once the rows are appended: before that a read finds nothing,
        and what is not found matches nothing."""
        wait = self._store.unwritten.begin_wait(question.queue_id, question.runs)
        if wait is None:
            self._go_on(Look(question, question.runs))
        else:
            wait.add_done_callback(partial(self._written, question))

    def _written(self, question: Classify, wait: "asyncio.Future[None]") -> None:
        if not wait.cancelled():
            self._go_on(Look(question, question.runs))

    def _go_on(self, look: Look) -> None:
        if look.rest and self._store.blocking:
            read = partial(look.read, self._store.provider, ROWS_IN_THREAD, BYTES_IN_THREAD)
            self._store.begin(read).add_done_callback(partial(self._came, look))
        else:
            self._pacer.begin_later(self._steps(look))

    def _steps(self, look: Look) -> Iterator[None]:
        provider, question = self._store.provider, look.question
        while look.rest:
            rows = ROWS_AT_ONCE
            large = self._store.first_large(question.queue_id, leading(look.rest, rows, _RUNS_AT_ONCE)[0])
            if large is not None:
                rows = _before(look.rest, large[0])
                if not rows:
                    read = partial(look.read, self._store.large_rows, 1, 1)
                    self._store.begin_large(read).add_done_callback(partial(self._came, look))
                    return
            try:
                yield from look.steps(provider, rows, BYTES_AT_ONCE)
            except Exception as error:
                self._failed(error)
                return
            yield
        self._answer(look)

    def _came(self, look: Look, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(error)
        elif look.rest:
            self._go_on(look)
        else:
            self._answer(look)

    def _answer(self, look: Look) -> None:
        self._decide([Classified(look.question.session, None, look.question.number, look.matched)])


def _before(runs: list[Run], sequence: int) -> int:
    """How many messages of the runs, which are in order, come before that one."""
    count = 0
    for first, last in runs:
        if first <= sequence <= last:
            return count + sequence - first
        count += last - first + 1
    return count
