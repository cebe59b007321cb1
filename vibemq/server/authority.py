"""Who may do what. Every command of every protocol passes `Authority.authorize`; what no table names is refused."""

import hmac
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from vibemq.config import Auth, Permission
from vibemq.errors import AuthFailed, AuthRequired, NotAuthorized
from vibemq.model import commands as c
from vibemq.protocols.session import Authenticate, Principal
from vibemq.server.passwords import hash_password, parse_hash, verify_password

ANONYMOUS = Principal("anonymous", superuser=True)
"""Everyone, on a broker without authentication."""


class Action(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CREATE = "create"
    DELETE = "delete"
    PURGE = "purge"
    INSPECT = "inspect"
    LIST = "list"
    OWN = "own"
    """Concerns only what the session itself holds; the engine checks that, so every known principal may."""
    ADMIN = "admin"
    """Superusers only."""
    NEVER = "never"
    """The server's own words; no session may speak them."""


ACTIONS: dict[type, Action] = {
    c.Publish: Action.PUBLISH,
    c.Subscribe: Action.SUBSCRIBE,
    c.Unsubscribe: Action.OWN,
    c.SetCapacity: Action.OWN,
    c.Settle: Action.OWN,
    c.Extend: Action.OWN,
    c.CreateQueue: Action.CREATE,
    c.ChangeQueue: Action.CREATE,
    c.DeleteQueue: Action.DELETE,
    c.PurgeQueue: Action.PURGE,
    c.RemoveMessages: Action.PURGE,
    c.DescribeQueue: Action.INSPECT,
    c.ListQueues: Action.LIST,
    c.DeleteGroup: Action.SUBSCRIBE,
    c.SeekGroup: Action.SUBSCRIBE,
    c.Stage: Action.PUBLISH,
    c.JoinCursor: Action.NEVER,
    c.CommitCursor: Action.NEVER,
    c.RejectAt: Action.NEVER,
    c.Quarantine: Action.NEVER,
    c.DecideTransaction: Action.NEVER,
    c.MoveStaged: Action.NEVER,
    c.DropStages: Action.NEVER,
    c.ReplayDead: Action.ADMIN,
    c.PurgeDead: Action.ADMIN,
    c.SetFlow: Action.NEVER,
    c.CloseSession: Action.NEVER,
    c.SetPressure: Action.NEVER,
}
"""Total over the commands; a test walks the union."""


class Authority:
    """Credentials and permissions, as configured."""

    def __init__(self, auth: Auth) -> None:
        self.enabled = auth.enabled
        self._token = auth.token.get_secret_value().encode() if auth.token else None
        self._hashes: dict[str, str] = {
            name: user.password_hash.get_secret_value() for name, user in auth.users.items()
        }
        self._superusers = {name for name, user in auth.users.items() if user.superuser}
        self._permissions: Mapping[str, tuple[Permission, ...]] = {n: u.permissions for n, u in auth.users.items()}
        if auth.superuser is not None and auth.superuser_password is not None:
            self._hashes[auth.superuser] = hash_password(auth.superuser_password.get_secret_value())
            self._superusers.add(auth.superuser)
        for stored in self._hashes.values():
            parse_hash(stored)
        # An unknown user must cost the same as a wrong password.
        self._nobody = hash_password("") if self._hashes else ""

    def authenticate(self, request: Authenticate) -> Principal:
        """Check credentials. Blocking (tens of milliseconds) when they hold a password.

        Raises:
            AuthRequired, AuthFailed
        """
        if not self.enabled:
            return ANONYMOUS
        if request.auth_token and self._token is not None:
            if hmac.compare_digest(request.auth_token.encode(errors="surrogatepass"), self._token):
                return Principal("token", superuser=True)
            raise AuthFailed("the token is not valid")
        if not request.username or not request.password:
            raise AuthRequired("this broker asks for a user name and password, or a token")
        if not self._hashes:
            raise AuthFailed("this broker knows no users; it asks for a token")
        stored = self._hashes.get(request.username, self._nobody)
        if not verify_password(request.password, stored) or request.username not in self._hashes:
            raise AuthFailed("user name or password is wrong")
        return Principal(request.username, superuser=request.username in self._superusers)

    def authorize(self, principal: Principal | None, action: Action, queue: str) -> None:
        """Return when the principal may; the same refusal for queues that exist and queues that do not.

        Raises:
            NotAuthorized
        """
        if not self.allows(principal, action, queue):
            raise self.refusal(principal, action, queue)

    def refusal(self, principal: Principal | None, action: Action, queue: str) -> NotAuthorized:
        name = principal.name if principal is not None else "nobody"
        place = f" on queue {queue[:64]!r}" if queue else ""
        return NotAuthorized(f"{name!r} is not allowed to {action}{place}; ask the broker's operator for permission")

    def allows(self, principal: Principal | None, action: Action, queue: str) -> bool:
        if principal is None or action is Action.NEVER:
            return False
        if principal.superuser or not self.enabled or action is Action.OWN or action is Action.LIST:
            # LIST shows only what the principal may do something with: see `may_see`.
            return True
        if action is Action.ADMIN:
            return False
        return any(
            (action.value in permission.actions or "*" in permission.actions) and _fits(permission.queues, queue)
            for permission in self._permissions.get(principal.name, ())
        )

    def may_see(self, principal: Principal | None, queue: str) -> bool:
        """Whether a list of queues shown to the principal names this one: any permission on it will do."""
        if principal is None:
            return False
        if principal.superuser or not self.enabled:
            return True
        return any(_fits(permission.queues, queue) for permission in self._permissions.get(principal.name, ()))


def _fits(pattern: str, queue: str) -> bool:
    return _compiled(pattern).fullmatch(queue) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)
