"""Cursors of all queues, by how far they are behind."""

from vibemq.operations.monitoring.cursors import PAGE_CURSORS_MAX
from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import BOOLEAN, INSTANT, TEXT, WHOLE, record

CURSOR = record(
    {
        "queue": TEXT,
        "group": TEXT,
        "committed": WHOLE,
        "tail": WHOLE,
        "backlog": WHOLE,
        "backlog_bytes": WHOLE,
        "oldest_at": INSTANT,
        "expired": BOOLEAN,
    },
    {"owner": TEXT, "user": TEXT, "epoch": WHOLE, "lost": WHOLE, "quarantined": WHOLE},
)

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/cursors",
        summary="Cursors of all queues that the asker may inspect, with their lag.",
        operation="cursor.list",
        items="cursors",
        limit_max=PAGE_CURSORS_MAX,
        response=CURSOR,
    ),
)
