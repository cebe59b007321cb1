"""What clients have open of the queues of each domain, which the limits of the domain are about."""

from collections.abc import Iterator

from vibemq.protocols.blazingmq.errors import UnknownHere
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.blazingmq.streams import OpenedQueue

Counts = dict[str, int]
"""By domain, "/" and queue: the producers, and `CONSUMER` for each consumer. Text and numbers alone: at a table of
anything else Python's collector looks each time that it has changed, which for 10,000 queues takes a millisecond."""
CONSUMER = 1 << 32
GIVEN_BACK_AT_ONCE = 500
"""Queues that a client had open, of which it takes half a millisecond to count it off."""


class DomainUse:
    """Of all clients of a listener."""

    def __init__(self) -> None:
        self._counts: Counts = {}
        self._open: dict[str, int] = {}
        """By domain, how many of its queues are open."""

    def check(self, domain_name: str, domain: Domain, queue: str, producers: int, consumers: int) -> None:
        """Raises UnknownHere: with so many more it would be more than the domain allows."""
        counted, are_open = self._counts.get(_key(domain_name, queue), 0), self._open.get(domain_name, 0)
        if domain.max_queues and not counted and are_open >= domain.max_queues:
            raise UnknownHere(
                f"domain {domain_name!r} has {domain.max_queues} queues open, and allows no more (max_queues)"
            )
        has_consumers, has_producers = divmod(counted, CONSUMER)
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

    def count(self, key: str, change: int) -> None:
        opened = _count(self._counts, key, change)
        if opened:
            domain_name = key.partition("/")[0]
            self._open[domain_name] = self._open.get(domain_name, 0) + opened
            if not self._open[domain_name]:
                del self._open[domain_name]

    @property
    def open_queues(self) -> int:
        return len(self._counts)


class ClientUse:
    """Of one client."""

    __slots__ = ("_all", "_left", "_mine")

    def __init__(self, shared: DomainUse) -> None:
        self._all = shared
        self._mine: Counts = {}
        self._left: Iterator[None] | None = None
        """Once it has left: the steps in which the rest is given back."""

    def check(self, queue: OpenedQueue, *, producers: int, consumers: int) -> None:
        """Raises UnknownHere: with so many more it would be more than the domain allows."""
        self._all.check(queue.uri.domain, queue.domain, queue.name, producers, consumers)

    def count(self, queue: OpenedQueue, *, producers: int = 0, consumers: int = 0) -> None:
        key, change = _key(queue.uri.domain, queue.name), producers + CONSUMER * consumers
        _count(self._mine, key, change)
        self._all.count(key, change)

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


def _key(domain_name: str, queue: str) -> str:
    return f"{domain_name}/{queue}"


def _count(counts: Counts, key: str, change: int) -> int:
    """Returns 1 if there was none before, -1 if there is none any more, else 0."""
    before = counts.get(key, 0)
    counts[key] = before + change
    if before + change:
        return int(not before)
    del counts[key]
    return -int(bool(before))


def _give_back(shared: DomainUse, mine: Counts) -> Iterator[None]:
    while mine:
        for _ in range(min(len(mine), GIVEN_BACK_AT_ONCE)):
            key, counted = mine.popitem()
            shared.count(key, -counted)
        yield
