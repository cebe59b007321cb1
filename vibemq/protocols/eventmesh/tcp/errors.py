"""Statuses of answers. Clients tell success, failure and a refused login apart, and show the text."""

from vibemq.errors import ErrorCode, VibeMQError
from vibemq.protocols.eventmesh.tcp.package import OPStatus

WIRE_CODES: dict[ErrorCode, OPStatus] = dict.fromkeys(ErrorCode, OPStatus.FAIL) | {
    ErrorCode.NOT_AUTHENTICATED: OPStatus.ACL_FAIL,
    ErrorCode.AUTH_REQUIRED: OPStatus.ACL_FAIL,
    ErrorCode.AUTH_FAILED: OPStatus.ACL_FAIL,
    ErrorCode.NOT_AUTHORIZED: OPStatus.ACL_FAIL,
    ErrorCode.FORBIDDEN: OPStatus.ACL_FAIL,
    ErrorCode.QUEUE_EXCLUSIVE: OPStatus.ACL_FAIL,
    ErrorCode.RATE_LIMITED: OPStatus.TPS_OVERLOAD,
    ErrorCode.BLOCKED: OPStatus.TPS_OVERLOAD,
    ErrorCode.STORAGE_FULL: OPStatus.TPS_OVERLOAD,
}
"""Total over the codes."""

_TEXT_CHARACTERS_MAX = 1024


def status_of(error: VibeMQError) -> OPStatus:
    return WIRE_CODES[error.code]


def text_of(error: VibeMQError) -> str:
    """The code and the sentence, in one line."""
    text = f"{error.code}: {error}"[:_TEXT_CHARACTERS_MAX]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
