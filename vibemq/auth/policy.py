"""Users and their rules. A permission is checked at every use, so a revocation applies at once.

`Policy.version` goes up with every change; whoever keeps an answer keeps the version beside it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vibemq.auth.matrix import OPERATIONS, Row, resource_name
from vibemq.auth.viewing import Patterns, Viewer, fits
from vibemq.errors import NotAuthenticated, NotAuthorized
from vibemq.model.access import Action, LoginKind, NeededPermission, Principal, ResourceKind, Rule, When
from vibemq.model.options import is_own_queue

_FREE = frozenset((Action.OWN, Action.LIST))
_NAMED = frozenset((ResourceKind.QUEUE, ResourceKind.GROUP, ResourceKind.TRANSACTION))
_OF_QUEUES = frozenset((ResourceKind.QUEUE, ResourceKind.GROUP))
_NAMES_MAX = 64


@dataclass(frozen=True, slots=True)
class Actor:
    """For whom something is done that was admitted, and which of its conditional permissions are held."""

    user: str
    """Owner of what is made; "" for superusers and on a broker without authentication."""
    may_create: bool = True
    may_manage: bool = True
    """Act on what does not belong to the user."""


class Policy:
    """The only place that answers whether a principal may."""

    def __init__(
        self, rules: Mapping[str, Sequence[Rule]], *, superusers: Collection[str] = (), enabled: bool = True
    ) -> None:
        """`rules`: of each user by name. Not `enabled`: everybody may do everything but NEVER."""
        self.version = 0
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._superusers: set[str] = set()
        self.replace(rules, superusers=superusers, enabled=enabled)

    def replace(
        self, rules: Mapping[str, Sequence[Rule]], *, superusers: Collection[str] = (), enabled: bool = True
    ) -> None:
        """Other rules, from now on; every answer that was kept is void."""
        self.take({name: tuple(rules[name]) for name in rules}, set(superusers), enabled=enabled)

    def take(
        self, rules: dict[str, tuple[Rule, ...]], superusers: set[str], *, enabled: bool
    ) -> tuple[dict[str, tuple[Rule, ...]], set[str]]:
        """The same with rules that the policy may keep; those before are returned."""
        before = self._rules, self._superusers
        self.enabled = enabled
        self._rules, self._superusers = rules, superusers
        self.version += 1
        return before

    def put(self, name: str, rules: Sequence[Rule], *, superuser: bool) -> None:
        """One user's rules from now on; every answer that was kept is void."""
        self._rules[name] = tuple(rules)
        (self._superusers.add if superuser else self._superusers.discard)(name)
        self.version += 1

    def remove(self, name: str) -> None:
        self._rules.pop(name, None)
        self._superusers.discard(name)
        self.version += 1

    @property
    def has_superusers(self) -> bool:
        return bool(self._superusers)

    # -- whole rows of the matrix ---------------------------------------------------------------------------------

    def admit(
        self, principal: Principal | None, row: Row, value_of: Callable[[str], Any], *, operation: str = ""
    ) -> Actor:
        """Check everything that a command or an operation needs.

        Args:
            value_of: a field of the command or an argument of the operation by name, None when there is none.
            operation: its name, for the refusal.

        Raises:
            NotAuthenticated, NotAuthorized
        """
        if principal is None:
            raise NotAuthenticated("connect and authenticate first")
        held = dict.fromkeys(When, True)
        for permission in row:
            resource = resource_name(permission, value_of)
            if permission.when is When.ALWAYS or (permission.when is When.NAMED and resource):
                self.authorize(principal, permission, resource, operation=operation)
            else:
                held[permission.when] = self.allows(principal, permission, resource)
        user = "" if self.is_superuser(principal) else principal.name
        return Actor(user, held[When.MISSING], held[When.NOT_OWNER])

    # -- single permissions ---------------------------------------------------------------------------------------

    def authorize(
        self, principal: Principal | None, permission: NeededPermission, resource: str, *, operation: str = ""
    ) -> None:
        """Return when the principal may; the refusal is the same for resources that exist and that do not.

        Raises:
            NotAuthorized
        """
        if not self.allows(principal, permission, resource):
            raise self.refusal(principal, permission, resource, operation=operation)

    def refusal(
        self, principal: Principal | None, permission: NeededPermission, resource: str, *, operation: str = ""
    ) -> NotAuthorized:
        """The error names what is missing, and the operation that requires it if there is one."""
        name = principal.name if principal is not None else "nobody"
        kind = permission.kind
        if permission.action is Action.SELF:
            return self._refusal_of_self(principal, name, resource, operation or "this request")
        if permission.action in (Action.ADMIN, Action.NEVER):
            return NotAuthorized(
                f"{operation or 'this request'} requires a superuser, and user {name!r} is not one; "
                "connect as a superuser, or ask the broker's operator"
            )
        if kind in _OF_QUEUES and is_own_queue(resource):
            return NotAuthorized(f"queue {resource[:_NAMES_MAX]!r} is the broker's own; no user may use or change it")
        place = ""
        if kind in _NAMED:
            place = f" on {kind} {resource[:_NAMES_MAX]!r}" if resource else f" on every {kind}"
        which = f", which {operation} requires" if operation else ""
        ask = "ask the broker's operator for it"
        if kind in _OF_QUEUES and not resource and _takes_queue(operation):
            ask = f"name the queue that is meant (`queue`), or {ask}"
        return NotAuthorized(
            f"user {name!r} does not have the permission {permission.action.value!r}{place}{which}; {ask}"
        )

    def _refusal_of_self(self, principal: Principal | None, name: str, resource: str, request: str) -> NotAuthorized:
        """Of what users may do for themselves; `resource`: the user that is named."""
        by_password = principal is not None and principal.login is LoginKind.PASSWORD
        if by_password and not resource:
            return NotAuthorized(f"{request} for every user requires a superuser; name yourself (`user`: {name!r})")
        if by_password or resource not in ("", name):
            return NotAuthorized(
                f"{request} for another user than {name!r} requires a superuser; connect as a superuser, or ask the "
                "broker's operator"
            )
        return NotAuthorized(
            f"{request} for another user than {name!r} requires a superuser; for {name!r} it requires a login with the "
            "password, not with a token or a certificate"
        )

    def allows(self, principal: Principal | None, permission: NeededPermission, resource: str) -> bool:
        """`resource`: "" stands for all resources of the kind, which only a rule for `*` covers."""
        action = permission.action
        if principal is None or action is Action.NEVER:
            return False
        if permission.kind in _OF_QUEUES and action is not Action.INSPECT and is_own_queue(resource):
            return False
        if action in _FREE or self.is_superuser(principal):
            return True
        if action is Action.SELF:
            return bool(resource) and resource == principal.name and principal.login is LoginKind.PASSWORD
        if action is Action.ADMIN:
            return False
        if principal.rules is not None and not _allow(principal.rules, action, permission.kind, resource):
            return False
        if self._is_narrowed_superuser(principal):
            return True
        return _allow(self._rules.get(principal.name, ()), action, permission.kind, resource)

    def rule_for(self, principal: Principal, permission: NeededPermission, resource: str) -> Rule | None:
        """The rule of the user that gives the permission; None when there is none, or none is needed."""
        return next(_giving(self._rules.get(principal.name, ()), permission.action, permission.kind, resource), None)

    def is_superuser(self, principal: Principal) -> bool:
        """Still: whoever was one at its login may have ceased to be one. Nobody is one with a narrower token."""
        if principal.rules is not None and self.enabled:
            return False
        return not self.enabled or (principal.superuser and principal.name in self._superusers)

    def rights_of(self, principal: Principal) -> tuple[bool, bool, tuple[Rule, ...]]:
        """All that its answers about this principal depend on: what has changed when these differ."""
        return self.enabled, principal.name in self._superusers, self._rules.get(principal.name, ())

    def _is_narrowed_superuser(self, principal: Principal) -> bool:
        return principal.rules is not None and principal.superuser and principal.name in self._superusers

    def viewer(self, principal: Principal | None, action: Action | None = None) -> Viewer:
        """For lists of queues: which of them the principal may inspect (INSPECT), or has any right to (no action)."""
        return Viewer(lambda: self._patterns(principal, action), lambda: self.version)

    def _patterns(self, principal: Principal | None, action: Action | None) -> tuple[Patterns, ...] | None:
        if principal is None:
            return None
        if self.is_superuser(principal):
            return ()
        needed = [] if principal.rules is None else [principal.rules]
        if not self._is_narrowed_superuser(principal):
            needed.append(self._rules.get(principal.name, ()))
        return tuple(Patterns(_patterns_of(rules, action)) for rules in needed)


def _takes_queue(operation: str) -> bool:
    """Whether the request may be for one queue only. A job that was made keeps its letters."""
    return operation == "job.start" or any(needed.kind in _OF_QUEUES for needed in OPERATIONS.get(operation, ()))


def _patterns_of(rules: Iterable[Rule], action: Action | None) -> Iterator[str]:
    return (
        rule.pattern
        for rule in rules
        if rule.kind is ResourceKind.QUEUE and (action is None or action.value in rule.actions or "*" in rule.actions)
    )


def _allow(rules: Iterable[Rule], action: Action, kind: ResourceKind, resource: str) -> bool:
    return next(_giving(rules, action, kind, resource), None) is not None


def _giving(rules: Iterable[Rule], action: Action, kind: ResourceKind, resource: str) -> Iterator[Rule]:
    return (
        rule
        for rule in rules
        if (action.value in rule.actions or "*" in rule.actions) and _covers(rule, kind, resource)
    )


def _covers(rule: Rule, kind: ResourceKind, resource: str) -> bool:
    if rule.kind is kind:
        return fits(rule.pattern, resource)
    if rule.kind is ResourceKind.QUEUE and kind is ResourceKind.GROUP:
        return fits(rule.pattern, resource.partition("/")[0])
    return False
