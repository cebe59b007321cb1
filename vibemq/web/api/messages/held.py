"""What consumers over HTTP hold: messages that were answered, and are not known to be settled."""

from collections.abc import Container
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

STALE_MAX = 64
"""Ends of holds that are over, or were extended, which the heap may have beyond one for each hold."""


@dataclass(slots=True)
class _Held:
    """By one consumer."""

    count: int
    ack_timeout_ms: int
    until: int
    """By then the engine has taken back what is left."""


class HeldLeases:
    """Instants in ms. What is asked in each turn of a session costs the same for one consumer and for thousands."""

    def __init__(self) -> None:
        self._by_consumer: dict[int, _Held] = {}
        self._ends: list[tuple[int, int]] = []
        """A heap of (until, consumer). Some are not true any more."""
        self.count = 0
        """Of messages."""

    def __len__(self) -> int:
        """Of consumers."""
        return len(self._by_consumer)

    def add(self, consumer: int, count: int, ack_timeout_ms: int, until: int) -> None:
        self._by_consumer[consumer] = _Held(count, ack_timeout_ms, until)
        self.count += count
        self._note_end(until, consumer)

    def settle(self, consumer: int, count: int) -> None:
        """So many messages of the consumer are not held any more."""
        held = self._by_consumer.get(consumer)
        if held is None:
            return
        if held.count <= count:
            self.drop(consumer)
        else:
            held.count -= count
            self.count -= count

    def ack_timeout_ms(self, consumer: int) -> int | None:
        """That of its fetch; None: it holds nothing."""
        held = self._by_consumer.get(consumer)
        return held.ack_timeout_ms if held is not None else None

    def extend(self, consumer: int, until: int) -> None:
        """Some of its messages may be held until then."""
        held = self._by_consumer.get(consumer)
        if held is not None and until > held.until:
            held.until = until
            self._note_end(until, consumer)

    def drop(self, consumer: int) -> None:
        held = self._by_consumer.pop(consumer, None)
        if held is not None:
            self.count -= held.count

    def keep(self, consumers: Container[int]) -> None:
        """Drop what others hold."""
        for consumer in [consumer for consumer in self._by_consumer if consumer not in consumers]:
            self.drop(consumer)

    def expire(self, now: int) -> None:
        while (end := self.next_end()) is not None and end <= now:
            self.drop(self._ends[0][1])

    def next_end(self) -> int | None:
        """When the first of the holds is over."""
        while self._ends and not self._is_true(*self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def _is_true(self, until: int, consumer: int) -> bool:
        held = self._by_consumer.get(consumer)
        return held is not None and held.until == until

    def _note_end(self, until: int, consumer: int) -> None:
        heappush(self._ends, (until, consumer))
        if len(self._ends) > 2 * len(self._by_consumer) + STALE_MAX:
            self._ends = [(held.until, consumer) for consumer, held in self._by_consumer.items()]
            heapify(self._ends)
