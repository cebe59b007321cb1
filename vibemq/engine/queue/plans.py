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


def size_of(plan: Plan) -> int:
    """Bytes of memory, nearly."""
    return PLAN_BYTES + sum(len(text.encode()) for text in (plan.tag, plan.end, plan.query, plan.empty_mark))


class Plans:
    """By number; numbers ascend and leave nothing out."""

    __slots__ = ("_by_number", "_bytes", "_numbers", "next_number")

    def __init__(self) -> None:
        self._by_number: dict[int, Plan] = {}
        self._numbers: dict[str, int] = {}
        """By tag."""
        self._bytes = 0
        self.next_number = 1

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, number: int, plan: Plan) -> None:
        self._by_number[number] = plan
        self._numbers[plan.tag] = number
        self._bytes += size_of(plan)
        self.next_number = number + 1

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
        return self._numbers.get(tag, 0)

    def at(self, number: int) -> Plan | None:
        return self._by_number.get(number)

    def newest(self) -> Plan | None:
        return self._by_number.get(self.next_number - 1)

    def before_it(self, number: int) -> tuple[Plan | None, int]:
        """The nearest earlier plan that a query has entered, and how many batches are known to lie between it and this
        one; without one, those since the beginning, if the reader began with a batch without rows."""
        between = 0
        for earlier in range(number - 1, max(number - 1 - LOOK_BACK_MAX, 0), -1):
            plan = self._by_number.get(earlier)
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

    def before(self, tag: str) -> int:
        """Below which number plans are done when everything up to that position is."""
        return self._numbers.get(tag, self.next_number)

    def is_unread(self, tag: str) -> bool:
        """Whether nobody has begun to read the batch that ends there. Of a plan without an instant it is not known."""
        plan = self.at(self.before(tag) - 1)
        if plan is None or not plan.made_at or plan.begun_at:
            return False
        return plan.has_rows and tag_of(plan.end) == tag

    def beyond_bounds(self) -> int:
        """Below which number plans have to go."""
        below, size = self.next_number - min(len(self), PLANS_MAX), self._bytes
        for number, plan in self._by_number.items():
            if size <= PLANS_BYTES_MAX:
                break
            size -= size_of(plan)
            below = max(below, number + 1)
        return below

    def forget(self, below: int, *, newest: bool = False) -> int:
        """Forget those below a number; the newest only when asked to. Below which number anything went; 0 = nothing."""
        below = min(below, self.next_number - (not newest))
        gone = 0
        while self._by_number:
            number = next(iter(self._by_number))
            if number >= below:
                break
            plan = self._by_number.pop(number)
            self._bytes -= size_of(plan)
            if self._numbers.get(plan.tag) == number:
                del self._numbers[plan.tag]
            gone = number + 1
        return gone
