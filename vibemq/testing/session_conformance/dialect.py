"""What the suite must be able to say in a protocol's own bytes, and a conversation in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from vibemq.model.commands import (
    DescribeQueue,
    Publish,
)
from vibemq.model.effects import Published, Reply
from vibemq.model.options import QueueOptions
from vibemq.protocols.session import (
    Authenticate,
    Principal,
    Request,
    Session,
    SessionContext,
    SessionLimits,
)

NOW = 1_700_000_000_000
SESSION = 7
QUEUE = "orders"
SOMEBODY = Principal("somebody", superuser=True)


def context(
    *, authentication: bool = False, limits: SessionLimits | None = None, queue_defaults: QueueOptions | None = None
) -> SessionContext:
    """A context with numbered ids, the same in every run."""
    numbers = count(1)
    return SessionContext(
        session=SESSION,
        connection_id="c" * 32,
        server_version="9.9.9",
        authentication=authentication,
        limits=limits or SessionLimits(),
        queue_defaults=queue_defaults or QueueOptions(),
        now=NOW,
        new_id=lambda: f"{next(numbers):032x}",
    )


@dataclass(frozen=True)
class Dialect:
    """How to say things in one protocol. Bytes are as a peer sends them."""

    name: str
    create: Callable[[SessionContext], Session]
    hello: bytes
    """The whole handshake of a peer with valid credentials, if the protocol has any, and what has to be said before
    QUEUE can be published to or consumed from."""
    publish: Callable[[str, bytes], bytes] | None
    """(message id, JSON payload) -> a publish to QUEUE; None: a protocol that only delivers."""
    subscribe: Callable[[], bytes]
    """Consume from QUEUE."""
    broken: Sequence[bytes] = ()
    """After the handshake, what no session can read on from."""
    has_goodbye: bool = True
    """Whether the protocol can tell its peer that the broker stops."""
    on_wire: Callable[[bytes], bytes] = bytes
    """A delivered payload as the peer sees it, where it stands within other text."""
    publishes_alone: bool = False
    """Whether each message is a command of its own."""
    timed: Mapping[str, Callable[[str, int, int], bytes]] = field(default_factory=dict)
    """Every way to publish with times relative to now: (message id, delay in ms, ttl in ms) -> bytes, one message."""
    has_delay: bool = True
    """Whether a publish can say in how many ms its message is due; `timed` must say it then."""
    has_ttl: bool = True
    """The same of the ms after which its message expires."""
    keep_alive: Callable[[int], bytes] | None = None
    """(instant) -> what a peer says that has nothing to say; None: any publish will do."""
    silence_ms: int | None = 120_000
    """How long a peer may be silent; None: for ever, since the protocol gives it nothing to say."""
    request: Callable[[str, bytes], bytes] | None = None
    """(request id, JSON payload) -> a message to QUEUE whose sender waits for a reply, for 2 s; None: the protocol has
    no requests."""
    respond: Callable[[str, str, bytes], bytes] | None = None
    """(id, address, JSON payload) -> a reply."""
    share: Callable[[str, str, int], bytes] | None = None
    """(subscription id, share, messages) -> consume from QUEUE, with a capacity that is shared; None: the protocol has
    no shared capacities."""


@dataclass
class Talk:
    """A session with a server's manners: answers Authenticate, gathers commands and bytes."""

    session: Session
    asked: list[Request] = field(default_factory=list)
    now: int = NOW
    sent: bytearray = field(default_factory=bytearray)

    def hear(self, data: bytes) -> list[Request]:
        """Give the session bytes; return the engine commands and admin requests that came of them."""
        self.session.receive_data(data)
        self.session.tick(self.now)
        heard: list[Request] = []
        while (requests := self.session.commands()) or self.session.unread:
            for request in requests:
                if isinstance(request, Authenticate):
                    self.session.authenticated(request.token, SOMEBODY)
                elif isinstance(request, DescribeQueue):
                    # A session may look at a queue before it subscribes; nobody says what it is.
                    self.session.apply([Reply(SESSION, request.token, None)])
                else:
                    heard.append(request)
        self.sent += self.session.data_to_send()
        self.asked += heard
        return heard

    def tell(self, request: Any, result: Any) -> bytes:
        self.session.apply([Reply(SESSION, request.token, result)])
        return self.session.data_to_send()


def talk(dialect: Dialect, is_read: Callable[[], bool] | None = None) -> Talk:
    """A session after its handshake.

    Args:
        is_read: of its context; None: always.
    """
    its = context()
    started = Talk(dialect.create(its if is_read is None else replace(its, is_read=is_read)))
    if dialect.hello:
        for request in started.hear(dialect.hello):
            started.tell(request, Published(QUEUE, 0, 0) if isinstance(request, Publish) else None)
    started.asked.clear()
    started.sent.clear()
    return started


def last_word(dialect: Dialect, now: int) -> bytes:
    if dialect.keep_alive is not None:
        return dialect.keep_alive(now)
    assert dialect.publish is not None
    return dialect.publish(f"word-{now}", b"1")
