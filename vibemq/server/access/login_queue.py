"""Logins that wait for the check of their password. Pure.

Three lanes take turns: names that have logged in from the same address before, addresses that have not failed, and
addresses that have. Within a lane the addresses take turns, so that a login waits for one of each other address and
not for all of them; of the addresses that have not failed the newest comes first, because whoever comes from many of
them at once has brought them before the one that counts. One that asks again before it has its answer comes last.
"""

from collections import OrderedDict, deque
from enum import IntEnum
from typing import Generic, TypeVar

LANE_MAX = 2_048
"""Logins that wait in one lane."""
ADDRESS_MAX = 64
"""Of one address that has not logged in with the name before."""

T = TypeVar("T")


class LoginStanding(IntEnum):
    """Of an address and a name."""

    KNOWN = 0
    FRESH = 1
    SUSPECT = 2


class _Lane(Generic[T]):
    def __init__(self, address_max: int, *, newest_first: bool) -> None:
        self._address_max = address_max
        self._newest_first = newest_first
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self.size = 0

    def add(self, address: str, login: T) -> bool:
        own = self._waiting.get(address)
        if self.size >= LANE_MAX or (own is not None and len(own) >= self._address_max):
            return False
        if own is None:
            own = self._waiting[address] = deque()
        elif self._newest_first:
            # Whoever logs in once waits for the answer; who guesses as fast as can be does not.
            self._waiting.move_to_end(address, last=False)
        own.append(login)
        self.size += 1
        return True

    def take(self) -> T | None:
        if not self._waiting:
            return None
        address, own = self._waiting.popitem(last=self._newest_first)
        login = own.popleft()
        if own:
            self._waiting[address] = own
            self._waiting.move_to_end(address, last=not self._newest_first)
        self.size -= 1
        return login


class LoginQueue(Generic[T]):
    def __init__(self) -> None:
        self._lanes: list[_Lane[T]] = [
            _Lane(
                LANE_MAX if standing is LoginStanding.KNOWN else ADDRESS_MAX,
                newest_first=standing is LoginStanding.FRESH,
            )
            for standing in LoginStanding
        ]
        self._next = 0

    def __len__(self) -> int:
        return sum(lane.size for lane in self._lanes)

    def add(self, address: str, login: T, standing: LoginStanding) -> bool:
        """False: there is no room for it."""
        return self._lanes[standing].add(address, login)

    def take(self) -> T | None:
        for _ in self._lanes:
            lane = self._lanes[self._next]
            self._next = (self._next + 1) % len(self._lanes)
            if (login := lane.take()) is not None:
                return login
        return None
