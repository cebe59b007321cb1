"""The header of a frame, and the frames that answer and push.

    cmd, command   name of the command; either is read, both are written
    code           0 in requests; a status in answers
    desc, msg      a text; either is read, both are written
    seq            text, or a number (C); comes back in the answer as it was
    properties     protocol type, version and description of the body

Source: docs/spec/eventmesh.md, "Headers".
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import orjson

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.protocols.eventmesh.messages.large_json import has_many_lists
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect, EventMeshFrame, encode_frame


class Cmd(StrEnum):
    HEARTBEAT_REQUEST = "HEARTBEAT_REQUEST"
    HEARTBEAT_RESPONSE = "HEARTBEAT_RESPONSE"
    HELLO_REQUEST = "HELLO_REQUEST"
    HELLO_RESPONSE = "HELLO_RESPONSE"
    CLIENT_GOODBYE_REQUEST = "CLIENT_GOODBYE_REQUEST"
    CLIENT_GOODBYE_RESPONSE = "CLIENT_GOODBYE_RESPONSE"
    SERVER_GOODBYE_REQUEST = "SERVER_GOODBYE_REQUEST"
    SERVER_GOODBYE_RESPONSE = "SERVER_GOODBYE_RESPONSE"
    SUBSCRIBE_REQUEST = "SUBSCRIBE_REQUEST"
    SUBSCRIBE_RESPONSE = "SUBSCRIBE_RESPONSE"
    UNSUBSCRIBE_REQUEST = "UNSUBSCRIBE_REQUEST"
    UNSUBSCRIBE_RESPONSE = "UNSUBSCRIBE_RESPONSE"
    LISTEN_REQUEST = "LISTEN_REQUEST"
    LISTEN_RESPONSE = "LISTEN_RESPONSE"
    REQUEST_TO_SERVER = "REQUEST_TO_SERVER"
    REQUEST_TO_CLIENT = "REQUEST_TO_CLIENT"
    REQUEST_TO_CLIENT_ACK = "REQUEST_TO_CLIENT_ACK"
    RESPONSE_TO_SERVER = "RESPONSE_TO_SERVER"
    RESPONSE_TO_CLIENT = "RESPONSE_TO_CLIENT"
    RESPONSE_TO_CLIENT_ACK = "RESPONSE_TO_CLIENT_ACK"
    ASYNC_MESSAGE_TO_SERVER = "ASYNC_MESSAGE_TO_SERVER"
    ASYNC_MESSAGE_TO_SERVER_ACK = "ASYNC_MESSAGE_TO_SERVER_ACK"
    ASYNC_MESSAGE_TO_CLIENT = "ASYNC_MESSAGE_TO_CLIENT"
    ASYNC_MESSAGE_TO_CLIENT_ACK = "ASYNC_MESSAGE_TO_CLIENT_ACK"
    BROADCAST_MESSAGE_TO_SERVER = "BROADCAST_MESSAGE_TO_SERVER"
    BROADCAST_MESSAGE_TO_SERVER_ACK = "BROADCAST_MESSAGE_TO_SERVER_ACK"
    BROADCAST_MESSAGE_TO_CLIENT = "BROADCAST_MESSAGE_TO_CLIENT"
    BROADCAST_MESSAGE_TO_CLIENT_ACK = "BROADCAST_MESSAGE_TO_CLIENT_ACK"
    SYS_LOG_TO_LOGSERVER = "SYS_LOG_TO_LOGSERVER"
    TRACE_LOG_TO_LOGSERVER = "TRACE_LOG_TO_LOGSERVER"
    REDIRECT_TO_CLIENT = "REDIRECT_TO_CLIENT"
    REGISTER_REQUEST = "REGISTER_REQUEST"
    REGISTER_RESPONSE = "REGISTER_RESPONSE"
    UNREGISTER_REQUEST = "UNREGISTER_REQUEST"
    UNREGISTER_RESPONSE = "UNREGISTER_RESPONSE"
    RECOMMEND_REQUEST = "RECOMMEND_REQUEST"
    RECOMMEND_RESPONSE = "RECOMMEND_RESPONSE"


ANSWERS: dict[Cmd, Cmd] = {
    Cmd.HEARTBEAT_REQUEST: Cmd.HEARTBEAT_RESPONSE,
    Cmd.HELLO_REQUEST: Cmd.HELLO_RESPONSE,
    Cmd.CLIENT_GOODBYE_REQUEST: Cmd.CLIENT_GOODBYE_RESPONSE,
    Cmd.SUBSCRIBE_REQUEST: Cmd.SUBSCRIBE_RESPONSE,
    Cmd.UNSUBSCRIBE_REQUEST: Cmd.UNSUBSCRIBE_RESPONSE,
    Cmd.LISTEN_REQUEST: Cmd.LISTEN_RESPONSE,
    Cmd.REQUEST_TO_SERVER: Cmd.RESPONSE_TO_CLIENT,
    Cmd.ASYNC_MESSAGE_TO_SERVER: Cmd.ASYNC_MESSAGE_TO_SERVER_ACK,
    Cmd.BROADCAST_MESSAGE_TO_SERVER: Cmd.BROADCAST_MESSAGE_TO_SERVER_ACK,
    Cmd.REGISTER_REQUEST: Cmd.REGISTER_RESPONSE,
    Cmd.UNREGISTER_REQUEST: Cmd.UNREGISTER_RESPONSE,
    Cmd.RECOMMEND_REQUEST: Cmd.RECOMMEND_RESPONSE,
}
"""Other commands are answered under their own name."""
PUSH_ACKS = frozenset({Cmd.REQUEST_TO_CLIENT_ACK, Cmd.ASYNC_MESSAGE_TO_CLIENT_ACK, Cmd.BROADCAST_MESSAGE_TO_CLIENT_ACK})
UNANSWERED = PUSH_ACKS | {
    Cmd.SERVER_GOODBYE_RESPONSE,
    Cmd.RESPONSE_TO_SERVER,
    Cmd.RESPONSE_TO_CLIENT_ACK,
    Cmd.ASYNC_MESSAGE_TO_SERVER_ACK,
    Cmd.BROADCAST_MESSAGE_TO_SERVER_ACK,
    Cmd.SYS_LOG_TO_LOGSERVER,
    Cmd.TRACE_LOG_TO_LOGSERVER,
}
_BY_NAME = {str(cmd): cmd for cmd in Cmd}


class OPStatus(IntEnum):
    SUCCESS = 0
    FAIL = 1
    ACL_FAIL = 2
    TPS_OVERLOAD = 3


@dataclass(slots=True)
class Package:
    """A frame whose header has been read."""

    cmd: Cmd
    seq: bytes
    """JSON as it came; empty: none."""
    code: int
    properties: dict[str, Any]
    body: bytes
    """Empty where it is absent or `null`."""
    old: bool
    """The header is that of clients before 1.3: its command is called `command` alone."""

    @property
    def protocol_type(self) -> str:
        value = self.properties.get("protocoltype")
        return value if isinstance(value, str) else ""


HEADER_LISTS_MAX = 1_024
"""A header is an object with one in it; texts of its properties may have brackets."""


def read_package(frame: EventMeshFrame) -> Package:
    """Raises RemoteProtocolError: no header, or none of a known command."""
    if has_many_lists(frame.header, HEADER_LISTS_MAX):
        raise RemoteProtocolError(f"the header of a frame has more than {HEADER_LISTS_MAX:,} JSON lists and objects")
    try:
        header = orjson.loads(frame.header)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"the header of a frame is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise RemoteProtocolError("the header of a frame must be a JSON object")
    name = header.get("cmd")
    old = name is None
    if old:
        name = header.get("command")
    cmd = _BY_NAME.get(name) if isinstance(name, str) else None
    if cmd is None:
        shown = repr(name[:64]) if isinstance(name, str) else "of a frame, which must be text,"
        raise RemoteProtocolError(f"the command {shown} is not known")
    properties, code = header.get("properties"), header.get("code")
    if not isinstance(properties, dict):
        properties = {}
    body = b"" if frame.body == b"null" else frame.body
    return Package(cmd, _seq(header.get("seq")), code if type(code) is int else 0, properties, body, old)


SEQ_CHARACTERS_MAX = 256
"""The broker keeps the `seq` of what it has not answered yet."""


def check_seq(package: Package) -> None:
    """Raises InvalidMessage, which is answered under that `seq`: it is longer than is kept."""
    if len(package.seq) > SEQ_CHARACTERS_MAX and package.cmd not in UNANSWERED:
        text = orjson.loads(package.seq)
        if isinstance(text, str) and len(text) > SEQ_CHARACTERS_MAX:
            raise InvalidMessage(f"the `seq` of a frame has {len(text):,} characters; at most {SEQ_CHARACTERS_MAX} fit")


def _seq(value: Any) -> bytes:
    if isinstance(value, str):
        return orjson.dumps(value)
    return b"%d" % value if type(value) is int else b""


def push_seq(seq: bytes) -> int:
    """The number of an acknowledged push, whatever its JSON type; -1: none of ours."""
    digits = seq.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) <= 10 else -1


_SUCCESS = b'"desc":"success","msg":"success",'


def answer_frame(
    dialect: EventMeshDialect,
    cmd: Cmd,
    seq: bytes,
    code: int = 0,
    text: str = "",
    body: bytes = b"",
    form: Form | None = None,
) -> bytes:
    """An answer, with all four spellings, so that clients of all ages read it."""
    name = cmd.encode()
    texts = _SUCCESS
    if code or text:
        shown = orjson.dumps(text)
        texts = b'"desc":%b,"msg":%b,' % (shown, shown)
    seq = b'"seq":%b,' % seq if seq else b""
    properties = b"{}" if form is None else b'{"protocoltype":"%b"}' % form.encode()
    header = b'{"cmd":"%b","command":"%b","code":%d,%b%b"properties":%b}' % (name, name, code, texts, seq, properties)
    return encode_frame(dialect, header, body)


def plain_frame(dialect: EventMeshDialect, cmd: Cmd, body: bytes = b"") -> bytes:
    """Without a text and a number, as the server's redirect is."""
    header = b'{"cmd":"%b","command":"%b","code":0,"properties":{}}' % (cmd.encode(), cmd.encode())
    return encode_frame(dialect, header, body)


def push_header(cmd: Cmd, form: Form) -> bytes:
    """A template of the header of pushes: `header % seq`."""
    name = cmd.encode()
    return b'{"cmd":"%b","command":"%b","code":0,"seq":"%%d","properties":{"protocoltype":"%b"}}' % (
        name,
        name,
        form.encode(),
    )
