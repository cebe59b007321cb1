"""What a client has under way, whichever connection carries it at the moment. No sockets; the clock is an argument.

    online(protocol) → receive(…)*, data_to_send(…)* → offline()      … and again after each reconnection
    fail(…)                                                            the end: nothing will be sent any more

Publishes wait for their confirm across connections, subscriptions are made anew on each, other requests belong to the
connection that carried them.
"""

import logging
import math
from collections.abc import Callable
from itertools import count
from typing import Protocol

import anyio

from vibemq.client.address import ClientSettings
from vibemq.client.changes import ConnectionListeners
from vibemq.client.failures import Failure, failure_of
from vibemq.client.observing.hooks import Hooks
from vibemq.client.protocol import ClientProtocol, Incoming
from vibemq.client.publishing.outbox import Outbox, PublishBatch
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX, too_large
from vibemq.client.publishing.requests import AwaitedReplies
from vibemq.client.receiving.restoring import RestoredSubscriptions, Subscriber
from vibemq.client.requesting.link_requests import LinkRequests
from vibemq.client.waiting.handing_over import call_soon, running_of
from vibemq.client.waiting.latch import Latch
from vibemq.client.waiting.pending import PendingRequests
from vibemq.client.waiting.resending import Resending
from vibemq.errors import (
    ConnectionLost,
    ErrorCode,
    LocalProtocolError,
    NotConnected,
    RequestTimeout,
    VibeMQError,
)
from vibemq.protocols.native.codec.extensions import (
    FAILURES_EXTENSION,
    DeliverMany,
    PublishManyAck,
    ResponseFrame,
    SubscriptionEnded,
)
from vibemq.protocols.native.codec.frames import BODY_BYTES_MAX
from vibemq.protocols.native.codec.large import ROW_OVERHEAD_BYTES
from vibemq.protocols.native.codec.wire import CommandType, WireMessage

logger = logging.getLogger(__name__)

CLIENT_CLOSED = "this client is closed; make another with vibemq.connect"
_LATE = frozenset({ErrorCode.NO_REPLY, ErrorCode.REQUEST_FAILED})
"""What the broker says of a request when its sender may have given up already."""
SEND_BYTES_MAX = 1024 * 1024
"""Publishes gathered into one write."""


class LinkCarrier(Protocol):
    """A connection, as the link sees it: it takes `data_to_send` when it is told that there is some."""

    def wake(self) -> None:
        """Soon: whoever is ready in this turn of the loop adds its part."""

    def send_now(self) -> None:
        """At once, if it can: nobody else is waiting, so most likely nobody adds anything."""

    def linger(self) -> None:
        """After a moment, in which more may come, unless something else has to go before."""


