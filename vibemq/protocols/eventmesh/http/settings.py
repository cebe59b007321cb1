"""Options of an eventmesh-http listener."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vibemq.protocols.eventmesh.topics import TopicDurability


class EventMeshHttpSettings(BaseModel):
    """All have defaults; times in ms, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] = "vibemq"
    """What the broker calls itself in answers and pushes (`eventmeshcluster`)."""
    environment: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] = "PRD"
    """The same (`eventmeshenv`)."""
    idc: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] = "DEFAULT"
    """The same (`eventmeshidc`)."""
    address: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] = "127.0.0.1"
    """The same (`eventmeship`); nobody connects to it."""
    head_bytes_max: Annotated[int, Field(ge=1_024)] = 32_768
    """Of a request's line and headers."""
    body_bytes_max: Annotated[int, Field(ge=1_024)] = 4 * 1024 * 1024
    """Of a request's body, which is longer than what it encodes. The message itself is bounded by
    `limits.body_bytes_max`."""
    request_timeout_ms: Annotated[int, Field(ge=1_000)] = 30_000
    """From the first byte of a request to its last."""
    keep_alive_ms: Annotated[int, Field(ge=1_000)] = 75_000
    """A connection without a request for so long is closed."""
    reply_timeout_ms: Annotated[int, Field(ge=1)] = 3_000
    """How long a request (code 101) without `ttl` waits for its reply."""
    reply_timeout_max_ms: Annotated[int, Field(ge=1)] = 600_000
    """The longest that it may wait."""
    create_topics: bool = True
    """A topic that does not exist is created when it is first used, if the user may create queues."""
    durability: TopicDurability | None = None
    """Of topics that are created so; None: the broker's default."""
    subscriptions_max: Annotated[int, Field(ge=1)] = 20_000
    """URLs that are subscribed, each topic counted by itself."""
    subscriptions_per_user_max: Annotated[int, Field(ge=1)] = 10_000
    """The same of one user. Without authentication, there is one."""
    heartbeat_expiry_ms: Annotated[int, Field(ge=1_000)] = 90_000
    """A URL for which a heartbeat has come once is forgotten when none has come for so long. Others stay."""
    push_allowed_networks: tuple[str, ...] = ()
    """Networks (`10.1.0.0/16`) of subscribers beside the public internet. Empty: none, not even this machine."""
    push_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long a subscriber may take for its answer, the connection included."""
    push_concurrency: Annotated[int, Field(ge=1, le=64)] = 1
    """Pushes of one subscription that are under way to one URL at a time. With one, they arrive in order."""
    push_failing_concurrency: Annotated[int, Field(ge=1, le=48)] = 16
    """Pushes that are under way together to URLs that have not answered lately; at most half of them to those whose
    last push has failed."""
    push_retry_after_max_ms: Annotated[int, Field(ge=1)] = 3_600_000
    """The longest that a subscriber may have a push wait (`Retry-After`)."""
    push_ca_file: str | None = None
    """Certificates of authorities that are trusted beside the system's, PEM."""
