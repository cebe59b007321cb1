"""What makes a group a cursor: it is read by ranges, as often as wanted, and acknowledged up to a sequence.

Nothing is handed out, so what the group has not acknowledged is in its `ready` and `delayed`; what it has, while the
hold lasts, is held here and counts as in flight. Source: docs/spec/cursor.md.
"""

from collections import deque

from vibemq.engine.queue.plans import Plans
from vibemq.engine.queue.unacked import NEVER
from vibemq.model.records import CursorFacts
from vibemq.model.runs import Run, RunSet


class Cursor:
    __slots__ = (
        "_releases",
        "begun",
        "committed",
        "expired",
        "head",
        "held",
        "hold_ms",
        "joins",
        "lost",
        "max_lag_bytes",
        "max_lag_ms",
        "moved",
        "owner",
        "plans",
        "plans_done",
        "quarantined",
        "rejected",
    )

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self.head = committed
        """Everything below it is released from the hold."""
        self.moved = False
        """By acknowledgements, since it was made or sought."""
        self.plans = Plans()
        self.plans_done = 0
        """Below this number what they cover is acknowledged, as far as it was said since the start."""
        self.begun = False
        """Whether the reader joined without a position of its own."""
        self.hold_ms = 0
        self.max_lag_ms = 0
        self.max_lag_bytes = 0
        self.expired = False
        self.joins = 0
        self.owner = ""
        self.lost = RunSet()
        self.quarantined = RunSet()
        self.rejected = RunSet()
        """Still part of a batch that is read again, as long as the store has it. Not stored: see `take_up`."""
        self.held = RunSet()
        """Acknowledged, and kept for a second look."""
        self._releases: deque[tuple[int, int, int]] = deque()
        """(instant, sequence and number of a plan below which everything is released then), all ascending."""

    @classmethod
    def of(cls, facts: CursorFacts) -> "Cursor":
        cursor = cls(facts.committed)
        cursor.hold_ms, cursor.max_lag_ms, cursor.max_lag_bytes = facts.hold_ms, facts.max_lag_ms, facts.max_lag_bytes
        cursor.expired, cursor.joins, cursor.owner = facts.expired, facts.joins, facts.owner
        cursor.lost, cursor.quarantined = RunSet(facts.lost), RunSet(facts.quarantined)
        cursor.head, cursor.moved, cursor.begun = facts.head, facts.moved, facts.begun
        return cursor

    def facts(self, epoch: int) -> CursorFacts:
        """`epoch`: the group's."""
        return CursorFacts(
            epoch,
            self.committed,
            self.hold_ms,
            self.max_lag_ms,
            self.max_lag_bytes,
            self.expired,
            self.joins,
            self.owner,
            tuple(self.lost.runs()),
            tuple(self.quarantined.runs()),
            self.head,
            self.moved,
            self.begun,
        )

    def may_plan_anew(self) -> bool:
        """Whether a plan may be forgotten because nobody has any of its rows: a reader without a position has planned
        its first batch, and ended before it noted the plan. Queues may have come since, so that its next one begins
        at another position."""
        return self.begun and not self.moved and self.plans.is_one_that_nobody_has_read

    def start_over(self, committed: int) -> None:
        """The cursor was sought: nothing of its past counts any more. What it held is the caller's to account for."""
        self.committed = self.head = committed
        self.moved = False
        self.plans = Plans()
        self.plans_done = 0
        self.expired = False
        self.joins = 0
        for runs in (self.lost, self.quarantined, self.rejected, self.held):
            runs.remove(1, NEVER)
        self._releases.clear()

    def lose(self, runs: list[Run]) -> bool:
        """The runs left the group before it had read them; whether there is anything to note."""
        before = len(self.lost)
        for first, last in runs:
            if last >= self.committed:
                self.lost.add(max(first, self.committed), last)
        return len(self.lost) > before

    def keep(self, runs: list[Run]) -> None:
        """The runs are acknowledged, and kept until their hold is over."""
        self.held.add_all(runs)

    def hold(self, now: int) -> None:
        """From now on counts the hold of what was acknowledged, and of the plans that covered it."""
        self._releases.append((now + self.hold_ms, self.committed, self.plans_done))

    def release_due(self, now: int) -> int | None:
        """Release what has been held for long enough; below which number plans may be forgotten, None = nothing is due.
        The messages leave with `take_released`."""
        below, plans = 0, 0
        while self._releases and self._releases[0][0] <= now:
            _, below, plans = self._releases.popleft()
        if not below:
            return None
        self.release(below)
        return plans

    def take_released(self, most: int) -> list[Run]:
        """Take out up to `most` runs of what is released."""
        last, _ = self.held.cut_runs(1, self.head - 1, most)
        return self.take_held(1, last)

    def release(self, below: int) -> None:
        """Nothing below is kept any more, unless something older is held."""
        self.head = max(self.head, below if self._releases else self.committed)

    def next_release(self) -> int:
        """0: at once, of what is released some is still there."""
        if self.held and self.held.first < self.head:
            return 0
        return self._releases[0][0] if self._releases else NEVER

    def take_held(self, first: int, last: int) -> list[Run]:
        taken = self.held.overlap(first, last)
        self.held.remove(first, last)
        return taken

    def forget_runs(self) -> None:
        """Lost runs matter until they are acknowledged, the others as long as they can be asked for."""
        self.lost.remove(1, self.committed - 1)
        for runs in (self.quarantined, self.rejected):
            runs.remove(1, self.head - 1)
