"""How much one client may ask for: requests a second, and how many at a time, by class of route; and how what is there
for all is shared. Pure."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from vibemq.auth.addresses import network_of
from vibemq.errors import RateLimited
from vibemq.web.api.kinds import Kind

CHANGE_COSTS = 5
"""Of requests a second that are allowed, one in so many may change something."""
BURST = 4
"""So many seconds' worth may come at once."""
CLIENTS_MAX = 10_000

Client = tuple[str, str]
"""User and address, as `client_of` makes it."""


def client_of(user: str, host: str) -> Client:
    """Who is counted as one. `user`: "" for nobody."""
    return user, network_of(host) or host


class Shares:
    """Room for all. Nobody gets more of it than is left to the others afterwards, so there is always some for whoever
    comes next: one alone has half, the second a quarter, and so on. The last single unit is given away.

    The owner of a share is a user, whatever addresses it comes from; without users it is the address.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        """May be changed at any time."""
        self._taken = 0
        self._of_owner: Counter[str] = Counter()

    @contextmanager
    def hold(self, client: Client, amount: int = 1) -> Iterator[bool]:
        """Have so much of it for a while; or nothing, and False, where that would be too much."""
        owner = client[0] or client[1]
        left_after = self.room - self._taken - amount
        if left_after < 0 or self._of_owner[owner] + amount > left_after + 1:
            yield False
            return
        self._of_owner[owner] += amount
        self._taken += amount
        try:
            yield True
        finally:
            self._taken -= amount
            self._of_owner[owner] -= amount
            if not self._of_owner[owner]:
                del self._of_owner[owner]


@dataclass(frozen=True, slots=True)
class Together:
    """How many requests of a class run at a time."""

    of_client: int
    in_all: int
    """See `Shares`."""


TOGETHER: Mapping[Kind, Together] = {
    Kind.READ: Together(8, 48),
    Kind.CHANGE: Together(8, 32),
    Kind.MESSAGES: Together(8, 48),
    Kind.SETTLE: Together(8, 48),
    Kind.WAIT: Together(8, 64),
    Kind.SCAN: Together(2, 8),
    Kind.LOGIN: Together(64, 2_048),
    Kind.STREAM: Together(4, 32),
}


class _Bucket:
    """Tokens that flow in all the time; says when there will be one."""

    __slots__ = ("_at", "_left")

    def __init__(self, most: float, now_s: float) -> None:
        self._left, self._at = most, now_s

    def wait_s(self, per_s: float, most: float, now_s: float) -> float:
        """0: one was taken. Else the seconds until there is one. `per_s`, `most`: as the settings are now."""
        self._left = min(most, self._left + (now_s - self._at) * per_s)
        self._at = now_s
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / per_s


class RequestRates:
    """Args:
    per_second: requests of one client; 0 = any number.
    streams_max: of all clients together.
    refused: is told of each refusal.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        per_second: int,
        streams_max: int,
        refused: Callable[[RateLimited], None],
    ) -> None:
        self._monotonic = monotonic
        self._refused = refused
        self.per_second = per_second
        self._buckets: OrderedDict[tuple[str, Client], _Bucket] = OrderedDict()
        self._running: Counter[tuple[Kind, Client]] = Counter()
        self._shares = {kind: Shares(together.in_all) for kind, together in TOGETHER.items()}
        self.set_streams_max(streams_max)

    def set_streams_max(self, streams_max: int) -> None:
        self._shares[Kind.STREAM].room = streams_max

    def count(self, kind: Kind, client: Client) -> None:
        """Count one request. Raises RateLimited, which says when the next one is taken."""
        if not self.per_second:
            return
        self._take("all", client, self.per_second, "requests")
        if kind is Kind.CHANGE:
            self._take("change", client, max(1.0, self.per_second / CHANGE_COSTS), "changes")

    def _take(self, name: str, client: Client, per_s: float, what: str) -> None:
        now_s = self._monotonic()
        bucket = self._buckets.get((name, client))
        if bucket is None:
            bucket = self._buckets[name, client] = _Bucket(per_s * BURST, now_s)
            if len(self._buckets) > CLIENTS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end((name, client))
        wait_s = bucket.wait_s(per_s, per_s * BURST, now_s)
        if wait_s:
            raise self._refusal(f"more than {per_s:g} {what} a second from this client; send slower", wait_s)

    @contextmanager
    def slot(self, kind: Kind, client: Client) -> Iterator[None]:
        """Hold a place of the class. Raises RateLimited."""
        key, most = (kind, client), TOGETHER[kind].of_client
        if self._running[key] >= most:
            raise self._refusal(f"{most} requests of this kind are under way; wait for an answer", 1.0)
        with self._shares[kind].hold(client) as is_held:
            if not is_held:
                raise self._refusal("too many requests of this kind are under way; try again later", 1.0)
            self._running[key] += 1
            try:
                yield
            finally:
                self._running[key] -= 1
                if not self._running[key]:
                    del self._running[key]

    def _refusal(self, text: str, wait_s: float) -> RateLimited:
        error = RateLimited(text)
        error.wait_s = wait_s
        self._refused(error)
        return error
