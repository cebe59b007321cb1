"""The contract between a protocol and the server: a session is one connection's state without a socket or a clock.

The server drives it like this, once per socket read, never once per message:

    session.receive_data(chunk)                # kept, not looked at
    session.tick(now)
    requests = session.commands()              # engine commands, and the requests below; `unread`: more next turn
    … the engine decides, storage keeps …
    session.apply(effects)                     # replies, in order
    session.deliver(deliver, slices)           # rows that the server read for a Deliver effect
    transport.write(session.data_to_send())

Verbs never overlap and never wait. tick() is how a session learns the time, and a session has no other clock: relative
delays, keep-alive and deadlines count from the last tick. So the server calls tick(now) before it takes commands and
before it applies effects, always; `vibemq.server.net.peer_driver` does so in one place for each. It comes behind
receive_data(), so that a peer whose bytes have arrived is not judged silent because the server was late to read them.
A session may have commands of its own (a row it cannot deliver, a subscription it renews): its next_deadline() is then
already due, and after every tick() the server calls commands(). A RemoteProtocolError may be raised by
`commands()`: the requests before it have been returned by an earlier call (a session yields what it has, then raises
on the next call).
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from vibemq.errors import VibeMQError
from vibemq.model.access import Principal as Principal
from vibemq.model.commands import Command
from vibemq.model.effects import Deliver, Effect
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.rows import HEADER_VALUE_UNITS_MAX, HEADERS_MAX, Rows
from vibemq.model.stored import Slice


@dataclass(slots=True)
class Authenticate:
    """Ask the server to check credentials; answered by `session.authenticated` or `session.refused`."""

    token: Any
    username: str = ""
    password: str = field(default="", repr=False)
    auth_token: str = field(default="", repr=False)


@dataclass(slots=True)
class OperationRequest:
    """A request by name (docs/reference/admin.md): short ones become engine commands and keep their place among the
    session's commands, long ones run beside them.

    Answered by a `Reply` effect with the same token: something JSON-ready, a `Fetched`, or an error of the family.
    """

    token: Any
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Goodbye:
    """The peer said it leaves: the server closes the session as `clean` once everything before is answered."""


Request = Command | Authenticate | OperationRequest | Goodbye


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Plain values a session needs; each protocol may add its own through its settings."""

    body_bytes_max: int = 1_048_576
    message_bytes_max: int = 16_777_216
    """Largest payload that may be agreed on."""
    message_timeout_ms: int = 30_000
    """A peer that has begun a large frame, and sends less than `LARGE_PROGRESS_BYTES` of it for so long, is closed."""
    handshake_bytes_max: int = 65_536
    """Largest frame accepted before authentication."""
    headers_max: int = HEADERS_MAX
    header_value_units_max: int = HEADER_VALUE_UNITS_MAX
    json_depth_max: int = 64
    idle_timeout_ms: int = 120_000
    """A peer that sends nothing for this long is closed; several ping intervals."""
    handshake_timeout_ms: int = 5_000


def _any_memory(size: int) -> Any:
    """Without a broker around it a session may hold what it likes."""
    return size


def _no_flush() -> bool:
    """Without a broker around it nothing is flushed."""
    return False


def _always() -> bool:
    """Without a broker around it a session is given all that comes."""
    return True


def _wake_nobody() -> None:
    """Without a broker around it a session is driven by whoever made it."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Given to a session at its birth."""

    session: int
    """The number that its commands carry."""
    connection_id: str
    """Public name of the connection (32 hex)."""
    server_version: str
    authentication: bool
    """Whether credentials are asked for."""
    limits: SessionLimits
    queue_defaults: QueueOptions
    now: int
    """Instant of the accept, ms."""
    new_id: Callable[[], str]
    """Source of fresh ids (32 hex), injected so that sessions stay deterministic in tests."""
    reserve_memory: Callable[[int], Any] = _any_memory
    """(bytes of a large body) -> what holds that much of the broker's memory as long as it is kept; None: not now. Then
    nothing is read from the peer, and `commands` is called again when there is room."""
    certified: bool = False
    """Whether the peer's TLS certificate may stand for a user: then it may leave its credentials out."""
    transient_only: bool = False
    """The storage keeps nothing over a restart: queues that are not transient are refused."""
    wake: Callable[[], None] = _wake_nobody
    """Have `tick` and `commands` called in the next turn of the loop: something has happened outside of the session."""
    behind_flush: Callable[[], bool] = _no_flush
    """Whether what is published now would wait for the end of a flush that has begun already. When it ends, a session
    that was told so is woken, and what it publishes then is confirmed as early. So it may keep small publishes back
    meanwhile, and make one of them."""
    is_read: Callable[[], bool] = _always
    """Whether the peer is read at present. While it is not, because the broker has too much to do, nobody knows whether
    it is silent."""


