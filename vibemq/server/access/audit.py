"""What auditors ask for: who failed to log in, and who changed what others may do or have. Never a secret.

Each event is one record of the logger `vibemq.audit`, which `vibemq serve` writes as a line of JSON whatever the log's
format and level. Of events that strangers can cause in any number a few are written at once and the others are
counted; a summary about every second says how many there were.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vibemq.model.access import Principal
from vibemq.server.access.limits import TokenBucket

AUDIT = "vibemq.audit"
log = logging.getLogger(AUDIT)

AT_ONCE_MAX = 50
AT_ONCE_PER_S = 5
SUMMED_MAX = 1_000
"""Addresses and names that a summary tells apart."""
SHOWN_MAX = 10
LISTED_MAX = 20
"""Members of an argument that is a list."""
TEXT_MAX = 128
"""Characters of what a peer has chosen."""


class AuditedPeer(Protocol):
    @property
    def connection_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def protocol(self) -> str: ...


class AuditLog:
    """Args:
    monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at_once = TokenBucket(AT_ONCE_PER_S, AT_ONCE_MAX, monotonic())
        self._count = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()

    def login_failed(self, peer: AuditedPeer, user: str, reason: str) -> None:
        fields = {"event": "auth.failed", "user": shown(user), "outcome": "refused", "reason": reason}
        self._refused("authentication failed", peer, fields)

    def changed(
        self,
        peer: AuditedPeer,
        principal: Principal | None,
        operation: str,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        unchanged: bool = False,
    ) -> None:
        """
        Args:
            reason: why it was not done; "" when it was.
            unchanged: there was nothing to do.
        """
        fields = {
            "event": "access.changed",
            "user": principal.name if principal is not None else "",
            "token": principal.token_id if principal is not None else "",
            "operation": operation,
            "arguments": {name: _shortened(value) for name, value in arguments.items()},
            "outcome": "failed" if reason else "unchanged" if unchanged else "done",
            **({"reason": reason} if reason else {}),
        }
        log.info("%s", operation, extra={**fields, **_place(peer)})

    def denied(self, peer: AuditedPeer, principal: Principal | None, operation: str, reason: str) -> None:
        """A request to change something by somebody who may not."""
        user = principal.name if principal is not None else ""
        fields = {"event": "access.denied", "user": user, "operation": operation, "outcome": "refused"}
        self._refused("access denied", peer, {**fields, "reason": reason})

    def session(self, place: AuditedPeer, principal: Principal, event: str) -> None:
        """A session of a browser has begun, or was ended by its user."""
        fields = {"event": event, "user": principal.name, "token": principal.token_id, "outcome": "done"}
        log.info("%s", event, extra={**fields, **_place(place)})

    def reloaded(self, fields: Mapping[str, Any], *, failed: bool) -> None:
        log.info(
            "settings read again",
            extra={"event": "settings.reloaded", "outcome": "failed" if failed else "done", **fields},
        )

    def _refused(self, message: str, peer: AuditedPeer, fields: Mapping[str, Any]) -> None:
        if self._at_once.take(1, self._monotonic()):
            log.warning(message, extra={**fields, **_place(peer)})
            return
        self._count += 1
        for counter, key in ((self._addresses, peer.host), (self._users, str(fields["user"]))):
            if key in counter or len(counter) < SUMMED_MAX:
                counter[key] += 1

    async def summarize(self) -> None:
        """Called about once a second."""
        if not self._count:
            return
        fields = {
            "event": "auth.failures",
            "outcome": "refused",
            "count": self._count,
            "addresses": dict(self._addresses.most_common(SHOWN_MAX)),
            "users": dict(self._users.most_common(SHOWN_MAX)),
        }
        self._count = 0
        self._addresses.clear()
        self._users.clear()
        log.warning("further refusals", extra=fields)


def _place(peer: AuditedPeer) -> dict[str, str]:
    return {"remote": peer.host, "conn_id": peer.connection_id, "protocol": peer.protocol}


def _shortened(value: Any) -> Any:
    """A long list by its beginning and its length: thousands of sequences are one argument."""
    if not isinstance(value, list) or len(value) <= LISTED_MAX:
        return value
    return [*value[:LISTED_MAX], f"… {len(value)} in all"]


def shown(text: str) -> str:
    """Text of a peer's choice: no line breaks, no escapes, not for ever."""
    return text[:TEXT_MAX] if text.isprintable() else ascii(text[:TEXT_MAX])
