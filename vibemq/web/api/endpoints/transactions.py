"""Applications that commit transactions."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import ANYTHING, nothing
from vibemq.web.api.kinds import Kind

ENDPOINTS = (
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
