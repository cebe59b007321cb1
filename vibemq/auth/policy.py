"""Users and their rules: is a permission held? Asked whenever it is used, so that a revocation counts at once.

`Policy.version` goes up with every change; whoever keeps an answer keeps the version beside it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vibemq.errors import NotAuthorized
from vibemq.model.access import Action, Permission, Principal, ResourceKind

_FREE = frozenset((Action.OWN, Action.LIST))
_NAMES_MAX = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """What one user may do to the resources whose names fit a pattern; `*` in it stands for any run of characters."""

    kind: ResourceKind
    """QUEUE rules also hold for the groups of these queues."""
    pattern: str
    actions: frozenset[str]
    """Values of `Action`, or `*` for all that a rule can give."""


class Policy:
    """The only place that answers whether a principal may."""

    def __init__(self, rules: Mapping[str, Sequence[Rule]], *, enabled: bool = True) -> None:
        """`rules`: of each user by name. Not `enabled`: everybody may do everything but NEVER."""
        self.enabled = enabled
        self.version = 1
        self._rules = {name: tuple(rules[name]) for name in rules}

    def replace(self, rules: Mapping[str, Sequence[Rule]]) -> None:
        """Other rules, from now on; every answer that was kept is void."""
        self._rules = {name: tuple(rules[name]) for name in rules}
        self.version += 1

    def authorize(self, principal: Principal | None, permission: Permission, resource: str) -> None:
        """Return when the principal may; the refusal is the same for resources that exist and that do not.

        Raises:
            NotAuthorized
        """
        if not self.allows(principal, permission, resource):
            raise self.refusal(principal, permission, resource)

    def refusal(self, principal: Principal | None, permission: Permission, resource: str) -> NotAuthorized:
        name = principal.name if principal is not None else "nobody"
        kind = permission.kind
        named = kind in (ResourceKind.QUEUE, ResourceKind.GROUP, ResourceKind.TRANSACTION)
        place = ""
        if named:
            place = f" on {kind} {resource[:_NAMES_MAX]!r}" if resource else f" on every {kind}"
        return NotAuthorized(
            f"{name!r} is not allowed to {permission.action}{place}; ask the broker's operator for permission"
        )

    def allows(self, principal: Principal | None, permission: Permission, resource: str) -> bool:
        """`resource`: "" stands for all resources of the kind, which only a rule for `*` covers."""
        action = permission.action
        if principal is None or action is Action.NEVER:
            return False
        if principal.superuser or not self.enabled or action in _FREE:
            return True
        if action is Action.ADMIN:
            return False
        return any(
            (action.value in rule.actions or "*" in rule.actions) and _covers(rule, permission.kind, resource)
            for rule in self._rules.get(principal.name, ())
        )

    def may_see(self, principal: Principal | None, queue: str) -> bool:
        """Whether a list of queues shown to the principal names this one: any right to it will do."""
        if principal is None:
            return False
        if principal.superuser or not self.enabled:
            return True
        return any(_covers(rule, ResourceKind.QUEUE, queue) for rule in self._rules.get(principal.name, ()))

    def sees_all(self, principal: Principal | None) -> bool:
        return principal is not None and (principal.superuser or not self.enabled)


def _covers(rule: Rule, kind: ResourceKind, resource: str) -> bool:
    if rule.kind is kind:
        return _fits(rule.pattern, resource)
    if rule.kind is ResourceKind.QUEUE and kind is ResourceKind.GROUP:
        return _fits(rule.pattern, resource.partition("/")[0])
    return False


def _fits(pattern: str, name: str) -> bool:
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)
