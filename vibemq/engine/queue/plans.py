"""How a cursor's reader cut its batches, so that a batch that begins where one began before also ends there.

made in a chain     each plan begins where the one before ends; a start that is neither known nor the end of the
                    newest plan is one whose plan is forgotten, or of another reader: it is refused, never guessed
forgotten           when what it covers is acknowledged and released, but never the newest, which holds the chain
bounded             beyond the bounds the oldest go first; whoever still needs one is refused
"""

from vibemq.model.records import Plan, tag_of

PLANS_MAX = 100_000
PLANS_BYTES_MAX = 64 << 20
PLAN_BYTES = 450
"""What one takes of the memory beside its texts."""
LOOK_BACK_MAX = 1_000
_SWEPT_TOGETHER = 64
"""Forgotten plans that are let go of beside another change."""


def size_of(plan: Plan) -> int:
    """Bytes of memory, nearly."""
    return PLAN_BYTES + sum(len(text.encode()) for text in (plan.tag, plan.end, plan.query, plan.empty_mark))


class Plans:
    """By number; numbers ascend and leave nothing out.

    What is forgotten is not found any more at once. Very many are let go of in steps (`sweep`).
    """

    __slots__ = ("_by_number", "_bytes", "_first", "_floor", "_numbers", "next_number")

    def __init__(self) -> None:
        self._by_number: dict[int, Plan] = {}
        self._numbers: dict[str, int] = {}
        """By tag."""
        self._bytes = 0
        """Of all that have not been let go of."""
        self._first = 1
        """The lowest number that has not been let go of."""
        self._floor = 1
        """Those below it are forgotten."""
        self.next_number = 1

    def __len__(self) -> int:
        return self.next_number - max(self._floor, self._first)

    def add(self, number: int, plan: Plan) -> None:
        if not self._by_number:
            self._first = number
        self._by_number[number] = plan
        self._numbers[plan.tag] = number
        self._bytes += size_of(plan)
        self.next_number = number + 1
        self.sweep(_SWEPT_TOGETHER)

    def replace(self, number: int, plan: Plan) -> None:
        """What becomes known of it later; its tag and its end stay."""
        self._bytes += size_of(plan) - size_of(self._by_number[number])
        self._by_number[number] = plan

    def find(self, tag: str) -> Plan | None:
        """The plan of the batch with rows that begins there."""
        known = self.at(self.number_of(tag))
        return known if known is not None and known.has_rows else None

    def number_of(self, tag: str) -> int:
        """0: none begins there."""
        number = self._numbers.get(tag, 0)
        return number if number >= self._floor else 0

    def at(self, number: int) -> Plan | None:
        return self._by_number.get(number) if number >= self._floor else None

    def newest(self) -> Plan | None:
        return self.at(self.next_number - 1)

    def before_it(self, number: int) -> tuple[Plan | None, int]:
        """The nearest earlier plan that a query has entered, and how many batches are known to lie between it and this
        one; without one, those since the beginning, if the reader began with a batch without rows."""
        between = 0
        for earlier in range(number - 1, max(number - 1 - LOOK_BACK_MAX, 0), -1):
            plan = self.at(earlier)
            if plan is None:
                return None, 0
            between += plan.empty
            if plan.query:
                return plan, between
            between += 1
            if not plan.has_rows:
                return None, between
        return None, 0

    def may_begin(self, tag: str) -> bool:
        """Whether a new plan may begin there: where the newest ends, or anywhere when there is none."""
        newest = self.newest()
        return newest is None or bool(newest.end and tag_of(newest.end) == tag)

    @property
    def is_one_that_nobody_has_read(self) -> bool:
        """Whether there is one alone, of which no task has begun to read. Without an instant it is not known."""
        plan = self.newest()
        return plan is not None and len(self) == 1 and bool(plan.made_at) and not plan.begun_at and plan.has_rows

    def before(self, tag: str) -> int:
        """Below which number plans are done when everything up to that position is."""
        return self.number_of(tag) or self.next_number

    def is_unread(self, tag: str) -> bool:
        """Whether nobody has begun to read the batch that ends there. Of a plan without an instant it is not known."""
        plan = self.at(self.before(tag) - 1)
        if plan is None or not plan.made_at or plan.begun_at:
            return False
        return plan.has_rows and tag_of(plan.end) == tag

    def beyond_bounds(self) -> int:
        """Below which number plans have to go."""
        below, size = self.next_number - min(len(self), PLANS_MAX), self._bytes
        for number in range(self._first, self.next_number):
            if size <= PLANS_BYTES_MAX:
                break
            plan = self._by_number.get(number)
            size -= size_of(plan) if plan is not None else 0
            below = max(below, number + 1)
        return below

    def forget(self, below: int, *, newest: bool = False) -> int:
        """Forget those below a number; the newest only when asked to. Below which number anything went; 0 = nothing."""
        below = min(below, self.next_number - (not newest))
        if below <= max(self._floor, self._first):
            return 0
        self._floor = below
        self.sweep(_SWEPT_TOGETHER)
        return below

    @property
    def is_swept(self) -> bool:
        """Whether all that is forgotten has been let go of."""
        return self._first >= self._floor

    def sweep(self, most: int) -> int:
        """Let go of up to so many that are forgotten; how many these were."""
        stop = min(self._floor, self._first + most)
        swept = max(0, stop - self._first)
        for number in range(self._first, stop):
            plan = self._by_number.pop(number, None)
            if plan is None:
                continue
            self._bytes -= size_of(plan)
            if self._numbers.get(plan.tag) == number:
                del self._numbers[plan.tag]
        self._first += swept
        return swept