class OptionalVerbs(Protocol):
    """What most sessions have no word for: they inherit it."""

    @property
    def reads_nothing_more(self) -> bool:
        """While it is true, nothing is read from the peer."""
        return False

    def keeps_back(self) -> bool:
        """Asked behind `receive_data`: while it is true, `tick` and `commands` are not called for what has come. The
        session has itself woken, see `SessionContext.behind_flush`."""
        return False

    @property
    def large_left(self) -> int:
        """Bytes of a large message that have not come from the peer; 0: none is under way."""
        return 0

    def deliver_in_steps(self, deliver: Deliver, slices: Sequence[Slice]) -> Iterator[None] | None:
        """Asked before `deliver`: the steps that stand for it, each of about a millisecond. The last delivers all,
        those before it nothing. None: `deliver` it is."""
        return None

    @property
    def slices_at_once(self) -> int:
        """So many slices of a row or two are encoded in two milliseconds."""
        return 256

    @property
    def bytes_at_once(self) -> int:
        """Bytes of rows that are encoded in two milliseconds."""
        return 1 << 20

    def row_to_send(self) -> Rows | None:
        """A large row behind the bytes that `data_to_send` has given, which is called again behind it."""
        return None

    def redirect(self, host: str, port: int) -> bool:
        """Tell the peer to connect elsewhere; False: it cannot be told now, or its protocol has no word for that."""
        return False

    @property
    def has_left(self) -> bool:
        """The peer has said goodbye and may stay for a while; however the connection ends, what it holds goes back
        unharmed."""
        return False

    def unbegun(self) -> Sequence[Command]:
        """Asked when the connection is lost: what of the peer's messages it cannot have begun, and is given back
        unharmed."""
        return ()

    def let_go(self) -> Iterator[None] | None:
        """Once it has ended: the steps of about a millisecond that free what it has kept of very many queues or
        messages."""
        return None


class Session(OptionalVerbs, Protocol):
    """One connection of one protocol."""

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the peer; b"" means its end of stream.

        What they mean is decided in `commands`, at the instant of the tick before it.
        """

    def commands(self) -> Sequence[Request]:
        """What is complete by now, in order, up to the work of about a millisecond. Ping answers and refusals go
        straight to `data_to_send`.

        After an `Authenticate` nothing more is returned until it has been answered.

        Raises:
            RemoteProtocolError: the stream cannot be read on; the server writes what is left and hangs up.
        """

    @property
    def unread(self) -> bool:
        """The last `commands` has stopped before the end of what has come. The server calls it again in another turn of
        the loop, and reads nothing from the peer until then."""

    def authenticated(self, token: Any, principal: Principal) -> None: ...

    def refused(self, token: Any, error: VibeMQError) -> None:
        """Authentication failed, or `authorize` refused the command with this token (None: nothing to answer)."""

    def apply(self, effects: Sequence[Effect]) -> None:
        """Encode replies and ended consumers. `Deliver` effects come through `deliver` instead."""

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        """Encode rows for a consumer. Called in the order of the Deliver effects, possibly in several pieces; sequences
        of `deliver.runs` that no slice holds have vanished meanwhile and are skipped."""

    @property
    def rows_at_once(self) -> int:
        """So many rows are encoded in about a millisecond. The server brings no more in one turn of the loop; so a
        session that encodes each row by itself names a few hundred."""

    def data_to_send(self) -> bytes:
        """Take the bytes to write now; b"" when there are none."""

    def tick(self, now: int) -> None:
        """Do what is due: keep-alive, deadlines. May queue bytes, may set `closing`."""

    def next_deadline(self) -> int | None:
        """When to call tick() again; may be early, is never late."""

    def shutdown(self, reason: str) -> None:
        """Queue the protocol's goodbye, which carries the reason; the server flushes and closes. The broker stops
        ("server_shutdown"), or the peer's credentials do not count any more (a sentence)."""

    def fail(self, error: VibeMQError) -> None:
        """The server cannot go on with this connection: queue the last word and set `closing`."""

    @property
    def closing(self) -> bool:
        """The server should flush `data_to_send()` and close."""

    @property
    def principal(self) -> Principal | None:
        """None until authenticated."""

    @property
    def client_name(self) -> str:
        """What the peer calls itself, for operators; "" when it has not said."""


class Peer(Protocol):
    """A peer without a socket of ours, connected by a plug-in. Use it on the event loop only."""

    def receive(self, data: bytes) -> None:
        """What the peer has sent; b"" is the end of its stream."""

    def close(self) -> None:
        """The peer is gone; what it held goes to others."""

    @property
    def ended(self) -> bool:
        """The session has ended, whoever wanted it, and nothing more is written."""

    async def until_ended(self) -> None: ...