class ClientLink:
    """See the module."""

    def __init__(
        self,
        settings: ClientSettings,
        now: float,
        listeners: ConnectionListeners | None = None,
        current_loop: Callable[[], object] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.settings = settings
        self.hooks = hooks
        self._listeners = listeners or ConnectionListeners()
        self._current_loop = current_loop
        self._loop = current_loop() if current_loop is not None else None
        self._running = running_of(self._loop)
        self.inherited = False
        """Of the parent, in a forked child."""
        self.outbox = Outbox(messages_max=settings.max_unconfirmed, bytes_max=settings.max_unconfirmed_bytes)
        self.protocol: ClientProtocol | None = None
        """None while offline."""
        self._sending: ClientProtocol | None = None
        """The same; None also while sending is put off."""
        self._put_off = 0
        self.epoch = 0
        """Counts connections; deliveries carry it."""
        self.restored = RestoredSubscriptions(self)
        self.subscriptions = self.restored.by_id
        self.failure: Failure | None = None
        """Set once there will be no further connection."""
        self.last_refusal = ""
        """The latest error of the broker that named no request of ours."""
        self.changed = Latch()
        """Set, and replaced, whenever `protocol` or `failure` changes."""
        limit = settings.reconnect.offline_timeout
        self.resending = Resending(None if limit is None else limit + settings.command_timeout)
        self.resending.lost(now)
        self._has_confirmed = False
        """Whether the broker has told of a publish on this connection what has become of it."""
        self.unreachable = ""
        """Why the connection was lost, or the latest attempt to make one has failed."""
        self._numbers = count(1)
        self._requests = PendingRequests()
        self.replies = AwaitedReplies()
        self.requests = LinkRequests(self, self._requests, self.replies)
        self._dirty: dict[str, Subscriber] = {}
        self._outgoing: list[bytes] = []
        self._row: bytes | None = None
        self._body_bytes_max = BODY_BYTES_MAX
        self._farewell = False
        self._carrier: LinkCarrier | None = None
        self._settling_together = False
        self._unproven = 0
        """0, or a number that only later ids exceed: the broker has read what was sent without a question, or with one
        that nobody waits for any more, once it has answered one of them."""
        self.rate_limited = False
        """The broker has refused something on this connection because there was too much of it."""

    # -- life ---------------------------------------------------------------------------------------------------

    def online(self, protocol: ClientProtocol, now: float) -> None:
        """A connection has shaken hands: subscriptions first, then what is unconfirmed, then what waited."""
        self.epoch += 1
        self.rate_limited = False
        self._has_confirmed = False
        self.unreachable = ""
        self.protocol = protocol
        self._sending = None if self._put_off else protocol
        self._body_bytes_max = protocol.body_bytes_max
        self.restored.restore(protocol, now)
        self._notify()
        self.wake()
        self._listeners.tell(connected=True)

    def offline(self, now: float, why: str) -> None:
        if self.protocol is None:
            return
        self.protocol = self._sending = None
        self.resending.lost(now)
        self.unreachable = why
        self._row = None
        self._unproven = 0
        self._outgoing.clear()
        self._dirty.clear()
        self._lose_publishes()
        self.restored.lost()
        self._requests.lost(why)
        self.replies.lost(why)
        self._notify()
        if self.failure is None:
            # Else the end has been told already.
            self._listeners.tell(connected=False, reason=why)

    def fail(self, failure: Failure) -> None:
        first = self.failure is None
        self.failure = failure
        self.outbox.fail_all(failure)
        self.restored.fail(failure)
        self._requests.fail(failure)
        self.replies.fail(failure)
        self._notify()
        self.wake()
        if first:
            self._listeners.tell(connected=False, reason=str(failure()), final=True)

    def forget_inherited(self, failure: Failure) -> None:
        """As `fail`, in a forked child: whoever waits belongs to the parent, and is not woken."""
        self.inherited = True
        self.protocol = self._sending = None
        self.failure = failure
        for subscriber in self.restored.all():
            subscriber.forget_inherited()

    def _notify(self) -> None:
        changed, self.changed = self.changed, Latch()
        changed.set()

    # -- what the program asks -------------------------------------------------------------------------------------

    def check(self) -> None:
        """
        Raises:
            VibeMQError: there will be no further connection.
        """
        if self.failure is not None:
            raise self.failure()

    def check_loop(self) -> None:
        """
        Raises:
            LocalProtocolError: this is not the event loop that opened the client.
            ClientForked: it is the parent's.
            VibeMQError: this is another event loop, and there will be no further connection.
        """
        if self.inherited:
            self.check()
        if self._current_loop is None:
            return
        try:
            here = self._current_loop()
        except RuntimeError as error:
            if isinstance(error, RecursionError):
                raise
            here = None
        if here is not self._loop:
            self.check()  # A closed one, and one of a parent, cannot be used anywhere.
            raise LocalProtocolError(
                "this client belongs to another event loop; open one in each loop, `async with vibemq.connect(…) as"
                " mq:`, or share a blocking client, vibemq.sync.connect, which any thread may use"
            )

    def is_elsewhere(self) -> bool:
        """Whether this is not called in the loop: in another thread, or while nobody runs it."""
        return self._running() is not self._loop

    def hand_over(self, call: Callable[[], object]) -> None:
        """Called in any thread: have it called in the loop, soon. Raises NotConnected: that has ended."""
        try:
            call_soon(self._loop, call)
        except RuntimeError as error:
            raise NotConnected(
                "the event loop in which this client was opened has ended, and its connection with it; what was not"
                " settled comes again"
            ) from error

    async def connected(self) -> ClientProtocol:
        """Wait for a connection.

        Raises:
            NotConnected: none came within the policy's `offline_timeout`, or none will come.
        """
        self.check_loop()
        protocol = self.protocol
        if protocol is not None:
            return protocol
        with anyio.move_on_after(self.settings.reconnect.offline_timeout):
            while (protocol := self.protocol) is None:
                self.check()
                await self.changed.wait()
            return protocol
        raise self._too_long_offline()

    def send_flow(self, subscription: str, messages: int, size: int) -> None:
        """Tell the broker what a subscription may hold from now on. Without a connection, and before it has subscribed,
        the Subscribe that is sent later says it."""
        if self.protocol is not None and subscription in self.subscriptions:
            self._outgoing.append(self.protocol.flow(subscription, messages, size))
            self.note_unproven()
            self.wake()

    def mark(self, subscriber: Subscriber, *, linger: bool = False, alone: bool = False) -> None:
        """It has frames to be taken; `linger`: which gain by being joined by others; `alone`: as in `wake`."""
        self._dirty[subscriber.id] = subscriber
        if self._settling_together:
            return
        if not linger:
            self.wake(alone=alone)
        elif self._carrier is not None:
            self._carrier.linger()

    def settle_together(self, take: Callable[[], None]) -> None:
        """What `take` marks has waited for more of it already: it goes now."""
        self._settling_together = True
        try:
            take()
        finally:
            self._settling_together = False
        if self._dirty:
            self.wake(alone=True)

    def put(self, frame: bytes, *, alone: bool = False) -> None:
        """To be sent soon; `alone`: as in `wake`."""
        self._outgoing.append(frame)
        self.wake(alone=alone)

    def put_behind(self, frame: bytes, *, alone: bool = False) -> None:
        """As `put`, behind all that was published before."""
        if self.outbox.waiting:
            self.outbox.put_frame(frame)
            self.wake()
        else:
            self.put(frame, alone=alone)

    def note_unproven(self) -> None:
        """Something goes now, or is on its way, whose being read no answer proves by itself."""
        self._unproven = next(self._numbers)

    def new_id(self) -> str:
        return f"{next(self._numbers):x}"

    def goodbye(self) -> None:
        """Send Disconnect behind everything that is noted by now."""
        self._farewell = True
        self.wake()

    # -- what the connection asks ----------------------------------------------------------------------------------

    def carried_by(self, carrier: LinkCarrier | None) -> None:
        """Have it told from now on; None: there is no connection."""
        self._carrier = carrier
        if carrier is not None:
            carrier.wake()

    def wake(self, *, alone: bool = False) -> None:
        """`alone`: nothing else was waited for when it was added. A lone message does not wait for others; with many
        at a time, the first goes by itself and the others together."""
        if self._carrier is not None:
            if alone:
                self._carrier.send_now()
            else:
                self._carrier.wake()

    @property
    def has_data_to_send(self) -> bool:
        """Whether `data_to_send` returns more. Not so without a connection, whatever is noted: who writes as long as
        there is more would never end."""
        return self._sending is not None and bool(
            self._dirty or self._outgoing or self.outbox.waiting or self._farewell
        )

    def data_to_send(self, now: float) -> bytes:
        """Take what is to be written now: settlements, requests, publishes (bounded), at the very end the goodbye."""
        protocol = self._sending
        if protocol is None:
            return b""
        parts: list[bytes] = []
        if self._dirty:
            self._unproven = next(self._numbers)
            for subscriber in self._dirty.values():
                parts.extend(subscriber.take_frames(protocol))
            self._dirty.clear()
        if self._outgoing:
            parts.extend(self._outgoing)
            self._outgoing.clear()
        if self.outbox.waiting:
            for batch in self.outbox.take(now, SEND_BYTES_MAX, self.new_id):
                if isinstance(batch, bytes):
                    # Later ids may have gone before it.
                    self._unproven = next(self._numbers)
                    parts.append(batch)
                elif batch.size > ROW_BYTES_MAX and len(batch.rows[0]) > ROW_BYTES_MAX:
                    parts.append(self._begin_large(protocol, batch))
                else:
                    parts.append(protocol.publish(batch))
        elif self._farewell:
            parts.append(protocol.request(CommandType.DISCONNECT, self.new_id()))
            self._farewell = False
        return b"".join(parts)

    def _begin_large(self, protocol: ClientProtocol, batch: PublishBatch) -> bytes:
        """The frame up to its row. It was packed for a broker that took more, if this one does not."""
        size, most = len(batch.rows[0]), protocol.body_bytes_max - ROW_OVERHEAD_BYTES
        if size > most:
            self.outbox.settled(batch.id)
            batch.fail(lambda: too_large(size, most))
            return b""
        self._row = batch.rows[0]
        return protocol.publish_head(batch)

    def put_off_sending(self) -> None:
        """Send nothing until `send_again` has been called as often: something that was sent before over another
        connection may not have been read yet."""
        self._put_off += 1
        self._sending = None

    def send_again(self) -> None:
        self._put_off -= 1
        if not self._put_off:
            self._sending = self.protocol
            self.wake()

    def row_to_send(self) -> bytes | None:
        """A large row that goes behind the bytes of `data_to_send`, before anything else."""
        row, self._row = self._row, None
        return row

    def postpone(self, seconds: float, now: float) -> None:
        """Nothing else could be sent for so long: the waits for answers begin later, at the latest now."""
        self.resending.postpone(seconds)
        self.outbox.postpone(seconds, now)
        self._requests.postpone(seconds, now)
        self.restored.postpone(seconds, now)

    @property
    def row_bytes_max(self) -> int:
        """Of one message, as agreed with the broker on the latest connection."""
        return self._body_bytes_max - ROW_OVERHEAD_BYTES

    def ping(self) -> None:
        """Ask for a sign of life; any byte that comes back is one."""
        if self.protocol is not None:
            self._outgoing.append(self.protocol.request(CommandType.PING, self.new_id()))
            self.wake()

    @property
    def knows_failures(self) -> bool:
        """Whether this connection's broker tells how many attempts of a message have failed."""
        return self.protocol is not None and FAILURES_EXTENSION in self.protocol.extensions

    @property
    def waiting_for_peer(self) -> bool:
        """Whether the broker owes an answer."""
        return bool(self._requests.by_id or self.restored.subscribing or self.restored.creating or self.outbox.messages)

    @property
    def is_idle(self) -> bool:
        """Whether nobody here waits for anything of the broker but deliveries."""
        restored = self.restored
        return not (
            self.outbox.messages
            or self._requests.by_id
            or restored.subscribing
            or restored.creating
            or len(self.replies)
        )

    @property
    def is_quiet(self) -> bool:
        """Whether there is a connection, and the broker has read all that was sent on it, so that nothing which is
        sent on another one overtakes it. Any thread may ask."""
        # In the order in which the loop moves things: none is missed on its way from one place to the next.
        return not (
            self._sending is None
            or self._dirty
            or self._outgoing
            or self.outbox.waiting
            or self.outbox.messages
            or self._requests.by_id
            or self.restored.subscribing
            or self.restored.creating
            or self._unproven
        )

    def receive(self, frame: Incoming) -> None:
        """Take one frame from the broker. Never waits and never calls the program's code.

        Raises:
            VibeMQError: this connection is of no more use.
        """
        if isinstance(frame, DeliverMany):
            subscriber = self.subscriptions.get(frame.id)
            if subscriber is not None:
                subscriber.deliver(frame)
        elif isinstance(frame, PublishManyAck):
            self._confirmed(frame)
        elif isinstance(frame, ResponseFrame):
            self.replies.received(frame.id, frame.row)
        elif isinstance(frame, SubscriptionEnded):
            self.restored.ended(frame.id, frame.code, frame.message, frame.queue)
        elif frame.type == CommandType.ERROR:
            self._refused(frame)
        elif frame.type == CommandType.DISCONNECT:
            raise ConnectionLost(f"the broker says goodbye: {frame.headers.get('reason', 'no reason given')}")
        elif frame.id in self.restored.subscribing:
            self.restored.established(frame.id, self.epoch)
        elif frame.id in self.restored.creating:
            self.restored.created(frame.id)
        else:
            self._answered(frame)

    def tick(self, now: float) -> None:
        """Do what is due.

        Raises:
            RequestTimeout: the broker does not answer subscriptions, or the creation of their queues; the connection
                should be replaced.
        """
        self.restored.passing.tick(now)
        if self.protocol is None:
            self._tick_offline(now)
            return
        self.restored.try_again(self.protocol, now)
        overdue = now - self.settings.command_timeout
        if expired := self._requests.sent_before(overdue):
            self.note_unproven()
            self._requests.expire(expired, self._timed_out)
        if self.outbox.expire(overdue, self._timed_out("a publish")):
            self.note_unproven()
        self.restored.tick(now)
        if what := self.restored.overdue(overdue):
            raise self._timed_out(what)()

    # -- inside --------------------------------------------------------------------------------------------------

    def _note_answered(self, request_id: str) -> None:
        if int(request_id, 16) > self._unproven:
            self._unproven = 0

    def _answered(self, frame: WireMessage) -> None:
        pending = self._requests.by_id.pop(frame.id, None)
        # None: a pong of `ping`, or an answer that came after its deadline.
        if pending is not None:
            self._note_answered(frame.id)
            pending.finish(frame)

    def _confirmed(self, ack: PublishManyAck) -> None:
        self._has_confirmed = True
        batch = self.outbox.settled(ack.id)
        if batch is not None:
            if self._unproven:
                self._note_answered(batch.id)
            if ack.refused and any(code == ErrorCode.RATE_LIMITED for code, _ in ack.refused.values()):
                self.rate_limited = True
            refused = {i: failure_of(code, sentence, ack.queue) for i, (code, sentence) in ack.refused.items()}
            batch.confirm(ack.first_sequence, refused, ack.duplicates)
            if self.outbox.waiting:
                self.wake()

    def _refused(self, frame: WireMessage) -> None:
        code, sentence = frame.error_code or "", frame.error_message or ""
        if code == ErrorCode.SHUTTING_DOWN:
            # What this broker no longer takes, the next connection carries.
            raise ConnectionLost(sentence)
        if code == ErrorCode.RATE_LIMITED:
            self.rate_limited = True
        failure = failure_of(code, sentence, frame.queue)
        batch = self.outbox.settled(frame.id)
        pending = self._requests.by_id.pop(frame.id, None)
        if batch is not None or pending is not None:
            self._note_answered(frame.id)
        if batch is not None:
            self._has_confirmed = True
            batch.fail(failure)
        elif pending is not None:
            pending.finish(None, failure)
        elif self.replies.refused(frame.id, failure) or code in _LATE:
            pass
        elif frame.id in self.restored.subscribing:
            self.restored.ended(frame.id, code, sentence, frame.queue)
        elif frame.id in self.restored.creating:
            self.restored.not_created(frame.id, code, sentence)
        else:
            self.last_refusal = f"{code}: {sentence}"
            logger.warning("the broker refused something without saying which request: %s", self.last_refusal)

    def _lose_publishes(self) -> None:
        resending = self.resending
        self.outbox.lost(resending.lost_at, confirmed=self._has_confirmed)
        if resending.seconds is not None and self.outbox.messages:
            self.outbox.expire_unsent(resending.lost_at, resending.seconds, -math.inf, self._lost_too_often)

    def _tick_offline(self, now: float) -> None:
        limit = self.settings.reconnect.offline_timeout
        if limit is not None and self.outbox.messages:
            read, lost_at = self.resending.reading(now), self.resending.lost_at
            self.outbox.expire_waiting(read, limit, lost_at, self._too_long_offline)
            self.outbox.expire_unsent(read, limit, lost_at, self._too_long_offline)

    def _too_long_offline(self) -> VibeMQError:
        return self.no_connection(f"{self.settings.reconnect.offline_timeout} s", "; the client continues to reconnect")

    def no_connection(self, waited: str, then: str = "") -> NotConnected:
        """`then`: the end of its sentence."""
        why = f" ({self.unreachable})" if self.unreachable else ""
        return NotConnected(f"no connection to {self.settings.host}:{self.settings.port} within {waited}{why}{then}")

    def _lost_too_often(self) -> VibeMQError:
        return self.no_answer("a publish")

    def no_answer(self, what: str) -> RequestTimeout:
        """To something that was sent on one connection after the other."""
        return RequestTimeout(
            f"no answer to {what} within {self.resending.seconds} s, although connections to {self.settings.host}:"
            f"{self.settings.port} were made: each was lost before it ({self.unreachable}); it may or may not have"
            " happened; the client continues to reconnect"
        )

    def _timed_out(self, what: str) -> Failure:
        hint = f" (the broker's latest refusal: {self.last_refusal})" if self.last_refusal else ""
        return lambda: RequestTimeout(
            f"no answer to {what} within {self.settings.command_timeout} s; it may or may not have happened{hint}"
        )
