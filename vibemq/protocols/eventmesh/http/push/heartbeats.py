"""Subscriptions that have had a heartbeat end when none comes any more. Looking for the silent ones costs nothing.

While the machine is suspended nobody can be heard, so that time counts for nobody.
"""

from collections import OrderedDict
from collections.abc import Callable

from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import SubscriptionKey

ENDED_AT_ONCE = 20
"""In one turn of the loop."""
LATE_MS = 10_000
"""A timer that is so late has waited for a machine that was suspended, or for a loop that heard nobody either."""


class Heartbeats:
    """
    Args:
        own: the session that keeps the time now.
        silent: called with each subscription that has had none for `expiry_ms`; it has to be forgotten.
    """

    def __init__(
        self, own: Callable[[], InnerSession], expiry_ms: int, silent: Callable[[SubscriptionKey], None]
    ) -> None:
        self._own = own
        self._expiry_ms = expiry_ms
        self._silent = silent
        self._beats: OrderedDict[SubscriptionKey, int] = OrderedDict()
        """Instant of the last one, less what was suspended until then; the longest silent first."""
        self._suspended_ms = 0
        self._due: int | None = None
        """When to look next."""

    def __contains__(self, key: SubscriptionKey) -> bool:
        return key in self._beats

    def note(self, key: SubscriptionKey, now: int) -> None:
        self._beats[key] = now - self._suspended_ms
        self._beats.move_to_end(key)
        self._watch()

    def forget(self, key: SubscriptionKey) -> None:
        self._beats.pop(key, None)

    def _watch(self) -> None:
        if self._due is not None or not self._beats:
            return
        own, oldest = self._own(), next(iter(self._beats.values()))
        self._due = max(own.now, oldest + self._suspended_ms + self._expiry_ms)
        own.call_at(self._due, self._look)

    def _look(self) -> None:
        """End those that are silent; of the others, come back for the one that is silent for longest."""
        now, due, self._due = self._own().now, self._due, None
        if due is not None and now - due > LATE_MS:
            # Each gets its whole time once more: its heartbeats may be on their way.
            self._suspended_ms += now - due + self._expiry_ms
        until = now - self._suspended_ms - self._expiry_ms
        for _ in range(ENDED_AT_ONCE):
            key = next(iter(self._beats), None)
            if key is None or self._beats[key] > until:
                break
            self._silent(key)
        self._watch()
