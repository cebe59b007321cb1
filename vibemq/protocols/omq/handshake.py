"""The way in: eight bytes of version, then Connect, then the check of credentials."""

from dataclasses import dataclass

from vibemq.errors import AuthFailed, AuthRequired, VibeMQError
from vibemq.protocols.omq.commands import Connect
from vibemq.protocols.omq.errors import Refusal
from vibemq.protocols.omq.frames import ACCEPTED, HANDSHAKE, REFUSED, VERSION
from vibemq.protocols.omq.state import OmqState
from vibemq.protocols.session import Authenticate

ID_BYTES_MAX = 255


@dataclass(slots=True)
class OmqConnectAsked:
    """Token of an Authenticate."""

    name: str
    """The id up to its first colon: without a secret."""
    has_secret: bool = True


def shake_hands(state: OmqState, version: bytes) -> bool:
    """Answer the first eight bytes; False when it was the refusal, after which nothing follows from either side."""
    if HANDSHAKE.unpack(version) == (VERSION,):
        state.send(ACCEPTED)
        return True
    state.send(REFUSED)
    state.failed = True
    state.close()
    return False


def connect(state: OmqState, command: Connect) -> None:
    """Ask for the check of the credentials, which the id carries as `name:secret`."""
    if command.version != VERSION:
        state.fail(Refusal("version mismatch", f"the handshake said {VERSION}, Connect says {command.version}"))
        return
    try:
        text = command.id.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(command.id) > ID_BYTES_MAX:
        state.fail(Refusal("invalid id", f"an id is 1 to {ID_BYTES_MAX} bytes of UTF-8"))
        return
    name, colon, secret = text.partition(":")
    if not colon and state.context.certified:
        # The id is the client's own name for itself, unless the certificate stands for nobody.
        state.ask(Authenticate(OmqConnectAsked(name, has_secret=False)))
        return
    if state.context.authentication and not secret:
        state.fail(AuthRequired("this broker asks for credentials; connect with the id NAME:TOKEN"))
        return
    # A broker may know a shared token, users with passwords, or both.
    state.ask(Authenticate(OmqConnectAsked(name), name, secret, secret))


def refused(state: OmqState, token: OmqConnectAsked, error: VibeMQError) -> None:
    """Which of name and token was wrong is nobody's business. That they were not compared at all is the client's: it
    may try again later."""
    was_compared = token.has_secret and isinstance(error, AuthFailed) and not error.wait_s
    state.fail(AuthFailed("the id NAME:TOKEN is not known here") if was_compared else error)
