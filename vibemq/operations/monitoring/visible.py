"""Which queues of a picture somebody may look into: those on which the principal has the permission `inspect`."""

from collections.abc import Iterator, Sequence

from vibemq.auth.policy import Policy
from vibemq.model.access import Action, Principal
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.turns import in_slices

KEPT_MAX = 32
"""Principals whose queues are remembered with a picture."""


async def visible_rows(reading: QueuesReading, policy: Policy, principal: Principal | None) -> Sequence[int]:
    """Their rows, in the order of the names."""
    if principal is None:
        return ()
    if policy.is_superuser(principal):
        return reading.by_name
    # Two logins of a user are equal, and may have tokens that are narrower than the user.
    key = principal, principal.rules, policy.version
    found = reading.visible.get(key)
    if found is None:
        found = []
        await in_slices(_steps(reading, policy, principal, found))
        if len(reading.visible) < KEPT_MAX:
            reading.visible[key] = found
    return found


def _steps(reading: QueuesReading, policy: Policy, principal: Principal, into: list[int]) -> Iterator[None]:
    names, sees = reading.now.names, policy.viewer(principal, Action.INSPECT)
    for row in reading.by_name:
        if sees(names[row]):
            into.append(row)
        yield
