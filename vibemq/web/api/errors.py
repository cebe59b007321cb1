"""Refusals of the HTTP API: RFC 9457 problems, one for each code of the error family, and those that only HTTP has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vibemq.errors import ErrorCode, VibeMQError


class HttpCode(StrEnum):
    """Codes beside those of `vibemq.errors`."""

    CROSS_ORIGIN = "CROSS_ORIGIN"
    OPEN_BROKER = "OPEN_BROKER"
    UNKNOWN_HOST = "UNKNOWN_HOST"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    IDEMPOTENCY_BUSY = "IDEMPOTENCY_BUSY"
    PRECONDITION_REQUIRED = "PRECONDITION_REQUIRED"
    LEASE_GONE = "LEASE_GONE"
    RANGE_NOT_SATISFIABLE = "RANGE_NOT_SATISFIABLE"
    RECOVERING = "RECOVERING"


Code = ErrorCode | HttpCode


@dataclass(frozen=True, slots=True)
class HttpMeaning:
    status: int
    title: str
    retry_after_s: int = 0
    """Sent as Retry-After where the refusal itself names no time; 0: not sent."""


def _busy(status: int, title: str) -> HttpMeaning:
    return HttpMeaning(status, title, retry_after_s=1)


MEANINGS: Mapping[Code, HttpMeaning] = {
    ErrorCode.INVALID_MESSAGE: HttpMeaning(400, "The request cannot be read"),
    ErrorCode.UNKNOWN_COMMAND: HttpMeaning(404, "There is no such resource"),
    ErrorCode.INVALID_QUEUE: HttpMeaning(422, "The queue name is not allowed"),
    ErrorCode.INVALID_OPTIONS: HttpMeaning(422, "The options are not allowed"),
    ErrorCode.INVALID_SELECTOR: HttpMeaning(422, "The selector cannot be read"),
    ErrorCode.INVALID_PAYLOAD: HttpMeaning(422, "An argument is not allowed"),
    ErrorCode.QUEUE_NOT_FOUND: HttpMeaning(404, "The queue does not exist"),
    ErrorCode.QUEUE_EXISTS: HttpMeaning(409, "The queue exists with other options"),
    ErrorCode.QUEUE_EXCLUSIVE: HttpMeaning(409, "The queue belongs to a connection"),
    ErrorCode.QUEUE_FULL: HttpMeaning(409, "The queue is full"),
    ErrorCode.GROUP_NOT_FOUND: HttpMeaning(404, "The group does not exist"),
    ErrorCode.GROUP_FENCED: HttpMeaning(409, "The group has a newer owner"),
    ErrorCode.GROUP_EXPIRED: HttpMeaning(409, "The group has expired"),
    ErrorCode.WRONG_INCARNATION: HttpMeaning(409, "The queue was made anew"),
    ErrorCode.OFFSET_GONE: HttpMeaning(410, "The position is not kept any more"),
    ErrorCode.GROUP_HAS_PROGRESS: HttpMeaning(409, "The group has acknowledged messages"),
    ErrorCode.PLAN_UNKNOWN: HttpMeaning(409, "The plan is not known"),
    ErrorCode.BATCH_CHANGED: HttpMeaning(409, "The batch has changed"),
    ErrorCode.VERSION_SKIPPED: HttpMeaning(409, "The version was skipped"),
    ErrorCode.STAGE_NOT_FOUND: HttpMeaning(404, "The stage does not exist"),
    ErrorCode.MESSAGE_NOT_FOUND: HttpMeaning(404, "The message does not exist"),
    ErrorCode.MESSAGE_TOO_LARGE: HttpMeaning(413, "Too large"),
    ErrorCode.NO_REPLY: HttpMeaning(504, "There was no reply"),
    ErrorCode.REQUEST_FAILED: HttpMeaning(409, "The request will not be answered"),
    ErrorCode.REQUESTER_GONE: HttpMeaning(409, "The requester has gone"),
    ErrorCode.NOT_AUTHENTICATED: HttpMeaning(401, "Authentication is required"),
    ErrorCode.AUTH_REQUIRED: HttpMeaning(401, "Authentication is required"),
    ErrorCode.AUTH_FAILED: HttpMeaning(401, "Authentication has failed"),
    ErrorCode.NOT_AUTHORIZED: HttpMeaning(403, "The permission is missing"),
    ErrorCode.FORBIDDEN: HttpMeaning(409, "The state of the users or of the settings rules this out"),
    ErrorCode.USER_EXISTS: HttpMeaning(409, "The user exists"),
    ErrorCode.USER_NOT_FOUND: HttpMeaning(404, "The user does not exist"),
    ErrorCode.TOKEN_NOT_FOUND: HttpMeaning(404, "The token does not exist"),
    ErrorCode.PRECONDITION_FAILED: HttpMeaning(412, "The state is not the expected one"),
    ErrorCode.JOB_NOT_FOUND: HttpMeaning(404, "The job does not exist"),
    ErrorCode.JOB_STATE: HttpMeaning(409, "The job is in another state"),
    ErrorCode.IDEMPOTENCY_CONFLICT: HttpMeaning(422, "The idempotency key was used for another request"),
    ErrorCode.RATE_LIMITED: _busy(429, "Too many requests"),
    ErrorCode.CONNECTION_LIMIT: _busy(503, "Too many connections"),
    ErrorCode.BLOCKED: _busy(503, "The broker accepts nothing for now"),
    ErrorCode.STORAGE_FULL: HttpMeaning(507, "The disk is full"),
    ErrorCode.STORAGE_DAMAGED: HttpMeaning(500, "Stored data is damaged"),
    ErrorCode.STORAGE_FAILED: HttpMeaning(500, "Storage has failed"),
    ErrorCode.STORAGE_FENCED: HttpMeaning(500, "The store has another owner"),
    ErrorCode.STORAGE_LOCKED: HttpMeaning(500, "The store is in use"),
    ErrorCode.STORE_VERSION: HttpMeaning(500, "The store has another version"),
    ErrorCode.RESTORE_UNFINISHED: HttpMeaning(500, "A restore of the store is not finished"),
    ErrorCode.CONFIG_INVALID: HttpMeaning(422, "The settings cannot be used"),
    ErrorCode.SHUTTING_DOWN: HttpMeaning(503, "The broker is stopping", retry_after_s=5),
    ErrorCode.UNREACHABLE: HttpMeaning(504, "Another machine does not answer"),
    ErrorCode.TIMEOUT: HttpMeaning(504, "It took too long"),
    ErrorCode.SERVER_ERROR: HttpMeaning(500, "The broker has failed"),
    HttpCode.CROSS_ORIGIN: HttpMeaning(403, "The request comes from another origin"),
    HttpCode.OPEN_BROKER: HttpMeaning(403, "The broker has no authentication"),
    HttpCode.UNKNOWN_HOST: HttpMeaning(421, "The name is not one of the broker's"),
    HttpCode.METHOD_NOT_ALLOWED: HttpMeaning(405, "The resource does not have this method"),
    HttpCode.REQUEST_TIMEOUT: HttpMeaning(408, "The request did not arrive in time"),
    HttpCode.UNSUPPORTED_MEDIA_TYPE: HttpMeaning(415, "The content type is not accepted"),
    HttpCode.IDEMPOTENCY_BUSY: _busy(409, "The first request with this idempotency key is under way"),
    HttpCode.PRECONDITION_REQUIRED: HttpMeaning(428, "A precondition is required"),
    HttpCode.LEASE_GONE: HttpMeaning(410, "The lease does not count any more"),
    HttpCode.RANGE_NOT_SATISFIABLE: HttpMeaning(416, "The range is not one of the body"),
    HttpCode.RECOVERING: _busy(503, "The broker recovers its store"),
}
"""Every refusal there is; a test walks both tables of codes."""


class Problem(Exception):
    """A refusal that HTTP has and the other doors have not. `str(problem)` is the sentence."""

    def __init__(self, code: Code, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        """`more`: further members of the answer."""
        super().__init__(detail)
        self.code = code
        self.headers = dict(headers or {})
        self.more = more


def pointed(pointer: str, detail: str) -> list[dict[str, str]]:
    """`errors` of an answer: where in the request the trouble is."""
    return [{"pointer": pointer, "detail": detail}]


def as_problem(error: VibeMQError) -> Problem:
    """An error of the family in the words of HTTP."""
    argument = getattr(error, "argument", "")
    more: dict[str, Any] = {"errors": pointed(f"/{argument}", str(error))} if argument else {}
    wait_s = getattr(error, "wait_s", 0)
    headers = {"Retry-After": str(math.ceil(wait_s))} if wait_s else {}
    return Problem(error.code, str(error), headers=headers, **{**more, **getattr(error, "details", {})})


def body_of(problem: Problem, request_id: str) -> dict[str, Any]:
    meaning = MEANINGS[problem.code]
    return {
        "type": f"urn:vibemq:error:{problem.code}",
        "title": meaning.title,
        "status": meaning.status,
        "detail": str(problem),
        "code": str(problem.code),
        "instance": request_id,
        **problem.more,
    }


def headers_of(problem: Problem, challenges: Sequence[str]) -> dict[str, str]:
    """`challenges`: of a 401, the schemes that it may be repaired with."""
    meaning = MEANINGS[problem.code]
    headers = dict(problem.headers)
    if meaning.retry_after_s and "Retry-After" not in headers:
        headers["Retry-After"] = str(meaning.retry_after_s)
    if meaning.status == 401:
        headers["WWW-Authenticate"] = ", ".join(challenges)
    return headers
