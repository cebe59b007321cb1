"""Error codes on the native wire, and the Error body (99).

.NET clients never look at the code, they show the sentence; the seed's clients know six codes; ours knows them all.
So every code travels under its own name, except those that only make sense inside one process.
"""

from vibemq.errors import ErrorCode, VibeMQError
from vibemq.protocols.native.codec.wire import CommandType, encode_body

_SENTENCE_UNITS_MAX = 4096

_INSIDE_ONLY = frozenset(
    {
        ErrorCode.STORAGE_LOCKED,
        ErrorCode.STORE_VERSION,
        ErrorCode.RESTORE_UNFINISHED,
        ErrorCode.UNREACHABLE,
        ErrorCode.TIMEOUT,
    }
)

WIRE_CODES: dict[ErrorCode, str] = {
    code: ErrorCode.SERVER_ERROR.value if code in _INSIDE_ONLY else code.value for code in ErrorCode
}


def wire_code(error: VibeMQError) -> str:
    return WIRE_CODES[error.code]


def error_body(message_id: str | bytes, error: VibeMQError, queue: str = "") -> bytes:
    """An Error frame's body; overlong sentences are cut so that it always fits."""
    return encode_body(
        CommandType.ERROR,
        message_id,
        queue,
        error_code=wire_code(error),
        error_message=sentence(error),
    )


def sentence(error: VibeMQError) -> str:
    return str(error)[:_SENTENCE_UNITS_MAX]
