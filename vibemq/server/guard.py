"""The door that every command of a connection passes: is it allowed, and is there a token left for it?"""

from collections.abc import Sequence
from typing import Any

from vibemq.errors import NotAuthenticated, NotAuthorized, RateLimited, VibeMQError
from vibemq.model.commands import Command, Extend, Publish, SetCapacity, Settle, Unsubscribe
from vibemq.protocols.session import Principal
from vibemq.server.authority import ACTIONS, Action, Authority
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.limits import TokenBucket

NOT_LIMITED: frozenset[type] = frozenset((Settle, Extend, SetCapacity, Unsubscribe))
"""What makes room is never refused for want of room."""


class Guard:
    """One connection's view of the authority. Remembers its answers until the principal changes."""

    __slots__ = ("_authority", "_bucket", "_known", "_metrics", "_principal", "per_second")

    def __init__(self, authority: Authority, metrics: Metrics, *, per_second: int, now: float) -> None:
        self._authority = authority
        self._metrics = metrics
        self._principal: Principal | None = None
        self._known: set[tuple[Action, str]] = set()
        self.per_second = per_second
        self._bucket = TokenBucket(per_second, per_second, now)

    def check(self, principal: Principal | None, command: Command, now: float) -> VibeMQError | None:
        """None when the command may go on, else the refusal. `now` in monotonic seconds."""
        kind = type(command)
        if principal is not self._principal:
            self._principal = principal
            self._known.clear()
        key = (ACTIONS.get(kind, Action.NEVER), getattr(command, "queue", ""))
        if key not in self._known:
            refusal = self._ask(principal, *key)
            if refusal is not None:
                return refusal
        if self.per_second and kind not in NOT_LIMITED:
            count = command.rows.count if isinstance(command, Publish) else 1
            if not self._bucket.take(count, now):
                self._metrics.rate_limited += 1
                return RateLimited(
                    f"more than {self.per_second} messages per second from this connection; send slower, or ask the "
                    "operator to raise limits.messages_per_client_per_second"
                )
        return None

    def may_see(self, principal: Principal | None, queues: Sequence[Any]) -> list[Any]:
        """The queue infos that the principal may be shown."""
        return [info for info in queues if self._authority.may_see(principal, info.name)]

    def sees_all(self, principal: Principal | None) -> bool:
        return principal is not None and (principal.superuser or not self._authority.enabled)

    def _ask(self, principal: Principal | None, action: Action, queue: str) -> VibeMQError | None:
        if principal is None:
            return NotAuthenticated("connect and authenticate first")
        try:
            self._authority.authorize(principal, action, queue)
        except NotAuthorized as error:
            self._metrics.not_authorized += 1
            return error
        # Queue names come from the peer: a client that walks through names must not grow this without end.
        if len(self._known) >= 1024:
            self._known.clear()
        self._known.add((action, queue))
        return None
