"""Applications that commit transactions."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import ANYTHING, INSTANT, NULLABLE_TEXT, TEXT, WHOLE, listed, nothing, record
from vibemq.web.api.kinds import Kind

STAGE = record({"stage": TEXT, "version": WHOLE, "age_ms": WHOLE, "bytes": WHOLE})
APPLICATION = record(
    {"app": TEXT, "version": WHOLE},
    {
        "user": NULLABLE_TEXT,
        "committed_at": INSTANT,
        "stage_count": WHOLE,
        "stage_bytes": WHOLE,
        "stages": listed(STAGE),
    },
)

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/transactions",
        summary="Applications that commit transactions: the last version, and the stages that are open.",
        operation="transaction.list",
        items="applications",
        response=APPLICATION,
    ),
    Endpoint(
        method="GET",
        path="/transactions/{app}",
        summary="The last committed version of an application.",
        operation="transaction.last",
        response=ANYTHING,
    ),
    Endpoint(
        method="DELETE",
        path="/transactions/{app}",
        summary="Forget the last version and the owner of an application, which then begins anew.",
        operation="transaction.forget",
        kind=Kind.CHANGE,
        shape=nothing,
        response=ANYTHING,
    ),
)
