"""Checks every command of a connection: its permission and the rate limit."""

from vibemq.auth.grants import Grants
from vibemq.auth.policy import Policy
from vibemq.auth.viewing import Viewer
from vibemq.errors import NotAuthorized, RateLimited, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import Command, Extend, Publish, SetCapacity, SetShare, Settle, Stage, Unsubscribe
from vibemq.server.access.limits import TokenBucket
from vibemq.server.monitoring.metrics import Metrics

NOT_LIMITED: frozenset[type] = frozenset((Settle, Extend, SetCapacity, SetShare, Unsubscribe))
"""What makes room is never refused for want of room."""


class PeerAdmission:
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
        return self.take(command, now)

    def refusal(self, principal: Principal | None, command: Command) -> VibeMQError | None:
        """Of a command that was admitted and has waited: why it may not go on any more."""
        refusal = self._grants.check(principal, command)
        self._metrics.not_authorized += isinstance(refusal, NotAuthorized)
        return refusal

    def take(self, command: Command, now: float) -> RateLimited | None:
        """None when there is a token left for the command, whose right was checked elsewhere."""
        if type(command) in NOT_LIMITED:
            return None
        return self._take(command.rows.count if isinstance(command, Publish | Stage) else 1, now)

    def take_messages(self, count: int, now: float) -> RateLimited | None:
        """The same for an operation that a task of its own carries out, and that publishes so many messages; at least
        one."""
        return self._take(max(1, count), now)

    def _take(self, count: int, now: float) -> RateLimited | None:
        if not self.per_second or self._bucket.take(count, now):
            return None
        self._metrics.rate_limited += 1
        return RateLimited(
            f"more than {self.per_second} messages per second from this connection; send slower, or ask the "
            "operator to raise limits.messages_per_client_per_second"
        )

    def viewer(self, principal: Principal | None) -> Viewer:
        """Which queues a list names: any right to one will do."""
        return self._policy.viewer(principal)


class OwnAdmission(PeerAdmission):
    """Of a peer that is a part of the broker, which nobody logs in as."""

    __slots__ = ()

    def check(self, principal: Principal | None, command: Command, now: float) -> VibeMQError | None:
        return None

    def refusal(self, principal: Principal | None, command: Command) -> VibeMQError | None:
        return None
