"""Bodies of frames that carry no message: who a client is, what it subscribes, where it shall go."""

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages.json_scan import values_in
from vibemq.protocols.eventmesh.messages.large_json import VALUES_MAX
from vibemq.protocols.eventmesh.messages.received import json_object
from vibemq.protocols.eventmesh.topics import SubscriptionItem, check_group, first_fault, subscription_items

SUBSCRIPTION_BYTES_MAX = 524_288
"""A thousand topics with long names have room."""


def _number(value: Any) -> Any:
    """The C client writes numbers as text, and a port that it does not know as an empty one."""
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_Text = Annotated[str, BeforeValidator(_text)]
_Number = Annotated[int, BeforeValidator(_number)]


class UserAgent(BaseModel):
    """The body of HELLO_REQUEST. What a client leaves out, or writes in another type, is empty or 0."""

    model_config = ConfigDict(frozen=True)

    env: _Text = ""
    subsystem: _Text = ""
    dcn: _Text = ""
    path: _Text = ""
    pid: _Number = 0
    host: _Text = ""
    port: _Number = 0
    version: _Text = ""
    username: _Text = ""
    password: _Text = ""
    idc: _Text = ""
    orgid: _Text = ""
    group: _Text = ""
    producer_group: Annotated[_Text, Field(alias="producerGroup")] = ""
    consumer_group: Annotated[_Text, Field(alias="consumerGroup")] = ""
    token: _Text = ""
    purpose: _Text = ""
    unack: _Number = 0

    def __repr__(self) -> str:
        return f"UserAgent(group={self.group_name!r}, purpose={self.purpose!r}, pid={self.pid})"

    @property
    def subscribes(self) -> bool:
        return self.purpose == "sub"

    @property
    def group_name(self) -> str:
        """`group`; before 1.4 by purpose; before 1.2 by system and place."""
        by_purpose = self.consumer_group if self.subscribes else self.producer_group
        return self.group or by_purpose or "-".join(part for part in (self.subsystem, self.dcn) if part)


def read_agent(body: bytes) -> UserAgent:
    """Raises InvalidMessage: no user agent, or one with which no session can begin."""
    fields = json_object(body or b"{}", "the body of HELLO_REQUEST")
    try:
        agent = UserAgent.model_validate(fields)
    except ValidationError as error:
        raise InvalidMessage(f"the user agent of HELLO_REQUEST: {first_fault(error)}") from None
    if agent.purpose not in ("pub", "sub"):
        raise InvalidMessage(f"`purpose` of HELLO_REQUEST is {agent.purpose[:32]!r}; it must be `pub` or `sub`")
    if not fields.get("version") and not isinstance(fields.get("version"), str):
        raise InvalidMessage("HELLO_REQUEST needs the client's `version`")
    if fields.get("group") == "" or not agent.group_name:
        raise InvalidMessage(
            "HELLO_REQUEST needs a `group` that is not empty; before 1.4 `consumerGroup` or `producerGroup`, "
            "before 1.2 `subsystem`"
        )
    check_group(agent.group_name)
    return agent


def read_subscription(body: bytes) -> list[SubscriptionItem]:
    """Raises InvalidMessage: no body, or none of a subscription."""
    if not body:
        raise InvalidMessage("subscriptionInfo can not be null: SUBSCRIBE_REQUEST needs a body with a `topicList`")
    if len(body) > SUBSCRIPTION_BYTES_MAX or values_in(body) > VALUES_MAX:
        raise InvalidMessage(
            f"SUBSCRIBE_REQUEST has {len(body):,} bytes; at most {SUBSCRIPTION_BYTES_MAX:,}, and {VALUES_MAX:,} values "
            "of JSON, are read; send several"
        )
    topics = json_object(body, "the body of SUBSCRIBE_REQUEST").get("topicList")
    return subscription_items([] if topics is None else topics)


def redirect_body(host: str, port: int) -> bytes:
    return orjson.dumps({"ip": host, "port": port})
