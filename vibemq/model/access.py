"""Types of authorization: principals, actions, and kinds of resources."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache


class LoginKind(StrEnum):
    """With what somebody has logged in."""

    NONE = "none"
    """With nothing: the broker asks for nothing, or acts for a user in its absence."""
    PASSWORD = "password"  # noqa: S105
    TOKEN = "token"  # noqa: S105
    """An access token, or the shared token."""
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a session acts as. `anonymous` is the principal of a broker without authentication."""

    name: str
    superuser: bool = False
    """Whether the user was one at the login."""
    credential: bytes = field(default=b"", repr=False, compare=False)
    """Which credential it logged in with: a keyed digest that nobody else can make; empty without authentication."""
    token_id: str = field(default="", compare=False)
    """Of the access token that it logged in with; "" = none."""
    rules: tuple["Rule", ...] | None = field(default=None, compare=False)
    """Of a narrower token: nothing is allowed beyond them. None = all that the user may."""
    since: int = field(default=0, compare=False)
    """When its user was made; 0 = it stands in the settings. What is older belongs to somebody else of that name."""
    login: LoginKind = field(default=LoginKind.NONE, compare=False)


class Action(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CREATE = "create"
    DELETE = "delete"
    PURGE = "purge"
    INSPECT = "inspect"
    MANAGE = "manage"
    """Delete, move, take over or limit a durable group that does not belong to the user."""
    TRANSACT = "transact"
    """Stage, commit and abort under the name of an application."""
    LIST = "list"
    """Everybody may ask for a list; it shows only what the principal has some right to."""
    OWN = "own"
    """Concerns only what the session itself holds; the engine checks that, so every known principal may."""
    SELF = "self"
    """Concerns one user: that user may, when logged in with its password, and superusers for everybody."""
    ADMIN = "admin"
    """Superusers only."""
    NEVER = "never"
    """The server's own words; no session may speak them."""


class ResourceKind(StrEnum):
    BROKER = "broker"
    QUEUE = "queue"
    GROUP = "group"
    """A durable group; its name is `<queue>/<group>`."""
    TRANSACTION = "transaction"
    """An application that commits transactions; its name is that of the application."""
    SESSION = "session"
    USER = "user"
    """Somebody who can log in; the name is that of the user."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one user may do to the resources whose names fit a pattern; `*` in it stands for any run of characters."""

    kind: ResourceKind
    """QUEUE rules also hold for the groups of these queues."""
    pattern: str
    actions: frozenset[str]
    """Values of `Action`, or `*` for all that a rule can give."""


def shared_actions(actions: Iterable[str]) -> frozenset[str]:
    """One object for all rules with these actions: a hundred thousand rules have few different ones."""
    return _shared(tuple(sorted(actions)))


@lru_cache(maxsize=1024)
def _shared(actions: tuple[str, ...]) -> frozenset[str]:
    return frozenset(actions)


class When(StrEnum):
    """Whether a permission is needed at all."""

    ALWAYS = "always"
    MISSING = "missing"
    """Only when the resource does not exist yet and the request would create it."""
    NAMED = "named"
    """Only when the request names the resource; otherwise the answer shows those that the user has it for."""
    NOT_OWNER = "not_owner"
    """Only when the resource does not belong to the user."""


@dataclass(frozen=True, slots=True)
class NeededPermission:
    """One thing that must be allowed before a command or an operation is carried out."""

    action: Action
    kind: ResourceKind
    argument: str = ""
    """The field or argument that names the resource; "" = `queue`, `queue` and `group`, `app` or `user`, by kind."""
    when: When = When.ALWAYS
