"""One connection of a BlazingMQ client, without a socket or a clock. Contract: `vibemq.protocols.session.Session`.

reading      codec.events, codec.put, codec.acks -> handshake, control (requests), puts, deliveries (confirms)
answering    control, puts -> state (one queue of bytes: what is answered first is written first)
delivering   deliveries, delivery_index (what a CONFIRM settles)
time         liveness (silence)

The bytes keep the rules without which a real SDK dies: docs/spec/blazingmq.md, "What a client does not survive".
"""

from collections.abc import Iterator, Sequence
from typing import Any

from vibemq.errors import RemoteProtocolError, VibeMQError
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.model.rows import Rows
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import BaseSession, LargeProgress
from vibemq.protocols.blazingmq import handshake
from vibemq.protocols.blazingmq.codec.acks import parse_confirms
from vibemq.protocols.blazingmq.codec.control import decode_authentication, decode_control, decode_negotiation
from vibemq.protocols.blazingmq.codec.events import (
    HEARTBEAT_RSP,
    Event,
    EventReader,
    EventType,
    LargeEvent,
)
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    ClientIdentity,
    ControlMessage,
    OpenQueue,
    StatusCategory,
)
from vibemq.protocols.blazingmq.control import ControlRequests
from vibemq.protocols.blazingmq.deliveries import Deliveries
from vibemq.protocols.blazingmq.delivery_index import BlazingmqDeliveryIndex
from vibemq.protocols.blazingmq.domain_use import ClientUse, DomainUse
from vibemq.protocols.blazingmq.errors import category_of, status_text
from vibemq.protocols.blazingmq.handshake import CredentialsAsked, IdentityAsked
from vibemq.protocols.blazingmq.liveness import ClientLiveness
from vibemq.protocols.blazingmq.puts import Puts
from vibemq.protocols.blazingmq.settings import BlazingmqSettings
from vibemq.protocols.blazingmq.state import AwaitedAnswer, BlazingmqState
from vibemq.protocols.session import Principal, Request, SessionContext

CONTROL_BYTES_MAX = 131_072
"""Once the client is known: a configure with as many subscriptions as a stream may have, and long expressions."""
FRAMING_BYTES_MAX = 64
"""Of a message: its header and its padding."""
PIPELINED_BYTES_MAX = 262_144
"""What a peer may send ahead while its credentials are checked."""
AROUND_MESSAGE_BYTES = 4_096
"""Of a PUT, around its data."""
READ_BYTES = 262_144
"""Events of about so many bytes are taken out of the stream together."""
MESSAGES_AT_ONCE = 150
"""Messages, confirms or requests that are read in about a millisecond."""
CONTROL_WORK_SHIFT = 4
"""So many bytes of a request, 1 << 4, are as much work as a message: each two may be a value, or a condition."""
KEPT_BACK_BYTES = 262_144
"""Posts of about so many bytes are kept back at most while a flush is under way, which their ACKs wait for anyway."""
HEARTBEATS_WORK_SHIFT = 3
"""Eight heartbeats, cut out of the stream and answered together, are as much work as a message."""
OPEN_WORK = 30
"""What an openQueue costs besides, which may make a queue."""
UNKNOWN_EVENTS_MAX = 1_000
UNKNOWN_REQUEST = 0x7FFF_FFFF
UNANSWERED_MAX = 65_536
"""Commands that may wait for their answers."""


