"""How much the broker delivers before the program has settled it."""

from dataclasses import dataclass

from vibemq.errors import LocalProtocolError

DEFAULT = 500
MESSAGES_MAX = 2**32 - 1
BYTES_MAX = 2**63 - 1
RIPE_SHARE = 4
"""Acknowledgements of one in so many messages of the prefetch go out at once; fewer linger for a moment, because the
broker answers small settlements with small hand-outs, which come back as smaller settlements."""


@dataclass(slots=True)
class Prefetch:
    """Of one subscription, or of all that share it."""

    messages: int = DEFAULT
    bytes: int = 0
    """0 = no limit."""

    @property
    def ripe(self) -> int:
        return max(1, self.messages // RIPE_SHARE)

    def change(self, messages: int | None, size: int | None) -> None:
        """None: as it is.

        Raises:
            LocalProtocolError: what the wire cannot carry; nothing is changed.
        """
        if messages is not None:
            check(messages, "messages", 0, MESSAGES_MAX)
        if size is not None:
            check(size, "bytes", 0, BYTES_MAX)
        self.messages = self.messages if messages is None else messages
        self.bytes = self.bytes if size is None else size


def check(value: int, name: str, least: int, most: int) -> None:
    """
    Raises:
        LocalProtocolError: it is no number within the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise LocalProtocolError(f"{name} is {value!r}; it must be a whole number from {least} to {most:,}")
