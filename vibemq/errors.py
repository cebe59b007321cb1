"""The error family: every refusal a user can meet, with a stable code.

    VibeMQError
    ├── ProtocolError          LocalProtocolError (our misuse) · RemoteProtocolError (theirs)
    ├── RequestError           NoReply · RequestFailed · RequesterGone
    ├── EngineError            QueueNotFound · QueueExists · QueueExclusive · InvalidOptions · InvalidSelector …
    ├── StorageError           StorageFull · StorageDamaged · StorageFailed (StorageFenced) · StorageLocked …
    ├── AuthError              AuthRequired · AuthFailed · NotAuthorized · Forbidden · UserExists · UserNotFound …
    ├── LimitError             RateLimited · ConnectionLimit · Blocked
    └── ClientError            ConnectionLost · RequestTimeout · NotConnected · PublishRefused · PublishFailed

A message says what happened, where, and how to repair it. `code` is sent on every wire (each protocol maps
it in its own `errors.py`); `closes_connection` tells the server to hang up after the reply.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple


class ErrorCode(StrEnum):
    """Stable names; never renamed, only added to."""

    INVALID_MESSAGE = "INVALID_MESSAGE"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    INVALID_QUEUE = "INVALID_QUEUE"
    INVALID_OPTIONS = "INVALID_OPTIONS"
    INVALID_SELECTOR = "INVALID_SELECTOR"
    INVALID_PAYLOAD = "INVALID_PAYLOAD"
    QUEUE_NOT_FOUND = "QUEUE_NOT_FOUND"
    QUEUE_EXISTS = "QUEUE_EXISTS"
    QUEUE_EXCLUSIVE = "QUEUE_EXCLUSIVE"
    QUEUE_FULL = "QUEUE_FULL"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    GROUP_FENCED = "GROUP_FENCED"
    GROUP_EXPIRED = "GROUP_EXPIRED"
    WRONG_INCARNATION = "WRONG_INCARNATION"
    OFFSET_GONE = "OFFSET_GONE"
    GROUP_HAS_PROGRESS = "GROUP_HAS_PROGRESS"
    PLAN_UNKNOWN = "PLAN_UNKNOWN"
    BATCH_CHANGED = "BATCH_CHANGED"
    VERSION_SKIPPED = "VERSION_SKIPPED"
    STAGE_NOT_FOUND = "STAGE_NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    JOB_NOT_FOUND = "JOB_NOT_FOUND"
    JOB_STATE = "JOB_STATE"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    NO_REPLY = "NO_REPLY"
    REQUEST_FAILED = "REQUEST_FAILED"
    REQUESTER_GONE = "REQUESTER_GONE"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    AUTH_REQUIRED = "AUTH_REQUIRED"
    AUTH_FAILED = "AUTH_FAILED"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    USER_EXISTS = "USER_EXISTS"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    TOKEN_NOT_FOUND = "TOKEN_NOT_FOUND"  # noqa: S105  # a code, no secret
    RATE_LIMITED = "RATE_LIMITED"
    CONNECTION_LIMIT = "CONNECTION_LIMIT"
    BLOCKED = "BLOCKED"
    STORAGE_FULL = "STORAGE_FULL"
    STORAGE_DAMAGED = "STORAGE_DAMAGED"
    STORAGE_FAILED = "STORAGE_FAILED"
    STORAGE_FENCED = "STORAGE_FENCED"
    STORAGE_LOCKED = "STORAGE_LOCKED"
    STORE_VERSION = "STORE_VERSION"
    RESTORE_UNFINISHED = "RESTORE_UNFINISHED"
    CONFIG_INVALID = "CONFIG_INVALID"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    UNREACHABLE = "UNREACHABLE"
    TIMEOUT = "TIMEOUT"
    SERVER_ERROR = "SERVER_ERROR"


class VibeMQError(Exception):
    """Base of the family. `str(error)` is the sentence for a person."""

    code: ClassVar[ErrorCode] = ErrorCode.SERVER_ERROR
    closes_connection: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process pools. The constructors of some classes take something else than the sentence."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[VibeMQError], arguments: tuple[Any, ...], state: Mapping[str, Any]) -> VibeMQError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class ConfigInvalid(VibeMQError):
    """A setting, a file of settings or a command-line value that cannot be used."""

    code = ErrorCode.CONFIG_INVALID


# -- protocol ---------------------------------------------------------------------------------------------------


class ProtocolError(VibeMQError):
    """The bytes or their order break a protocol's rules."""

    code = ErrorCode.INVALID_MESSAGE


