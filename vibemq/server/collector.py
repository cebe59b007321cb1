"""Python's cycle collector in a process of the broker's own (docs/adr/0013).

A full collection looks at every object there is, and holds the loop meanwhile: 50 to 160 ms with 10,000 queues. Here
every object is looked at once, soon after it was made, and is then frozen: no later collection looks at it. Reference
counts free it all the same, and what ends in a broker ends without cycles (tests/integration/test_no_cycles.py).

A look at all objects cannot be taken in parts (0.4 s with 75,000 queues), so nobody is to wait for one: it is taken
while nobody is connected, and beside that only when memory is short, where the alternative is that publishes are
refused, or that the system ends the broker. Without `limits.memory_limit_bytes` the memory of the machine, or of the
control group, is what counts.

For a process of the broker's own; an embedding program's objects are not ours to freeze.
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("vibemq.collector")

NEVER = 1 << 30
"""Collections of the second generation before an automatic one of the third."""
YOUNG_THRESHOLD = 700
"""New objects before a collection of the first generation, as Python itself has it up to 3.12; 3.13 has 2,000."""
MIDDLE_THRESHOLD = 5
"""Collections of the first generation before one of the second; Python's own is 10."""
MIDDLE_COLLECTIONS = 1
"""Of the second generation before its survivors are looked at once more and frozen: up to 4,200 objects, about 1 ms."""
ALONE_GROWTH_BLOCKS = 100_000
"""Below this growth of memory, about 8 MiB, no cycle is worth a look at all objects while nobody is connected."""
SHORT_GROWTH_BLOCKS = 1_000_000
"""The same while memory is short; a quarter of what there is, if that is more: then a look finds something or is not
taken again."""


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """What is made meanwhile is there to stay: it is not looked through while it is made, nor in any later collection.

    With many queues a full collection would otherwise hold the loop for as long as it takes to look at all of them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Collector:
    """Looks at new objects once; at all objects only when memory has grown, and nobody is connected or it is short."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        *,
        alone: Callable[[], bool],
        short: Callable[[], bool],
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        """`call_soon`: has something called by the loop, from any thread. `alone`: nobody is connected, who would be
        held up. `short`: soon there is no memory left for publishes. `blocks`: how much memory is in use, in blocks of
        Python's allocator."""
        self._call_soon = call_soon
        self._alone = alone
        self._was_alone = False
        """When it was asked last."""
        self._short = short
        self._blocks = blocks
        self._middle = 0
        """Collections of the second generation since the last look."""
        self._due = False
        self._base = 0
        """Blocks after the last look at all objects."""
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """From here on, in place of Python's own full collections."""
        self._base = self._blocks()
        self._thresholds = gc.get_threshold()
        # A process that collects nothing by itself (0), or less at a time, keeps that.
        gc.set_threshold(min(self._thresholds[0], YOUNG_THRESHOLD), MIDDLE_THRESHOLD, NEVER)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by Python in any thread, between any two instructions: only leaves a note."""
        if phase != "stop" or info["generation"] != 1:
            return
        self._middle += 1
        if self._middle >= MIDDLE_COLLECTIONS and not self._due:
            self._due = True
            self._call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        self._middle = 0
        gc.collect()
        gc.freeze()

    def look_at_all_if_worth_it(self) -> None:
        """Called now and then. Whoever is between two connections comes back within one of these times."""
        was_alone, self._was_alone = self._was_alone, self._alone()
        # How much memory is in use takes up to milliseconds to find out: last.
        if was_alone and self._was_alone:
            worth_it = self._growth() >= ALONE_GROWTH_BLOCKS
        else:
            worth_it = self._short() and self._growth() >= max(self._base // 4, SHORT_GROWTH_BLOCKS)
        if worth_it:
            self._look_at_all()

    def _growth(self) -> int:
        return self._blocks() - self._base

    def _look_at_all(self) -> None:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._base = self._blocks()
        log.info("all objects were looked at: %d were garbage", found, extra={"event": "collector.all", "found": found})
