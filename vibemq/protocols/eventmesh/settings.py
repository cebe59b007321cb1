"""Options of an eventmesh listener."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.topics import TopicDurability


class EventMeshSettings(BaseModel):
    """All have defaults; times in ms, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frame_bytes_max: Annotated[int, Field(ge=1_024)] = 4 * 1024 * 1024 + 13
    """What the field of the total length of a TCP frame may say; clients themselves send at most 4 MiB."""
    header_bytes_max: Annotated[int, Field(ge=256)] = 65_536
    """Of the header of a TCP frame."""
    idle_timeout_ms: Annotated[int, Field(ge=1_000)] = 120_000
    """A TCP client that sends no byte for this long is closed; clients send a heartbeat every 30 s."""
    unacked_messages_max: Annotated[int, Field(ge=1)] = 100
    """Messages that a TCP session may have before it acknowledges one; a client may ask for another (`unack`)."""
    unacked_messages_limit: Annotated[int, Field(ge=1)] = 10_000
    """The largest number that a client may ask for."""
    unacked_bytes_max: Annotated[int, Field(ge=0)] = 16 * 1024 * 1024
    """The same in bytes; 0 = no limit."""
    unanswered_max: Annotated[int, Field(ge=1)] = 20_000
    """Publishes and requests of a TCP session that may wait for their answers; more are refused with code 1."""
    subscriptions_max: Annotated[int, Field(ge=1)] = 1_000
    """Per TCP session."""
    request_timeout_ms: Annotated[int, Field(ge=1)] = 3_000
    """How long a request without `ttl` waits for its reply."""
    request_timeout_max_ms: Annotated[int, Field(ge=1)] = 600_000
    """The longest that a request may wait."""
    answer_late_requests: bool = False
    """Whether a request that nobody has replied to in time is answered with code 1. EventMesh is silent, and the
    client's own timeout ends its wait: many programs take whatever is answered for the reply."""
    push_form: Form = Form.MESSAGE
    """In which form messages of other protocols are pushed to sessions that have not shown which one they use."""
    create_topics: bool = True
    """A topic that does not exist is created when it is first used, if the user may create queues."""
    durability: TopicDurability | None = None
    """Of topics that are created so; None: the broker's default."""
