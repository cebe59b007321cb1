"""What the API needs of the broker around it."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from vibemq.auth.users import Accounts
from vibemq.errors import AuthError, RateLimited
from vibemq.model.access import Principal
from vibemq.model.effects import QueueHead
from vibemq.model.options import QueueOptions
from vibemq.model.records import MessagesAdded, StageMoved

PROTOCOL = "http"
"""Of audit lines."""
Outcome = TypeVar("Outcome")


class OperationAnswer(NamedTuple):
    """What an operation has answered."""

    result: Any
    unchanged: bool = False
    """There was nothing to do."""


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf a request is carried out, and where it comes from; stands in audit lines as a connection does."""

    principal: Principal
    host: str
    """The client's address."""
    connection_id: str
    """Id of the request."""
    protocol: str = PROTOCOL
    session: str = field(default="", repr=False)
    """Which session of a browser it is (`vibemq.web.api.sessions`), of which this is a hash; "" = none."""

    @property
    def user(self) -> str:
        return self.principal.name


class OperationCalls(Protocol):
    def admit(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> None:
        """What `ask` refuses at the door, without carrying out anything: rights first, then the arguments.

        Raises:
            VibeMQError: the refusal.
        """

    def refused(self, error: AuthError | RateLimited) -> None:
        """Nothing is asked of the broker, because of this: it counts as one of its own refusals."""

    def failed(self) -> None:
        """A request has ended by a fault of the broker: it counts as one."""

    def outcome_of(
        self, work: Callable[..., Coroutine[Any, Any, Outcome]], *arguments: Any
    ) -> "asyncio.Future[Outcome]":
        """Begin work that goes on also when the request for it has ended; ShuttingDown when the broker stops before.

        Wait for it with `asyncio.shield`, and keep it under no name meanwhile: a refusal has the frame of who waits.
        """

    async def ask(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> OperationAnswer:
        """Have an operation of `vibemq.operations` carried out.

        Raises:
            VibeMQError: the refusal.
        """


class LoginChecks(Protocol):
    async def log_in(self, host: str, request_id: str, user: str, password: str, token: str) -> Principal:
        """Who these credentials stand for. Raises AuthError, RateLimited."""

    def check_secret(self, host: str, request_id: str, is_right: Callable[[], bool], refusal: str) -> None:
        """A secret that the API knows by itself, with the back-off and the audit line of every login.

        Raises:
            AuthFailed: `refusal`, or how long the address has to wait; then nothing was looked at.
        """

    def logged_in(self, asker: Asker) -> None:
        """A session has begun; for the audit log."""

    def logged_out(self, asker: Asker, *, everywhere: bool) -> None:
        """For the audit log."""


class ApiPeer(Protocol):
    """A peer of the engine that the API speaks for (`vibemq.protocols.session.Peer`)."""

    def receive(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    @property
    def ended(self) -> bool: ...

    async def until_ended(self) -> None: ...


class PeerMaking(Protocol):
    """As `vibemq.protocols.session.Services`."""

    def connect(
        self, create: Callable[..., Any], *, host: str, write: Callable[[bytes], None], own: bool = False
    ) -> ApiPeer: ...

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None: ...

    @property
    def stopping(self) -> bool: ...


class BodyDownload(Protocol):
    """A whole body, which counts as memory for large messages until it is dropped or has been sent."""

    body: memoryview
    row_left: int
    """Bytes that are still to be sent."""

    def under_way(self, cut: Callable[[], None], bytes_per_s_min: int) -> AbstractContextManager[None]:
        """While it is sent. `cut` ends the connection; it is called while others want memory and the client has taken
        less than `bytes_per_s_min` on average since the beginning, or would need long for the rest."""


class MessageServices(Protocol):
    """What is asked about queues and messages beside operations. It changes nothing."""

    def options(self, queue: str) -> QueueOptions:
        """Raises QueueNotFound."""

    def tail(self, queue: str) -> QueueHead:
        """Which queue it is, and where what can be read ends. Raises QueueNotFound."""

    def tap(self, queue_id: int, seen: Callable[[MessagesAdded | StageMoved], None]) -> Callable[[], None]:
        """Have `seen` called with new messages of the queue when they have been appended; it may be that they cannot be
        read yet. What is returned ends it."""

    def consumers(self, session: int) -> Collection[int]:
        """Of a session of the engine: numbers of those that wait for messages or hold some."""

    async def body(self, asker: Asker, arguments: Mapping[str, Any]) -> BodyDownload:
        """The whole body of a message, as `message.show` finds it. Raises VibeMQError."""

    async def letter_body(self, asker: Asker, arguments: Mapping[str, Any]) -> BodyDownload:
        """The whole body of a dead letter, as `dlq.show` finds it. Raises VibeMQError."""

    @property
    def body_bytes_max(self) -> int:
        """Of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Lent to the API for the life of the broker."""

    operations: OperationCalls
    logins: LoginChecks
    accounts: Accounts
    peers: PeerMaking
    messages: MessageServices
    queue_defaults: QueueOptions
    """What a new queue has where nothing else is said."""
    now: Callable[[], int]
    """The broker's instant, ms."""
    monotonic: Callable[[], float]
    """Seconds."""
    is_ready: Callable[[], bool]
    """Whether changes are taken: False while the broker drains."""
    version: str
    broker_name: str

    @property
    def now_s(self) -> float:
        """The broker's instant in seconds. What is valid for a while ends by it, also during a suspension."""
        return self.now() / 1000
