"""Jobs: replays and purges of many dead letters, which the broker carries out by itself."""

from typing import Any

from vibemq.errors import ErrorCode
from vibemq.web.api.contract import JSON, MERGE_PATCH, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    INSTANT,
    NULLABLE_TEXT,
    NULLABLE_WHOLE,
    NUMBER,
    TEXT,
    WHOLE,
    listed,
    record,
)
from vibemq.web.api.guardrails.json_shapes import LISTS_BYTES_MAX, LISTS_MARKS_MAX
from vibemq.web.api.kinds import Kind

JOB = record(
    {"job": TEXT, "kind": TEXT, "state": TEXT, "filter": ANYTHING, "user": TEXT, "created_at": INSTANT, "done": WHOLE},
    {
        "why": TEXT,
        "to": NULLABLE_TEXT,
        **dict.fromkeys(("rate", "limit", "max_ready", "canary", "stop_after_dead_again"), NULLABLE_WHOLE),
        **dict.fromkeys(("selected", "left_ms"), NULLABLE_WHOLE),
        **dict.fromkeys(("examined", "skipped", "damaged", "dead_again", "next_id", "last_id"), WHOLE),
        **dict.fromkeys(("started_at", "ended_at"), INSTANT),
        "rate_now": NUMBER,
        "note": TEXT,
        "events": listed(record({"at": INSTANT, "event": TEXT, "detail": TEXT})),
    },
)


def made(job: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The location is relative, as all URLs: a proxy may have put a prefix before them."""
    exchange.headers["Location"] = f"jobs/{job['job']}"
    if exchange.unchanged:
        exchange.headers["Idempotent-Replayed"] = "true"
    return {name: value for name, value in job.items() if name != "repeated"}


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs",
        summary="Jobs that are kept, the latest first.",
        operation="job.list",
        items="jobs",
        response=JOB,
    ),
    Endpoint(
        method="POST",
        path="/jobs",
        summary="Have the broker replay or delete all dead letters that fit a filter.",
        operation="job.start",
        kind=Kind.CHANGE,
        from_headers={"Idempotency-Key": "key"},
        body_bytes_max=LISTS_BYTES_MAX,
        marks_max=LISTS_MARKS_MAX,
        shape=made,
        response=JOB,
        status=201,
        errors=(
            ErrorCode.PRECONDITION_FAILED,
            ErrorCode.IDEMPOTENCY_CONFLICT,
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.STORAGE_FULL,
        ),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}",
        summary="One job.",
        operation="job.show",
        response=JOB,
        errors=(ErrorCode.JOB_NOT_FOUND,),
    ),
    Endpoint(
        method="PATCH",
        path="/jobs/{job}",
        summary="Pause, resume or cancel a job, or change its rate.",
        operation="job.change",
        kind=Kind.CHANGE,
        consumes=(JSON, MERGE_PATCH),
        response=JOB,
        errors=(ErrorCode.JOB_NOT_FOUND, ErrorCode.JOB_STATE),
    ),
)
