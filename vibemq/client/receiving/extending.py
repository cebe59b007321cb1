"""When a subscription extends the ack timeout of what it holds, and whether it came too late."""

import math

TICK_S_MIN = 0.01
"""A shorter ack timeout than six of these is not extended in time."""


class AutoExtension:
    """Of one subscription. `now` is the time of the loop, `instant` that of the subscription's clock.

    Args:
        timeout: the ack timeout in seconds; None or 0: none.
        wanted: whether to extend it at all.
    """

    __slots__ = ("_extend_at", "_extended_until", "_lapsed_at", "_timeout")

    def __init__(self, timeout: float | None, *, wanted: bool) -> None:
        self._timeout = timeout if wanted and timeout is not None else None
        self._extend_at = 0.0
        self._extended_until = 0.0
        self._lapsed_at = 0.0
        """When an extension came too late: what had no longer time of its own was somebody else's by then."""

    @property
    def tick_s(self) -> float:
        """Twice as often as it extends."""
        return max(self._timeout / 6, TICK_S_MIN) if self._timeout else math.inf

    def begin_anew(self) -> None:
        """Of another connection: the next tick extends."""
        self._extend_at = 0.0

    def is_due(self, now: float) -> bool:
        return self._timeout is not None and now >= self._extend_at

    def note(self, now: float, instant: float) -> None:
        """All that is held is extended now, but what has longer."""
        timeout = self._timeout or 0.0
        self._extend_at = now + timeout / 3
        if instant >= self._extended_until:
            # The loop was busy for too long, or the process stood still; or nothing was held for a while.
            self._lapsed_at = instant
        self._extended_until = instant + timeout

    def has_lapsed(self, deadline: float, instant: float) -> bool:
        """Whether what was to be settled by then, if nothing had extended it, is somebody else's."""
        return deadline <= self._lapsed_at or instant >= max(deadline, self._extended_until)
