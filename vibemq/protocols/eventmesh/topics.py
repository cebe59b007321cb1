"""A topic is the queue of the same name, and a consumer group is its durable group of the same name.

    topic that does not exist    a queue that fans out with acknowledgements; durable as the listener's settings say
    CLUSTERING                   the durable group with the name of the consumer group
    BROADCASTING                 a passing group for each session
    a queue in which consumers   all subscribers, of whatever group and mode, take turns with its other consumers
    take turns (round-robin, priority)

Source: docs/spec/eventmesh.md, "Topics and groups".
"""

from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from vibemq.errors import InvalidMessage, InvalidOptions
from vibemq.model.options import DeliveryMode, Durability, LostConnection, QueueOptions, enum_of
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.session import SessionContext

GROUP_UNITS_MAX = 256
TOPICS_MAX = 1_000
"""Of one request to subscribe or to unsubscribe."""


class SubscriptionMode(StrEnum):
    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"
    UNRECOGNIZED = "UNRECOGNIZED"


class SubscriptionType(StrEnum):
    ASYNC = "ASYNC"
    SYNC = "SYNC"
    UNRECOGNIZED = "UNRECOGNIZED"


def _item(value: Any) -> Any:
    """The old form of an item is the topic alone."""
    return {"topic": value, "mode": None, "type": None, "bare": True} if isinstance(value, str) else value


class SubscriptionItem(BaseModel):
    """One topic of a subscription. The old form, the name alone, is `bare`."""

    model_config = ConfigDict(frozen=True)

    topic: Annotated[str, Field(min_length=1)]
    mode: SubscriptionMode | None = None
    type: SubscriptionType | None = None
    bare: bool = False

    @property
    def broadcasting(self) -> bool:
        return self.mode is SubscriptionMode.BROADCASTING

    @property
    def sync(self) -> bool:
        return self.type is SubscriptionType.SYNC


_ITEMS: TypeAdapter[list[SubscriptionItem]] = TypeAdapter(
    Annotated[list[Annotated[SubscriptionItem, BeforeValidator(_item)]], FailFast()]
)


def subscription_items(value: Any) -> list[SubscriptionItem]:
    """The items of a `topicList`, or of the HTTP field `topic` once it is parsed; both forms.

    Raises:
        InvalidMessage: no such list, or a longer one than is looked at in one turn of the loop.
    """
    if isinstance(value, list) and len(value) > TOPICS_MAX:
        raise InvalidMessage(
            f"{len(value):,} topics in one request; name at most {TOPICS_MAX:,}, and ask several times"
        )
    try:
        return _ITEMS.validate_python(value)
    except ValidationError as error:
        raise InvalidMessage(f"a list of topics is needed: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """What is wrong, and where, in a line."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in fault["loc"])
    return f"{where}: {fault['msg']}" if where else fault["msg"]


def _durability(value: Any) -> Any:
    """By its name, as everywhere in the settings; or by its number."""
    if not isinstance(value, str):
        return value
    try:
        return enum_of(Durability, value, "durability")
    except InvalidOptions as error:
        raise ValueError(str(error)) from None


TopicDurability = Annotated[Durability, BeforeValidator(_durability)]


class MakesTopics(Protocol):
    """Settings of a listener."""

    @property
    def durability(self) -> Durability | None: ...


def durability_of_topics(settings: MakesTopics) -> dict[str, Durability]:
    """By the setting that names it; nothing: it is the broker's default."""
    return {} if settings.durability is None else {"durability": settings.durability}


def topic_options(context: SessionContext, durability: Durability | None = None) -> QueueOptions:
    """Of a topic that is made when it is first used: the broker's defaults, but every group gets each message, and a
    lost connection is no failed attempt: clients hold many messages that they have not begun, and those of 1.3 to 1.8
    close by dropping the connection."""
    return _options(context.queue_defaults, durability)


@lru_cache(maxsize=64)
def _options(defaults: QueueOptions, durability: Durability | None) -> QueueOptions:
    return defaults.with_changes(
        mode=DeliveryMode.FAN_OUT_WITH_ACK,
        durability=defaults.durability if durability is None else durability,
        lost_connection=LostConnection.RELEASE,
    )


def takes_turns(info: QueueInfo | None) -> bool:
    """Whether the consumers of a queue share one pass over it, whatever group they name."""
    return info is not None and not info.options.is_fan_out


def check_group(name: str) -> str:
    """Raises InvalidMessage: a name of a consumer group that no group can have."""
    if 1 <= len(name) <= GROUP_UNITS_MAX and name.isprintable() and not name.isspace():
        return name
    raise InvalidMessage(
        f"the group {name[:64]!r} is not allowed; use 1 to {GROUP_UNITS_MAX} printable characters, not blanks alone"
    )
