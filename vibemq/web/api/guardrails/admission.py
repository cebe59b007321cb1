"""Rights that can be judged before the body of a request is read: who has none has nothing read. Pure."""

from collections.abc import Mapping
from typing import Any

from vibemq.auth.matrix import Row
from vibemq.errors import AuthError
from vibemq.model.access import NeededPermission, ResourceKind, When
from vibemq.web.api.services import ApiServices, Asker

_NAMED_BY: Mapping[ResourceKind, tuple[str, ...]] = {
    ResourceKind.QUEUE: ("queue",),
    ResourceKind.GROUP: ("queue", "group"),
    ResourceKind.TRANSACTION: ("app",),
    ResourceKind.USER: ("user",),
}
"""Arguments that say which resource it is; of the other kinds there is one."""


def check_rights(services: ApiServices, asker: Asker, operation: str, row: Row, known: Mapping[str, Any]) -> None:
    """What would be refused whatever is in the body.

    Args:
        operation: "" = it is a command of the engine that is asked for.
        row: what it needs.
        known: its arguments that do not stand in the body.

    Raises:
        AuthError
    """
    judged = tuple(needed for needed in row if _is_known(needed, known))
    try:
        services.accounts.policy.admit(asker.principal, judged, known.get, operation=operation)
    except AuthError as error:
        if operation:
            # It refuses for the same reason, and has that counted and written down.
            services.operations.admit(asker, operation, known)
        else:
            services.operations.refused(error)
        raise


def _is_known(needed: NeededPermission, known: Mapping[str, Any]) -> bool:
    if needed.when is not When.ALWAYS or needed.argument:
        return False
    return all(name in known for name in _NAMED_BY.get(needed.kind, ()))
