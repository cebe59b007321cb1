"""One connection of the OCaml message queue, without a socket or a clock. Contract: `vibemq.protocols.session.Session`.

reading      sexp (bytes) -> commands (what was said) -> connecting, subscriptions (what is asked of the engine)
answering    state (answers in the order of the commands) -> frames
delivering   subscriptions, delivery_index (what an Ack settles)
"""

from collections.abc import Sequence
from typing import Any

from vibemq.errors import NotAuthenticated, RemoteProtocolError, ShuttingDown, UnknownCommand, VibeMQError
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import BaseSession
from vibemq.protocols.omq import handshake
from vibemq.protocols.omq.commands import (
    Ack,
    Connect,
    NotACommand,
    OmqSubscribe,
    OmqUnsubscribe,
    is_connect,
    parse_command,
)
from vibemq.protocols.omq.errors import Refusal, error_text, one_line
from vibemq.protocols.omq.frames import ACCEPTED, HANDSHAKE, error_frame, ping_frame
from vibemq.protocols.omq.handshake import OmqConnectAsked
from vibemq.protocols.omq.scalars import second_of
from vibemq.protocols.omq.settings import OmqSettings
from vibemq.protocols.omq.sexp import Sexp, SexpError, SexpReader
from vibemq.protocols.omq.state import OmqState
from vibemq.protocols.omq.subscriptions import OmqSubscriptions
from vibemq.protocols.session import Goodbye, Principal, Request, SessionContext

PIPELINED_BYTES_MAX = 262_144
"""What a peer may send ahead while its credentials are checked."""
UNANSWERED_MAX = 65_536
"""Commands that may wait for their answers."""
TOKENS_AT_ONCE = 300
"""Commands of the usual form, or parts of others, that are read in about a millisecond."""
REQUESTS_AT_ONCE = 64
"""Asked of the engine together: to subscribe to a topic that is made for it takes it some 20 microseconds."""
_SECOND_MS = 1_000


