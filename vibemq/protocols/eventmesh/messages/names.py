"""Names of the headers that a message of EventMesh becomes, and of the properties that carry a reply home.

Source: docs/spec/eventmesh.md, "Messages and rows".
"""

from enum import StrEnum


class Form(StrEnum):
    """Values of the header property `protocoltype`."""

    MESSAGE = "eventmeshmessage"
    CLOUDEVENT = "cloudevents"


FORM = "eventmesh-protocol"
"""Header: the form in which the message was published."""
TOPIC = "eventmesh-topic"
"""Header: the topic as the sender of a reply wrote it. Other rows lie in the queue of their topic."""
EXACT = "eventmesh-properties"
"""Header: a JSON object of those properties that a header cannot hold as they are: numbers, empty ones, reserved names.
They stand above the headers of the same name."""
HEADERS = "eventmesh-headers"
"""Header: the `headers` of an EventMeshMessage beside `datacontenttype`, a JSON object."""
SENT_BY = "eventmesh-command"
"""Header: `broadcast` for what was published with BROADCAST_MESSAGE_TO_SERVER."""
BROADCAST = "broadcast"
ENCODING = "eventmesh-encoding"
"""Property of an EventMeshMessage whose body is not text: `base64`."""
CONTENT_TYPE = "content-type"
"""Header: `datacontenttype`."""
REPLY_TO, CORRELATION_ID = "reply-to", "correlation-id"
"""Headers of a request (docs/howto/request-reply.md)."""
EVENT = "ce-"
"""Before the name of each attribute and extension of a CloudEvent: `ce-id`, `ce-type`, `ce-subject`."""
EXTENSION_EXACT = "eventmeshproperties"
"""Extension of a CloudEvent that was made of a message: a JSON object of headers whose names no extension may have."""

REPLY_TOKEN = "correlation99id"  # noqa: S105  # a name
REPLY_CLIENT, REPLY_CLUSTER = "reply99to99client", "cluster"
REPLY_NAMES = (REPLY_TOKEN, REPLY_CLIENT, REPLY_CLUSTER)
"""Properties of a pushed request, which a consumer returns with its reply. The first holds the address of the reply."""
OLD_REPLY_TO = "REPLY_TO"
"""The C client replies only where this is not empty."""
CLUSTER = "vibemq"
"""Their value, and that of `source` of a CloudEvent that was made of another message."""
MADE_TYPE = "vibemq-message"
"""`type` of such a CloudEvent."""

KEPT_BACK = frozenset({FORM, TOPIC, EXACT, HEADERS, SENT_BY, REPLY_TO, CORRELATION_ID})
"""Headers that no consumer is shown as a property."""


def reserved(name: str) -> bool:
    """Whether a property of this name would be mistaken for a header of ours."""
    return name in (CONTENT_TYPE, REPLY_TO, CORRELATION_ID) or name.startswith("eventmesh-")