class LocalProtocolError(ProtocolError):
    """Our side asked for something the protocol cannot express (a header over 65,535 bytes, say)."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what cannot be read; nothing after it on this connection can be trusted."""

    closes_connection = True


class InvalidMessage(ProtocolError):
    """A well-formed frame whose content is refused; the connection stays."""


class InvalidPayload(ProtocolError):
    """The content of a request's payload is refused; the connection stays."""

    code = ErrorCode.INVALID_PAYLOAD

    def __init__(self, message: str, argument: str = "") -> None:
        """`argument`: which one of an operation is meant; "" = none, or several."""
        super().__init__(message)
        self.argument = argument


class UnknownCommand(ProtocolError):
    code = ErrorCode.UNKNOWN_COMMAND


class MessageTooLarge(ProtocolError):
    code = ErrorCode.MESSAGE_TOO_LARGE


# -- engine -----------------------------------------------------------------------------------------------------


class EngineError(VibeMQError):
    """The queue engine refused a command; nothing changed."""


class InvalidQueueName(EngineError):
    code = ErrorCode.INVALID_QUEUE


class InvalidOptions(EngineError):
    code = ErrorCode.INVALID_OPTIONS


class InvalidSelector(EngineError):
    """The condition of a subscription cannot be read; nobody was subscribed."""

    code = ErrorCode.INVALID_SELECTOR

    def __init__(self, text: str, offset: int, why: str) -> None:
        place = "at its end" if offset >= len(text) else f"at character {offset + 1}, {text[offset : offset + 20]!r}"
        super().__init__(f"the selector {text[:200]!r} cannot be read {place}: {why}")
        self.text = text
        self.offset = offset
        """Of the character where the mistake is, from 0."""


class QueueNotFound(EngineError):
    code = ErrorCode.QUEUE_NOT_FOUND

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} does not exist; check the name, or create the queue; publishing creates it only with "
            "the setting auto_create and the permission `create`"
        )
        self.queue = queue


class QueueExists(EngineError):
    code = ErrorCode.QUEUE_EXISTS

    def __init__(self, queue: str, difference: str = "") -> None:
        detail = f" with other options: {difference}" if difference else ""
        super().__init__(f"queue {queue!r} already exists{detail}")
        self.queue = queue


class QueueExclusive(EngineError):
    code = ErrorCode.QUEUE_EXCLUSIVE

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is exclusive: it belongs to another connection, and is deleted with it; others may "
            "publish to it, and nothing else. Use a queue that is not exclusive, or close that connection"
        )
        self.queue = queue


class QueueFull(EngineError):
    code = ErrorCode.QUEUE_FULL

    def __init__(self, queue: str, limit: str, limited_by: str = "") -> None:
        super().__init__(f"queue {queue!r} is full ({limit}); the message was not accepted, publish it again later")
        self.queue = queue
        self.limited_by = limited_by
        """`messages` or `bytes`: which of the two limits was met; "" where that is not known, as in a client."""


class GroupNotFound(EngineError):
    code = ErrorCode.GROUP_NOT_FOUND


class GroupFenced(EngineError):
    """A newer owner has taken the group over; this one must stop."""

    code = ErrorCode.GROUP_FENCED


class GroupExpired(EngineError):
    """The group lagged more than its limit and lost what it had not read; it reads again once it is sought."""

    code = ErrorCode.GROUP_EXPIRED


class WrongIncarnation(EngineError):
    """The queue was deleted and created again, or its store was restored from a backup: old sequences are not valid."""

    code = ErrorCode.WRONG_INCARNATION


class OffsetGone(EngineError):
    """The range begins below what the group keeps."""

    code = ErrorCode.OFFSET_GONE


class GroupHasProgress(EngineError):
    """The group has acknowledged messages, and its new reader does not know its position."""

    code = ErrorCode.GROUP_HAS_PROGRESS


class PlanUnknown(EngineError):
    """Where the batch that begins here ended is not known any more."""

    code = ErrorCode.PLAN_UNKNOWN


class BatchChanged(EngineError):
    """Under the number of this batch, or as another batch, other rows were read before."""

    code = ErrorCode.BATCH_CHANGED


class VersionSkipped(InvalidOptions):
    """A version of an application was never committed, and a later one was; nothing is stored."""

    code = ErrorCode.VERSION_SKIPPED


class StageNotFound(EngineError):
    """A stage was never written, was dropped or has expired; nothing was committed."""

    code = ErrorCode.STAGE_NOT_FOUND


