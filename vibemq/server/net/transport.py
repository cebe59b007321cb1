"""An asyncio socket that carries one peer's bytes: reading, the flow of the socket, closing.

A reader that does not keep up: above the high-water mark the delivery queue stops reading rows and the engine is told
to skip the session; above four times the mark (its own requests' answers) we stop reading from it; after the write
timeout without progress it is dropped.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from vibemq.errors import Blocked, StorageError, VibeMQError
from vibemq.model.rows import Rows
from vibemq.protocols.session import Principal, Session
from vibemq.server.commit.backpressure import ASIDE_BYTES, Backpressure, PutAside, ReadTurns
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.connections import ConnectionTable, ListenerEndpoint
from vibemq.server.net.peer_driver import PeerDriver
from vibemq.server.net.peer_factory import PeerFactory
from vibemq.server.net.timers import Timers
from vibemq.server.net.tls import certified_users
from vibemq.server.net.unsent import Unsent

if sys.platform == "linux":
    import fcntl
    import termios

log = logging.getLogger("vibemq.connection")

PIECES_AT_ONCE = 1
"""Of a large row, in one turn of the loop."""
LINGER_S = 1.0
"""After our end of stream, how long the peer may take for its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierServices:
    """What carries a peer's bytes, and is no peer itself, needs of the broker."""

    peers: PeerFactory
    connection_table: ConnectionTable
    loop_cycle: LoopCycle
    timers: Timers
    fatal: Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketServices(CarrierServices):
    """What a socket needs besides."""

    metrics: Metrics
    backpressure: Backpressure
    read_turns: ReadTurns
    put_aside: PutAside
    unsent: Callable[..., Unsent]
    """Makes one with the arguments that are a connection's."""


def acknowledge_at_once(connected: socket.socket) -> Callable[[], None] | None:
    """What has the kernel acknowledge now what has been read; None: it cannot be had.

    The kernel goes back to its own ways by itself. The socket is the accepted one, not what the transport shows of it,
    which makes a socket object for each call where the loop is uvloop's. Whoever closes the transport closes it.
    """
    quick_ack = getattr(socket, "TCP_QUICKACK", None)
    if connected.family not in (socket.AF_INET, socket.AF_INET6) or quick_ack is None:
        return None
    return partial(_set_option, connected, socket.IPPROTO_TCP, quick_ack, 1)


def _set_option(connected: socket.socket, level: int, option: int, value: int) -> None:
    # A peer that has reset the connection by now is no fault of ours, and the loop tells of its end by itself.
    with suppress(OSError):
        connected.setsockopt(level, option, value)


def waiting_in_system(connected: socket.socket) -> int:
    """Bytes that the system has of us and the peer's has not acknowledged. 0 where it does not say."""
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):
        # Closed meanwhile: it has no descriptor any more.
        return 0


class Gathering(Protocol):
    """`vibemq.server.net.driving.rest.ReadingRest`."""

    def begin(self) -> None: ...

    def read(self) -> bool: ...

    def end(self) -> None: ...


