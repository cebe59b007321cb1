"""What the parts of one HTTP session share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vibemq.errors import VibeMQError
from vibemq.model.commands import Command
from vibemq.protocols.eventmesh.http.replies import AnswerStyle, EventMeshAnswer
from vibemq.protocols.eventmesh.http.request import HttpRequest
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.eventmesh.topics import SubscriptionItem
from vibemq.protocols.session import Principal, Request, SessionContext

Done = Callable[[VibeMQError | None], None]


class Subscribers(Protocol):
    """Who is subscribed, for the sessions of one listener (`vibemq.protocols.eventmesh.http.push.hub`)."""

    def subscribe(
        self, principal: Principal, group: str, items: Sequence[SubscriptionItem], url: str, now: int, done: Done
    ) -> None: ...

    def unsubscribe(self, principal: Principal, group: str, topics: Sequence[str], url: str, done: Done) -> None: ...

    def heard(self, principal: Principal, group: str, entities: Sequence[tuple[str, str]], now: int) -> None: ...

    def topics_of(self, principal: Principal) -> Steps[list[str]]: ...


@dataclass(slots=True, frozen=True)
class HttpCredentials:
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass(slots=True)
class Exchange:
    """One request and its answer to come."""

    request: HttpRequest
    fields: dict[str, str]
    style: AnswerStyle
    credentials: HttpCredentials
    admitted: bool = False
    """Its sender has been looked at."""
    begun: bool = False


@dataclass(slots=True)
class HttpState:
    context: SessionContext
    settings: EventMeshHttpSettings
    subscribers: Subscribers | None
    now: int
    principal: Principal | None = None
    requests: list[Request] = field(default_factory=list)
    exchange: Exchange | None = None
    work: Iterator[int] | None = None
    """What is left to do for the exchange before anything is asked, in steps, each of which yields its cost."""
    telling: bool = False
    """Answers are being told."""
    finish: Callable[[EventMeshAnswer], None] = lambda answer: None

    @property
    def session(self) -> int:
        return self.context.session

    def ask(self, command: Command) -> None:
        """Within `commands`, or while an answer is told: then the session has to be looked at again."""
        self.requests.append(command)
        if self.telling:
            self.context.wake()
