"""Who may do something: one answer for all users."""

import asyncio
from typing import Any

from pydantic import Field

from vibemq.auth.rules import NAME_OF, written
from vibemq.auth.users import Accounts, KnownUser
from vibemq.model.access import NeededPermission, Principal
from vibemq.operations.arguments import LIMIT_MAX, Limit, page_size
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.users import ActionArguments

RULES_PER_TURN = 500
"""Users and rules that are looked at before the loop has a turn."""


class AllowedArguments(ActionArguments):
    after: str | None = Field(None, description="Go on behind this user: `next` of the page before.")
    limit: Limit = None


class UserRights:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def allowed(self, caller: Caller, wanted: AllowedArguments) -> dict[str, Any]:
        """By name, users who may not are left out. Raises InvalidPayload."""
        needed, resource = wanted.needed()
        limit = page_size(wanted.limit, LIMIT_MAX)
        found: list[dict[str, Any]] = []
        looked_at = 0
        for name in self._accounts.names():
            user = self._accounts.user(name) if name > (wanted.after or "") else None
            size = 1 if user is None else 1 + len(user.rules)
            looked_at += size
            if looked_at > RULES_PER_TURN:
                looked_at = size
                await asyncio.sleep(0)
            shown = None if user is None else self._shown(user, needed, resource)
            if shown is None:
                continue
            if len(found) == limit:
                return self._page(wanted, needed, resource, found, more=True)
            found.append(shown)
        return self._page(wanted, needed, resource, found, more=False)

    def _shown(self, user: KnownUser, needed: NeededPermission, resource: str) -> dict[str, Any] | None:
        if user.superuser:
            return {"user": user.name, "superuser": True, "rule": None}
        rule = self._accounts.policy.rule_for(Principal(user.name), needed, resource)
        return None if rule is None else {"user": user.name, "superuser": False, "rule": written(rule)}

    def _page(
        self,
        wanted: AllowedArguments,
        needed: NeededPermission,
        resource: str,
        found: list[dict[str, Any]],
        *,
        more: bool,
    ) -> dict[str, Any]:
        return {
            "action": wanted.action,
            NAME_OF[needed.kind]: resource,
            "users": found,
            "next": found[-1]["user"] if more else None,
        }


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "user.allowed",
        "Users who may do something, and by which rule, in pages.",
        AllowedArguments,
        UserRights,
        task=UserRights.allowed,
        scans=True,
    ),
]
