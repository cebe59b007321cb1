"""Connect and ConnectAck: credentials, and what both sides agree on."""

from dataclasses import dataclass

from vibemq.errors import AuthRequired, VibeMQError
from vibemq.protocols.native.codec.compression import Compression, choose
from vibemq.protocols.native.codec.extensions import EXTENSIONS
from vibemq.protocols.native.codec.large import MAX_BODY_HEADER, asked_body_bytes
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, encode_body
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.session import Authenticate, Principal

CLIENT_NAME_MAX = 256


@dataclass(slots=True)
class ConnectAsked:
    """Token of an Authenticate."""

    id: str
    compression: Compression
    extensions: frozenset[str]
    client_name: str
    body_bytes: int
    """The largest body that the peer takes; 0: it does not say."""


def connect(state: NativeState, message: WireMessage) -> None:
    """Ask for the credentials' check. May be repeated; a failed repetition leaves the session as it was."""
    headers = message.headers
    username, password = headers.get("authUsername", ""), headers.get("authPassword", "")
    auth_token = headers.get("authToken", "")
    token = ConnectAsked(
        message.id,
        choose(headers.get("supported-compression", ""), state.settings.compressions),
        _granted(headers.get("supported-extensions", "")),
        headers.get("client-name", "")[:CLIENT_NAME_MAX],
        asked_body_bytes(headers),
    )
    nothing = not (auth_token or password)
    lacking = not auth_token and not (username and password)
    if state.context.authentication and lacking and not (nothing and state.context.certified):
        missing = "send the headers authUsername and authPassword, or authToken, with Connect"
        refuse(state, token, AuthRequired(f"this broker asks for credentials; {missing}"))
        return
    state.authenticating = True
    state.ask(Authenticate(token, username, password, auth_token))


def _granted(offered: str) -> frozenset[str]:
    names = {name.strip().lower() for name in offered.split(",")}
    return frozenset(names.intersection(EXTENSIONS))


def accept(state: NativeState, token: ConnectAsked, principal: Principal) -> None:
    """Answer with ConnectAck. Extensions are agreed once, compression with every Connect."""
    headers = {"connectionId": state.context.connection_id, "serverVersion": state.context.server_version}
    if state.principal is None:
        state.extensions = token.extensions
        state.publishes.any_payload = state.bulk
        if state.bulk:
            state.outbox.inflated_bytes_max = None
        if state.bulk and token.body_bytes:
            # Payloads of other peers are JSON, whose check takes too long at this size.
            headers[MAX_BODY_HEADER] = str(state.agree_on_body(token.body_bytes))
        elif state.bulk:
            state.send_up_to_the_limit()
    state.authenticating = False
    state.principal = principal
    state.client_name = token.client_name
    if token.compression:
        headers["negotiated-compression"] = token.compression.name.lower()
    if state.extensions:
        headers["negotiated-extensions"] = ",".join(name for name in EXTENSIONS if name in state.extensions)
    # The answer itself goes as the peer could read before: compression begins with the frame after it.
    state.outbox.send(encode_body(CommandType.CONNECT_ACK, token.id, headers=headers))
    state.outbox.compression = token.compression


def refuse(state: NativeState, token: ConnectAsked, error: VibeMQError) -> None:
    """Answer with an Error; the peer may try again, not for ever."""
    state.authenticating = False
    state.failed_attempts += 1
    state.error(token.id, error)
    if error.closes_connection or state.failed_attempts >= state.settings.auth_attempts_max:
        state.closing = True
