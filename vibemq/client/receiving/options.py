"""What a program asks of a subscription, and what it is told of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from vibemq.client.publishing.outgoing import Seconds
from vibemq.client.receiving.prefetch import Prefetch
from vibemq.client.settlements import limit_ms
from vibemq.errors import LocalProtocolError
from vibemq.model.arguments import SECONDS, check_flag, check_optional_text, check_text, check_whole, misfit
from vibemq.model.selector import Selector

DEFAULT_AUTO_EXTEND_TIMEOUT = 30.0
SHARE_CHARACTERS_MAX = 256
WEIGHT_MAX = 1_000_000


@dataclass(slots=True)
class SubscriptionStats:
    """Counts since the subscription was made."""

    received: int = 0
    stale_settlements: int = 0
    """Verbs on messages whose connection was gone: without effect, the broker hands those messages out again."""
    interruptions: int = 0
    """Connections lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """Times in seconds; see `Client.subscribe`."""

    queue: str
    group: str | None = None
    prefetch: int | None = None
    prefetch_bytes: int = 0
    share: str | None = None
    credit: int | None = None
    priority: int = 0
    weight: int = 1
    where: str | None = None
    ack_timeout: Seconds | None = None
    start: str | int = "default"
    auto_extend: bool = False
    auto_ack: bool = False
    restore: bool = True

    def __post_init__(self) -> None:
        self._check_kinds()
        if self.group == "":
            raise LocalProtocolError("group is ''; it must be the name of a group, or None for the ordinary one")
        if self.prefetch is not None and self.prefetch < 1:
            raise LocalProtocolError(f"prefetch is {self.prefetch}; it must be 1 or more")
        if self.prefetch_bytes < 0:
            raise LocalProtocolError(f"prefetch_bytes is {self.prefetch_bytes}; it must be 0 (no bound) or more")
        if self.share is not None and not 1 <= len(self.share) <= SHARE_CHARACTERS_MAX:
            raise LocalProtocolError(f"share is {self.share[:64]!r}; it must be a text of 1 to 256 characters")
        if not 1 <= self.weight <= WEIGHT_MAX:
            raise LocalProtocolError(f"weight is {self.weight}; it must be 1 to {WEIGHT_MAX:,}")
        if self.where is not None:
            Selector.parse(self.where)
        if self.ack_timeout is not None:
            limit_ms(self.ack_timeout, "ack_timeout")
            if isinstance(self.ack_timeout, timedelta):
                object.__setattr__(self, "ack_timeout", self.ack_timeout.total_seconds())
        if isinstance(self.start, str) and self.start not in ("default", "beginning", "now"):
            raise LocalProtocolError(f"start is {self.start!r}; it must be default, beginning, now or a sequence")

    def _check_kinds(self) -> None:
        check_text("queue", self.queue)
        for name in ("group", "share", "where"):
            check_optional_text(name, getattr(self, name))
        for name in ("prefetch", "credit"):
            value = getattr(self, name)
            if value is not None:
                check_whole(name, value)
        for name in ("prefetch_bytes", "priority", "weight"):
            check_whole(name, getattr(self, name))
        for name in ("auto_extend", "auto_ack", "restore"):
            check_flag(name, getattr(self, name))
        if isinstance(self.start, bool) or not isinstance(self.start, str | int):
            raise misfit("start", self.start, "default, beginning, now or a sequence")

    @property
    def timeout(self) -> float | None:
        """The ack timeout asked for; auto-extension has to know one."""
        if not self.ack_timeout and self.auto_extend:
            return DEFAULT_AUTO_EXTEND_TIMEOUT
        assert not isinstance(self.ack_timeout, timedelta)
        return self.ack_timeout

    def headers(self, prefetch: Prefetch) -> Mapping[str, str]:
        timeout = self.timeout
        values = {
            "group": self.group,
            "prefetch": prefetch.messages,
            "prefetch-bytes": prefetch.bytes or None,
            "share": self.share,
            "credit": self.credit,
            "consumer-priority": self.priority or None,
            "consumer-weight": self.weight if self.weight > 1 else None,
            "where": self.where,
            "ack-timeout-ms": None if timeout is None else limit_ms(timeout, "ack_timeout"),
            "start": f"sequence:{self.start}" if isinstance(self.start, int) else self.start,
        }
        return {name: str(value) for name, value in values.items() if value is not None}


def check_wait(timeout: float) -> None:
    """Raise LocalProtocolError for a time that is no number: a loop that is given NaN as a deadline loses its order."""
    try:
        is_nan = math.isnan(timeout)
    except TypeError:
        raise misfit("timeout", timeout, SECONDS) from None
    if is_nan:
        raise LocalProtocolError("timeout is nan s; it must be a number, 0 or less to take only what is there")
