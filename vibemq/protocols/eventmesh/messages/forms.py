"""A row of any origin, in the form that a consumer wants."""

from collections.abc import Mapping

from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.cloudevent import read_event, write_event
from vibemq.protocols.eventmesh.messages.large_json import JsonSplitter
from vibemq.protocols.eventmesh.messages.message import read_message, write_message
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage


def form_named(text: str) -> Form:
    """Of a `protocoltype`; empty is the only form of clients before 1.3.

    Raises:
        InvalidMessage: another form.
    """
    form = _NAMED.get(text)
    if form is None:
        raise InvalidMessage(f"protocoltype {text[:32]!r} is not known; use {', '.join(form for form in Form)}")
    return form


_NAMED = {"": Form.MESSAGE} | {str(form): form for form in Form}


def form_of(headers: Mapping[str, str]) -> Form:
    """The form in which a row was published; for rows of other protocols, an event if it has an event's headers."""
    form = headers.get(names.FORM)
    if form == Form.CLOUDEVENT or (form != Form.MESSAGE and "ce-specversion" in headers):
        return Form.CLOUDEVENT
    return Form.MESSAGE


def splitter_of(form: Form, raw: bytes, payload_bytes_max: int | None = None) -> JsonSplitter:
    """What takes a large message of that form apart, for `read` and `RowsOf`."""
    if form is Form.CLOUDEVENT:
        return JsonSplitter(raw, "a CloudEvent", "data", payload_bytes_max)
    return JsonSplitter(raw, "an EventMeshMessage", "body", payload_bytes_max)


def read(form: Form, raw: bytes | str | JsonSplitter) -> ReceivedMessage:
    """Raises InvalidMessage: no message of that form."""
    return read_event(raw) if form is Form.CLOUDEVENT else read_message(raw)


def write(
    form: Form,
    topic: str,
    message_id: str,
    payload: bytes,
    headers: Mapping[str, str],
    more: Mapping[str, str] | None = None,
    *,
    with_headers: bool = True,
    returnable: bool = False,
) -> bytes:
    """The JSON of a row.

    Args:
        topic: of its queue; a reply names its own.
        more: properties, or extensions, that are added.
        with_headers: see `write_message`.
        returnable: see `write_event`.

    Raises:
        InvalidMessage: as `write_message`.
    """
    topic = headers.get(names.TOPIC, topic)
    if form is Form.CLOUDEVENT:
        return write_event(topic, message_id, payload, headers, more or {}, returnable=returnable)
    return write_message(topic, payload, headers, more or {}, with_headers=with_headers)
