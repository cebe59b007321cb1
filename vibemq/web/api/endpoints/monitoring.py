"""Figures of the broker and of all queues."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import ANYTHING, INSTANT, TEXT, WHOLE, listed, record

OVERVIEW = record(
    {
        "state": {"type": "string", "enum": ["ok", "warning", "alarm"]},
        "sentences": listed(ANYTHING),
        "totals": ANYTHING,
    },
    {"rates": ANYTHING, "oldest": {"type": ["object", "null"]}, "sampled_at": INSTANT, "version": TEXT},
)
_FIGURES = ("ready", "in_flight", "delayed", "dead", "consumers", "bytes")
ROW = record({"queue": TEXT, "state": TEXT, **dict.fromkeys(_FIGURES, WHOLE)})

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/overview",
        summary="How the broker is: alarms with their remedies, figures of the queues that the asker may inspect.",
        operation="broker.overview",
        response=OVERVIEW,
    ),
    Endpoint(
        method="GET",
        path="/queues",
        summary="Queues that the asker may inspect, with figures, rates and a state; sorted by any figure.",
        operation="queue.rows",
        items="queues",
        response=ROW,
    ),
)
