"""Queues: list, make, look at, change, purge and delete them."""

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vibemq.errors import ErrorCode, QueueNotFound
from vibemq.model.options import (
    QueueOptions,
    is_own_queue,
    options_from_dict,
    options_in_words,
    options_tag,
    options_to_dict,
)
from vibemq.operations.queues import GROUPS_SHOWN, PAGE_QUEUES
from vibemq.web.api.answers import seen_tag
from vibemq.web.api.arguments import checked
from vibemq.web.api.contract import JSON, MERGE_PATCH, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import ANYTHING, BOOLEAN, INSTANT, TEXT, WHOLE, listed, nothing, record
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.guardrails.json_shapes import LISTS_BYTES_MAX, LISTS_MARKS_MAX
from vibemq.web.api.kinds import Kind

PAGE = 50


def _without_default(schema: dict[str, Any]) -> None:
    """Left out is neither null nor 0, and has no JSON value of its own."""
    del schema["properties"]["at_most"]["default"]


class AtMostBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True, json_schema_extra=_without_default)

    at_most: int = Field(
        0, ge=0, description="Refuse if more messages than that are ready or delayed; left out: never."
    )
    dry_run: bool = Field(False, description="Check everything, say what would be done, and change nothing.")


def tag_of(info: dict[str, Any]) -> str:
    """Of the options of a queue as `queue.info` describes it."""
    known = {field.name for field in fields(QueueOptions)}
    options = {name: value for name, value in info["options"].items() if name in known}
    return options_tag(info["incarnation"], options_from_dict(options))


def described(info: dict[str, Any]) -> dict[str, Any]:
    """A queue as the API shows it."""
    rest = {name: value for name, value in info.items() if name not in ("name", "size", "options")}
    return {"queue": info["name"], **rest, "bytes": info["size"], "options": options_in_words(info["options"])}


def one(info: dict[str, Any] | None, exchange: Exchange) -> dict[str, Any]:
    if info is None:
        raise QueueNotFound(exchange.path["queue"][:64])
    exchange.headers["ETag"] = f'"{tag_of(info)}"'
    return described(info)


