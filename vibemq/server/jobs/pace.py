"""How fast a job goes: its limit, and what it does."""

from collections import deque

from vibemq.operations.dead_letters.letters import LETTERS_PER_STEP

STEPS_PER_SECOND = 20
"""Of a job with a rate: so evenly are its letters spread."""
BEHIND_MS_MAX = 250
"""A job that comes late, because the loop or the disk was busy, catches up with so much and no more."""
WINDOW_MS = 5_000


class Pace:
    """When the next letters may go. Every instant is the caller's."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self._done: deque[tuple[int, int]] = deque()
        """(instant, letters) of the last `WINDOW_MS`."""
        self._since = 0

    def letters(self, rate: float) -> int:
        """How many go with one step. `rate`: in a second; 0 = no limit."""
        return min(LETTERS_PER_STEP, max(1, int(rate // STEPS_PER_SECOND))) if rate else LETTERS_PER_STEP

    def wait_until(self, rate: float, now: int) -> int:
        """The instant from which on the next step may go; at or before now = at once."""
        if not rate:
            self._free_at = 0.0
            return now
        # What it could have done before it began is not made up for, and a rate that was raised does not wait for what
        # the one before had spread out.
        latest = now + 1000 * self.letters(rate) / rate
        self._free_at = min(max(self._free_at or now, now - BEHIND_MS_MAX), latest)
        return int(-(-self._free_at // 1))

    def went(self, count: int, rate: float, now: int) -> None:
        if rate:
            self._free_at = max(self._free_at, now - BEHIND_MS_MAX) + 1000 * count / rate
        self._since = self._since or now
        self._done.append((now, count))
        self._forget(now)

    def paused(self, now: int) -> None:
        """It waits for something else: what it could have done meanwhile is not made up for."""
        self._done.clear()
        self._since = 0
        if self._free_at <= now:
            self._free_at = 0.0

    def rate_now(self, now: int) -> float:
        """Letters in a second, of late."""
        self._forget(now)
        if not self._done:
            return 0.0
        span = min(WINDOW_MS, max(1000, now - self._since))
        return 1000 * sum(count for _, count in self._done) / span

    def _forget(self, now: int) -> None:
        while self._done and self._done[0][0] <= now - WINDOW_MS:
            self._done.popleft()
