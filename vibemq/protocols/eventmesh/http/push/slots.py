"""Which pushes may be under way: fair shares, so that URLs that hang hold up nobody else's. Pure.

    all                 the slots that this plug-in takes of those of the broker
    not proven          URLs that have not answered lately, or whose last push has failed: a part of the slots
    failing             of these, those whose last push has failed: half of that part
    one user            three quarters of each part
    one host and port   half of each part

Who finds none waits, and is called when there is one: the proven first, users in turn, and the hosts of a user in turn.
Of new URLs of a host, the first and the last that has come are called by turns: however many of them hang, the next one
that works waits for two of them.
Who is called may have nothing to push any more; then the next one is called.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

CALLS_AT_ONCE = 50
"""Of those that wait, in one turn of the loop."""


class UrlStanding(IntEnum):
    """Of a URL. The smaller is called first."""

    PROVEN = 0
    NEW = 1
    FAILING = 2


@dataclass(eq=False, slots=True)
class PushSlot:
    """One that is taken, or wished for. `again`: called when it may be taken."""

    user: str
    host: str
    standing: UrlStanding
    again: Callable[[], None]


@dataclass(slots=True)
class _HostLine:
    waiting: OrderedDict[PushSlot, None] = field(default_factory=OrderedDict)
    last_next: bool = False
    """The one that has come last is called next."""

    def following(self) -> PushSlot:
        slot = next(reversed(self.waiting) if self.last_next else iter(self.waiting))
        self.last_next = slot.standing is UrlStanding.NEW and not self.last_next
        return slot


_ByHost = OrderedDict[str, _HostLine]


class _Part:
    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._most_of_user = max(1, most * 3 // 4)
        self._most_of_host = max(1, most // 2)
        self._taken = 0
        self._users: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        return self._taken >= self._most

    def full_for_user(self, user: str) -> bool:
        return self._users[user] >= self._most_of_user if user in self._users else False

    def full_for_host(self, host: str) -> bool:
        return self._hosts[host] >= self._most_of_host if host in self._hosts else False

    def note(self, slot: PushSlot, change: int) -> None:
        self._taken += change
        for counter, name in ((self._users, slot.user), (self._hosts, slot.host)):
            counter[name] += change
            if not counter[name]:
                del counter[name]


class PushSlots:
    """Args:
    most: pushes under way.
    unproven: of those, to URLs that are not proven.
    later: has a function called in another turn of the loop.
    """

    def __init__(self, most: int, unproven: int, later: Callable[[Callable[[], None]], None]) -> None:
        all_parts, unproven_part, failing = _Part(most), _Part(unproven), _Part((unproven + 1) // 2)
        self._parts = {
            UrlStanding.PROVEN: (all_parts,),
            UrlStanding.NEW: (all_parts, unproven_part),
            UrlStanding.FAILING: (all_parts, unproven_part, failing),
        }
        self._waiting: dict[UrlStanding, OrderedDict[str, _ByHost]] = {each: OrderedDict() for each in UrlStanding}
        self._later = later
        self._calling = False
        self._called_later = False
        """In another turn of the loop."""

    def take(self, slot: PushSlot) -> bool:
        """False: there is none for it now."""
        for part in self._parts[slot.standing]:
            if part.full or part.full_for_user(slot.user) or part.full_for_host(slot.host):
                return False
        for part in self._parts[slot.standing]:
            part.note(slot, 1)
        return True

    def give(self, slot: PushSlot) -> None:
        for part in self._parts[slot.standing]:
            part.note(slot, -1)
        if not (self._calling or self._called_later):
            self._call()

    def wait(self, slot: PushSlot) -> None:
        hosts = self._waiting[slot.standing].setdefault(slot.user, OrderedDict())
        hosts.setdefault(slot.host, _HostLine()).waiting[slot] = None

    def withdraw(self, slot: PushSlot) -> None:
        """It waits no longer."""
        users = self._waiting[slot.standing]
        hosts = users.get(slot.user)
        line = hosts.get(slot.host) if hosts is not None else None
        if hosts is None or line is None:
            return
        line.waiting.pop(slot, None)
        if not line.waiting:
            del hosts[slot.host]
        if not hosts:
            del users[slot.user]

    def _call(self) -> None:
        """Everybody who can have a slot, until there is none left for those that wait."""
        self._calling = True
        try:
            for _ in range(CALLS_AT_ONCE):
                slot = self._next()
                if slot is None:
                    return
                slot.again()
        finally:
            self._calling = False
        self._called_later = True
        self._later(self._call_on)

    def _call_on(self) -> None:
        self._called_later = False
        self._call()

    def _next(self) -> PushSlot | None:
        """No longer waiting. Those that are passed over are few: as many as fill a part."""
        for standing, users in self._waiting.items():
            parts = self._parts[standing]
            if not users or any(part.full for part in parts):
                continue
            for user, hosts in users.items():
                if any(part.full_for_user(user) for part in parts):
                    continue
                for host, line in hosts.items():
                    if any(part.full_for_host(host) for part in parts):
                        continue
                    slot = line.following()
                    users.move_to_end(user)
                    hosts.move_to_end(host)
                    self.withdraw(slot)
                    return slot
        return None
