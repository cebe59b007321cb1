"""What a connection has open: queues by the client's qId, their streams, and the engine's consumers of these.

A queue refers to its streams and a consumer to its stream, never the other way: what a connection leaves is free at
once.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from vibemq.protocols.blazingmq.queue_names import QueueUri
from vibemq.protocols.blazingmq.settings import Domain


@dataclass(slots=True, eq=False)
class StreamConsumer:
    """A subscription of a stream, for the engine a consumer: each configure makes new ones, with new sIds."""

    number: int
    stream: "Stream"
    s_id: int
    receives: bool = True
    """Its limits let it be handed something."""
    active: bool = True
    """Not yet replaced: it may be handed messages."""
    writable: bool = True
    """Its sId is the one that the client knows: what is handed to it may be written."""
    held: int = 0
    """Messages that were written and not confirmed."""


@dataclass(slots=True, eq=False)
class Stream:
    """A reader of a queue: an application of a fan-out, or the one stream that other queues have."""

    q_id: int
    queue: str
    """Name of our queue."""
    domain: Domain
    sub_id: int
    app_id: str
    group: str | None
    """The engine's group; None: that of the queue's mode."""
    served: bool = True
    """False: an application that the domain does not know. It is never handed anything."""
    closing: bool = False
    consumers: set[int] = field(default_factory=set)
    """Numbers of the current ones, and of those that still hold messages."""
    configuring: bool = False
    """A configure is being carried out."""
    configures: deque[Any] = field(default_factory=deque)
    """Those that have come meanwhile."""


@dataclass(slots=True, eq=False)
class OpenedQueue:
    q_id: int
    uri: QueueUri
    name: str
    """Of our queue."""
    domain: Domain
    writers: int = 0
    leaving_writers: int = 0
    """Of those, given up by a close that is not answered yet."""
    streams: dict[int, Stream] = field(default_factory=dict)
    """By subId."""
    by_app: dict[str, Stream] = field(default_factory=dict)
    """The same by appId."""
    closing_streams: int = 0
    """Of those, given up by a close that is not answered yet."""
    unanswered_puts: int = 0
    """Publishes on their way: their ACKs come before the answer to a close."""
    known: bool = False
    """The client has been told that it is open. An ACK of another queue would kill an SDK."""
    closing: bool = False
    """The last handle is given up: what is put now is dropped."""

    def stream_of(self, app_id: str) -> Stream | None:
        return self.by_app.get(app_id)
