"""Numbers of EventMesh over HTTP: operations, what is answered, and what a subscriber answers to a push.

Source: docs/spec/eventmesh.md, "HTTP".
"""

from enum import Enum, IntEnum

from vibemq.errors import (
    AuthError,
    Blocked,
    InvalidMessage,
    InvalidQueueName,
    LimitError,
    MessageTooLarge,
    OutboundRefused,
    RateLimited,
    ShuttingDown,
    VibeMQError,
)


class RequestCode(IntEnum):
    MSG_SEND_SYNC = 101
    MSG_BATCH_SEND = 102
    MSG_SEND_ASYNC = 104
    HTTP_PUSH_CLIENT_ASYNC = 105
    HTTP_PUSH_CLIENT_SYNC = 106
    MSG_BATCH_SEND_V2 = 107
    HEARTBEAT = 203
    SUBSCRIBE = 206
    UNSUBSCRIBE = 207
    REPLY_MESSAGE = 301


class RetCode(Enum):
    """Each with its number up to 1.8, and since 1.9. Clients tell only 0 from the others."""

    SUCCESS = 0, 0
    OVERLOAD = 1, 1
    REQUESTCODE_INVALID = 2, 2
    SEND_SYNC_MSG_ERR = 3, 3
    WAITING_RR_MSG_ERR = 4, 4
    PROTOCOL_HEADER_ERR = 6, 6
    PROTOCOL_BODY_ERR = 7, 7
    PROTOCOL_BODY_SIZE_ERR = 8, 8
    SEND_ASYNC_MSG_ERR = 14, 15
    REPLY_MSG_ERR = 15, 16
    RUNTIME_ERR = 16, 18
    SEND_BATCHLOG_MSG_ERR = 17, 17
    SUBSCRIBE_ERR = 17, 19
    UNSUBSCRIBE_ERR = 18, 20
    HEARTBEAT_ERR = 19, 21
    ACL_ERR = 20, 22
    HTTP_MES_SEND_OVER_LIMIT_ERR = 21, 23

    @property
    def number(self) -> int:
        """What operations by code answer."""
        return self.value[0]

    @property
    def newer(self) -> int:
        """What URI endpoints answer, which came with 1.5."""
        return self.value[1]


class EventMeshRefusal(VibeMQError):
    """A request is answered with this number and the sentence."""

    def __init__(self, code: RetCode, message: str, *, status: int = 200) -> None:
        super().__init__(message)
        self.ret_code = code
        self.status = status


def ret_code_of(error: VibeMQError, otherwise: RetCode) -> RetCode:
    """`otherwise`: what the operation itself answers when it fails."""
    if isinstance(error, EventMeshRefusal):
        return error.ret_code
    if isinstance(error, AuthError):
        return RetCode.ACL_ERR
    if isinstance(error, RateLimited):
        return RetCode.HTTP_MES_SEND_OVER_LIMIT_ERR
    if isinstance(error, Blocked | LimitError | ShuttingDown):
        return RetCode.OVERLOAD
    if isinstance(error, MessageTooLarge):
        return RetCode.PROTOCOL_BODY_SIZE_ERR
    if isinstance(error, InvalidMessage | InvalidQueueName | OutboundRefused):
        return RetCode.PROTOCOL_BODY_ERR
    return otherwise


class PushOutcome(IntEnum):
    DONE = 0
    RETRY = 2
    GIVE_UP = 3
