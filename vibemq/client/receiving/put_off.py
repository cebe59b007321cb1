"""What the broker refuses for the time being: since when, and when it is sent again."""

import math
from typing import NamedTuple

RETRY_S = 1.0
"""What was refused is sent again so much later."""


class Creation(NamedTuple):
    """Of an exclusive queue, which another connection has."""

    queue: str


class Restoration(NamedTuple):
    """Of a subscription that the broker knew, and a full disk has refused."""

    subscription: str


class PutOff:
    """Requests of one connection. Each stays until it is granted or given up, however often it is refused."""

    def __init__(self) -> None:
        self._times: dict[tuple[type, str], tuple[float, float]] = {}
        """When it was sent first, and when it is sent again; infinite while it is on its way."""

    def refuse(self, request: Creation | Restoration, sent_at: float) -> float | None:
        """Send it again later; how long it has been refused by now, None: this is the first time."""
        key = type(request), request[0]
        known = self._times.get(key)
        since = sent_at if known is None else known[0]
        self._times[key] = since, sent_at + RETRY_S
        return None if known is None else sent_at - since

    def waits(self, request: Creation | Restoration) -> bool:
        """Whether it is not even on its way."""
        _, again_at = self._times.get((type(request), request[0]), (0.0, math.inf))
        return again_at != math.inf

    def take_due(self, now: float) -> list[Creation | Restoration]:
        """What is to be sent now."""
        due = [key for key, (_, again_at) in self._times.items() if again_at <= now]
        for key in due:
            self._times[key] = self._times[key][0], math.inf
        return [kind(name) for kind, name in due]

    def forget(self, request: Creation | Restoration) -> None:
        self._times.pop((type(request), request[0]), None)

    def clear(self) -> None:
        self._times.clear()