class OmqSession(BaseSession[OmqState]):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(self, context: SessionContext, settings: OmqSettings) -> None:
        self._state = OmqState(context, settings, context.now)
        self._subscriptions = OmqSubscriptions(self._state)
        self._version = b""
        self._shaken = False
        self._reader = SexpReader(bytes_max=settings.command_bytes_max, nesting_max=settings.nesting_max)
        self._authenticating = False
        self._ahead = bytearray()
        """Bytes that came while the credentials were being checked."""
        self._left = False
        """`commands` has more to do, whether bytes come or not."""
        self._unread = False
        """Bytes have come that `commands` has not looked at: the client is not silent, whatever the time."""
        self._heard_at = context.now
        self._pinged_at: int | None = None
        """Instant of the last ping."""

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if self._state.failed:
            return
        self._unread = True
        if not data:
            self._state.ended = True
        elif self._authenticating:
            self._ahead += data
            if len(self._ahead) > PIPELINED_BYTES_MAX:
                self._break("more commands were sent ahead than are kept while credentials are checked")
        elif self._shaken:
            self._reader.receive_data(data)
        else:
            self._shake_hands(data)

    def _shake_hands(self, data: bytes) -> None:
        missing = HANDSHAKE.size - len(self._version)
        self._version += data[:missing]
        if len(self._version) == HANDSHAKE.size:
            self._shaken = handshake.shake_hands(self._state, self._version)
            if self._shaken:
                self._reader.receive_data(data[missing:])

    def commands(self) -> Sequence[Request]:
        state = self._state
        self._unread = self._left = False
        # In front of what has come since.
        self._subscriptions.go_on(TOKENS_AT_ONCE)
        if self._shaken and not self._subscriptions.has_put_off:
            self._read()
        if state.ended and not (state.failed or self._authenticating or state.requests or self.unread):
            self._end()
        return self._take_requests()

    @property
    def unread(self) -> bool:
        left = self._left or self._reader.unread or self._subscriptions.has_put_off
        return left and not (self._authenticating or self._state.failed)

    def _read(self) -> None:
        values = self._reader.values(TOKENS_AT_ONCE)
        try:
            while not (self._authenticating or self._state.failed):
                value = next(values, None)
                if value is None:
                    return
                self._hear(value)
                if len(self._state.requests) >= REQUESTS_AT_ONCE:
                    self._left = True
                    return
        except SexpError as error:
            self._break(str(error))

    def _break(self, why: str) -> None:
        self._broken = RemoteProtocolError(why)
        self._state.fail(self._broken)

    def _hear(self, value: Sexp) -> None:
        self._heard_at = self._state.now
        try:
            command = parse_command(value)
        except NotACommand as error:
            self._refuse(error, value)
            return
        if len(self._state.slots) >= UNANSWERED_MAX:
            self._break(f"more than {UNANSWERED_MAX:,} commands wait for their answers")
            return
        try:
            self._obey(command)
        except VibeMQError as error:
            self._state.refuse(error)

    def _refuse(self, error: NotACommand, value: Sexp) -> None:
        state = self._state
        if state.principal is None:
            # It may hold a secret, so nothing of it is repeated.
            wrong = Refusal("malformed command", "write (Connect 1 NAME): version 1, and one atom for the id")
            state.fail(wrong if is_connect(value) else NotAuthenticated("Connect comes first"))
        else:
            text = str(error)
            state.refuse(UnknownCommand(text) if error.unknown else Refusal("malformed command", text))

    def _obey(self, command: Connect | OmqSubscribe | OmqUnsubscribe | Ack) -> None:
        state = self._state
        if isinstance(command, Connect):
            if state.principal is not None:
                raise Refusal("already connected", "a connection has one client")
            handshake.connect(state, command)
            self._authenticating = not state.failed
        elif state.principal is None:
            state.fail(NotAuthenticated("Connect comes first"))
        elif isinstance(command, OmqSubscribe):
            self._subscriptions.subscribe(command)
        elif isinstance(command, OmqUnsubscribe):
            self._subscriptions.unsubscribe(command)
        else:
            self._subscriptions.acked(second_of(command.time))

    def _end(self) -> None:
        """The client has ended its side: what is queued is still written, then we part."""
        state = self._state
        if self._reader.unfinished:
            self._break("the stream ended within a command")
        elif self._subscriptions.used:
            done = self._subscriptions.wind_down(REQUESTS_AT_ONCE)
            self._left = self._subscriptions.winds_down
            if done:
                state.failed = True
                if self._subscriptions.delivery_index:
                    # A program that died over a message ends its stream just so. Whether that counts as a failed
                    # attempt is for the queue's `lost_connection` to say.
                    state.close()
                else:
                    state.ask(Goodbye())
        else:
            state.failed = True
            state.close()

    # -- out --------------------------------------------------------------------------------------------------------

    def authenticated(self, token: Any, principal: Principal) -> None:
        self._state.principal = principal
        self._state.client_name = one_line(token.name)
        self._heard_at = self._state.now
        self._resume()

    def refused(self, token: Any, error: VibeMQError) -> None:
        state = self._state
        if isinstance(token, OmqConnectAsked):
            handshake.refused(state, token, error)
            self._resume()
        elif token is not None:
            self._subscriptions.answered(token, error)
        elif state.principal is None:
            # The connection itself is turned away. -1 would say that its version is not spoken here, now or later.
            if not self._shaken:
                state.send(ACCEPTED)
            state.send(error_frame(error_text(error)))
            state.failed = True
            state.close()

    def _resume(self) -> None:
        self._authenticating = False
        ahead, self._ahead = bytes(self._ahead), bytearray()
        if ahead:
            self._reader.receive_data(ahead)

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._subscriptions.answered(effect.token, effect.result)
            elif isinstance(effect, ConsumerEnded):
                self._subscriptions.ended(effect.consumer)
        # It may have waited for nothing else.
        self._left = self._left or self._state.ended

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        self._subscriptions.deliver(deliver, slices)

    @property
    def rows_at_once(self) -> int:
        return 1_500

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        state = self._state
        state.now = max(state.now, now)
        if state.closing:
            return
        deadline = self._silence_deadline()
        unread = (self._unread or self.unread) and state.principal is not None
        if deadline is not None and state.now >= deadline and not unread:
            if state.principal is not None and not state.context.is_read():
                self._heard_at = state.now
            else:
                self._give_up()
        elif state.principal is not None and state.now >= self._next_ping():
            self._ping()

    def _silence_deadline(self) -> int | None:
        state = self._state
        if self._authenticating or (state.ended and state.principal is not None):
            # The client has done its part, or can say nothing any more.
            return None
        if state.principal is not None:
            return self._heard_at + state.settings.ack_timeout_ms
        return state.context.now + state.context.limits.handshake_timeout_ms

    def _give_up(self) -> None:
        state, wait_ms = self._state, self._state.context.limits.handshake_timeout_ms
        if not self._shaken:
            # It may not be one of ours at all.
            state.failed = True
            state.close()
        elif state.principal is None:
            state.give_up(NotAuthenticated(f"no Connect within {wait_ms} ms"))
        else:
            wait_ms = state.settings.ack_timeout_ms
            state.give_up(Refusal("heartbeat timeout", f"no command within {wait_ms} ms"))

    def _next_ping(self) -> int:
        """A client is told at once that it is welcome, and while it holds messages it is asked every second."""
        if self._pinged_at is None:
            return self._state.now
        held = bool(self._subscriptions.delivery_index)
        return self._pinged_at + (_SECOND_MS if held else self._state.settings.ping_interval_ms)

    def _ping(self) -> None:
        # Pings are a second apart at least, so that no two carry the same time.
        state = self._state
        self._pinged_at = state.now
        second = state.now // _SECOND_MS
        self._subscriptions.delivery_index.pinged(second)
        state.send(ping_frame(second))

    def next_deadline(self) -> int | None:
        state = self._state
        if state.closing:
            return None
        silence = self._silence_deadline()
        if state.principal is None:
            return silence
        if state.requests or self._left or self._subscriptions.has_put_off:
            return state.now
        return self._next_ping() if silence is None else min(silence, self._next_ping())

    # -- end --------------------------------------------------------------------------------------------------------

    def shutdown(self, reason: str) -> None:
        if not self._shaken or self._state.failed:
            return
        error: VibeMQError = Refusal("closed", reason)
        if reason == "server_shutdown":
            error = ShuttingDown("the broker ends this connection")
        self._state.send(error_frame(error_text(error)))

    def fail(self, error: VibeMQError) -> None:
        state = self._state
        if state.closing:
            return
        if self._shaken:
            state.give_up(error)
        else:
            state.failed = True
            state.close()

    @property
    def client_name(self) -> str:
        return self._state.client_name