class MessageNotFound(EngineError):
    code = ErrorCode.MESSAGE_NOT_FOUND


class PreconditionFailed(EngineError):
    """Something has changed since the caller looked at it; nothing was done."""

    code = ErrorCode.PRECONDITION_FAILED

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        """`details`: what is there now; JSON-ready."""
        super().__init__(message)
        self.details = dict(details or {})


class JobNotFound(EngineError):
    code = ErrorCode.JOB_NOT_FOUND

    def __init__(self, job: str) -> None:
        super().__init__(f"there is no job {job}; it was never made, or has ended long ago and is forgotten")


class JobStateConflict(EngineError):
    """The job is not in a state in which this can be done."""

    code = ErrorCode.JOB_STATE


class IdempotencyConflict(EngineError):
    """The same key came with another request before."""

    code = ErrorCode.IDEMPOTENCY_CONFLICT


# -- requests ---------------------------------------------------------------------------------------------------


class RequestError(VibeMQError):
    """What becomes of a request and its reply, other than a reply that is received."""

    code = ErrorCode.REQUEST_FAILED


class NoReply(RequestError):
    """Nobody has replied in time. The request may have been carried out."""

    code = ErrorCode.NO_REPLY


class RequestFailed(RequestError):
    """The request has left its queue, and nobody will reply: it was rejected, dead-lettered, dropped or removed."""

    code = ErrorCode.REQUEST_FAILED


class RequesterGone(RequestError):
    """Nobody waits for this reply, or not any more; to the responder."""

    code = ErrorCode.REQUESTER_GONE


# -- storage ----------------------------------------------------------------------------------------------------


class StorageError(VibeMQError):
    """Something about the data directory."""

    code = ErrorCode.SERVER_ERROR


class StorageFull(StorageError):
    """Nothing of the batch was written; the store works on."""

    code = ErrorCode.STORAGE_FULL

    def __init__(self, message: str, *, limit: str = "") -> None:
        """`limit`: what was met when it was not the disk's size, a limit of the process or a quota, and its repair."""
        super().__init__(message)
        self.limit = limit
        self.reason = message
        """Without what became of somebody's command."""
        self.may_hold = False
        """The command may have been carried out in the running broker."""

    def about(self, outcome: str, *, may_hold: bool = False) -> "StorageFull":
        """The same to somebody whose command it has met. `outcome`: what became of that command."""
        told = StorageFull(f"{self.reason}; {outcome}", limit=self.limit)
        told.reason = self.reason
        told.may_hold = may_hold
        return told


class StorageFailed(StorageError):
    """The outcome of a write or flush is unknown: the process stops with exit code 70 and recovery decides."""

    code = ErrorCode.STORAGE_FAILED


class StorageFenced(StorageFailed):
    """Another broker has taken the store over: nothing of the batch was written, and nothing ever will be by this one.

    The process stops like after any failure, with exit code 71: what it has not confirmed it never confirms.
    """

    code = ErrorCode.STORAGE_FENCED


class StorageDamaged(StorageError):
    """Stored bytes do not match their checksum."""

    code = ErrorCode.STORAGE_DAMAGED

    def __init__(
        self, what: str, *, path: str, offset: int | None = None, hint: str = "", run: tuple[int, int] | None = None
    ) -> None:
        place = path if offset is None else f"{path} at offset {offset}"
        super().__init__(f"{what} in {place}{'; ' + hint if hint else ''}")
        self.path = path
        self.offset = offset
        self.run = run
        """(first, last) of the messages that were read and are damaged, all of them; None: it is not known which."""


class StorageLocked(StorageError):
    """Another process owns the data directory."""

    code = ErrorCode.STORAGE_LOCKED


class StoreVersionError(StorageError):
    """The store was written by a newer VibeMQ, or needs `vibemq-admin migrate` first."""

    code = ErrorCode.STORE_VERSION


class RestoreUnfinished(StorageError):
    """A restore into the data directory is under way, was interrupted, or could not put its copy in place."""

    code = ErrorCode.RESTORE_UNFINISHED


# -- people and limits --------------------------------------------------------------------------------------------


class AuthError(VibeMQError):
    code = ErrorCode.AUTH_FAILED


class AuthRequired(AuthError):
    code = ErrorCode.AUTH_REQUIRED


class AuthFailed(AuthError):
    code = ErrorCode.AUTH_FAILED

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        """`wait_s`: for so long no further attempt is looked at."""
        super().__init__(message)
        self.wait_s = wait_s


