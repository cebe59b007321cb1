"""Wire codes to the classes of `vibemq.errors`."""

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from functools import partial
from typing import Any

from vibemq import errors
from vibemq.errors import ErrorCode, ServerError, VibeMQError

Failure = Callable[[], VibeMQError]
"""Makes a fresh error for each who waits, so that they do not share a traceback."""

_CLASSES: dict[str, type[VibeMQError]] = {
    ErrorCode.INVALID_MESSAGE: errors.InvalidMessage,
    ErrorCode.UNKNOWN_COMMAND: errors.UnknownCommand,
    ErrorCode.INVALID_QUEUE: errors.InvalidQueueName,
    ErrorCode.INVALID_OPTIONS: errors.InvalidOptions,
    ErrorCode.INVALID_SELECTOR: errors.InvalidSelector,
    ErrorCode.INVALID_PAYLOAD: errors.InvalidPayload,
    ErrorCode.QUEUE_NOT_FOUND: errors.QueueNotFound,
    ErrorCode.QUEUE_EXCLUSIVE: errors.QueueExclusive,
    ErrorCode.QUEUE_EXISTS: errors.QueueExists,
    ErrorCode.QUEUE_FULL: errors.QueueFull,
    ErrorCode.GROUP_NOT_FOUND: errors.GroupNotFound,
    ErrorCode.GROUP_FENCED: errors.GroupFenced,
    ErrorCode.GROUP_EXPIRED: errors.GroupExpired,
    ErrorCode.WRONG_INCARNATION: errors.WrongIncarnation,
    ErrorCode.OFFSET_GONE: errors.OffsetGone,
    ErrorCode.GROUP_HAS_PROGRESS: errors.GroupHasProgress,
    ErrorCode.PLAN_UNKNOWN: errors.PlanUnknown,
    ErrorCode.BATCH_CHANGED: errors.BatchChanged,
    ErrorCode.VERSION_SKIPPED: errors.VersionSkipped,
    ErrorCode.STAGE_NOT_FOUND: errors.StageNotFound,
    ErrorCode.MESSAGE_NOT_FOUND: errors.MessageNotFound,
    ErrorCode.MESSAGE_TOO_LARGE: errors.MessageTooLarge,
    ErrorCode.JOB_NOT_FOUND: errors.JobNotFound,
    ErrorCode.JOB_STATE: errors.JobStateConflict,
    ErrorCode.PRECONDITION_FAILED: errors.PreconditionFailed,
    ErrorCode.IDEMPOTENCY_CONFLICT: errors.IdempotencyConflict,
    ErrorCode.NO_REPLY: errors.NoReply,
    ErrorCode.REQUEST_FAILED: errors.RequestFailed,
    ErrorCode.REQUESTER_GONE: errors.RequesterGone,
    ErrorCode.NOT_AUTHENTICATED: errors.NotAuthenticated,
    ErrorCode.AUTH_REQUIRED: errors.AuthRequired,
    ErrorCode.AUTH_FAILED: errors.AuthFailed,
    ErrorCode.NOT_AUTHORIZED: errors.NotAuthorized,
    ErrorCode.FORBIDDEN: errors.Forbidden,
    ErrorCode.USER_EXISTS: errors.UserExists,
    ErrorCode.USER_NOT_FOUND: errors.UserNotFound,
    ErrorCode.TOKEN_NOT_FOUND: errors.TokenNotFound,
    ErrorCode.RATE_LIMITED: errors.RateLimited,
    ErrorCode.CONNECTION_LIMIT: errors.ConnectionLimit,
    ErrorCode.BLOCKED: errors.Blocked,
    ErrorCode.STORAGE_FULL: errors.StorageFull,
    ErrorCode.STORAGE_DAMAGED: errors.StorageDamaged,
    ErrorCode.STORAGE_FAILED: errors.StorageFailed,
    ErrorCode.STORAGE_FENCED: errors.StorageFenced,
    ErrorCode.CONFIG_INVALID: errors.ConfigInvalid,
    ErrorCode.SHUTTING_DOWN: errors.ShuttingDown,
    ErrorCode.TIMEOUT: errors.RequestTimeout,
}

PASSING = (errors.RateLimited, errors.ConnectionLimit, errors.Blocked, errors.ShuttingDown)
"""Refusals that a later attempt may not meet."""


_UNTOLD: dict[type[VibeMQError], Mapping[str, Any]] = {
    errors.QueueNotFound: {"queue": ""},
    errors.QueueExists: {"queue": ""},
    errors.QueueExclusive: {"queue": ""},
    errors.QueueFull: {"queue": "", "limited_by": ""},
    errors.InvalidSelector: {"text": "", "offset": 0},
    errors.InvalidPayload: {"argument": ""},
    errors.PreconditionFailed: {"details": {}},
    errors.StorageDamaged: {"path": "", "offset": None, "run": None},
    # The sentence says what may hold.
    errors.StorageFull: {"limit": "", "reason": "", "may_hold": True},
    errors.AuthFailed: {"wait_s": 0.0},
}
"""What errors have besides their sentence, which the wire does not carry."""


def error_of(code: str, sentence: str, queue: str = "") -> VibeMQError:
    """A fresh error for a code from the wire; ServerError when this client has no class for it.

    The broker's sentence is kept word for word: the constructors, which write their own, are passed by.
    """
    kind = _CLASSES.get(code)
    if kind is None:
        return ServerError(sentence or code, wire_code=code)
    error = kind.__new__(kind)
    Exception.__init__(error, sentence or code)
    vars(error).update(deepcopy(_UNTOLD.get(kind, {})))
    if hasattr(error, "queue"):
        error.queue = queue
    if hasattr(error, "reason"):
        error.reason = str(error)
    return error


def failure_of(code: str, sentence: str, queue: str) -> Failure:
    """No closure: a report of what was refused crosses process pools."""
    return partial(error_of, code, sentence, queue)


def settled_failure(failure: Failure) -> Failure:
    """As it is now, without what it would be made of: that may be a whole client, which crosses no process pool."""
    return partial(_again, failure())


def _again(error: VibeMQError) -> VibeMQError:
    made = copy(error)
    made.__cause__ = error.__cause__
    return made
