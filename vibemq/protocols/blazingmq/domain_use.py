"""What clients have open of the queues of each domain, which the limits of the domain are about."""

from collections.abc import Iterator

from vibemq.protocols.blazingmq.errors import UnknownHere
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.blazingmq.streams import OpenedQueue

_Key = tuple[str, str]
"""(domain, queue)"""
Counted = tuple[int, int]
"""(producers, consumers)"""
GIVEN_BACK_AT_ONCE = 500
"""Queues that a client had open, of which it takes half a millisecond to count it off."""


class DomainUse:
    """Of all clients of a listener."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, Counted]] = {}
        """By domain and queue."""

    def check(self, domain_name: str, domain: Domain, queue: str, producers: int, consumers: int) -> None:
        """Raises UnknownHere: with so many more it would be more than the domain allows."""
        queues = self._queues.get(domain_name, {})
        if domain.max_queues and queue not in queues and len(queues) >= domain.max_queues:
            raise UnknownHere(
                f"domain {domain_name!r} has {domain.max_queues} queues open, and allows no more (max_queues)"
            )
        has_producers, has_consumers = queues.get(queue, (0, 0))
        if producers and domain.max_producers and has_producers + producers > domain.max_producers:
            raise UnknownHere(
                f"the queue has {has_producers} producers, and its domain {domain_name!r} allows"
                f" {domain.max_producers} (max_producers)"
            )
        if consumers and domain.max_consumers and has_consumers + consumers > domain.max_consumers:
            raise UnknownHere(
                f"the queue has {has_consumers} consumers, and its domain {domain_name!r} allows"
                f" {domain.max_consumers} (max_consumers)"
            )

    def count(self, key: _Key, producers: int, consumers: int) -> None:
        domain_name, queue = key
        queues = self._queues.setdefault(domain_name, {})
        had_producers, had_consumers = queues.get(queue, (0, 0))
        left = had_producers + producers, had_consumers + consumers
        if any(left):
            queues[queue] = left
        else:
            queues.pop(queue, None)
            if not queues:
                del self._queues[domain_name]

    @property
    def open_queues(self) -> int:
        return sum(map(len, self._queues.values()))


class ClientUse:
    """Of one client."""

    __slots__ = ("_all", "_left", "_mine")

    def __init__(self, shared: DomainUse) -> None:
        self._all = shared
        self._mine: dict[_Key, Counted] = {}
        self._left: Iterator[None] | None = None
        """Once it has left: the steps in which the rest is given back."""

    def check(self, queue: OpenedQueue, *, producers: int, consumers: int) -> None:
        """Raises UnknownHere: with so many more it would be more than the domain allows."""
        self._all.check(queue.uri.domain, queue.domain, queue.name, producers, consumers)

    def count(self, queue: OpenedQueue, *, producers: int = 0, consumers: int = 0) -> None:
        key = queue.uri.domain, queue.name
        had_producers, had_consumers = self._mine.get(key, (0, 0))
        left = had_producers + producers, had_consumers + consumers
        if any(left):
            self._mine[key] = left
        else:
            self._mine.pop(key, None)
        self._all.count(key, producers, consumers)

    def leave(self) -> None:
        """What it has open is given back: all of it if it is little, else the rest with `let_go`."""
        if self._left is None:
            shared, self._all = self._all, DomainUse()
            mine, self._mine = self._mine, {}
            self._left = _give_back(shared, mine)
            next(self._left, None)

    def let_go(self) -> Iterator[None]:
        """The rest, in steps."""
        self.leave()
        assert self._left is not None, "it has left"
        yield from self._left


def _give_back(shared: DomainUse, mine: dict[_Key, Counted]) -> Iterator[None]:
    while mine:
        for _ in range(min(len(mine), GIVEN_BACK_AT_ONCE)):
            key, (producers, consumers) = mine.popitem()
            shared.count(key, -producers, -consumers)
        yield