class BlazingmqSession(BaseSession[BlazingmqState]):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(self, context: SessionContext, settings: BlazingmqSettings, use: DomainUse | None = None) -> None:
        """`use`: shared by the clients of a listener."""
        state = BlazingmqState(context, settings, context.now, use=ClientUse(use or DomainUse()))
        self._state = state
        self._index = index = BlazingmqDeliveryIndex()
        self._control = ControlRequests(state, index)
        self._deliveries = Deliveries(state, index)
        self._puts = Puts(state, self._control.departures.puts_answered)
        self._reader = EventReader(
            event_bytes_max=context.limits.handshake_bytes_max,
            control_bytes_max=context.limits.handshake_bytes_max,
            message_bytes_max=context.limits.message_bytes_max + AROUND_MESSAGE_BYTES,
            reserve_memory=context.reserve_memory,
            joins_alike=True,
        )
        self._events: list[Event] = []
        """Read from the stream, and not yet looked at, the next one last."""
        self._confirms: Any = None
        """An iterator of confirms that are being read."""
        self._request: ControlMessage | None = None
        """Read, and not yet carried out, which for a large one is as much work."""
        self._request_work = 0
        self._parked = False
        """The request has been found to wait, see `_waits_for_close`."""
        self._authenticating = False
        self._ended = False
        """The client has ended its side."""
        self._arrived = False
        """Bytes have come that `commands` has not looked at."""
        self._more = False
        self._row: Rows | None = None
        """Follows what `data_to_send` has returned last."""
        self._unknown_events = 0
        self._liveness = ClientLiveness(state)
        self._large_progress = LargeProgress(context.limits.message_timeout_ms)

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if self._state.failed:
            return
        self._arrived = True
        if not data:
            self._ended = True
            return
        self._reader.receive_data(data)
        if self._authenticating and self._reader.buffered_bytes > PIPELINED_BYTES_MAX:
            self._break("more was sent ahead than is kept while credentials are checked")

    def commands(self) -> Sequence[Request]:
        state = self._state
        if self._arrived:
            self._arrived = False
            self._liveness.heard()
        if self.keeps_back():
            return ()
        try:
            self._read()
        except RemoteProtocolError as error:
            self._break(str(error), error)
        self._puts.flush()
        self._large_progress.note(self._reader.large_left, state.now)
        if (
            self._ended
            and not (state.failed or state.disconnecting or self._authenticating or self.unread or state.requests)
            and not self._waits_for_close()
        ):
            # The client is gone without a disconnect: what it held goes back as after a lost connection.
            state.close()
        return self._take_requests()

    def keeps_back(self) -> bool:
        """Each small batch costs as much as many messages. What an SDK posts while a flush is under way becomes one."""
        state = self._state
        # A client that does nothing but post: nobody waits for anything else that it may have sent.
        if not state.handles or state.flushed_writers != state.handles or not state.unanswered or self._more:
            return False
        if self._ended or state.failed or state.disconnecting or state.requests or self._authenticating:
            return False
        return 0 < self._reader.buffered_bytes < KEPT_BACK_BYTES and state.context.behind_flush()

    @property
    def unread(self) -> bool:
        if self._authenticating or self._state.failed or self._puts.waits_for_memory:
            return False
        return self._control.departures.under_way or (self._more and not self._waits_for_close())

    def _waits_for_close(self) -> bool:
        """An openQueue has come before the answer to a closeQueue of the same qId: it is carried out behind that."""
        if self._request is None or not isinstance(self._request.choice, OpenQueue):
            return False
        return self._control.departures.closes(self._request.choice.handle_parameters.q_id)

    @property
    def large_left(self) -> int:
        """Bytes of a large message of the client that have not come; 0: none is under way."""
        return self._reader.large_left

    def _break(self, why: str, error: RemoteProtocolError | None = None) -> None:
        self._broken = error or RemoteProtocolError(why)
        self._reader.end()
        self._state.close()

    def _read(self) -> None:
        """Read as much as takes about a millisecond."""
        state, left = self._state, MESSAGES_AT_ONCE
        self._puts.waits_for_memory = False
        while left > 0 and not (self._authenticating or state.failed or self._puts.waits_for_memory):
            if self._control.departures.under_way:
                left -= 1 + self._control.departures.go_on(left)
            elif self._control.reading:
                left -= self._control.read_on(left)
            elif self._puts.waiting:
                left -= self._puts.read(left)
            elif self._confirms is not None:
                left -= self._read_confirms(left)
            elif self._request is not None:
                if self._waits_for_close():
                    self._more = True
                    break
                left -= self._carry_out(self._request)
            elif self._events or self._next_events():
                left -= self._hear_some()
            else:
                self._more = False
                break
        else:
            self._more = bool(
                self._control.departures.under_way
                or self._control.reading
                or self._puts.waiting
                or self._confirms is not None
                or self._request is not None
                or self._events
                or self._reader.buffered_bytes
            )
        self._parked = self._waits_for_close()

    def _next_events(self) -> bool:
        # One at a time until the client is known: what may follow depends on what it is told.
        events = self._reader.read(READ_BYTES if self._state.negotiated else 1)
        events.reverse()
        self._events = events
        return bool(events)

    def _hear_some(self) -> int:
        """Look at the next event, or at the next ones that are alike; return how much work that was."""
        events = self._events
        kind = events[-1].type
        event = events[-1]
        if kind == EventType.PUT and isinstance(event, LargeEvent) and not self._state.disconnecting:
            events.pop()
            self._puts.add_large(event)
            return MESSAGES_AT_ONCE
        if self._state.negotiated and kind in (EventType.PUT, EventType.CONFIRM):
            alike = [events.pop()]
            while events and events[-1].type == kind:
                alike.append(events.pop())
            if self._state.disconnecting:
                return 1
            if kind == EventType.PUT:
                self._puts.add(alike)
            else:
                self._confirms = parse_confirms(alike)
            return 0
        if kind == EventType.HEARTBEAT_REQ:
            return self._answer_heartbeats()
        self._puts.flush()
        events.pop()
        self._hear(event)
        self._request_work = 1 + (event.end - event.start >> CONTROL_WORK_SHIFT)
        if self._request is not None and isinstance(self._request.choice, OpenQueue):
            self._request_work += OPEN_WORK
        return self._request_work

    def _answer_heartbeats(self) -> int:
        events, count = self._events, 0
        while events and events[-1].type == EventType.HEARTBEAT_REQ:
            events.pop()
            count += 1
        self._state.send(HEARTBEAT_RSP * count)
        return 1 + (count >> HEARTBEATS_WORK_SHIFT)

    def _read_confirms(self, most: int) -> int:
        # What was put before keeps its place before.
        self._puts.flush()
        count = self._deliveries.confirm(self._confirms, most)
        if count < most:
            self._confirms = None
        return count

    def _hear(self, event: Event) -> None:
        state, kind = self._state, event.type
        if kind == EventType.HEARTBEAT_RSP:
            pass
        elif kind == EventType.AUTHENTICATION:
            self._hear_authentication(event)
        elif kind == EventType.CONTROL:
            self._hear_control(event)
        elif not state.negotiated:
            raise RemoteProtocolError("a client's first event is its identity")
        else:
            # Of brokers among each other, or of a later version; the real broker ignores them, too.
            self._unknown_events += 1
            if self._unknown_events > UNKNOWN_EVENTS_MAX:
                raise RemoteProtocolError(f"more than {UNKNOWN_EVENTS_MAX:,} events that are unknown here")

    def _carry_out(self, request: ControlMessage) -> int:
        self._request = None
        self._control.hear(request)
        return self._request_work

    def _hear_authentication(self, event: Event) -> None:
        state = self._state
        state.use_codec_of(event)
        message = decode_authentication(event)
        if state.principal is not None or state.negotiated or not isinstance(message, AuthenticationRequest):
            raise RemoteProtocolError("an authentication event out of its place")
        handshake.authenticate(state, message)
        self._authenticating = not state.failed

    def _hear_control(self, event: Event) -> None:
        state = self._state
        if not state.negotiated:
            state.use_codec_of(event)
            message = decode_negotiation(event)
            if not isinstance(message, ClientIdentity):
                raise RemoteProtocolError("a client's first control message is its identity")
            handshake.negotiate(state, message)
            self._authenticating = not (state.failed or state.negotiated)
            self._let_in()
        elif not state.disconnecting:
            if state.unanswered > UNANSWERED_MAX:
                raise RemoteProtocolError(f"more than {UNANSWERED_MAX:,} requests wait for their answers")
            self._request = decode_control(event)

    def _let_in(self) -> None:
        if self._state.negotiated:
            self._reader.event_bytes_max = self._state.settings.event_bytes_max
            self._reader.control_bytes_max = CONTROL_BYTES_MAX

    # -- out --------------------------------------------------------------------------------------------------------

    def authenticated(self, token: Any, principal: Principal) -> None:
        state = self._state
        state.principal = principal
        self._authenticating = False
        self._liveness.step_done()
        if isinstance(token, CredentialsAsked):
            handshake.credentials_count(state)
        elif isinstance(token, IdentityAsked):
            handshake.welcome(state)
            self._let_in()
        self._more = True

    def refused(self, token: Any, error: VibeMQError) -> None:
        state = self._state
        if isinstance(token, CredentialsAsked):
            self._authenticating = False
            handshake.credentials_refused(state, error)
        elif isinstance(token, IdentityAsked):
            self._authenticating = False
            handshake.turn_away(state, category_of(error), status_text(error))
        elif isinstance(token, AwaitedAnswer):
            state.answered(token, error)
            if state.disconnecting:
                self._control.departures.part_if_done()
        elif token is None and state.principal is None:
            # The connection itself is turned away. Nothing can be said before the client has spoken.
            state.close()

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                if isinstance(effect.token, AwaitedAnswer):
                    self._state.answered(effect.token, effect.result)
            elif isinstance(effect, ConsumerEnded):
                self._consumer_ended(effect)
        if self._state.disconnecting:
            self._control.departures.part_if_done()

    def _consumer_ended(self, ended: ConsumerEnded) -> None:
        """The protocol cannot tell a client that a queue is gone, or that it may not read it any more. Its connection
        ends: an SDK connects again and opens its queues again, where it hears how things are."""
        if self._control.ended(ended.consumer) and not self._state.failed:
            self._state.respond_status(UNKNOWN_REQUEST, category_of(ended.error), status_text(ended.error))
            self._state.say_goodbye()

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        self._deliveries.deliver(deliver, slices)

    @property
    def rows_at_once(self) -> int:
        return self._deliveries.rows_at_once

    @property
    def slices_at_once(self) -> int:
        return 110

    def data_to_send(self) -> bytes:
        state = self._state
        if state.before_rows:
            parts, self._row = state.before_rows.popleft()
            return b"".join(parts)
        return state.take_bytes()

    def row_to_send(self) -> Rows | None:
        """A part of a large row that follows what `data_to_send` has returned; call that again behind it."""
        row, self._row = self._row, None
        return row

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        state = self._state
        state.now = max(state.now, now)
        if state.closing:
            return
        if self._reader.waits_for_memory or self._puts.waits_for_memory:
            # It is not read, so it cannot be heard.
            self._liveness.heard()
        self._large_progress.note(self._reader.large_left, state.now)
        if not (self._arrived or self.unread) and self._large_progress.has_stalled(state.now, state.context.is_read):
            self.fail(self._large_progress.error())
        deadline = self._silence_deadline()
        if deadline is not None and state.now >= deadline and not (self._arrived or self.unread):
            self._liveness.look()

    def _silence_deadline(self) -> int | None:
        return None if self._authenticating or self._ended else self._liveness.silence_deadline()

    def next_deadline(self) -> int | None:
        state = self._state
        if state.closing:
            return None
        if state.requests or (self._parked and self.unread):
            return state.now
        deadlines = (self._silence_deadline(), self._large_progress.deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # -- end --------------------------------------------------------------------------------------------------------

    def shutdown(self, reason: str) -> None:
        """The protocol has no goodbye of a broker: an SDK connects again when its connection ends."""

    def fail(self, error: VibeMQError) -> None:
        state = self._state
        if state.closing:
            return
        if state.negotiated:
            # An SDK logs the answer to a request that it has not made.
            state.respond_status(UNKNOWN_REQUEST, StatusCategory.E_UNKNOWN, status_text(error))
        elif self._authenticating:
            handshake.turn_away(state, StatusCategory.E_NOT_READY, status_text(error))
        self._reader.end()
        state.close()

    def let_go(self) -> Iterator[None]:
        # A client that has opened very many queues is not freed in one turn of the loop.
        yield from self._state.let_go()
        yield from self._index.let_go()

    @property
    def client_name(self) -> str:
        return self._state.client_name