class NotAuthenticated(AuthError):
    code = ErrorCode.NOT_AUTHENTICATED


class NotAuthorized(AuthError):
    code = ErrorCode.NOT_AUTHORIZED


class Forbidden(AuthError):
    """Nobody may do this, a superuser neither: the settings or the state of the users rule it out."""

    code = ErrorCode.FORBIDDEN


class UserExists(AuthError):
    code = ErrorCode.USER_EXISTS


class UserNotFound(AuthError):
    code = ErrorCode.USER_NOT_FOUND


class TokenNotFound(AuthError):
    code = ErrorCode.TOKEN_NOT_FOUND


class LimitError(VibeMQError):
    code = ErrorCode.RATE_LIMITED
    wait_s = 0.0
    """After so long it is worth another attempt; 0: nobody knows."""


class RateLimited(LimitError):
    code = ErrorCode.RATE_LIMITED


class ConnectionLimit(LimitError):
    code = ErrorCode.CONNECTION_LIMIT
    closes_connection = True


class Blocked(LimitError):
    """The broker refuses publishes for now, because memory or disk is above its watermark; or parts of large messages,
    or downloads of them, because it keeps as many as it may."""

    code = ErrorCode.BLOCKED


# -- calls to other machines ------------------------------------------------------------------------------------


class OutboundError(VibeMQError):
    """A call to a machine that somebody has named has not been answered."""

    code = ErrorCode.UNREACHABLE


class OutboundRefused(OutboundError):
    """The broker does not call this URL, or not any more."""


class OutboundFailed(OutboundError):
    """The call was made, or begun, and no answer came that can be read."""


class ShuttingDown(VibeMQError):
    code = ErrorCode.SHUTTING_DOWN


# -- client -------------------------------------------------------------------------------------------------------


class ClientError(VibeMQError):
    """Raised only by `vibemq.client`."""

    code = ErrorCode.UNREACHABLE


class NotConnected(ClientError):
    """No connection, and the reconnect policy has given up or was not asked to wait."""


class NotABroker(NotConnected):
    """What listens at the address does not speak the native protocol; another attempt meets the same."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came; the request may or may not have happened."""


class ClientForked(NotConnected):
    """The connection belongs to the process that this one was forked from."""


class RequestTimeout(ClientError):
    code = ErrorCode.TIMEOUT


class PublishRefused(ClientError):
    """Some messages of a `publish_many` were refused; `refused` maps their index to why, the others are accepted.

    A stream that goes on for long without a flush has more refusals than `refused` names: `more` says how many.
    `code` is that of the first refusal.
    """

    def __init__(self, queue: str, refused: Mapping[int, VibeMQError], *, accepted: int, more: int = 0) -> None:
        index, first = next(iter(refused.items()))
        count = len(refused) + more
        super().__init__(
            f"queue {queue!r} refused {count:,} of {count + accepted:,} messages; message {index}: {first}"
        )
        self.queue = queue
        self.refused = dict(refused)
        self.accepted = accepted
        self.more = more
        self.code = first.code  # type: ignore[misc]  # of this one error, not of the class


class FailedPublish(NamedTuple):
    """A message of `publish(..., wait=False)` that is not confirmed."""

    queue: str
    id: str | None
    """As it was given to `publish`."""
    error: VibeMQError


class PublishFailed(ClientError):
    """Messages of earlier `publish(..., wait=False)` failed; `failures` has each of them with its error.

    It is raised by the next such call, which publishes nothing itself then, by `flush` and by `close`. `code` is that
    of the first failure.
    """

    def __init__(self, failures: Sequence[FailedPublish]) -> None:
        first = failures[0]
        name = "" if first.id is None else f", id {first.id!r}"
        super().__init__(
            f"{len(failures):,} messages of earlier publish(wait=False) failed; the first one, to queue"
            f" {first.queue!r}{name}: {first.error}"
        )
        self.failures = tuple(failures)
        self.code = first.error.code  # type: ignore[misc]  # of this one error, not of the class


class ServerError(ClientError):
    """The broker answered with an error code this client has no class for; `wire_code` holds it."""

    code = ErrorCode.SERVER_ERROR

    def __init__(self, message: str, *, wire_code: str = "") -> None:
        super().__init__(message)
        self.wire_code = wire_code


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that is kept as a value, and of its causes: their frames refer to who keeps it,
    and such a cycle is freed only by the cycle collector."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
