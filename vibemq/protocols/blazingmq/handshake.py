"""The way in: credentials, if the SDK knows how to send any, then the negotiation.

An SDK that is refused tries again every half second until its own connect timeout, and tells its application nothing
but that the time is over; so the reason is in the response for whoever looks at the wire or at the SDK's log.
"""

from dataclasses import dataclass

from vibemq.errors import VibeMQError
from vibemq.protocols.blazingmq.codec.control import encode_authentication, encode_negotiation
from vibemq.protocols.blazingmq.codec.features import BROKER_FEATURES, has_new_style_properties
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    AuthenticationResponse,
    BrokerResponse,
    ClientIdentity,
    ClientLanguage,
    ClientType,
    GuidInfo,
    RequestStatus,
    StatusCategory,
)
from vibemq.protocols.blazingmq.errors import category_of, status_text
from vibemq.protocols.blazingmq.state import BlazingmqState
from vibemq.protocols.session import Authenticate

PROTOCOL_VERSION = 1
_VERSION = 999_999
"""What brokers and SDKs say that were not built by a release process: the newest."""
_NAME_CHARACTERS_MAX = 128
ANONYMOUS, BASIC = "anonymous", "basic"
_SUCCESS = RequestStatus(category=StatusCategory.E_SUCCESS, code=0)


@dataclass(slots=True)
class CredentialsAsked:
    """Token of the check of an authentication request."""


@dataclass(slots=True)
class IdentityAsked:
    """Token of the check of a client that has sent no credentials."""

    identity: ClientIdentity


def authenticate(state: BlazingmqState, request: AuthenticationRequest) -> None:
    """Ask for the check of the credentials; `basic` has NAME:PASSWORD as its data."""
    mechanism = request.mechanism.lower()
    if mechanism == ANONYMOUS:
        if _must_log_in(state):
            _deny(state, StatusCategory.E_REFUSED, "this broker requires a user and a password: use mechanism basic")
            return
        state.ask(Authenticate(CredentialsAsked()))
    elif mechanism == BASIC:
        try:
            name, colon, secret = (request.data or b"").decode().partition(":")
        except UnicodeDecodeError:
            colon = name = secret = ""
        if not (colon and name and secret):
            _deny(state, StatusCategory.E_INVALID_ARGUMENT, "the data of mechanism basic is NAME:PASSWORD in UTF-8")
            return
        state.ask(Authenticate(CredentialsAsked(), name, secret, secret))
    else:
        text = f"mechanism {mechanism[:32]!r} is not known here; use basic or anonymous"
        _deny(state, StatusCategory.E_NOT_SUPPORTED, text)


def _must_log_in(state: BlazingmqState) -> bool:
    return state.context.authentication and not state.context.certified


def _deny(state: BlazingmqState, category: StatusCategory, text: str) -> None:
    status = RequestStatus(category=category, code=int(category), message=text)
    state.send(encode_authentication(state.codec, AuthenticationResponse(status=status)))
    state.close()


def credentials_refused(state: BlazingmqState, error: VibeMQError) -> None:
    _deny(state, category_of(error), status_text(error))


def credentials_count(state: BlazingmqState) -> None:
    state.send(encode_authentication(state.codec, AuthenticationResponse(status=_SUCCESS)))


def negotiate(state: BlazingmqState, identity: ClientIdentity) -> None:
    """Answer the client's first control message, once it is known to be welcome."""
    state.client_name = _shown(identity)
    state.knows_heartbeats = identity.sdk_language is not ClientLanguage.E_JAVA
    state.new_style = has_new_style_properties(identity.features)
    guids = identity.guid_info
    state.makes_guids = guids is not None and bool(guids.client_id)
    if identity.protocol_version != PROTOCOL_VERSION:
        text = f"protocol version {identity.protocol_version} is not spoken here; version {PROTOCOL_VERSION} is"
        turn_away(state, StatusCategory.E_NOT_SUPPORTED, text)
    elif identity.client_type not in (ClientType.E_TCPCLIENT, ClientType.E_TCPADMIN):
        turn_away(state, StatusCategory.E_NOT_SUPPORTED, "this broker serves clients, not brokers or proxies")
    elif state.principal is not None:
        welcome(state)
    elif _must_log_in(state):
        turn_away(state, StatusCategory.E_REFUSED, "this broker requires authentication, and the client has sent none")
    else:
        state.ask(Authenticate(IdentityAsked(identity)))


def _shown(identity: ClientIdentity) -> str:
    name = identity.process_name or "blazingmq client"
    place = f" (pid {identity.pid} on {identity.host_name})" if identity.host_name else ""
    text = f"{name}{place}"[:_NAME_CHARACTERS_MAX]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def welcome(state: BlazingmqState) -> None:
    state.negotiated = True
    state.send(encode_negotiation(state.codec, _response(state, _SUCCESS)))


def turn_away(state: BlazingmqState, category: StatusCategory, text: str) -> None:
    status = RequestStatus(category=category, code=int(category), message=text)
    state.send(encode_negotiation(state.codec, _response(state, status)))
    state.close()


def _response(state: BlazingmqState, result: RequestStatus) -> BrokerResponse:
    return BrokerResponse(
        result=result,
        protocol_version=PROTOCOL_VERSION,
        broker_version=_VERSION,
        is_deprecated_sdk=False,
        broker_identity=ClientIdentity(
            protocol_version=PROTOCOL_VERSION,
            sdk_version=_VERSION,
            client_type=ClientType.E_TCPBROKER,
            process_name="vibemq",
            session_id=1,
            features=BROKER_FEATURES,
            cluster_name="vibemq",
            sdk_language=ClientLanguage.E_CPP,
            guid_info=GuidInfo(),
        ),
        heartbeat_interval_ms=state.settings.heartbeat_interval_ms,
        max_missed_heartbeats=state.settings.max_missed_heartbeats,
    )