def some(page: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """Who may do something else with a queue knows that it is there, and no more. The broker's own queues and those of
    one connection are nothing that could be created."""
    shown = [
        info
        for info in page["items"]
        if not info["restricted"] and not is_own_queue(info["name"]) and not info["options"]["exclusive"]
    ]
    return {**page, "items": [described(info) for info in shown]}


def first_page(exchange: Exchange) -> dict[str, Any]:
    """Always a page: the whole list has no bound."""
    return {"limit": exchange.query.get("limit", PAGE)}


def creation(exchange: Exchange) -> dict[str, Any]:
    """The body has the options themselves."""
    return {"queue": exchange.path["queue"], "options": exchange.body or None, "must_match": True}


def created(result: Any, exchange: Exchange) -> dict[str, Any]:
    exchange.status = 200 if exchange.unchanged else 201
    return {"queue": exchange.path["queue"]}


def change(exchange: Exchange) -> dict[str, Any]:
    """A merge patch: null gives an option the default of new queues."""
    tag = exchange.request.headers.get("if-match")
    if tag is None:
        raise Problem(
            HttpCode.PRECONDITION_REQUIRED,
            "a change needs the header If-Match with the ETag of the queue, so that nobody's change is lost; read the "
            "queue first",
        )
    defaults = options_to_dict(exchange.services.queue_defaults)
    changes = {name: defaults.get(name) if value is None else value for name, value in (exchange.body or {}).items()}
    return {"queue": exchange.path["queue"], "changes": changes, "if_tag": seen_tag(tag)}


def at_most(exchange: Exchange) -> dict[str, Any]:
    return {"queue": exchange.path["queue"], **checked(AtMostBody, exchange.body)}


def imported(told: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """With the names of choices, as everywhere."""
    different = [
        {**one, "options": {name: _named(name, values) for name, values in one["options"].items()}}
        for one in told["different"]
    ]
    return {**told, "different": different}


def _named(name: str, values: dict[str, Any]) -> dict[str, Any]:
    return {which: options_in_words({name: value})[name] for which, value in values.items()}


OPTIONS = {"type": "object", "description": "Options of a queue, by name."}
QUEUE = record(
    {
        "queue": TEXT,
        "incarnation": TEXT,
        "options": OPTIONS,
        **dict.fromkeys(("ready", "in_flight", "delayed", "dead", "consumers", "bytes"), WHOLE),
    },
    {
        "created_at": INSTANT,
        "oldest_at": INSTANT,
        "groups": listed(ANYTHING),
        "counters": {"type": "object", "additionalProperties": WHOLE},
    },
)
NAMED = record({"queue": TEXT})
IMPORTED = record(
    {"created": listed(TEXT), "unchanged": listed(TEXT), "different": listed(ANYTHING)},
    {"failed": {"type": ["object", "null"]}, "count": WHOLE, "dry_run": BOOLEAN},
)

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/definitions",
        summary="Queues that the asker may inspect, with their options, without the broker's own and exclusive ones; a "
        "page may have fewer than its limit.",
        operation="queue.list",
        items="queues",
        limit_max=PAGE_QUEUES,
        arguments=first_page,
        shape=some,
        response=QUEUE,
    ),
    Endpoint(
        method="POST",
        path="/definitions",
        summary="Create the queues of a list that are missing. One that is there with other options is left as it is.",
        operation="definitions.import",
        kind=Kind.CHANGE,
        body_bytes_max=LISTS_BYTES_MAX,
        marks_max=LISTS_MARKS_MAX,
        shape=imported,
        response=IMPORTED,
        errors=(ErrorCode.STORAGE_FULL,),
        idempotent=True,
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}",
        summary=f"Describe a queue, with up to {GROUPS_SHOWN} of its groups; GET /queues/{{queue}}/groups has all. The "
        "ETag is of its options.",
        operation="queue.info",
        fixed={"groups_max": GROUPS_SHOWN},
        shape=one,
        response=QUEUE,
        conditional=False,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="PUT",
        path="/queues/{queue}",
        summary="Create a queue with these options; 200 if it is there with the same ones.",
        operation="queue.create",
        kind=Kind.CHANGE,
        body=OPTIONS,
        arguments=creation,
        shape=created,
        response=NAMED,
        status=201,
        more_statuses=(200,),
        errors=(ErrorCode.QUEUE_EXISTS, ErrorCode.STORAGE_FULL),
    ),
    Endpoint(
        method="PATCH",
        path="/queues/{queue}",
        summary="Change options of a queue (merge patch; null: the default of new queues). Needs If-Match.",
        operation="queue.change",
        kind=Kind.CHANGE,
        body=OPTIONS,
        consumes=(MERGE_PATCH, JSON),
        from_headers={"If-Match": "if_tag"},
        arguments=change,
        shape=nothing,
        response=ANYTHING,
        errors=(
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.PRECONDITION_FAILED,
            HttpCode.PRECONDITION_REQUIRED,
            ErrorCode.STORAGE_FULL,
        ),
    ),
    Endpoint(
        method="DELETE",
        path="/queues/{queue}",
        summary="Delete a queue with its messages, those that consumers hold included; its dead letters stay. A "
        "missing queue has the same answer.",
        operation="queue.delete",
        kind=Kind.CHANGE,
        from_headers={"If-Match": "if_tag"},
        shape=nothing,
        response=ANYTHING,
        errors=(ErrorCode.PRECONDITION_FAILED, ErrorCode.QUEUE_EXCLUSIVE),
    ),
    Endpoint(
        method="POST",
        path="/queues/{queue}/purge",
        summary="Drop every waiting message; what consumers hold stays.",
        operation="queue.purge",
        kind=Kind.CHANGE,
        body=AtMostBody,
        arguments=at_most,
        response=record({"count": WHOLE}, {"dry_run": BOOLEAN}),
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.PRECONDITION_FAILED, ErrorCode.QUEUE_EXCLUSIVE),
        idempotent=True,
    ),
)
