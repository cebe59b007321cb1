"""Figures of the broker and of all queues."""

from typing import Any

from vibemq.errors import ErrorCode
from vibemq.operations.monitoring.queue_rows import PAGE_ROWS_MAX
from vibemq.operations.reading.instants import written
from vibemq.web.api.contract import Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    BOOLEAN,
    CONSUMER,
    INSTANT,
    NULLABLE_WHOLE,
    NUMBER,
    TEXT,
    WHOLE,
    listed,
    record,
)

OVERVIEW = record(
    {
        "state": {"type": "string", "enum": ["ok", "warning", "alarm"]},
        "sentences": listed(ANYTHING),
        "totals": ANYTHING,
    },
    {"rates": ANYTHING, "oldest": {"type": ["object", "null"]}, "sampled_at": INSTANT, "version": TEXT},
)
_FIGURES = ("ready", "in_flight", "delayed", "dead", "consumers", "bytes")
_RATES = ("in_rate", "out_rate", "ack_rate")
ROW = record(
    {"queue": TEXT, "state": TEXT, **dict.fromkeys(_FIGURES, WHOLE)},
    {"oldest_age_ms": WHOLE, **dict.fromkeys(_RATES, NUMBER), "durability": TEXT},
)


LISTENER = record(
    {"protocol": TEXT, "host": TEXT, "port": WHOLE, "tls": BOOLEAN},
    dict.fromkeys(("certificate_until", "connections", "refused", "handshakes_failed"), NULLABLE_WHOLE),
)


def with_restarts(told: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    return {**told, "restarts": [written(instant) for instant in told["restarts"]]}


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
        limit_max=PAGE_ROWS_MAX,
        response=ROW,
    ),
    Endpoint(
        method="GET",
        path="/history",
        summary="Figures of the last 15 minutes, 6 hours or 48 hours, of a queue or of the broker.",
        operation="history.get",
        shape=with_restarts,
        response=record(
            {"step_ms": WHOLE, "from_at": INSTANT, "series": ANYTHING, "restarts": listed(INSTANT)},
        ),
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/consumers",
        summary="The consumers of a queue: their connections, what they hold and since when.",
        operation="consumer.list",
        items="consumers",
        response=record({"consumer": WHOLE}, CONSUMER),
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="GET",
        path="/broker/checks",
        summary="What should be mended about the broker and its machine, each with a remedy.",
        operation="broker.checks",
        response=record({"checks": listed(record({"name": TEXT, "level": TEXT, "text": TEXT}))}),
    ),
    Endpoint(
        method="GET",
        path="/broker/settings",
        summary="Every setting, where its value comes from and what makes a change of it count; never secrets.",
        operation="broker.settings",
        response=record({"settings": listed(record({"name": TEXT, "origin": TEXT}))}),
    ),
    Endpoint(
        method="GET",
        path="/broker/listeners",
        summary="Where the broker listens: protocol, address, TLS, the certificate's last day, connections, refusals.",
        operation="listeners.list",
        response=record({"listeners": listed(LISTENER)}),
    ),
)
