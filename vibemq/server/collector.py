"""Python's cycle collector in a process of the broker's own (docs/adr/0013).

A full collection looks at every object there is, and holds the loop meanwhile: 50 to 160 ms with 10,000 queues. Here
every object is looked at once, soon after it was made, and is then frozen: no later collection looks at it. Reference
counts free it all the same, and what ends in a broker ends without cycles (tests/integration/test_no_cycles.py).

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
MIDDLE_THRESHOLD = 5
"""Collections of the first generation, of 700 new objects each, before one of the second; Python's own is 10."""
MIDDLE_COLLECTIONS = 2
"""Of the second generation before its survivors are looked at once more and frozen: up to 8,400 objects, 1 to 2 ms."""
GROWTH_BLOCKS = 1_000_000
"""Below this growth of memory, about 80 MiB, no cycle is worth a look at all objects."""
ALONE_GROWTH_BLOCKS = 100_000
"""The same while nobody is connected."""


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
    """Looks at new objects once; at all objects only when memory has doubled, or has grown and nobody is connected."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        *,
        alone: Callable[[], bool],
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        """`call_soon`: has something called by the loop, from any thread. `alone`: nobody would be held up.
        `blocks`: how much memory is in use, in blocks of Python's allocator."""
        self._call_soon = call_soon
        self._alone = alone
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
        gc.set_threshold(self._thresholds[0], MIDDLE_THRESHOLD, NEVER)
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
        self.look_at_all_if_worth_it()

    def look_at_all_if_worth_it(self) -> None:
        """Called now and then, too: when the last connection ends, nothing new may be made."""
        growth = self._blocks() - self._base
        if growth >= max(self._base, GROWTH_BLOCKS) or (growth >= ALONE_GROWTH_BLOCKS and self._alone()):
            self._look_at_all()

    def _look_at_all(self) -> None:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._base = self._blocks()
        log.info("all objects were looked at: %d were garbage", found, extra={"event": "collector.all", "found": found})
