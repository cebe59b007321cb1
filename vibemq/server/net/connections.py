"""The open connections: admission, session numbers, and connections that have stopped reading."""

import asyncio
import logging
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from vibemq._version import __version__
from vibemq.config import Limits
from vibemq.errors import ConnectionLimit, RateLimited, ShuttingDown, VibeMQError
from vibemq.model.options import QueueOptions
from vibemq.protocols.session import Principal, ProtocolPlugin, Session, SessionContext, SessionLimits
from vibemq.server.access.limits import AddressLimiter
from vibemq.server.access.newcomers import Newcomers
from vibemq.server.clock import Clock
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.acceptor import Handshakes
from vibemq.server.net.large_turns import CarriesLarge, LargeTurns
from vibemq.server.net.peer_driver import PeerDriver

FILES_KEPT = 512
"""Open files that connections must leave to storage, logs and HTTP, which may have 256 and 128 TLS handshakes."""

WORDS_KEPT_S = 1.0
"""What refused connections are told is made so often."""

log = logging.getLogger("vibemq.connection")


@dataclass(slots=True)
class ListenerTroubles:
    """Connections that came to nothing at a listener, since the start."""

    refused: int = 0
    handshakes_failed: int = 0


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """What a listener gives to each of its connections."""

    protocol: str
    plugin: ProtocolPlugin
    settings: Any
    """The protocol's own, already checked."""
    troubles: ListenerTroubles = field(default_factory=ListenerTroubles, compare=False)


class AdmittedConnection(CarriesLarge, Protocol):
    """What the connections' table needs of one of them (`vibemq.server.net.transport.Connection`)."""

    number: int
    """The session number; 0 until admitted."""
    connection_id: str
    host: str
    certified: tuple[str, ...]
    """Users for whom its TLS certificate stands, known or not."""
    since: int
    bytes_received: int
    bytes_sent: int
    session: Session
    endpoint: ListenerEndpoint

    @property
    def principal(self) -> Principal | None: ...
    @property
    def pending(self) -> int:
        """Requests that are answered by tasks of their own and are under way."""

    @property
    def peer(self) -> PeerDriver: ...

    def memory_granted(self) -> None:
        """There is room for the large message that it has begun to send."""

    def read_on(self) -> None:
        """Its session is to be looked at."""

    def taken_bytes(self) -> int:
        """Bytes that the peer has taken."""

    def described(self) -> dict[str, Any]: ...

    def wake(self) -> None: ...

    def work_off(self) -> None:
        """What was put aside of it."""

    def hold(self) -> None:
        """It is not read for a while."""

    def goodbye(self, reason: str) -> None: ...

    def drop(self, why: str) -> None: ...


