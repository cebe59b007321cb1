"""Rows far apart from each other, read without keeping those waiting who need the same lock."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from vibemq.model.stored import Slice

HELD_S: Final = 0.000_5
"""The lock is held about so long at a time. Each time that it is let go, the next turn may be long in coming."""
LET_GO_S: Final = 0.000_05


def pick_in_turns(
    hold: Callable[[], AbstractContextManager[object]],
    pick: Callable[[int], tuple[list[Slice], int]],
    sequences: Sequence[int],
    max_bytes: int,
    *,
    elapsed_s: Callable[[], float] = time.perf_counter,
) -> tuple[list[Slice], int]:
    """See `PicksRows`. The lock is let go now and then, and behind each block that has taken long.

    Args:
        hold: takes the lock, and raises when the store is not open any more.
        pick: with the lock held, rows of `sequences` from an index on, and the index behind them.
    """
    found: list[Slice] = []
    at = used = 0
    while True:
        with hold():
            until = elapsed_s() + HELD_S
            while at < len(sequences) and used < max_bytes:
                some, at = pick(at)
                used += sum(part.rows.size for part in some)
                found += some
                if elapsed_s() >= until:
                    break
        if at >= len(sequences) or used >= max_bytes:
            return found, at
        # Without a pause the lock is taken again before whoever waits for it, as appends do, has woken up.
        time.sleep(LET_GO_S)
