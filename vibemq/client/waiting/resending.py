"""How long what a lost connection had not answered is sent again, where the next ones are lost as well."""


class Resending:
    """Of one link. Each connection by itself is waited for, and waited on, within bounds; this bounds all of them.

    Args:
        seconds: between a loss and a later one, with nothing achieved; None: no end.
    """

    __slots__ = ("_held_up", "lost_at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._held_up = 0.0
        self.lost_at = 0.0
        """When the latest connection was lost, as `reading` tells the time."""

    def postpone(self, seconds: float) -> None:
        """Nothing could be asked or answered for so long: it does not count."""
        self._held_up += seconds

    def reading(self, now: float) -> float:
        """Of a clock that stands still while nothing can be asked or answered."""
        return now - self._held_up

    def lost(self, now: float) -> None:
        self.lost_at = self.reading(now)

    def is_over(self, since: float) -> bool:
        """Whether the latest loss was too long after that one."""
        return self.seconds is not None and self.lost_at - since > self.seconds
