"""How much the publishes that wait for room hold of the broker's memory."""

from typing import Protocol

from vibemq.model.extras.columns import columns_of
from vibemq.model.extras.message_extra import Extras
from vibemq.model.rows import LargeRow, Rows

_PUBLISH_COST = 1_024
"""Of each publish, however small: to find those of a session, all are looked at."""
_EXTRA_COST = 64
_ALWAYS_BYTES = 4_096


class Guest(Protocol):
    """A publish that waits."""

    session: int
    size: int


class WaitingRoom:
    """Bytes of publishes. No session has more of it than is left to the others afterwards, so there is some for whoever
    comes next: one alone has half, the second a quarter, and so on. What a session needs for a few small ones it always
    has; of sessions there are no more than of connections."""

    __slots__ = ("of_session", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.of_session: dict[int, int] = {}

    def enter(self, guest: Guest, room: int) -> bool:
        """Whether there is space for it in a room of so many bytes."""
        held = self.of_session.get(guest.session, 0) + guest.size
        if held > max(room - self.taken - guest.size, _ALWAYS_BYTES):
            return False
        self.of_session[guest.session] = held
        self.taken += guest.size
        return True

    def leave(self, guest: Guest) -> None:
        """It waits no more."""
        self.taken -= guest.size
        held = self.of_session[guest.session] - guest.size
        if held:
            self.of_session[guest.session] = held
        else:
            del self.of_session[guest.session]


def cost_of(rows: Rows, extras: Extras | None) -> int:
    """Bytes that a publish holds while it waits. A large row has its part of the memory for large bodies."""
    cost = _PUBLISH_COST if isinstance(rows, LargeRow) and rows.memory is not None else _PUBLISH_COST + rows.size
    if extras:
        cost += _EXTRA_COST * len(extras) + sum(map(len, columns_of(extras).dedup_ids))
    return cost
