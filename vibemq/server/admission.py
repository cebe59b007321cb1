"""Checks every command of a connection: its permission and the rate limit."""

from collections.abc import Sequence

from vibemq.auth.grants import Grants
from vibemq.auth.policy import Policy
from vibemq.errors import NotAuthorized, RateLimited, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import Command, Extend, Publish, SetCapacity, Settle, Unsubscribe
from vibemq.model.effects import QueueInfo
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.limits import TokenBucket

NOT_LIMITED: frozenset[type] = frozenset((Settle, Extend, SetCapacity, Unsubscribe))
"""What makes room is never refused for want of room."""


class Admission:
    """One connection's rights (see `vibemq.auth.grants`) and its rate limit."""

    __slots__ = ("_bucket", "_grants", "_metrics", "_policy", "per_second")

    def __init__(self, policy: Policy, metrics: Metrics, *, per_second: int, now: float) -> None:
        self._policy = policy
        self._grants = Grants(policy)
        self._metrics = metrics
        self.per_second = per_second
        self._bucket = TokenBucket(per_second, per_second, now)

    def check(self, principal: Principal | None, command: Command, now: float) -> VibeMQError | None:
        """None when the command may go on, else the refusal. `now` in monotonic seconds."""
        refusal = self._grants.check(principal, command)
        if refusal is not None:
            self._metrics.not_authorized += isinstance(refusal, NotAuthorized)
            return refusal
        if self.per_second and type(command) not in NOT_LIMITED:
            count = command.rows.count if isinstance(command, Publish) else 1
            if not self._bucket.take(count, now):
                self._metrics.rate_limited += 1
                return RateLimited(
                    f"more than {self.per_second} messages per second from this connection; send slower, or ask the "
                    "operator to raise limits.messages_per_client_per_second"
                )
        return None

    def visible(self, principal: Principal | None, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
        """What a list may show: queues to which the principal has any right; their figures only with `inspect`."""
        return [
            info if self._grants.may_inspect(principal, info.name) else info.without_figures()
            for info in queues
            if self._policy.may_see(principal, info.name)
        ]

    def sees_all(self, principal: Principal | None) -> bool:
        return principal is not None and self._policy.is_superuser(principal)
