"""Slows the guessing of passwords down, and lets their owners in. Pure: the caller brings the time.

Failures are counted in three ways, and nothing that one address does is held against another:

    address           what it has failed at, whatever the names; 5 are free, then it waits 1 s, 2, 4 … up to 60
    address and name  the same for one name; a login that is right forgets these, and takes them off the address
    name              from all addresses together; once there are many, an address new to the name has one guess

While very many fail, whoever they are, each address that is new to its name has one guess too.

Connections are turned away before anything is known of their credentials, which may be a certificate or a token. So an
address has few only while it has to wait for its own failures, when it has failed at all while very many fail, or
during a flood of logins that the broker cannot answer; and never when somebody has logged in from there before, by
whatever means.

A name that has logged in from an address before waits for no failures with other names there.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sized
from typing import Generic, TypeVar

from vibemq.auth.addresses import network_of
from vibemq.server.access.limits import TokenBucket
from vibemq.server.access.login_queue import LoginStanding

FREE = 5
FREE_UNDER_ATTACK = 1
WAIT_MAX_S = 60.0
ARRIVALS_PER_S, ARRIVALS_AT_ONCE = 1, 5
"""Connections of an address that has failed, or during a flood of any, unless somebody has logged in from there."""
FORGOTTEN_S = 3600.0
"""Failures count no more so long after the end of their wait."""
NAME_FAILURES_PER_MINUTE = 20
FAILURES_PER_S, FAILURES_AT_ONCE = 1, 20
"""Of all names and addresses together; more than that is an attack, until it has ceased for some seconds."""
FLOOD_PER_S, FLOOD_AT_ONCE = 200, 400
"""Of all addresses together: logins that failed, those that ask for the check of a password while very many fail, and
connections that were turned away for the flood. Many more passwords than can be checked in that time."""
ATTACK_ENDS_S = 10.0
"""A flood ends so too."""
TABLE_MAX = 50_000
"""Entries of each table; the least recently used are forgotten first."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Pair = tuple[str, int]


def address_of(host: str) -> str:
    """What counts as one guesser: an IPv4 address or an IPv6 /64; each loopback address is one too."""
    return network_of(host) or host or "local"


class _Table(Generic[K, V]):
    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size_max:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)


class _Failures:
    """(how many, until when to wait) by key."""

    def __init__(self, size_max: int) -> None:
        self._table: _Table[Hashable, tuple[int, float]] = _Table(size_max)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._table

    def wait_s(self, key: Hashable, now: float) -> float:
        found = self._table.get(key)
        return 0.0 if found is None else max(0.0, found[1] - now)

    def count(self, key: Hashable, now: float, free: int) -> None:
        failures, until = self._table.get(key) or (0, now)
        failures = 1 if now - until > FORGOTTEN_S else failures + 1
        # The exponent is capped before the shift: an attacker's failures must not become a huge integer.
        wait = min(WAIT_MAX_S, float(1 << min(failures - free, 10))) if failures >= free else 0.0
        self._table.put(key, (failures, now + wait))

    def forgive(self, key: Hashable, count: int) -> None:
        failures, until = self._table.pop(key) or (0, 0.0)
        if failures > count:
            self._table.put(key, (failures - count, until))

    def forget(self, key: Hashable) -> int:
        """How many there were."""
        found = self._table.pop(key)
        return 0 if found is None else found[0]


