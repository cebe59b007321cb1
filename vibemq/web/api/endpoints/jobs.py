"""Jobs: replays, purges and exports that the broker does by itself."""

from typing import Any

from vibemq.errors import ErrorCode
from vibemq.web.api.contract import JSON, MERGE_PATCH, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import ANYTHING, INSTANT, NULLABLE_WHOLE, TEXT, WHOLE, record
from vibemq.web.api.kinds import Kind

JOB = record(
    {"job": TEXT, "kind": TEXT, "state": TEXT, "filter": ANYTHING, "done": WHOLE, "skipped": WHOLE},
    {"selected": NULLABLE_WHOLE, "dead_again": WHOLE, "created_at": INSTANT, "user": TEXT, "note": TEXT},
)


def located(job: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    exchange.headers["Location"] = f"jobs/{job['job']}"
    return job


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs",
        summary="Jobs, the latest first.",
        operation="job.list",
        items="jobs",
        response=JOB,
    ),
    Endpoint(
        method="POST",
        path="/jobs",
        summary="Have dead letters replayed, purged or exported.",
        operation="job.start",
        kind=Kind.CHANGE,
        hidden=frozenset(("key",)),
        shape=located,
        response=JOB,
        status=201,
        errors=(
            ErrorCode.PRECONDITION_FAILED,
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.INVALID_OPTIONS,
            ErrorCode.STORAGE_FULL,
        ),
        idempotent=True,
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
        errors=(ErrorCode.JOB_NOT_FOUND, ErrorCode.JOB_STATE, ErrorCode.INVALID_OPTIONS),
    ),
)
