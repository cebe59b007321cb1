"""Who is connected."""

from typing import Any

from vibemq.errors import ErrorCode
from vibemq.web.api.contract import Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import ANYTHING, CONSUMER, TEXT, WHOLE, record
from vibemq.web.api.errors import Problem
from vibemq.web.api.kinds import Kind

CONNECTION = record({"connection_id": TEXT}, {"protocol": TEXT, "user": TEXT, "remote": TEXT})


CONSUMER_OF = record({"queue": TEXT, "consumer": WHOLE}, CONSUMER)


def closed(result: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    if not result["closed"]:
        raise Problem(
            ErrorCode.UNKNOWN_COMMAND,
            f"there is no connection {exchange.path['connection_id'][:40]!r}; it has gone, or it never existed",
        )
    return result


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/connections",
        summary="Connections, oldest first.",
        operation="connections.list",
        items="connections",
        response=CONNECTION,
    ),
    Endpoint(
        method="GET",
        path="/connections/{connection_id}/consumers",
        summary="What a connection consumes: its consumers, of which queues, and what they hold; none of one that is "
        "gone.",
        operation="connections.consumers",
        items="consumers",
        response=CONSUMER_OF,
    ),
    Endpoint(
        method="DELETE",
        path="/connections/{connection_id}",
        summary="Close a connection; its client is told why, and may connect again.",
        operation="connections.close",
        kind=Kind.CHANGE,
        shape=closed,
        response=record({"closed": WHOLE}),
        errors=(ErrorCode.UNKNOWN_COMMAND,),
    ),
    Endpoint(
        method="POST",
        path="/connections/close",
        summary="Close all connections of a user.",
        operation="connections.close",
        hidden=frozenset(("connection_id",)),
        kind=Kind.CHANGE,
        response=record({"closed": WHOLE}),
        idempotent=True,
    ),
    Endpoint(
        method="POST",
        path="/connections/redirect",
        summary="Tell a client, or all of a user, to connect to another server.",
        operation="connections.redirect",
        kind=Kind.CHANGE,
        response=ANYTHING,
        idempotent=True,
    ),
)