class GuessLimiter:
    """Names come from peers and may be long: the tables keep their hash."""

    def __init__(self, *, table_max: int = TABLE_MAX) -> None:
        self._addresses = _Failures(table_max)
        self._pairs = _Failures(table_max)
        self._names: _Table[int, TokenBucket] = _Table(table_max)
        self._known: _Table[Pair, None] = _Table(table_max)
        self._known_addresses: _Table[str, None] = _Table(table_max)
        self._arrivals: _Table[str, TokenBucket] = _Table(table_max)
        self._all = TokenBucket(FAILURES_PER_S, FAILURES_AT_ONCE, 0.0)
        self._attacked_until = 0.0
        self._unwanted = TokenBucket(FLOOD_PER_S, FLOOD_AT_ONCE, 0.0)
        self._flooded_until = 0.0

    def __len__(self) -> int:
        """Entries of all tables."""
        tables: tuple[Sized, ...] = (
            self._addresses,
            self._pairs,
            self._names,
            self._known,
            self._known_addresses,
            self._arrivals,
        )
        return sum(len(table) for table in tables)

    def standing(self, host: str, name: str) -> LoginStanding:
        """KNOWN: the name has logged in from there before, since the broker was started."""
        pair = _pair(host, name)
        if pair in self._known:
            return LoginStanding.KNOWN
        return LoginStanding.SUSPECT if pair[0] in self._addresses else LoginStanding.FRESH

    def wait_s(self, host: str, name: str, now: float) -> float:
        """Seconds until that address may try that name again; 0 = now."""
        pair = _pair(host, name)
        wait_s = self._pairs.wait_s(pair, now)
        return wait_s if pair in self._known else max(wait_s, self._addresses.wait_s(pair[0], now))

    def turns_away(self, host: str, now: float) -> bool:
        """Whether a new connection is one too many of its address. Those from which somebody has logged
        in may connect as they like: one client with a wrong password must not keep others out that share its address.
        """
        address = address_of(host)
        if address in self._known_addresses:
            return False
        guilty = self._addresses.wait_s(address, now) > 0 or (self.is_attacked(now) and address in self._addresses)
        if not guilty and now >= self._flooded_until:
            return False
        bucket = self._arrivals.get(address) or TokenBucket(ARRIVALS_PER_S, ARRIVALS_AT_ONCE, now)
        self._arrivals.put(address, bucket)
        turned_away = not bucket.take(1, now)
        if turned_away and not guilty:
            # The flood lasts while they come. An address that has failed is kept away without one.
            self.note_unwanted(now)
        return turned_away

    def is_attacked(self, now: float) -> bool:
        """Whether so many logins fail that the checks of passwords must leave the processors to others."""
        return now < self._attacked_until

    def note_unwanted(self, now: float) -> None:
        """A login that was wrong, or a check that is asked for while very many fail."""
        if not self._unwanted.take(1, now):
            self._flooded_until = now + ATTACK_ENDS_S

    def failed(self, host: str, name: str, now: float) -> None:
        self.note_unwanted(now)
        pair = _pair(host, name)
        if pair in self._known:
            self._pairs.count(pair, now, FREE)
            return
        if not self._all.take(1, now):
            self._attacked_until = now + ATTACK_ENDS_S
        free = FREE_UNDER_ATTACK if self.is_attacked(now) else FREE
        self._pairs.count(pair, now, FREE_UNDER_ATTACK if self._name_is_attacked(pair[1], now) else free)
        self._addresses.count(pair[0], now, free)

    def _name_is_attacked(self, name: int, now: float) -> bool:
        """Counts one failure of the name."""
        bucket = self._names.get(name) or TokenBucket(NAME_FAILURES_PER_MINUTE / 60, NAME_FAILURES_PER_MINUTE, now)
        self._names.put(name, bucket)
        return not bucket.take(1, now)

    def succeeded(self, host: str, name: str) -> None:
        pair = _pair(host, name)
        self._addresses.forgive(pair[0], self._pairs.forget(pair))
        self._known.put(pair, None)
        self.note_address(host)

    def note_address(self, host: str) -> None:
        """Somebody has logged in from there, with what nobody guesses. It forgives no wrong passwords: else whoever
        has a narrow token of a user could guess the password without a wait."""
        self._known_addresses.put(address_of(host), None)


def _pair(host: str, name: str) -> Pair:
    return address_of(host), hash(name)
