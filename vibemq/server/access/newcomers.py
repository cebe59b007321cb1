"""Connections that have not finished their handshake. Their number is bounded; when all places are taken, an address
that has few gets one of the address that has the most. So nobody keeps others out by connecting more often."""

from typing import Generic, TypeVar

from vibemq.server.access.guessing import address_of

C = TypeVar("C")


class Newcomers(Generic[C]):
    def __init__(self, places: int) -> None:
        """`places`: 0 = any number."""
        self.places = places
        self._since: dict[C, tuple[float, str]] = {}
        """Oldest first."""
        self._by_address: dict[str, dict[C, None]] = {}

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
        self._by_address.setdefault(address, {})[one] = None

    def remove(self, one: C) -> None:
        known = self._since.pop(one, None)
        if known is not None:
            own = self._by_address[known[1]]
            del own[one]
            if not own:
                del self._by_address[known[1]]

    def who_makes_room(self, host: str) -> C | None:
        """The oldest of the address that has the most; None when the asking address would have as many as that."""
        most = max(self._by_address.values(), key=len, default={})
        if len(self._by_address.get(address_of(host), ())) + 1 >= len(most):
            return None
        return next(iter(most))
