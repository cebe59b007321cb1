"""Which queues take no letters of a job now, and how far the job has gone on without them."""

RETRY_MS = 1_000
"""How often a job that waits looks whether it can go on."""
PASS_AGAIN_MS = 30_000
"""How often a job whose first letters have to wait looks at all behind them, for queues that take theirs by now."""
PASS_SHARE = 20
"""Not sooner than so many times as long as the last look has taken."""


class BlockedQueues:
    """The cursor of a job stays at its oldest letter that waits. A pass reads behind it and leaves out the queues that
    are known to take none; now and then it is left, and what waits at the cursor is tried again.

    Instants in ms. Nothing of this is kept over a restart: the next worker begins at the cursor.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, tuple[str, int]] = {}
        """By queue: why, and in how many ms to look again."""
        self.reached = 0
        """Letters for the other queues up to this id have gone, ahead of the cursor; 0 = no pass is under way."""
        self._resume_behind = 0
        """Where the pass goes on when the letters at the cursor have been tried again."""
        self._try_at = 0
        """When to try these."""
        self._began = self._next_at = 0
        """When the last pass began, and when the next one may."""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def note(self, queue: str, why: str, look_ms: int) -> None:
        self.reasons[queue] = why, look_ms

    def may_pass(self, now: int) -> bool:
        return bool(self.reached) or now >= self._next_at

    def pass_page(self, last: int, now: int) -> None:
        """Letters up to the id `last` have been looked at; `reached` says where to read on."""
        if not self.reached:
            self._began = self._began if self._resume_behind else now
            self.reached, self._try_at = max(last, self._resume_behind), now + RETRY_MS
        elif now < self._try_at:
            self.reached = last
        else:
            # The queues that took no letters may do so by now: they come first, and this goes on where it was.
            self.reached, self._resume_behind = 0, last

    def end_pass(self, now: int) -> tuple[str, int]:
        """Go back to the cursor. The oldest of the reasons, and in how many ms to look again."""
        first = next(iter(self.reasons.values()))
        if self.reached:
            self._next_at = now + max(PASS_AGAIN_MS, PASS_SHARE * (now - self._began))
        self.clear()
        return first

    def clear(self) -> None:
        """No letter waits at the cursor, or the pass is over."""
        self.reasons, self.reached, self._resume_behind = {}, 0, 0

    def try_again(self) -> None:
        """The letters at the cursor are read again, and it is not known of any queue that it takes none."""
        self.reasons = {}
