"""One connection of the native protocol, without a socket or a clock. Contract: `vibemq.protocols.session.Session`.

reading      frame_parser -> publish, delivery_index (hot paths) · commands, bulk, handshake (the rest)
answering    replies (tokens) -> outbox
delivering   deliver
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from vibemq.errors import NotAuthenticated, RemoteProtocolError, ShuttingDown, VibeMQError
from vibemq.model.commands import Settle, Settlement
from vibemq.model.effects import ConsumerEnded, ConsumerLeft, Deliver, Effect, Reply, Responded
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, runs_of
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import LargeProgress, runs_by_consumer
from vibemq.protocols.native import handshake
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.native.deliver import (
    PlainDeliveries,
    bulk_bodies,
    scattered_body,
    takes_steps,
    together,
    told_attempts,
)
from vibemq.protocols.native.errors import error_body, sentence, wire_code
from vibemq.protocols.native.frame_parser import FrameParser
from vibemq.protocols.native.handshake import ConnectAsked
from vibemq.protocols.native.replies import Requested, ask_plain
from vibemq.protocols.native.settings import NativeSettings
from vibemq.protocols.native.state import NativeState, Pending
from vibemq.protocols.native.subscriptions import NativeSubscription
from vibemq.protocols.session import OptionalVerbs, Principal, Request, SessionContext

_TOO_LARGE = "too large for this protocol"
WAITING_TOLD_MS = 2_000
"""A peer whose large frame waits for memory gets a Pong so often."""


class NativeSession(OptionalVerbs):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(self, context: SessionContext, settings: NativeSettings) -> None:
        self._state = NativeState.of(context, settings)
        self._frame_parser = FrameParser(self._state)
        self._deliveries = PlainDeliveries(self._state.outbox, self._state.json)
        self._fatal: RemoteProtocolError | None = None
        self._ended = False
        self._heard = False
        self._heard_at = context.now
        self._large_progress = LargeProgress(context.limits.message_timeout_ms)
        self._told_at = 0
        """When the peer was told last that its large frame waits."""

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if data:
            self._heard = True
            self._frame_parser.append(data)
        else:
            self._ended = True

    def commands(self) -> Sequence[Request]:
        state = self._state
        if self._frame_parser.waits_for_bytes and not (state.requests or self._fatal or self._ended):
            return ()
        if self._fatal is None:
            try:
                self._frame_parser.read()
            except RemoteProtocolError as error:
                self._fatal = error
        requests, state.requests = state.requests, []
        if self._fatal is not None and not requests:
            self._hang_up(self._fatal)
            raise self._fatal
        if self._ended and not (state.authenticating or self._frame_parser.unread):
            state.closing = True
        return requests

    @property
    def unread(self) -> bool:
        return self._frame_parser.unread

    @property
    def reads_nothing_more(self) -> bool:
        """Somebody who is logged in logs in anew, and goes on: what comes meanwhile waits with the peer."""
        return self._state.authenticating and self._frame_parser.has_enough_behind_login

    def fail(self, error: VibeMQError) -> None:
        self._hang_up(error)

    def _hang_up(self, error: VibeMQError) -> None:
        """Last words, once: .NET clients ignore them, people with a packet dump do not."""
        self._frame_parser.end()
        if not self._state.closing:
            self._state.closing = True
            self._state.outbox.send(error_body(self._state.context.new_id(), error))

    # -- out --------------------------------------------------------------------------------------------------------

    def authenticated(self, token: Any, principal: Principal) -> None:
        handshake.accept(self._state, cast(ConnectAsked, token), principal)
        self._frame_parser.go_on_later()

    def refused(self, token: Any, error: VibeMQError) -> None:
        if isinstance(token, ConnectAsked):
            handshake.refuse(self._state, token, error)
            self._frame_parser.go_on_later()
        elif token is not None:
            cast(Pending, token).refuse(self._state, error)
        elif self._state.principal is None:
            # The connection itself is turned away.
            self._state.error(self._state.context.new_id(), error)
            self._state.closing = True

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                token = cast(Pending, effect.token)
                if isinstance(effect.result, VibeMQError):
                    token.refuse(self._state, effect.result)
                else:
                    token.answer(self._state, effect.result)
            elif isinstance(effect, ConsumerEnded):
                self._consumer_ended(effect)
            elif isinstance(effect, ConsumerLeft):
                self._state.subscriptions.holds_nothing(effect.consumer)
            elif isinstance(effect, Responded):
                cast(Requested, effect.token).respond(self._state, effect.result)

    def _consumer_ended(self, effect: ConsumerEnded) -> None:
        subscription = self._state.subscriptions.of_consumer(effect.consumer)
        if subscription is None:
            return
        given_up = self._state.subscriptions.of_queue(subscription.queue) is not subscription
        self._state.subscriptions.end(subscription)
        if subscription.plain:
            # There is no frame to tell such a peer; it expects to be served again once the queue is back, unless it
            # has unsubscribed meanwhile.
            if not given_up:
                self._state.wanted.add(subscription.queue, self._state.now)
        else:
            code, text = wire_code(effect.error), sentence(effect.error)
            self._state.outbox.send(extensions.subscription_ended(subscription.id, effect.queue, code, text))

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        subscription = self._state.subscriptions.of_consumer(deliver.consumer)
        if subscription is None:
            runs = [piece.run for piece in slices]
            self._settle(deliver.consumer, Settlement.RELEASE, runs, "")
            return
        if subscription.plain:
            for piece in slices:
                self._turn_down(deliver, self._deliver_plain(deliver, piece, subscription, None), subscription)
            return
        # Once for all slices: there may be thousands of both.
        attempts = told_attempts(deliver, with_failures=self._state.told_failures)
        outbox = self._state.outbox
        apart = ([piece] for piece in slices)
        for group in together(slices, outbox.body_bytes_max) if self._state.scattered else apart:
            if len(group) == 1:
                self._turn_down(deliver, self._deliver_bulk(deliver, group[0], subscription, attempts), subscription)
            else:
                outbox.send(scattered_body(group, subscription.id, deliver.queue, attempts))

    def deliver_in_steps(self, deliver: Deliver, slices: Sequence[Slice]) -> Iterator[None] | None:
        """See `vibemq.protocols.session.Session`."""
        subscription = self._state.subscriptions.of_consumer(deliver.consumer)
        if subscription is None or not subscription.plain or not takes_steps(slices):
            return None
        return self._deliver_in_steps(deliver, slices)

    def _deliver_in_steps(self, deliver: Deliver, slices: Sequence[Slice]) -> Iterator[None]:
        strange: list[frozenset[int]] = [frozenset()] * len(slices)
        for index, piece in enumerate(slices):
            strange[index] = yield from self._deliveries.strange_payloads(piece)
        subscription = self._state.subscriptions.of_consumer(deliver.consumer)
        if subscription is None:
            self.deliver(deliver, slices)
            return
        for piece, its in zip(slices, strange, strict=True):
            self._turn_down(deliver, self._deliver_plain(deliver, piece, subscription, its), subscription)

    def _turn_down(self, deliver: Deliver, too_large: list[int], subscription: NativeSubscription) -> None:
        if too_large:
            self._settle(deliver.consumer, Settlement.REJECT, runs_of(too_large), self._too_large(subscription))

    def _too_large(self, subscription: NativeSubscription) -> str:
        if subscription.plain:
            return _TOO_LARGE
        most = max(self._state.large_bytes_max, self._state.outbox.body_bytes_max)
        return f"{_TOO_LARGE}: this consumer takes frames of {most:,} bytes"

    def _deliver_plain(
        self, deliver: Deliver, piece: Slice, subscription: NativeSubscription, strange: frozenset[int] | None
    ) -> list[int]:
        acquired = deliver.acquired or {}
        ids, sequences, too_large = self._deliveries.send(piece, subscription.queue_block, acquired, strange)
        if not deliver.settled:
            self._state.delivery_index.note(ids, deliver.consumer, deliver.queue_id, sequences)
        return too_large

    def _deliver_bulk(
        self, deliver: Deliver, piece: Slice, subscription: NativeSubscription, attempts: extensions.ToldAttempts
    ) -> list[int]:
        outbox = self._state.outbox
        too_large: list[int] = []
        for first, body in bulk_bodies(piece, subscription.id, deliver.queue, attempts, outbox.body_bytes_max):
            if isinstance(body, bytes):
                outbox.send(body)
                continue
            told = {first: attempts[first]} if first in attempts else {}
            head = extensions.deliver_one(subscription.id, deliver.queue, first, piece.published_at, body.size, told)
            if len(head) + body.size <= self._state.large_bytes_max:
                outbox.send_large(head, body)
            else:
                too_large.append(first)
        return too_large

    def _settle(self, consumer: int, verb: Settlement, runs: list[Run], reason: str) -> None:
        """Give back what cannot be delivered; the next `commands()` returns it."""
        self._state.ask(Settle(self._state.session, None, consumer, verb, runs, reason=reason))

    def unbegun(self) -> list[Settle]:
        """See `vibemq.protocols.session.Session`."""
        if not self._state.in_order:
            return []
        # It may have begun the first one, and that may have been its end.
        waiting = runs_by_consumer(self._state.delivery_index.behind()[1:])
        session = self._state.session
        return [Settle(session, None, consumer, Settlement.RELEASE, runs) for consumer, runs in waiting.items()]

    @property
    def rows_at_once(self) -> int:
        return 100_000 if self._state.bulk else 500

    @property
    def slices_at_once(self) -> int:
        return 2_048 if self._state.scattered else 256

    @property
    def bytes_at_once(self) -> int:
        if self._state.outbox.compression is Compression.NONE:
            return 1 << 20 if self._state.bulk else 1 << 19
        # Each message of a client without batches is compressed by itself.
        return 1 << 18 if self._state.bulk else 1 << 16

    def data_to_send(self) -> bytes:
        return self._state.outbox.take()

    def row_to_send(self) -> Rows | None:
        """A large row that follows what `data_to_send` has returned; call that again behind it."""
        return self._state.outbox.take_row()

    @property
    def large_left(self) -> int:
        """Bytes of a large frame of the peer that have not come; 0: none is under way."""
        return self._frame_parser.large_left

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        state = self._state
        if now > state.now:
            state.now = now
        if self._heard or self.unread:
            # Nobody is silent whose bytes have not been read yet.
            self._heard = False
            self._heard_at = state.now
            if (
                state.principal is not None
                and self._fatal is None
                and not state.wanted
                and not self._frame_parser.large_under_way
            ):
                return  # As with nearly every read: it is not silent, and nothing else can be due.
        if self._fatal is not None:
            self._hang_up(self._fatal)
            return
        if self._frame_parser.large_under_way:
            self._look_at_large_frame()
        deadline = self._silence_deadline()
        if deadline is not None and state.now >= deadline and not state.closing:
            if state.principal is not None and not state.context.is_read():
                # What it has said meanwhile waits in the kernel.
                self._heard_at = state.now
            else:
                self._give_up()
        for queue in state.wanted.due(state.now) if state.wanted else ():
            if state.subscriptions.of_queue(queue) is None and not state.subscriptions.full:
                ask_plain(state, queue, [])

    def _look_at_large_frame(self) -> None:
        state, parser = self._state, self._frame_parser
        if parser.waits_for_memory:
            self._heard_at = state.now
        if parser.waits_for_memory and state.now >= self._told_at + WAITING_TOLD_MS:
            # The peer's writes do not come on, and without a word from here it would take us for dead.
            self._told_at = state.now
            state.reply(CommandType.PONG, "waiting")
        self._large_progress.note(parser.large_left, state.now)
        if not state.closing and self._large_progress.has_stalled(state.now, state.context.is_read):
            self._hang_up(self._large_progress.error())

    def _silence_deadline(self) -> int | None:
        state, limits = self._state, self._state.context.limits
        if state.principal is not None:
            return self._heard_at + limits.idle_timeout_ms if limits.idle_timeout_ms else None
        # The peer has done its part while its credentials are being checked.
        return None if state.authenticating else state.context.now + limits.handshake_timeout_ms

    def _give_up(self) -> None:
        state, limits = self._state, self._state.context.limits
        state.closing = True
        if state.principal is None:
            if state.refused:
                # It knows why, perhaps since a moment ago: the check of its login may have outlasted the deadline.
                return
            wait_ms = limits.handshake_timeout_ms
            state.error(state.context.new_id(), NotAuthenticated(f"no successful Connect within {wait_ms} ms"))
        else:
            self._say_goodbye("idle_timeout")

    def next_deadline(self) -> int | None:
        state = self._state
        if state.closing:
            return None
        if self._fatal is not None or state.requests:
            return state.now
        silence, wanted = self._silence_deadline(), state.wanted.next_due()
        if self._frame_parser.large_under_way:
            silence = self._large_deadline(silence)
        if silence is None or wanted is None:
            return wanted if silence is None else silence
        return min(silence, wanted)

    def _large_deadline(self, other: int | None) -> int | None:
        parser = self._frame_parser
        self._large_progress.note(parser.large_left, self._state.now)
        due = self._told_at + WAITING_TOLD_MS if parser.waits_for_memory else self._large_progress.deadline
        return due if other is None or due is None else min(other, due)

    # -- end --------------------------------------------------------------------------------------------------------

    def shutdown(self, reason: str) -> None:
        state = self._state
        if state.closing:
            return
        if state.principal is not None:
            self._say_goodbye(reason)
        else:
            # A client takes any first frame but an Error for a ConnectAck.
            state.error(
                state.context.new_id(), ShuttingDown(f"the broker ends this connection ({reason}); connect again later")
            )

    def _say_goodbye(self, reason: str) -> None:
        state = self._state
        state.outbox.send(encode_body(CommandType.DISCONNECT, state.context.new_id(), headers={"reason": reason}))

    @property
    def closing(self) -> bool:
        return self._state.closing

    @property
    def principal(self) -> Principal | None:
        return self._state.principal

    @property
    def client_name(self) -> str:
        return self._state.client_name
