"""Error texts: `code: detail` in one line. The protocol has no numbers; a client tells errors apart by the code."""

from vibemq.errors import ErrorCode, InvalidMessage, VibeMQError

_TEXT_CHARACTERS_MAX = 1024

_SERVER_ERROR = "server error"

WIRE_CODES: dict[ErrorCode, str] = dict.fromkeys(ErrorCode, _SERVER_ERROR) | {
    ErrorCode.INVALID_MESSAGE: "malformed command",
    ErrorCode.UNKNOWN_COMMAND: "unknown command",
    ErrorCode.INVALID_QUEUE: "invalid topic",
    ErrorCode.INVALID_OPTIONS: "invalid topic",
    ErrorCode.QUEUE_NOT_FOUND: "unknown topic",
    ErrorCode.QUEUE_EXCLUSIVE: "not authorized",
    ErrorCode.QUEUE_FULL: "queue full",
    ErrorCode.GROUP_NOT_FOUND: "subscription ended",
    ErrorCode.GROUP_FENCED: "subscription ended",
    ErrorCode.NOT_AUTHENTICATED: "not connected",
    ErrorCode.AUTH_REQUIRED: "authentication failed",
    ErrorCode.AUTH_FAILED: "authentication failed",
    ErrorCode.NOT_AUTHORIZED: "not authorized",
    ErrorCode.RATE_LIMITED: "rate limited",
    ErrorCode.CONNECTION_LIMIT: "too many connections",
    ErrorCode.BLOCKED: "blocked",
    ErrorCode.STORAGE_FULL: "storage full",
    ErrorCode.SHUTTING_DOWN: "shutting down",
}
"""Total over the codes; those left out cannot come of what this protocol asks, or are nobody's business."""


class Refusal(InvalidMessage):
    """An error of this protocol, whose message begins with a code of its own."""

    def __init__(self, wire_code: str, detail: str) -> None:
        super().__init__(f"{wire_code}: {detail}")


def error_text(error: VibeMQError, topic: str = "") -> str:
    """`code: detail`; the detail of a missing queue is the topic alone."""
    if isinstance(error, Refusal):
        return one_line(str(error))
    if error.code is ErrorCode.QUEUE_NOT_FOUND and topic:
        return one_line(f"{WIRE_CODES[error.code]}: {topic}")
    return one_line(f"{WIRE_CODES[error.code]}: {error}")


def one_line(text: str) -> str:
    text = text[:_TEXT_CHARACTERS_MAX]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
