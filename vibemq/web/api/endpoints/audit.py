"""Who changed what."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import INSTANT, NULLABLE_TEXT, TEXT, record

RECORD = record({"at": INSTANT, "operation": TEXT, "outcome": TEXT}, {"user": NULLABLE_TEXT, "address": NULLABLE_TEXT})

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
