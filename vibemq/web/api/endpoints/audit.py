"""Who changed what."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import INSTANT, NULLABLE_TEXT, NULLABLE_WHOLE, TEXT, record

RECORD = record(
    {"at": INSTANT, "operation": TEXT, "outcome": TEXT},
    {**dict.fromkeys(("user", "address", "protocol", "request_id", "reason"), NULLABLE_TEXT), "count": NULLABLE_WHOLE},
)

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/audit",
        summary="Records of what was changed, and of who logged in, newest first.",
        operation="audit.list",
        items="records",
        response=RECORD,
    ),
)
