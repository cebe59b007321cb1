"""What operators look at: checks, settings, listeners, history, consumers, cursors, applications, the audit log."""

from vibemq.errors import ErrorCode
from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import ANYTHING, BOOLEAN, INSTANT, NULLABLE_TEXT, TEXT, WHOLE, listed, record
from vibemq.web.api.kinds import Kind

CHECK = record({"name": TEXT, "level": TEXT, "text": TEXT, "remedy": TEXT})
SETTING = record({"name": TEXT, "origin": TEXT, "when": TEXT}, {"value": {}})
LISTENER = record({"protocol": TEXT, "host": TEXT, "port": WHOLE, "tls": BOOLEAN, "connections": WHOLE})

CURSOR = record(
    {"queue": TEXT, "group": TEXT, "committed": WHOLE, "tail": WHOLE, "backlog": WHOLE, "expired": BOOLEAN},
    {"owner": TEXT, "user": TEXT, "epoch": WHOLE, "oldest_at": INSTANT, "lost": WHOLE, "quarantined": WHOLE},
)
RECORD = record({"at": INSTANT, "operation": TEXT, "outcome": TEXT}, {"user": NULLABLE_TEXT, "address": NULLABLE_TEXT})

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/broker/checks",
        summary="What should be mended about the broker and its machine, each with a remedy.",
        operation="broker.checks",
        kind=Kind.SCAN,
        response=record({"checks": listed(CHECK)}),
    ),
    Endpoint(
        method="GET",
        path="/broker/settings",
        summary="Every setting and where its value comes from; secrets are told as set.",
        operation="broker.settings",
        response=record({"settings": listed(SETTING)}),
    ),
    Endpoint(
        method="GET",
        path="/broker/listeners",
        summary="Where the broker listens.",
        operation="listeners.list",
        response=record({"listeners": listed(LISTENER)}),
    ),
    Endpoint(
        method="GET",
        path="/history",
        summary="Figures of the last 48 hours, of the broker or of one queue.",
        operation="history.get",
        response=record({"step_ms": WHOLE, "from_at": INSTANT, "series": ANYTHING}, {"restarts": listed({})}),
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.INVALID_OPTIONS),
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/consumers",
        summary="Who consumes a queue, and what each holds.",
        operation="consumer.list",
        items="consumers",
        response=ANYTHING,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="GET",
        path="/transactions",
        summary="Applications that commit transactions, with the stages that are open.",
        operation="transaction.list",
        items="applications",
        response=record({"app": TEXT, "stage_count": WHOLE, "stage_bytes": WHOLE}, {"user": NULLABLE_TEXT}),
    ),
    Endpoint(
        method="GET",
        path="/cursors",
        summary="Groups that read by ranges, of all queues that the asker may inspect, those furthest behind first.",
        operation="cursor.list",
        items="cursors",
        response=CURSOR,
    ),
    Endpoint(
        method="GET",
        path="/audit",
        summary="Records of what was changed, and of who logged in, newest first.",
        operation="audit.list",
        items="records",
        response=RECORD,
        errors=(ErrorCode.INVALID_OPTIONS,),
    ),
)
