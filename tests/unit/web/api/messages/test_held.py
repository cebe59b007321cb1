"""What consumers over HTTP hold, beside a list that is looked through."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vibemq.web.api.messages.held import STALE_MAX, HeldLeases

CONSUMERS = st.integers(1, 5)
INSTANTS = st.integers(0, 50)


class Held(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.held = HeldLeases()
        self.model: dict[int, list[int]] = {}
        """By consumer: messages, until."""

    @rule(consumer=CONSUMERS, count=st.integers(1, 5), until=INSTANTS)
    def add(self, consumer: int, count: int, until: int) -> None:
        if consumer not in self.model:
            self.held.add(consumer, count, 7, until)
            self.model[consumer] = [count, until]

    @rule(consumer=CONSUMERS, count=st.integers(1, 5))
    def settle(self, consumer: int, count: int) -> None:
        self.held.settle(consumer, count)
        if consumer in self.model:
            self.model[consumer][0] -= count
            if self.model[consumer][0] <= 0:
                del self.model[consumer]

    @rule(consumer=CONSUMERS, until=INSTANTS)
    def extend(self, consumer: int, until: int) -> None:
        self.held.extend(consumer, until)
        if consumer in self.model:
            self.model[consumer][1] = max(self.model[consumer][1], until)

    @rule(consumer=CONSUMERS)
    def drop(self, consumer: int) -> None:
        self.held.drop(consumer)
        self.model.pop(consumer, None)

    @rule(consumers=st.sets(CONSUMERS))
    def keep(self, consumers: set[int]) -> None:
        self.held.keep(consumers)
        self.model = {consumer: value for consumer, value in self.model.items() if consumer in consumers}

    @rule(now=INSTANTS)
    def expire(self, now: int) -> None:
        self.held.expire(now)
        self.model = {consumer: value for consumer, value in self.model.items() if value[1] > now}

    @invariant()
    def is_as_a_list(self) -> None:
        assert (self.held.count, len(self.held)) == (sum(count for count, _ in self.model.values()), len(self.model))
        assert self.held.next_end() == min((until for _, until in self.model.values()), default=None)
        assert all(self.held.ack_timeout_ms(consumer) == 7 for consumer in self.model)


TestHeld = Held.TestCase


def test_leases_that_are_extended_again_and_again_take_no_room() -> None:
    held = HeldLeases()
    held.add(1, 1, 7, 0)
    for until in range(1_000):
        held.extend(1, until)
    assert len(held._ends) <= 2 + STALE_MAX