class Connection(asyncio.Protocol):
    """Its whole life: connection_made, then anything, then connection_lost. Everything runs on the event loop."""

    transport: asyncio.Transport
    session: Session
    peer: PeerDriver

    def __init__(
        self,
        services: SocketServices,
        endpoint: ListenerEndpoint,
        acknowledge: Callable[[], None] | None = None,
        *,
        gather: Callable[[Callable[[bytes], None]], Gathering] | None = None,
        in_system: Callable[[], int] = lambda: 0,
    ) -> None:
        """
        Args:
            acknowledge: see `acknowledge_at_once`; None: the kernel acknowledges when it likes.
            gather: makes what gathers what the peer sends, and hands it over; None: it is always read at once.
            in_system: see `waiting_in_system`.
        """
        self._services = services
        self.endpoint = endpoint
        self.number = 0
        """The session number; 0 until admitted."""
        self.connection_id = ""
        self.host = ""
        self.port = 0
        self.certified: tuple[str, ...] = ()
        self.since = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self._flow_open = True
        self._reading = True
        self._turn_bytes = 0
        """What was read in this turn of the loop."""
        self._share_used = False
        """It is not read because of that."""
        self._hung_up = False
        self._lingering: asyncio.TimerHandle | None = None
        self._peer_has_ended = False
        """Its side of the stream: everything that it has sent was read."""
        self._closed = False
        self._acknowledge = acknowledge
        self._gather = gather
        self._in_system = in_system
        self._gathering: Gathering | None = None
        """Since the session has kept something back."""
        self._unsent: Unsent | None = None
        """A large row on its way, and what comes behind it; None while there is none."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host, self.port = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("local", 0)
        self.certified = certified_users(transport)
        services = self._services
        self.high_water = services.connection_table.limits.write_high_water_bytes
        self.transport.set_write_buffer_limits(high=self.high_water)
        try:
            self._begin()
        except Exception:
            services.metrics.errors += 1
            log.exception("a connection could not be begun", extra={"remote": self.host})
            services.connection_table.remove(self)
            self.number = 0
            self.transport.abort()

    def _begin(self) -> None:
        services = self._services
        refusal = services.connection_table.admit(self)
        if refusal is not None:
            log.info("connection refused: %s", refusal, extra={"event": "conn.rejected", "remote": self.host})
            self.transport.abort() if not refusal.closes_connection else self._refuse(refusal)
            return
        self.peer = services.peers.drive(
            self.session,
            number=self.number,
            connection_id=self.connection_id,
            host=self.host,
            wake=self.wake,
            protocol=self.endpoint.protocol,
            certified=self.certified,
        )
        log.debug("connected", extra={"event": "conn.opened", "conn_id": self.connection_id, "remote": self.host})

    def _refuse(self, refusal: VibeMQError) -> None:
        """Say why in the protocol's own words, then hang up."""
        session = self._services.connection_table.make_session(self)
        session.refused(None, refusal)
        data = session.data_to_send()
        if data:
            self.transport.write(data)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._lingering is not None:
            # It would keep all of this until then: a second's worth of whoever comes and goes.
            self._lingering.cancel()
            self._lingering = None
        self._drop_unsent()
        if self._gathering is not None:
            self._gathering.end()
            # It refers to this.
            self._gathering = None
        if not self.number:
            return
        self._services.connection_table.forget_memory(self)
        self._services.backpressure.paused.discard(self)
        self._services.read_turns.forget(self)
        self._services.put_aside.forget(self)
        self._services.connection_table.remove(self)
        self.peer.part()
        log.debug("disconnected", extra={"event": "conn.closed", "conn_id": self.connection_id, "remote": self.host})

    @property
    def principal(self) -> Principal | None:
        return self.session.principal

    @property
    def pending(self) -> int:
        return self.peer.pending

    def taken_bytes(self) -> int:
        """Bytes that the peer's system has taken, as far as ours knows: it tells its own buffer's room only in large
        steps, for which a slow line needs longer than anybody waits."""
        return self.bytes_sent - self.transport.get_write_buffer_size() - self._in_system()

    def memory_granted(self) -> None:
        """There is room for the large message that this peer has begun to send."""
        if self.number and not (self._closed or self.peer.parted):
            self.peer.process()

    @property
    def large_left(self) -> int:
        """See `vibemq.protocols.session.Session`."""
        return self.session.large_left

    @property
    def is_read(self) -> bool:
        """Whether what the peer sends is taken in at present."""
        return self._reading

    @property
    def row_left(self) -> int:
        """Bytes that the peer's socket has not taken."""
        return self.transport.get_write_buffer_size() + (self._unsent.size if self._unsent is not None else 0)

    def cut_large(self, why: str) -> None:
        """End the connection in the middle of what the peer sends, and tell it why."""
        fields = {"event": "conn.dropped", "conn_id": self.connection_id, "remote": self.host}
        log.info("connection dropped: %s", why, extra=fields)
        self.session.fail(Blocked(why))
        self.wake()

    def let_row_go(self) -> None:
        """Give back the memory of what the peer has not read."""
        if self._unsent is not None:
            self._unsent.let_go()

    def described(self) -> dict[str, Any]:
        """For an operator; JSON-ready."""
        principal = self.principal
        return {
            "connection_id": self.connection_id,
            "name": self.session.client_name,
            "protocol": self.endpoint.protocol,
            "remote": f"{self.host}:{self.port}",
            "user": principal.name if principal is not None else None,
            "since": self.since,
            "bytes_received": self.bytes_received,
            "bytes_sent": self.bytes_sent,
            "tls": self.transport.get_extra_info("sslcontext") is not None,
            "stuck_since": self._services.connection_table.stuck_since(self),
        }

    # -- bytes in -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self.number:
            return
        self.bytes_received += len(data)
        self._services.metrics.bytes_received += len(data)
        if self._acknowledge is not None:
            self._acknowledge()
        turns = self._services.read_turns
        share_bytes = turns.share_bytes
        if self._services.put_aside.has_time():
            if self.peer.receive(data) and self._gather is not None:
                self._begin_gathering(self._gather)
        else:
            self.peer.keep(data)
            self._services.put_aside.add(self, len(data))
            share_bytes = ASIDE_BYTES
        if self.peer.ending:
            # What still comes is thrown away, and the peer must not wait for room to write it.
            return
        turns.reads(self)
        self._turn_bytes += len(data)
        share_used = self._turn_bytes >= share_bytes
        if self._reading and (share_used or self._services.put_aside.has_line):
            # `flush`, in the next turn, reads on, or waits behind those who have waited longer.
            self._share_used = share_used
            self._pause_reading()
            self.wake()

    def _begin_gathering(self, make: Callable[[Callable[[bytes], None]], Gathering]) -> None:
        if self._gathering is None:
            self._gathering = make(self.data_received)
        if self._reading:
            self._gathering.begin()

    def read_on(self) -> None:
        """The session need not keep anything back any more, or has asked to be looked at."""
        if self._gathering is None or not self._gathering.read():
            self.peer.process()

    def work_off(self) -> None:
        """What was put aside."""
        if not (self._closed or self.peer.ending):
            self.peer.work_off()

    def eof_received(self) -> bool:
        if self._hung_up:
            return False
        self._peer_has_ended = True
        if self.number:
            if self._services.put_aside.has_time():
                self.peer.receive(b"")
            else:
                self.peer.keep(b"")
                self._services.put_aside.add(self, 0)
        # We close the transport ourselves, once what was asked before is answered.
        # TLS knows no half-closed streams: there the transport closes after this.
        return self.number != 0 and self.transport.get_extra_info("sslcontext") is None

    # -- bytes out ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._services.loop_cycle.flush_later(self)

    @property
    def delivers(self) -> bool:
        return bool(self.peer.delivery_queue)

    def flush(self) -> None:
        """Write what is due; called once per loop turn. Raises nothing: other connections come after."""
        peer = self.peer
        if not peer.kept:
            self._turn_bytes = 0
        if self._closed or peer.parted:
            return
        try:
            if peer.broken:
                # In the middle of a frame nothing else can be said.
                self._write(b"" if self._unsent is not None else peer.last_word())
                self._drop_unsent()
                self._hang_up()
                return
            room = 0 if self._unsent is not None else self.high_water - self.transport.get_write_buffer_size()
            data, finished = peer.collect(room)
            self._write(data)
            while (row := peer.row_to_send()) is not None:
                self._begin_row(row)
                self._write(self.session.data_to_send())
            if self._unsent is not None:
                self._feed_socket(self._unsent)
            if finished and self._unsent is None:
                self._hang_up()
            self._apply_flow_control()
            # What came in, an effect, or rows that the storage thread read, may have brought its deadline nearer.
            self._services.timers.watch(peer)
        except StorageError as error:
            self._services.fatal(error)
        except Exception:
            if peer.broken:
                log.exception("a connection could not be ended", extra={"conn_id": self.connection_id})
                self.transport.abort()
            else:
                peer.give_up("what was due could not be written")

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._unsent is not None:
            self._unsent.add(data)
        else:
            self._give(data)

    def _give(self, data: bytes) -> None:
        self.bytes_sent += len(data)
        self._services.metrics.bytes_sent += len(data)
        self.transport.write(data)
        if self._acknowledge is not None:
            # Who answers is thought to acknowledge along with its answers from then on.
            self._acknowledge()

    def _begin_row(self, row: Rows) -> None:
        if self._unsent is None:
            self._unsent = self._services.unsent(
                wake=self._row_came, lost=self._row_has_gone, failed=self.peer.read_failed
            )
        self._unsent.add_row(row)
        self._services.connection_table.large_turns.sends(self)

    def _row_came(self) -> None:
        self._services.connection_table.large_turns.sends(self)
        self.wake()

    def _feed_socket(self, unsent: Unsent) -> None:
        """Give it of what is unsent as much as it takes, a bounded part in each turn of the loop."""
        for _ in range(PIECES_AT_ONCE):
            if self.transport.get_write_buffer_size() > self.high_water:
                break
            piece = unsent.next_piece()
            if piece is None:
                break
            self._give(piece)
        else:
            self.wake()
        if not unsent:
            self._drop_unsent()

    def _drop_unsent(self) -> None:
        if self._unsent is not None:
            self._unsent.close()
            self._unsent = None
            self._services.connection_table.large_turns.ended(self)

    def _hang_up(self) -> None:
        """End our side of the stream, and soon the whole: the last bytes must outlive those we have not read."""
        if self._hung_up or self.transport.is_closing():
            return
        self._hung_up = True
        self.peer.part()
        if self._gathering is not None:
            self._gathering.end()
        if not self._reading:
            # Bytes that nobody has read would make the end of the stream a reset.
            self._reading = True
            self.transport.resume_reading()
        # A peer that never takes the last bytes must not keep the socket.
        self._note_stuck()
        if self.transport.can_write_eof() and not self._peer_has_ended:
            # Closing a socket with unread bytes in it resets the stream, and what we wrote last would be lost.
            self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)
            try:
                self.transport.write_eof()
            except OSError:
                # The peer has reset the stream meanwhile: there is nobody left to say it to.
                self.transport.abort()
        else:
            self.transport.close()

    def _apply_flow_control(self) -> None:
        if self.peer.leaving or self.transport.is_closing():
            return
        buffered = self.transport.get_write_buffer_size()
        if self._unsent is not None:
            buffered += self._unsent.answers_bytes
        full = buffered >= self.high_water or self._unsent is not None
        if full and self._flow_open:
            self._set_flow(open_=False)
        elif not full and not self._flow_open and not self.peer.delivery_queue:
            self._set_flow(open_=True)
        self._limit_reading(buffered)
        if self.peer.delivery_queue and not full and not self.peer.delivery_queue.reading:
            # The socket took everything: go on next turn, after the others have had theirs.
            self.wake()

    def _limit_reading(self, buffered: int) -> None:
        reading = buffered < 4 * self.high_water and not (self._services.backpressure.overloaded or self.peer.busy)
        reading = reading and not self._services.connection_table.waits_for_memory(self)
        if reading == self._reading or (reading and self._waits_for_turn()):
            return
        self._reading = reading
        self._share_used = False
        if reading:
            self._services.backpressure.paused.discard(self)
            self.transport.resume_reading()
        else:
            self._pause_reading()

    def _waits_for_turn(self) -> bool:
        """Somebody of whom much has come is read on when that was looked at, and others have had their turns."""
        if self.peer.kept or (self._share_used and not self._services.read_turns.admits(self)):
            return True
        self._share_used = False
        return self._services.put_aside.holds(self)

    def hold(self) -> None:
        """Too much was put aside of all connections. What comes of one that ends is thrown away all the same."""
        if not self.peer.ending:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if self._gathering is not None:
            self._gathering.end()
        self._reading = False
        self._services.backpressure.paused.add(self)
        self.transport.pause_reading()

    def _set_flow(self, *, open_: bool) -> None:
        self._flow_open = open_
        self.peer.set_flow(open_=open_)

    def pause_writing(self) -> None:
        if self.number:
            self._note_stuck()

    def resume_writing(self) -> None:
        if self._hung_up:
            # Nobody else looks at how the last bytes go on. Its time begins anew.
            self._note_stuck()
            return
        self._services.connection_table.stuck.pop(self, None)
        if self.number:
            self.wake()

    def _note_stuck(self) -> None:
        self._services.connection_table.stuck[self] = (
            asyncio.get_running_loop().time(),
            self.taken_bytes(),
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def goodbye(self, reason: str) -> None:
        """What was asked is answered first, but for a login: those that wait for their check would hold up the stop."""
        if self.principal is None:
            self.peer.dismiss(reason)
        else:
            self.peer.goodbye(reason)

    def _row_has_gone(self, why: str) -> None:
        """Nobody can say anything more in the middle of a frame, and the peer has done nothing wrong."""
        self.drop(why, clean=True)

    def drop(self, why: str, *, clean: bool = False) -> None:
        """Hang up at once, whatever is unsent. `clean`: see `PeerDriver.stop_reading`."""
        fields = {"event": "conn.dropped", "conn_id": self.connection_id, "remote": self.host}
        log.info("connection dropped: %s", why, extra=fields)
        self.peer.stop_reading(clean=clean)
        self.transport.abort()