def connections_max(wanted: int, open_files: int) -> int:
    """As many connections as are wanted (0 = any number) and as leave open files to storage."""
    if open_files == resource.RLIM_INFINITY:
        return wanted or sys.maxsize
    room = max(1, open_files - min(FILES_KEPT, open_files // 2))
    return min(wanted or room, room)


class ConnectionTable:
    """All admitted connections by session number."""

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        clock: Clock,
        *,
        authentication: bool,
        queue_defaults: QueueOptions,
        transient_only: bool,
        new_id: Callable[[], str],
        turns_away: Callable[[str, float], bool],
        large_turns: LargeTurns,
        after_flush: Callable[[Callable[[], None]], bool],
    ) -> None:
        """
        Args:
            turns_away: (host, now), whether the address may not connect because of logins that failed.
            large_turns: who has memory for large messages, and who waits for it.
            after_flush: see `Committer.after_flush`.
        """
        self._after_flush = after_flush
        self.large_turns = large_turns
        self._incoming = large_turns.incoming
        self._grant: tuple[int, MemoryShare] | None = None
        """Offered to this session at the moment."""
        self.limits = limits
        self._metrics = metrics
        self._clock = clock
        self._authentication = authentication
        self._queue_defaults = queue_defaults
        self._transient_only = transient_only
        self._new_id = new_id
        self._turns_away = turns_away
        self._loop = asyncio.get_running_loop()
        self._arrivals = AddressLimiter(limits.connections_per_ip_per_minute)
        self._connections: dict[int, AdmittedConnection] = {}
        self._newcomers: Newcomers[AdmittedConnection] = Newcomers(limits.max_unauthenticated)
        self.handshakes = Handshakes(limits.max_unauthenticated)
        """TLS handshakes of all listeners."""
        self._set_most(limits)
        self._known_words: dict[tuple[int, str], bytes] = {}
        """By listener and sentence."""
        self._words_made = 0.0
        self._last_number = 0
        self.stuck: dict[AdmittedConnection, tuple[float, int]] = {}
        """Connections whose socket takes nothing: since when the peer has taken nothing, and what it had by then."""
        self._somebody_left = asyncio.Event()
        self.closed_to_new = False
        self.without_socket: dict[int, PeerDriver] = {}
        """Peers of plug-ins, which no listener has accepted, by the number of their session."""

    def configure(self, limits: Limits) -> None:
        """Other limits from now on. Whoever is connected stays, with what its session was told."""
        if limits.connections_per_ip_per_minute != self.limits.connections_per_ip_per_minute:
            self._arrivals = AddressLimiter(limits.connections_per_ip_per_minute)
        self._newcomers.places = limits.max_unauthenticated
        self.handshakes.resize(limits.max_unauthenticated)
        self._set_most(limits)
        self.limits = limits

    def _set_most(self, limits: Limits) -> None:
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = connections_max(limits.max_connections, open_files)
        self._files_max = connections_max(0, open_files)

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[AdmittedConnection]:
        return iter(list(self._connections.values()))

    def peers(self) -> list[PeerDriver]:
        """Everybody who may act: admitted connections, and peers of plug-ins."""
        return [connection.peer for connection in self._connections.values()] + list(self.without_socket.values())

    def peer(self, session: int) -> PeerDriver | None:
        """Whose session has that number."""
        connection = self._connections.get(session)
        return self.without_socket.get(session) if connection is None else connection.peer

    def stuck_since(self, connection: AdmittedConnection) -> int | None:
        """The instant since which the peer takes nothing; None while its socket has room."""
        found = self.stuck.get(connection)
        return None if found is None else self._clock.now() - int(1000 * (self._loop.time() - found[0]))

    def admit(self, connection: AdmittedConnection) -> VibeMQError | None:
        """Number the connection, which `refuses` has let in, and give it its session, or return why not."""
        # The file of one that comes from its TLS handshake is counted there still.
        refusal = self._no_room(connection.host, self._files_max + 1)
        if refusal is not None:
            self._metrics.connections_rejected += 1
            return refusal
        self._last_number += 1
        connection.number = self._last_number
        connection.session = self.make_session(connection)
        self._connections[connection.number] = connection
        self._newcomers.add(connection, connection.host, self._loop.time())
        self._metrics.connections_accepted += 1
        return None

    def refuses(self, host: str, endpoint: ListenerEndpoint, *, speaks: bool) -> bytes | None:
        """Before anything is made for a connection: None when it may come in, else what to say to it.

        Args:
            speaks: whether something can be said already; else a TLS handshake comes first, for which only other
                handshakes make room.
        """
        no_room = self._no_room if speaks else self._no_file
        refusal = self._turned_away(host) or no_room(host, self._files_max)
        if refusal is None:
            return None
        self._metrics.connections_rejected += 1
        endpoint.troubles.refused += 1
        log.info("connection refused: %s", refusal, extra={"event": "conn.rejected", "remote": host})
        return self._words(refusal, endpoint) if refusal.closes_connection else b""

    def _words(self, refusal: VibeMQError, endpoint: ListenerEndpoint) -> bytes:
        """The refusal in the protocol's words, made once for all who come in the same second."""
        now = self._loop.time()
        if now - self._words_made >= WORDS_KEPT_S:
            self._known_words.clear()
            self._words_made = now
        key = (id(endpoint), str(refusal))
        if key not in self._known_words:
            assert endpoint.plugin.create is not None, "nothing is listened to otherwise"
            session = endpoint.plugin.create(self._context(0), endpoint.settings)
            session.refused(None, refusal)
            self._known_words[key] = session.data_to_send()
        return self._known_words[key]

    def make_session(self, connection: AdmittedConnection) -> Session:
        endpoint: ListenerEndpoint = connection.endpoint
        assert endpoint.plugin.create is not None, "nothing is listened to otherwise"
        context = self._context(connection.number, certified=bool(connection.certified))
        if connection.number:
            reserve, wake = partial(self._reserve, connection.number), partial(self._wake_later, connection.number)
            behind_flush = partial(self._after_flush, wake)
            context = replace(
                context,
                reserve_memory=reserve,
                wake=wake,
                behind_flush=behind_flush,
                is_read=partial(self._is_read, connection.number),
            )
        connection.connection_id = context.connection_id
        connection.since = context.now
        return endpoint.plugin.create(context, endpoint.settings)

    def now(self) -> int:
        return self._clock.now()

    def context(self) -> SessionContext:
        """For a session without a connection of ours."""
        self._last_number += 1
        return self._context(self._last_number)

    def _context(self, number: int, *, certified: bool = False) -> SessionContext:
        limits = self.limits
        return SessionContext(
            session=number,
            connection_id=self._new_id(),
            server_version=__version__,
            authentication=self._authentication,
            limits=SessionLimits(
                body_bytes_max=limits.body_bytes_max,
                message_bytes_max=limits.message_bytes_max,
                message_timeout_ms=limits.message_timeout_ms,
                handshake_bytes_max=limits.handshake_bytes_max,
                idle_timeout_ms=limits.idle_timeout_ms,
                handshake_timeout_ms=limits.handshake_timeout_ms,
            ),
            queue_defaults=self._queue_defaults,
            now=self._clock.now(),
            new_id=self._new_id,
            certified=certified,
            transient_only=self._transient_only,
        )

    def _is_read(self, number: int) -> bool:
        connection = self._connections.get(number)
        return connection is None or connection.is_read

    def _wake_later(self, number: int) -> None:
        self._loop.call_soon(self._wake, number)

    def _wake(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is not None and not connection.peer.ending:
            connection.read_on()

    def _reserve(self, number: int, size: int) -> MemoryShare | None:
        """By number: a session that refers to its connection would make a cycle."""
        if self._grant is not None and self._grant[0] == number:
            share: MemoryShare | None
            share, self._grant = self._grant[1], None
        else:
            share = self._incoming.take(number, size, partial(self._granted, number))
        if share is not None and number in self._connections:
            self.large_turns.receives(self._connections[number])
        return share

    def _granted(self, number: int, share: MemoryShare) -> None:
        """Whoever does not take it now, because it is leaving or has other work, asks again."""
        connection = self._connections.get(number)
        if connection is not None:
            self._grant = number, share
            try:
                connection.memory_granted()
            finally:
                self._grant = None

    def waits_for_memory(self, connection: AdmittedConnection) -> bool:
        """Whether it has begun a large message for which there is no room yet."""
        return self._incoming.waits(connection.number)

    def forget_memory(self, connection: AdmittedConnection) -> None:
        """The connection has ended."""
        self._incoming.forget(connection.number)
        self.large_turns.gone(connection)

    async def wait_until_empty(self) -> None:
        while self._connections:
            self._somebody_left.clear()
            await self._somebody_left.wait()

    def by_protocol(self) -> dict[str, int]:
        """Open connections by protocol."""
        return dict(Counter(connection.endpoint.protocol for connection in self._connections.values()))

    def count_of(self, endpoint: ListenerEndpoint) -> int:
        """Open connections that one listener has accepted."""
        return sum(connection.endpoint is endpoint for connection in self._connections.values())

    def remove(self, connection: AdmittedConnection) -> None:
        self._somebody_left.set()
        self._connections.pop(connection.number, None)
        self._newcomers.remove(connection)
        self.stuck.pop(connection, None)

    def sweep(self) -> None:
        """Drop who has stopped reading and who never introduced himself, and have those make way who hold memory that
        others wait for; called about every second."""
        now = self._loop.time()
        self._sweep_stuck(now)
        self.large_turns.look()
        patience_s = self.limits.handshake_timeout_ms / 1000 + 1
        for connection, came in self._newcomers.oldest_first():
            if connection.principal is not None:
                self._newcomers.remove(connection)
            elif now - came < patience_s:
                # Oldest first, but a check of credentials may run longer; those behind came later anyway.
                break
            elif not connection.pending:
                self._metrics.connections_rejected += 1
                connection.drop("no successful handshake in time")

    def _sweep_stuck(self, now: float) -> None:
        for connection, (since, before) in list(self.stuck.items()):
            taken = connection.taken_bytes()
            if taken > before:
                self.stuck[connection] = (now, taken)
            elif now - since >= self.limits.write_timeout_ms / 1000:
                self._metrics.slow_readers_dropped += 1
                connection.drop("the peer reads nothing")

    def _turned_away(self, host: str) -> VibeMQError | None:
        """Because of what has come from the address before."""
        if self._turns_away(host, self._loop.time()):
            self._metrics.rate_limited += 1
            return RateLimited(f"too many logins from {host} have failed; try again later")
        if not self._arrivals.allows(host, self._loop.time()):
            self._metrics.rate_limited += 1
            per_minute = self.limits.connections_per_ip_per_minute
            return RateLimited(f"more than {per_minute} connections per minute from {host}")
        return None

    def _no_room(self, host: str, files_max: int) -> VibeMQError | None:
        if self.closed_to_new:
            return ShuttingDown("the broker is stopping")
        if len(self._connections) >= self._most:
            return ConnectionLimit(f"the broker serves {self._most} connections already; try again later")
        return self._no_file(host, files_max) or (self._make_room(host) if self._newcomers.full else None)

    def _no_file(self, host: str, files_max: int) -> VibeMQError | None:
        """For one more connection or handshake; for it a handshake of another address may have to end."""
        if len(self._connections) + len(self.handshakes) < files_max or self.handshakes.give_way(host):
            return None
        return ConnectionLimit(f"the broker may open no more files for connections than {self._files_max}")

    def _make_room(self, host: str) -> VibeMQError | None:
        self._newcomers.let_go(lambda connection: connection.principal is not None, self._loop.time())
        if not self._newcomers.full:
            return None
        leaving = self._newcomers.who_makes_room(host)
        if leaving is None:
            return ConnectionLimit("too many connections have not finished their handshake; try again later")
        self._metrics.connections_rejected += 1
        self._newcomers.remove(leaving)
        leaving.drop("too many connections from its address have not finished their handshake")
        return None
