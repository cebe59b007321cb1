"""Jobs: replays, purges and exports of many dead letters, which the broker carries out by itself."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from vibemq.errors import AuthRequired, ErrorCode, NotAuthorized, VibeMQError
from vibemq.web.api.contract import JSON, MERGE_PATCH, NDJSON, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    BOOLEAN,
    INSTANT,
    NULLABLE_NUMBER,
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
from vibemq.web.limits import extender

PART_TIMEOUT_S = 60.0
"""For a part of a file to be read and taken."""

JOB = record(
    {"job": TEXT, "kind": TEXT, "state": TEXT, "filter": ANYTHING, "user": TEXT, "created_at": INSTANT, "done": WHOLE},
    {
        "why": TEXT,
        **dict.fromkeys(("to", "key"), NULLABLE_TEXT),
        "rate": NULLABLE_NUMBER,
        **dict.fromkeys(("limit", "max_ready", "canary", "stop_after_dead_again"), NULLABLE_WHOLE),
        **dict.fromkeys(("selected", "left_ms", "size_bytes"), NULLABLE_WHOLE),
        **dict.fromkeys(("canary_passed", "canary_waived", "dead_again_exact", "has_result"), BOOLEAN),
        **dict.fromkeys(("examined", "skipped", "damaged", "dead_again", "canary_gone", "next_id", "last_id"), WHOLE),
        **dict.fromkeys(("started_at", "changed_at", "ended_at"), INSTANT),
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


async def result(exchange: Exchange) -> Response:
    """The file of an export. Where the login or a right ends meanwhile, the last line is the refusal."""
    first = await _part(exchange, 0)
    headers = {"Content-Disposition": f'attachment; filename="dead-letters-job-{first["job"]}.ndjson"'}
    return StreamingResponse(_parts(exchange, first), media_type=NDJSON, headers=headers)


async def _parts(exchange: Exchange, part: dict[str, Any]) -> AsyncIterator[bytes]:
    extend = extender(exchange.request.scope)
    while True:
        extend(PART_TIMEOUT_S)
        yield base64.b64decode(part["data"])
        if part["next"] is None:
            return
        try:
            part = await _part(exchange, part["next"])
        except VibeMQError as error:
            yield b"\n" + orjson.dumps({"error": {"code": error.code, "detail": str(error)}}) + b"\n"
            return


async def _part(exchange: Exchange, offset: int) -> Any:
    """For who may still have it. Raises VibeMQError."""
    if reason := exchange.state.why_ended(exchange.user):
        raise AuthRequired(reason)
    if exchange.state.hides_bodies(exchange.user.principal):
        raise NotAuthorized("the broker's settings (http.show_bodies) hide what is in messages from you")
    arguments = {"job": exchange.path["job"], "offset": offset}
    return (await exchange.services.operations.ask(exchange.user, "job.result", arguments)).result


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
        summary="Have the broker replay, delete or export all dead letters that fit a filter.",
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
    Endpoint(
        method="GET",
        path="/jobs/{job}/result",
        summary="The file of an export, a line of JSON for each letter; the last line counts them.",
        operation="job.result",
        kind=Kind.STREAM,
        hidden=frozenset(("offset",)),
        handler=result,
        produces=NDJSON,
        response=ANYTHING,
        errors=(ErrorCode.JOB_NOT_FOUND, ErrorCode.JOB_STATE),
    ),
    Endpoint(
        method="DELETE",
        path="/jobs/{job}/result",
        summary="Delete the file of an export before its time.",
        operation="job.discard",
        kind=Kind.CHANGE,
        response=record({"job": TEXT, "size_bytes": WHOLE}),
        errors=(ErrorCode.JOB_NOT_FOUND, ErrorCode.JOB_STATE),
    ),
)
