"""How often and how patiently to dial again. Pure: the randomness is an argument."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vibemq.errors import ConfigInvalid
from vibemq.model.arguments import check_flag, check_seconds, check_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Exponential backoff with full jitter. Times in seconds."""

    max_attempts: int | None = None
    """Dials in a row that may fail before the client gives up for good; None = no end, 0 = never reconnect."""
    initial_delay: float = 0.1
    max_delay: float = 30.0
    exponential: bool = True
    """False: every delay is drawn from `initial_delay`."""
    first_connect: bool = False
    """Also be patient with the very first connection; otherwise `connect` fails at once when nobody listens."""
    offline_timeout: float | None = 60.0
    """How long a request may wait for a connection before it fails with NotConnected; None = while dialling goes on.

    Where connections are made and lost, what each of them has left unanswered is sent again for so long and
    `command_timeout`."""

    def __post_init__(self) -> None:
        for name in ("initial_delay", "max_delay"):
            check_seconds(name, getattr(self, name), ConfigInvalid)
        for name in ("exponential", "first_connect"):
            check_flag(name, getattr(self, name), ConfigInvalid)
        if self.offline_timeout is not None:
            check_seconds("offline_timeout", self.offline_timeout, ConfigInvalid)
        if self.max_attempts is not None:
            check_whole("max_attempts", self.max_attempts, ConfigInvalid)
        if not 0 <= self.initial_delay <= self.max_delay < math.inf:
            raise ConfigInvalid(
                f"reconnect delays must be 0 <= initial_delay <= max_delay, and finite,"
                f" not {self.initial_delay} s and {self.max_delay} s"
            )
        if self.offline_timeout is not None and not self.offline_timeout >= 0:
            raise ConfigInvalid(f"reconnect offline_timeout must be 0 or more, or None, not {self.offline_timeout} s")
        if self.max_attempts is not None and self.max_attempts < 0:
            raise ConfigInvalid(f"reconnect max_attempts must be 0 or more, or None, not {self.max_attempts}")

    def is_over(self, attempts: int) -> bool:
        """Whether the client should give up after so many attempts in a row without a connection."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def delays(self, draw: Callable[[float], float]) -> Iterator[float]:
        """The wait before each attempt, without an end.

        Args:
            draw: ceiling -> a number between 0 and it; `lambda ceiling: random.uniform(0, ceiling)` in earnest. Full
                jitter keeps a thousand clients of a restarted broker from dialling in step.
        """
        ceiling = self.initial_delay
        while True:
            yield draw(ceiling)
            if self.exponential:
                ceiling = min(max(ceiling * 2, 0.001), self.max_delay)
