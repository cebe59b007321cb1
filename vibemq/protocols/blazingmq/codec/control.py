"""Control messages in their events: either codec, whichever the event's header names."""

from typing import Any

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec import ber, json_codec
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event, EventType, control_event, unpadded_end
from vibemq.protocols.blazingmq.codec.messages import (
    AUTHENTICATION,
    CONTROL,
    NEGOTIATION,
    AuthenticationMessage,
    ControlChoice,
    ControlMessage,
    NegotiationMessage,
    StatusCategory,
    Unserved,
)
from vibemq.protocols.blazingmq.codec.schema import Choice, SchemaMismatch


def decode_negotiation(message: Event) -> NegotiationMessage:
    """The first CONTROL event of either direction.

    Raises:
        RemoteProtocolError: it cannot be read, or is no negotiation.
    """
    found: NegotiationMessage | None = _decode_choice(NEGOTIATION, message)
    if found is None:
        raise RemoteProtocolError("the first control message is no negotiation that is known here")
    return found


def decode_authentication(message: Event) -> AuthenticationMessage:
    """An AUTHENTICATION event.

    Raises:
        RemoteProtocolError: it cannot be read, or is neither request nor response.
    """
    found: AuthenticationMessage | None = _decode_choice(AUTHENTICATION, message)
    if found is None:
        raise RemoteProtocolError("an authentication event holds neither a request nor a response")
    return found


def _decode_choice(of: Choice, message: Event) -> Any:
    body = _body(message)
    return ber.decode_choice(of, body) if message.codec == ControlCodec.BER else json_codec.decode_choice(of, body)


def decode_control(message: Event) -> ControlMessage:
    """Every CONTROL event but the first. What can be read and not served comes as `Unserved`.

    Raises:
        RemoteProtocolError: it cannot be read.
    """
    body = _body(message)
    codec = ber if message.codec == ControlCodec.BER else json_codec
    r_id, found = codec.decode_request(CONTROL, body)
    if found is None:
        found = Unserved(StatusCategory.E_NOT_SUPPORTED, "requests of this kind are not supported")
    elif isinstance(found, SchemaMismatch):
        found = Unserved(StatusCategory.E_INVALID_ARGUMENT, str(found))
    return ControlMessage(r_id, found)


def _body(message: Event) -> bytes:
    if message.codec not in (ControlCodec.BER, ControlCodec.JSON):
        raise RemoteProtocolError(f"control messages in codec {message.codec}; known are 0 (BER) and 1 (JSON)")
    return message.data[message.start : unpadded_end(message.data, message.start, message.end)]


def encode_negotiation(codec: ControlCodec, message: NegotiationMessage) -> bytes:
    """A whole event."""
    return control_event(codec, _encode_choice(codec, NEGOTIATION, message))


def encode_authentication(codec: ControlCodec, message: AuthenticationMessage) -> bytes:
    """A whole event."""
    return control_event(codec, _encode_choice(codec, AUTHENTICATION, message), EventType.AUTHENTICATION)


def _encode_choice(codec: ControlCodec, of: Choice, message: object) -> bytes:
    return ber.encode_choice(of, message) if codec == ControlCodec.BER else json_codec.encode_choice(of, message)


def encode_control(codec: ControlCodec, r_id: int | None, message: ControlChoice) -> bytes:
    """A whole event: a request, or the response to the request `r_id`."""
    encode = ber.encode_request if codec == ControlCodec.BER else json_codec.encode_request
    return control_event(codec, encode(CONTROL, r_id, message))
