"""Connections that have not finished their handshake. Their number is bounded; when all places are taken, an address
that has few gets one of the address that has the most. So nobody keeps others out by connecting more often."""

from collections.abc import Callable
from typing import Generic, TypeVar

from vibemq.server.access.guessing import address_of

LOOKED_AT_EVERY_S = 0.1
FEW_ONE_IN = 8
"""Fewer than one in so many are few."""

C = TypeVar("C")


class Newcomers(Generic[C]):
    def __init__(self, places: int) -> None:
        """`places`: 0 = any number."""
        self.places = places
        self._since: dict[C, tuple[float, str]] = {}
        """Oldest first."""
        self._by_address: dict[str, dict[C, None]] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        """Addresses by how many they have: whom to ask for a place is found without a look at all of them."""
        self._most = 0
        self._look_again_at = 0.0

    def __len__(self) -> int:
        return len(self._since)

    def oldest_first(self) -> list[tuple[C, float]]:
        """With the moment that they came."""
        return [(one, since) for one, (since, _) in self._since.items()]

    @property
    def full(self) -> bool:
        return bool(self.places) and len(self._since) >= self.places

    def add(self, one: C, host: str, now: float) -> None:
        address = address_of(host)
        self._since[one] = (now, address)
        own = self._by_address.setdefault(address, {})
        own[one] = None
        self._recount(address, len(own) - 1, len(own))

    def remove(self, one: C) -> None:
        known = self._since.pop(one, None)
        if known is not None:
            own = self._by_address[known[1]]
            del own[one]
            self._recount(known[1], len(own) + 1, len(own))
            if not own:
                del self._by_address[known[1]]

    def let_go(self, has_come_in: Callable[[C], bool], now: float) -> None:
        """Forget those who have finished their handshake meanwhile. A look at all of them that finds few to forget is
        not repeated for a while: a flood of connections must not cause one for each."""
        if now < self._look_again_at:
            return
        before = len(self)
        for one in [one for one in self._since if has_come_in(one)]:
            self.remove(one)
        if FEW_ONE_IN * (before - len(self)) < before:
            self._look_again_at = now + LOOKED_AT_EVERY_S

    def who_makes_room(self, host: str) -> C | None:
        """The oldest of the address that has the most; None when the asking address would have as many as that."""
        if len(self._by_address.get(address_of(host), ())) + 1 >= self._most:
            return None
        address = next(iter(self._by_count[self._most]))
        return next(iter(self._by_address[address]))

    def _recount(self, address: str, before: int, now: int) -> None:
        """The two differ by one, so the most does not change by more."""
        if before:
            del self._by_count[before][address]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[address] = None
        if now > self._most or self._most not in self._by_count:
            self._most = now
