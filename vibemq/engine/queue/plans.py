"""How a cursor's reader cut its batches, so that a batch that begins where one began before also ends there.

made in a chain     each plan begins where the one before ends; a start that is neither known nor the end of the
                    newest plan is one whose plan is forgotten, or of another reader: it is refused, never guessed
forgotten           when what it covers is acknowledged and released, but never the newest, which holds the chain
bounded             beyond the bounds the oldest go first; whoever still needs one is refused
"""

from vibemq.model.records import Plan, tag_of

PLANS_MAX = 100_000
PLANS_BYTES_MAX = 16 << 20


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
        self._bytes += len(plan.end)
        self.next_number = number + 1

    def find(self, tag: str) -> Plan | None:
        number = self._numbers.get(tag)
        return None if number is None else self._by_number[number]

    def may_begin(self, tag: str) -> bool:
        """Whether a new plan may begin there: where the newest ends, or anywhere when there is none."""
        newest = self._by_number.get(self.next_number - 1)
        return newest is None or bool(newest.end and tag_of(newest.end) == tag)

    def before(self, tag: str) -> int:
        """Below which number plans are done when everything up to that position is."""
        return self._numbers.get(tag, self.next_number)

    def beyond_bounds(self) -> int:
        """Below which number plans have to go."""
        below, size = self.next_number - min(len(self), PLANS_MAX), self._bytes
        for number, plan in self._by_number.items():
            if size <= PLANS_BYTES_MAX:
                break
            size -= len(plan.end)
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
            self._bytes -= len(plan.end)
            if self._numbers.get(plan.tag) == number:
                del self._numbers[plan.tag]
            gone = number + 1
        return gone
