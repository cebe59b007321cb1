"""Options of a BlazingMQ listener: its domains, which decide what their queues are."""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vibemq.errors import InvalidOptions, InvalidQueueName, InvalidSelector
from vibemq.model.options import DeliveryMode, Durability, LostConnection, Overflow, QueueOptions, enum_of
from vibemq.model.selector import Selector
from vibemq.protocols.blazingmq.codec.messages import DEFAULT_APP_ID
from vibemq.protocols.blazingmq.queue_names import QueueUri, check_domain, is_app_id, queue_name

NotNegative = Annotated[int, Field(ge=0)]
UNLIMITED_ATTEMPTS = 1_000_000_000
PATTERN = "*"
BROADCAST_MESSAGES_MAX = 100_000
BROADCAST_BYTES_MAX = 64 << 20


class DomainMode(StrEnum):
    PRIORITY = "priority"
    """A work queue: the consumers of the highest priority share its messages."""
    FANOUT = "fanout"
    """Each application of `app_ids` gets every message."""
    BROADCAST = "broadcast"
    """Whoever is connected gets every message; nothing is kept."""


class Domain(BaseModel):
    """What the queues of a domain are when they are created."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: DomainMode = DomainMode.PRIORITY
    app_ids: tuple[str, ...] = ()
    """The applications of a fan-out: each has a durable group of its own from the beginning of the queue."""
    subscriptions: dict[str, str] = Field(default_factory=dict)
    """Application -> an expression: of the queue's messages only those that match it are for the application."""
    durability: str | None = None
    """`strong`, `weak`, `async` or `transient`; None: strong, for a broadcast transient."""
    message_ttl_ms: NotNegative = 0
    """0 = no limit."""
    max_messages: NotNegative = 0
    """Of each queue; 0 = no limit. A message beyond it is refused; a broadcast drops its oldest ones instead."""
    max_bytes: NotNegative = 0
    max_producers: NotNegative = 0
    """Clients that have one of its queues open for writing, at a time and for each queue; 0 = no limit."""
    max_consumers: NotNegative = 0
    """Readers of a queue, of all its applications together."""
    max_queues: NotNegative = 0
    """Queues of the domain that clients have open at a time."""
    max_delivery_attempts: NotNegative = 0
    """Of a message whose consumers die over it, before it goes to the dead letters; 0 = no limit."""
    redelivery_delay_ms: NotNegative = 1_000
    """Where attempts are limited, a message over which a consumer died waits for so long before it goes again, up to
    three times as long after further deaths; what is behind it waits, so that the one that kills is found."""
    deduplication_ms: NotNegative = 300_000
    """For so long a message that was posted again is not stored again; 0 = never looked at."""
    plain_names: bool = False
    """The queues are called as their URIs call them, without the domain."""

    @field_validator("durability")
    @classmethod
    def _known_durability(cls, value: str | None) -> str | None:
        try:
            enum_of(Durability, value or "strong", "durability")
        except InvalidOptions as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("app_ids")
    @classmethod
    def _can_be_app_ids(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for app_id in value:
            if not is_app_id(app_id) or app_id == DEFAULT_APP_ID:
                raise ValueError(f"{app_id!r} cannot be the id of an application")
        if len(set(value)) < len(value):
            raise ValueError("an application is named twice")
        return value

    @model_validator(mode="after")
    def _modes_make_sense(self) -> "Domain":
        if self.app_ids and self.mode is not DomainMode.FANOUT:
            raise ValueError(f"app_ids are for the mode fanout; a domain of mode {self.mode} has none")
        if not self.app_ids and self.mode is DomainMode.FANOUT:
            raise ValueError("a domain of mode fanout needs app_ids, the applications that read its queues")
        for app_id, expression in self.subscriptions.items():
            if app_id not in self.app_ids:
                raise ValueError(f"there is a subscription for {app_id!r}, which is not among the app_ids")
            try:
                Selector.parse(expression)
            except InvalidSelector as error:
                raise ValueError(f"the subscription of {app_id!r}: {error}") from None
        return self

    def filters(self) -> dict[str, Selector | None]:
        """Of all applications; None: one without an expression gets everything, whatever its group was told before."""
        expressions = self.subscriptions
        return {app: Selector.parse(expressions[app]) if app in expressions else None for app in self.app_ids}

    @property
    def flushes(self) -> bool:
        """Whether what is posted is flushed before it is acknowledged."""
        return self.queue_options().durability is Durability.STRONG

    @property
    def delivery_mode(self) -> DeliveryMode:
        return _MODES[self.mode]

    def queue_options(self) -> QueueOptions:
        passing = self.mode is DomainMode.BROADCAST
        durability = self.durability or ("transient" if passing else "strong")
        limited = self.max_delivery_attempts > 0
        return QueueOptions(
            mode=self.delivery_mode,
            highest_priority_only=passing,
            durability=Durability(enum_of(Durability, durability, "durability")),
            # What is on its way to a reader that is slow, or waits for nobody, must not grow without end.
            overflow=Overflow.DROP_OLDEST if passing else Overflow.DROP_NEWEST,
            max_messages=self.max_messages or (BROADCAST_MESSAGES_MAX if passing else 0),
            max_bytes=self.max_bytes or (BROADCAST_BYTES_MAX if passing else 0),
            message_ttl_ms=self.message_ttl_ms or None,
            max_attempts=self.max_delivery_attempts if limited else UNLIMITED_ATTEMPTS,
            lost_connection=LostConnection.FAIL if limited else LostConnection.RELEASE,
            hold_behind_failed=limited and self.redelivery_delay_ms > 0,
            retry_base_ms=self.redelivery_delay_ms,
            retry_max_ms=3 * self.redelivery_delay_ms,
            dedup_window_ms=self.deduplication_ms,
        )


_MODES = {
    DomainMode.PRIORITY: DeliveryMode.ROUND_ROBIN,
    DomainMode.FANOUT: DeliveryMode.FAN_OUT_WITH_ACK,
    DomainMode.BROADCAST: DeliveryMode.FAN_OUT_WITHOUT_ACK,
}


class BlazingmqSettings(BaseModel):
    """All have defaults; times in ms, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domains: dict[str, Domain] = Field(default_factory=dict)
    """By name; a name with `*` stands for all domains that it fits and that are not named themselves."""
    event_bytes_max: Annotated[int, Field(ge=1_048_576)] = 70_000_000
    """Largest event of a client; an SDK sends what it has to send again in one event."""
    queues_max: Annotated[int, Field(ge=1)] = 10_000
    """Readers and writers of queues that one connection may have open."""
    unconfirmed_messages_max: Annotated[int, Field(ge=1)] = 250_000
    """Of one subscription, whatever its client says: the broker remembers each of them."""
    heartbeat_interval_ms: Annotated[int, Field(ge=100)] = 3_000
    """Told to clients, together with `max_missed_heartbeats`."""
    max_missed_heartbeats: NotNegative = 0
    """After so many unanswered heartbeats a newer SDK drops its connection; 0 = it sends none."""
    ping_interval_ms: Annotated[int, Field(ge=1_000)] = 30_000
    """A client that is silent for so long is asked for a sign of life; not a Java client, which knows no heartbeats."""
    missed_pings_max: Annotated[int, Field(ge=1)] = 3
    """A client that leaves so many of them unanswered is closed."""

    @field_validator("domains")
    @classmethod
    def _can_be_served(cls, value: dict[str, Domain]) -> dict[str, Domain]:
        for name, domain in value.items():
            try:
                check_domain(name.replace(PATTERN, "x"))
            except InvalidQueueName as error:
                raise ValueError(str(error)) from None
            if domain.plain_names and PATTERN in name:
                raise ValueError(f"{name}: plain_names is for a single domain, whose name has no '*'")
        if sum(domain.plain_names for domain in value.values()) > 1:
            raise ValueError("only one domain can have plain_names, or two URIs would be the same queue")
        return value

    def named_durabilities(self) -> dict[str, Durability]:
        """By the settings that name them."""
        return {
            f"domains.{name}.durability": domain.queue_options().durability
            for name, domain in self.domains.items()
            if domain.durability is not None
        }

    def domain_of(self, name: str) -> Domain | None:
        """The settings of a domain; of several patterns the longest counts."""
        found = self.domains.get(name)
        if found is None:
            fitting = [pattern for pattern in self.domains if PATTERN in pattern and fnmatchcase(name, pattern)]
            found = self.domains[max(fitting, key=len)] if fitting else None
        return found

    def queue_of(self, uri: QueueUri) -> tuple[str, Domain] | None:
        """(name of our queue, its domain); None: the domain is not served. Raises BadUri."""
        domain = self.domain_of(uri.domain)
        return None if domain is None else (queue_name(uri, plain=domain.plain_names), domain)
