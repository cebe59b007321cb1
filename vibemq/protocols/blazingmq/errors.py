"""What an error of ours is on this wire: the category of a status, and the code of an ACK that refuses a message.

Never CANCELED, after which the C++ SDK waits for ever, and never NOT_CONNECTED, which it says of itself only.
"""

from vibemq.errors import EngineError, ErrorCode, InvalidMessage, VibeMQError
from vibemq.protocols.blazingmq.codec.acks import AckStatus
from vibemq.protocols.blazingmq.codec.messages import StatusCategory

_TEXT_CHARACTERS_MAX = 1024

WIRE_CODES: dict[ErrorCode, tuple[StatusCategory, AckStatus]] = dict.fromkeys(
    ErrorCode, (StatusCategory.E_UNKNOWN, AckStatus.UNKNOWN)
) | {
    ErrorCode.INVALID_MESSAGE: (StatusCategory.E_INVALID_ARGUMENT, AckStatus.UNKNOWN),
    ErrorCode.INVALID_PAYLOAD: (StatusCategory.E_INVALID_ARGUMENT, AckStatus.UNKNOWN),
    ErrorCode.INVALID_OPTIONS: (StatusCategory.E_INVALID_ARGUMENT, AckStatus.UNKNOWN),
    ErrorCode.INVALID_SELECTOR: (StatusCategory.E_INVALID_ARGUMENT, AckStatus.UNKNOWN),
    ErrorCode.MESSAGE_TOO_LARGE: (StatusCategory.E_INVALID_ARGUMENT, AckStatus.UNKNOWN),
    ErrorCode.UNKNOWN_COMMAND: (StatusCategory.E_NOT_SUPPORTED, AckStatus.UNKNOWN),
    ErrorCode.INVALID_QUEUE: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.QUEUE_EXISTS: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.QUEUE_EXCLUSIVE: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.QUEUE_FULL: (StatusCategory.E_REFUSED, AckStatus.LIMIT_MESSAGES),
    ErrorCode.NOT_AUTHENTICATED: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.AUTH_REQUIRED: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.AUTH_FAILED: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.NOT_AUTHORIZED: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.FORBIDDEN: (StatusCategory.E_REFUSED, AckStatus.UNKNOWN),
    ErrorCode.RATE_LIMITED: (StatusCategory.E_REFUSED, AckStatus.NOT_READY),
    ErrorCode.CONNECTION_LIMIT: (StatusCategory.E_REFUSED, AckStatus.NOT_READY),
    ErrorCode.BLOCKED: (StatusCategory.E_NOT_READY, AckStatus.NOT_READY),
    ErrorCode.SHUTTING_DOWN: (StatusCategory.E_NOT_READY, AckStatus.NOT_READY),
    ErrorCode.STORAGE_FULL: (StatusCategory.E_NOT_READY, AckStatus.STORAGE_FAILURE),
    ErrorCode.STORAGE_DAMAGED: (StatusCategory.E_UNKNOWN, AckStatus.STORAGE_FAILURE),
    ErrorCode.STORAGE_FAILED: (StatusCategory.E_UNKNOWN, AckStatus.STORAGE_FAILURE),
    ErrorCode.STORAGE_FENCED: (StatusCategory.E_NOT_READY, AckStatus.STORAGE_FAILURE),
    ErrorCode.STORAGE_LOCKED: (StatusCategory.E_NOT_READY, AckStatus.STORAGE_FAILURE),
}
"""Total over the codes; those left out cannot come of what this protocol asks, or are nobody's business."""


class WrongRequest(InvalidMessage):
    """A request that contradicts itself or what was asked before."""


class UnknownHere(EngineError):
    """A domain, a queue or a stream that this broker or this connection does not know."""


def category_of(error: VibeMQError) -> StatusCategory:
    if isinstance(error, UnknownHere):
        return StatusCategory.E_UNKNOWN
    return WIRE_CODES[error.code][0]


def ack_code_of(error: VibeMQError) -> AckStatus:
    """Code of the ACK of a message that was refused with this error."""
    if error.code is ErrorCode.QUEUE_FULL and getattr(error, "limited_by", "") == "bytes":
        return AckStatus.LIMIT_BYTES
    return WIRE_CODES[error.code][1]


def status_text(error: VibeMQError) -> str:
    """One line that an application may print."""
    text = str(error)[:_TEXT_CHARACTERS_MAX]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