class HttpAnswer(NamedTuple):
    """What another machine's HTTP server has said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HttpCalls(Protocol):
    """Calls to URLs that users have named. The broker calls no machine of its own network that its operator has not
    listed, whatever the URL looks like and whatever its name resolves to at the moment (docs/reference/security.md).

    `owner`: the user whose URL it is. Names of one owner whose look-ups hang hold up those of no other.
    """

    async def check(self, url: str, *, owner: str = "") -> None:
        """Raises OutboundRefused: the URL may not be called, as things are."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, owner: str = "") -> HttpAnswer:
        """The answer, whatever its status; redirects are not followed.

        Raises:
            OutboundRefused, OutboundFailed
        """


class Services(Protocol):
    """What the server lends to a plug-in that does more than answer its sockets."""

    def mount(self, prefix: str, app: Any) -> None:
        """Serve an ASGI application below `prefix` ("/events") of the HTTP port; only while the plug-in starts.

        Raises:
            ConfigInvalid: the prefix is taken, or HTTP is switched off.
        """

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a task until it ends or the broker does. An exception is logged and ends that task only."""

    def see_through(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """The same for something that should not be broken off: before its peers are told, the stop waits for it, two
        seconds at most and within the drain timeout; then it is cancelled. Once the broker is `stopping`, nothing is
        begun any more."""

    @property
    def stopping(self) -> bool: ...

    @property
    def now(self) -> int:
        """The instant that sessions are told by their ticks, ms."""

    def connect(
        self,
        create: "Callable[[SessionContext], Session]",
        *,
        host: str,
        write: Callable[[bytes], None],
        own: bool = False,
        limited: bool = True,
    ) -> Peer:
        """Let a peer in that has no socket of ours; `write` gets what its session sends, once per turn of the loop.

        It passes the same checks as any other: its session asks for credentials where the broker wants them.

        Args:
            own: it is the plug-in itself, for what it keeps in queues of its own, and needs no permission. Nothing that
                a user has asked for may be done by it.
            limited: it stands for a client, and may ask no more in a second than one. False: for what clients have left
                to be done, which may be much at once when the broker starts.

        Raises:
            ShuttingDown: the broker stops.
        """

    def acting(self, user: str, token_id: str = "") -> Principal | None:
        """Who acts for a user that has left work to be done, such as a durable subscription, under the login it had:
        its password, or the access token with this id. What it may do is decided when it is done. None: that login does
        not count any more."""

    def watch_users(self, changed: Callable[[Collection[str]], None]) -> None:
        """Have it told the names of users whose logins or permissions have changed."""

    def http_calls(self, *, allowed: Sequence[str], timeout_ms: int, ca_file: str | None = None) -> HttpCalls:
        """Args:
            allowed: networks, as `10.1.0.0/16`, that may be called beside the public internet.
            timeout_ms: of a call, the connection included.
            ca_file: certificates of authorities that are trusted beside the system's.

        Raises:
            ConfigInvalid: one of them cannot be used.
        """

    @property
    def outbound(self) -> AbstractAsyncContextManager[Any]:
        """`async with services.outbound:` around each call to another machine; all plug-ins share the slots."""


@dataclass(frozen=True, slots=True)
class ProtocolPlugin:
    """What `vibemq.protocols.<name>` exports as PLUGIN: sessions for sockets, services of its own, or both."""

    name: str
    settings: type[Any]
    """A pydantic model of the protocol's own options (`extra="forbid"`, frozen); all with defaults."""
    create: Callable[[SessionContext, Any], Session] | None = None
    """(context, settings) -> session; None: the plug-in has no sockets, and nothing is listened to."""
    port: int = 0
    """Default port."""
    peers_await_tcp_acks: bool = False
    """Its peers hold back small writes until TCP has acknowledged the last one (Nagle's algorithm): the server asks for
    segments as on Ethernet, and has what it reads acknowledged at once, or they would wait for answers that are not due
    yet."""
    start: Callable[[Services, Any], Awaitable[Callable[[SessionContext, Any], Session] | None]] | None = None
    """(services, settings): called once for each of its listeners, when the broker can be asked and before anybody is
    let in. What takes longer is for `services.begin`. At the stop its peers are told first, then its tasks end.

    It may return what makes the sessions of this listener instead of `create`: sessions that share something."""
    starts_once: bool = False
    """`start` is called once for all listeners of the protocol, and their sessions share what it returns: there is one
    of what it keeps. Their settings have to be the same."""
    durabilities: Callable[[Any], Mapping[str, Durability]] | None = None
    """(settings) -> by setting, the durability that it names for new queues. At the start another one than transient is
    refused where the storage keeps nothing over a restart."""
