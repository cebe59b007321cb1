"""Which records of the audit log concern a queue."""

from typing import Any

import pytest

from vibemq.operations.monitoring.audit_records import AuditWanted


def fits(arguments: Any) -> bool:
    wanted = AuditWanted(None, None, "orders", None, newest_first=True, after=None, limit=100)
    return wanted.fits({"at": 1, "operation": "any", "arguments": arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue": "orders"},
        {"queue": "payments", "to": "orders"},
        {"kind": "purge_dead", "filter": {"queue": "orders", "reason": "rejected"}},
        {"kind": "replay", "filter": {"queue": "payments"}, "to": "orders"},
        {"created": ["payments", "orders"]},
    ],
)
def test_what_names_it_concerns_it(arguments: dict[str, Any]) -> None:
    assert fits(arguments)


@pytest.mark.parametrize(
    "arguments",
    [{}, None, {"queue": "orders.eu"}, {"filter": "orders"}, {"filter": {"reason": "orders"}}, {"created": "orders"}],
)
def test_what_does_not_name_it_does_not(arguments: Any) -> None:
    assert not fits(arguments)
