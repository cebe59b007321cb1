"""One connection: drives a session of any protocol over an asyncio transport.

    bytes in     data_received -> session.receive_data -> session.commands -> admission -> shell.decide
    effects in   take (from the session's lane) -> session.apply, or the outbox for deliveries
    bytes out    flush, once per loop turn: outbox.pump -> session.data_to_send -> one transport.write

A reader that does not keep up: above the high-water mark the outbox stops reading rows and the engine is told to
skip the session; above four times the mark (its own requests' answers) we stop reading from it; after the write
timeout without progress it is dropped.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from vibemq.errors import NotAuthorized, RemoteProtocolError, StorageError, VibeMQError
from vibemq.model.commands import Command, ListQueues, SetFlow, Settle, Settlement, Unsubscribe
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.protocols.session import Authenticate, Goodbye, OperationRequest, Principal, Request, Session
from vibemq.server.admission import Admission
from vibemq.server.commit.release_order import Lane
from vibemq.server.net.connections import Entrance
from vibemq.server.net.delivery_queue import Outbox
from vibemq.server.shell import Shell
from vibemq.storage.reading import Piece

log = logging.getLogger("vibemq.connection")

LINGER_S = 1.0
"""After our end of stream, how long the peer may take for its own."""


class Connection(asyncio.Protocol):
    """Its whole life: connection_made, then anything, then connection_lost. Everything runs on the event loop."""

    transport: asyncio.Transport
    session: Session

    def __init__(self, shell: Shell, entrance: Entrance) -> None:
        self._shell = shell
        self.entrance = entrance
        self.number = 0
        """The session number; 0 until admitted."""
        self.connection_id = ""
        self.host = ""
        self.port = 0
        self.since = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.scheduled_tick: int | None = None
        """Instant of the nearest tick that the ticker knows for this session."""
        self.pending = 0
        """Requests answered by tasks of their own (credentials, admin verbs) that are under way."""
        self._flow_open = True
        self._reading = True
        self._leaving = False
        self._farewell = ""
        self._hung_up = False
        self._clean = False
        self._closed = False
        self._unsubscribing: list[Any] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host, self.port = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("local", 0)
        shell = self._shell
        self.high_water = shell.limits.write_high_water_bytes
        self.transport.set_write_buffer_limits(high=self.high_water)
        refusal = shell.roster.admit(self)
        if refusal is not None:
            log.info("connection refused: %s", refusal, extra={"event": "conn.rejected", "remote": self.host})
            self.transport.abort() if not refusal.closes_connection else self._refuse(refusal)
            return
        self.guard = Admission(
            shell.accounts.policy,
            shell.metrics,
            per_second=shell.limits.messages_per_client_per_second,
            now=shell.loop.time(),
        )
        self.lane: Lane = shell.switchboard.connect(self.number, self.take)
        self.outbox = Outbox(
            self.session,
            shell.store,
            delivered=self._delivered,
            damaged=self._damaged,
            wake=self.wake,
            failed=self._read_failed,
        )
        log.debug("connected", extra={"event": "conn.opened", "conn_id": self.connection_id, "remote": self.host})
        shell.ticker.watch(self)

    def _refuse(self, refusal: VibeMQError) -> None:
        """Say why in the protocol's own words, then hang up."""
        session = self._shell.roster.make_session(self)
        session.refused(None, refusal)
        data = session.data_to_send()
        if data:
            self.transport.write(data)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if not self.number:
            return
        self.outbox.close()
        self._shell.switchboard.disconnect(self.number)
        self._shell.roster.remove(self)
        self._shell.close_session(self.number, clean=self._clean)
        log.debug("disconnected", extra={"event": "conn.closed", "conn_id": self.connection_id, "remote": self.host})

    @property
    def ending(self) -> bool:
        """Closed, or only waiting for its last answers."""
        return self._closed or self._leaving

    @property
    def principal(self) -> Principal | None:
        return self.session.principal

    def described(self) -> dict[str, Any]:
        """For an operator; JSON-ready."""
        principal = self.principal
        return {
            "connection_id": self.connection_id,
            "protocol": self.entrance.protocol,
            "remote": f"{self.host}:{self.port}",
            "user": principal.name if principal is not None else None,
            "since": self.since,
            "bytes_received": self.bytes_received,
            "bytes_sent": self.bytes_sent,
        }

    # -- bytes in -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self.number or self._leaving:
            return
        self.bytes_received += len(data)
        self._shell.metrics.bytes_received += len(data)
        self.session.receive_data(data)
        self.process()

    def eof_received(self) -> bool:
        if self._hung_up:
            return False
        if self.number and not self._leaving:
            self.session.receive_data(b"")
            self.process()
        # We close the transport ourselves, once what was asked before is answered.
        # TLS knows no half-closed streams: there the transport closes after this.
        return self.number != 0 and self.transport.get_extra_info("sslcontext") is None

    def process(self) -> None:
        """Take what the session has understood, have it decided, and write what is due in this turn."""
        self._take_requests()
        self.wake()

    def _take_requests(self) -> None:
        try:
            while not self._leaving and (requests := self.session.commands()):
                self._handle(requests)
        except RemoteProtocolError as error:
            self._shell.metrics.errors += 1
            log.info("peer broke the protocol: %s", error, extra={"conn_id": self.connection_id, "remote": self.host})
            self._leave(clean=False)
        except Exception:
            self._give_up("a request could not be handled")

    def _handle(self, requests: Sequence[Request]) -> None:
        batch: list[Command] = []
        shell, now = self._shell, self._shell.loop.time()
        for request in requests:
            if isinstance(request, Authenticate):
                self._decide(batch)
                shell.authenticate(self, request)
            elif isinstance(request, OperationRequest):
                self._operate(request, batch, now)
            elif isinstance(request, Goodbye):
                self._decide(batch)
                self._leave(clean=True)
                return
            elif (refusal := self.guard.check(self.principal, request, now)) is not None:
                self.session.refused(getattr(request, "token", None), refusal)
            else:
                if isinstance(request, ListQueues):
                    request.visible = partial(self.guard.may_see, self.principal)
                if isinstance(request, Unsubscribe) and request.token is not None:
                    self._unsubscribing.append(request.token)
                batch.append(request)
        self._decide(batch)

    def _operate(self, request: OperationRequest, batch: list[Command], now: float) -> None:
        """A short operation takes its place in the batch; a long one begins behind it."""
        try:
            call = self._shell.operations.admit(self.principal, request.name, request.arguments)
            command = call.command(self.number, request.token)
        except VibeMQError as refusal:
            self._shell.metrics.not_authorized += isinstance(refusal, NotAuthorized)
            self.session.refused(request.token, refusal)
            return
        if command is None:
            self._decide(batch)
            self._shell.operate(self, request.token, call)
        elif (limited := self.guard.take(command, now)) is not None:
            self.session.refused(request.token, limited)
        else:
            batch.append(command)

    def _decide(self, batch: list[Command]) -> None:
        if batch:
            self._shell.decide(list(batch))
            batch.clear()

    # -- effects in ---------------------------------------------------------------------------------------------------

    def take(self, effects: Sequence[Effect]) -> None:
        """Receive what the engine decided for this session, in order."""
        now: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Deliver) or (self._ends_deliveries(effect) and self.outbox):
                self.outbox.add(effect)
            else:
                now.append(effect)
        if now:
            try:
                self.session.apply(now)
            except Exception:
                self._give_up("an answer could not be encoded")
        self.wake()

    def _ends_deliveries(self, effect: Effect) -> bool:
        if isinstance(effect, ConsumerEnded):
            return True
        if not self._unsubscribing or not isinstance(effect, Reply):
            return False
        for index, token in enumerate(self._unsubscribing):
            if token is effect.token:
                del self._unsubscribing[index]
                return True
        return False

    def _delivered(self, piece: Piece) -> None:
        metrics, now = self._shell.metrics, self._shell.clock.now()
        metrics.delivered += piece.count
        metrics.delivery_latency_ms_sum += sum((now - part.published_at) * part.rows.count for part in piece.slices)

    def _damaged(self, deliver: Deliver, piece: Piece) -> None:
        """Damaged rows are never delivered: they leave the queue for its DLQ, which keeps what is known of them."""
        count = sum(last - first + 1 for first, last in piece.damaged)
        self._shell.metrics.damaged_messages += count
        log.error(
            "%d messages of queue %s are damaged (%s): %s", count, deliver.queue, piece.damaged[:10], piece.damage
        )
        reason = f"stored bytes are damaged: {piece.damage}"
        self._shell.decide(
            [Settle(self.number, None, deliver.consumer, Settlement.REJECT, piece.damaged, reason=reason)]
        )

    def _read_failed(self, error: BaseException) -> None:
        if isinstance(error, StorageError):
            self._shell.fatal(error)
        else:
            self._give_up("rows could not be read", error)

    # -- bytes out ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._shell.turn.flush_later(self)

    def flush(self) -> None:
        """Encode and write what is due; called once per loop turn. Raises nothing: other connections come after."""
        if self._closed:
            return
        try:
            self._write()
            self._mind_the_flow()
            # What came in, an effect, or rows that the storage thread read, may have brought its deadline nearer.
            self._shell.ticker.watch(self)
        except StorageError as error:
            self._shell.fatal(error)
        except Exception:
            self._give_up("what was due could not be written")

    def _write(self) -> None:
        self._pump()
        finished = self._finished()
        data = self.session.data_to_send()
        if data:
            self.bytes_sent += len(data)
            self._shell.metrics.bytes_sent += len(data)
            self.transport.write(data)
        if finished:
            self._hang_up()

    def _pump(self) -> None:
        if not self.outbox or self.outbox.reading or self._leaving:
            return
        room = self.high_water - self.transport.get_write_buffer_size()
        if room > 0:
            self.outbox.pump(room)
            # Encoding may have turned a row down; what the session wants done about it stands in its commands.
            self._take_requests()

    def _finished(self) -> bool:
        """Whether everything that was asked is answered and it is time to part; then the goodbye is said."""
        if self.session.closing:
            self._leaving = True
        if not self._leaving or self.lane.waiting or self.pending:
            return False
        if self._farewell:
            self.session.shutdown(self._farewell)
            self._farewell = ""
        return True

    def _hang_up(self) -> None:
        """End our side of the stream, and soon the whole: the last bytes must outlive those we have not read."""
        if self._hung_up or self.transport.is_closing():
            return
        self._hung_up = True
        # A peer that never takes the last bytes must not keep the socket.
        self._note_stuck()
        if self.transport.can_write_eof():
            # Closing a socket with unread bytes in it resets the stream, and what we wrote last would be lost.
            self._shell.loop.call_later(LINGER_S, self.transport.close)
            try:
                self.transport.write_eof()
            except OSError:
                # The peer has reset the stream meanwhile: there is nobody left to say it to.
                self.transport.abort()
        else:
            self.transport.close()

    def _mind_the_flow(self) -> None:
        if self._leaving or self.transport.is_closing():
            return
        buffered = self.transport.get_write_buffer_size()
        full = buffered >= self.high_water
        if full and self._flow_open:
            self._set_flow(open_=False)
        elif not full and not self._flow_open and not self.outbox:
            self._set_flow(open_=True)
        self._mind_the_reading(buffered)
        if self.outbox and not full and not self.outbox.reading:
            # The socket took everything: go on next turn, after the others have had theirs.
            self.wake()

    def _mind_the_reading(self, buffered: int) -> None:
        reading = buffered < 4 * self.high_water and not self._shell.overloaded
        if reading == self._reading:
            return
        self._reading = reading
        if reading:
            self._shell.paused.discard(self)
            self.transport.resume_reading()
        else:
            self._shell.paused.add(self)
            self.transport.pause_reading()

    def _set_flow(self, *, open_: bool) -> None:
        self._flow_open = open_
        self._shell.decide([SetFlow(self.number, open_)])

    def pause_writing(self) -> None:
        if self.number:
            self._note_stuck()

    def resume_writing(self) -> None:
        self._shell.roster.stuck.pop(self, None)
        if self.number:
            self.wake()

    def _note_stuck(self) -> None:
        self._shell.roster.stuck[self] = (self._shell.loop.time(), self.transport.get_write_buffer_size())

    # -- the end ------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        try:
            self.session.tick(now)
        except Exception:
            self._give_up("a timer of the session failed")
            return
        self.process()

    def goodbye(self, reason: str) -> None:
        """The broker stops: answer what was asked, tell the peer, and leave cleanly."""
        self._farewell = reason
        self._leave(clean=True)

    def drop(self, why: str) -> None:
        """Hang up at once, whatever is unsent."""
        log.info("connection dropped: %s", why, extra={"conn_id": self.connection_id, "remote": self.host})
        self._leaving = True
        self.transport.abort()

    def _leave(self, *, clean: bool) -> None:
        self._leaving = True
        self._clean = clean
        self.wake()

    def _give_up(self, what: str, error: BaseException | None = None) -> None:
        self._shell.metrics.errors += 1
        log.error("%s; the connection is closed", what, exc_info=error or True, extra={"conn_id": self.connection_id})
        self._leaving = True
        self.transport.abort()
