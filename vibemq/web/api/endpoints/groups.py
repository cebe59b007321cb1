"""Durable groups of a queue, the cursors of Spark and other readers by range among them."""

from typing import Any

from vibemq.errors import ErrorCode, GroupNotFound
from vibemq.web.api.contract import JSON, MERGE_PATCH, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import ANYTHING, BOOLEAN, NULLABLE_TEXT, TEXT, WHOLE, nothing, record
from vibemq.web.api.kinds import Kind

GROUP = record(
    {
        "group": TEXT,
        "cursor": BOOLEAN,
        "committed": WHOLE,
        "epoch": WHOLE,
        "backlog_messages": WHOLE,
        "in_flight": WHOLE,
        "consumers": WHOLE,
    },
    {"user": NULLABLE_TEXT},
)
OF_QUEUE = (ErrorCode.QUEUE_NOT_FOUND, ErrorCode.WRONG_INCARNATION)
OF_GROUP = (*OF_QUEUE, ErrorCode.GROUP_NOT_FOUND)
_PATH = "/queues/{queue}/groups/{group}"


def only(exchange: Exchange) -> dict[str, Any]:
    return {"queue": exchange.path["queue"], "group": exchange.path["group"], "limit": 1}


def one(page: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    if not page["groups"]:
        queue, group = exchange.path["queue"], exchange.path["group"]
        raise GroupNotFound(
            f"queue {queue[:64]!r} has no group {group[:64]!r}; its list of groups shows those there are"
        )
    found: dict[str, Any] = page["groups"][0]
    return found


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/queues/{queue}/groups",
        summary="Groups of a queue, by name.",
        operation="group.list",
        hidden=frozenset(("group",)),
        items="groups",
        response=GROUP,
        errors=OF_QUEUE,
    ),
    Endpoint(
        method="GET",
        path=_PATH,
        summary="One group.",
        operation="group.list",
        arguments=only,
        shape=one,
        response=GROUP,
        errors=OF_GROUP,
    ),
    Endpoint(
        method="PATCH",
        path=_PATH,
        summary="Change limits of a cursor; its reader goes on.",
        operation="group.set",
        kind=Kind.CHANGE,
        consumes=(JSON, MERGE_PATCH),
        response=ANYTHING,
        errors=(*OF_GROUP, ErrorCode.GROUP_FENCED, ErrorCode.GROUP_EXPIRED, ErrorCode.INVALID_OPTIONS),
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/seek",
        summary="Move a group; its reader is stopped.",
        operation="group.seek",
        kind=Kind.CHANGE,
        response=ANYTHING,
        errors=(*OF_GROUP, ErrorCode.OFFSET_GONE, ErrorCode.INVALID_OPTIONS),
        idempotent=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/quarantine",
        summary="Dead-letter whole runs of messages, which the group never reads again.",
        operation="group.quarantine",
        kind=Kind.CHANGE,
        response=ANYTHING,
        errors=(*OF_GROUP, ErrorCode.INVALID_OPTIONS),
        idempotent=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/filter",
        summary="Give a durable group of a fan-out queue a filter, made if it is missing.",
        operation="group.filter",
        kind=Kind.CHANGE,
        response=ANYTHING,
        errors=(*OF_QUEUE, ErrorCode.INVALID_SELECTOR, ErrorCode.INVALID_OPTIONS),
        idempotent=True,
    ),
    Endpoint(
        method="DELETE",
        path=_PATH,
        summary="Delete a group and what it has not read.",
        operation="group.delete",
        kind=Kind.CHANGE,
        shape=nothing,
        response=ANYTHING,
        errors=(*OF_GROUP, ErrorCode.INVALID_OPTIONS),
    ),
)
