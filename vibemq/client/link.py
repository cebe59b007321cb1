"""What a client has under way, whichever connection carries it at the moment. No sockets; the clock is an argument.

    online(protocol) → receive(…)*, data_to_send(…)* → offline()      … and again after each reconnection
    fail(…)                                                            the end: nothing will be sent any more

Publishes wait for their confirm across connections, subscriptions are made anew on each, other requests belong to the
connection that carried them.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Protocol

import anyio

from vibemq.client.address import ClientSettings
from vibemq.client.changes import ConnectionListeners
from vibemq.client.failures import PASSING, error_of
from vibemq.client.observing.hooks import Hooks
from vibemq.client.passing import PassingQueues
from vibemq.client.protocol import ClientProtocol, Incoming
from vibemq.client.publishing.outbox import Failure, Outbox, PublishBatch
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX, Extra, RowPacker, too_large
from vibemq.client.publishing.requests import AwaitedReplies, Response, too_late
from vibemq.client.waiting.latch import Latch
from vibemq.errors import (
    ConnectionLost,
    ErrorCode,
    LocalProtocolError,
    NotConnected,
    QueueExclusive,
    RequestTimeout,
    UnknownCommand,
    VibeMQError,
)
from vibemq.model.quantities import whole_ms
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
HELD_RETRY_S = 1.0
HELD_S_MAX = 150.0
"""For so long an exclusive queue is created again and again while our last connection still has it: the broker notices
the end of a connection that says nothing within two minutes. Then it is somebody else's."""


class Subscriber(Protocol):
    """A subscription, as the link sees it."""

    id: str
    known: bool
    """The broker has accepted it once: it is to be restored rather than given up."""

    @property
    def queue(self) -> str: ...

    def subscribe_frame(self, protocol: ClientProtocol) -> bytes: ...

    def established(self, epoch: int) -> None: ...

    def deliver(self, delivered: DeliverMany) -> None: ...

    def ended(self, failure: Failure) -> None:
        """The broker refused or ended it; `failure` is why."""

    def lost(self) -> None:
        """The connection is gone, and with it every delivery."""

    def take_frames(self, protocol: ClientProtocol) -> Iterable[bytes]:
        """Settlements and extensions noted since the last call."""

    def tick(self, now: float) -> None: ...

    def halt(self) -> None:
        """End the iteration: the client closes."""

    def forget_inherited(self) -> None:
        """Forget what was delivered and wake nobody: this is a forked child, and all of it is the parent's."""


class LinkCarrier(Protocol):
    """A connection, as the link sees it: it takes `data_to_send` when it is told that there is some."""

    def wake(self) -> None:
        """Soon: whoever is ready in this turn of the loop adds its part."""

    def send_now(self) -> None:
        """At once, if it can: nobody else is waiting, so most likely nobody adds anything."""

    def linger(self) -> None:
        """After a moment, in which more may come, unless something else has to go before."""


class PendingRequest:
    """One request on one connection, and its answer."""

    __slots__ = ("answer", "done", "failure", "sent_at", "then", "what")

    def __init__(self, what: str, sent_at: float, then: Callable[[], None] | None) -> None:
        self.what = what
        self.sent_at = sent_at
        self.then = then
        self.done = Latch()
        self.answer: WireMessage | None = None
        self.failure: Failure | None = None

    def finish(self, answer: WireMessage | None, failure: Failure | None = None) -> None:
        self.answer = answer
        self.failure = failure
        self.done.set()
        if self.then is not None:
            self.then()


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
        self.inherited = False
        """Of the parent, in a forked child."""
        self.outbox = Outbox(messages_max=settings.max_unconfirmed, bytes_max=settings.max_unconfirmed_bytes)
        self.protocol: ClientProtocol | None = None
        """None while offline."""
        self.epoch = 0
        """Counts connections; deliveries carry it."""
        self.subscriptions: dict[str, Subscriber] = {}
        self.passing = PassingQueues(self._subscribed_queues)
        """They are created anew on each connection, ahead of the subscriptions."""
        self.failure: Failure | None = None
        """Set once there will be no further connection."""
        self.last_refusal = ""
        """The latest error of the broker that named no request of ours."""
        self.changed = Latch()
        """Set, and replaced, whenever `protocol` or `failure` changes."""
        self._offline_since = now
        self._numbers = count(1)
        self._requests: dict[str, PendingRequest] = {}
        self._subscribing: dict[str, float] = {}
        self._creating: dict[str, tuple[str, float]] = {}
        """Requests that create queues anew -> queue, and when it was sent."""
        self.packer = RowPacker()
        """Of requests and replies, which fit into an ordinary frame."""
        self.replies = AwaitedReplies()
        self._waiting: dict[str, dict[str, Subscriber]] = {}
        """Queue that is being created anew -> its subscriptions, which the broker does not know yet."""
        self._held: dict[str, tuple[float, float]] = {}
        """Exclusive queue that another connection has -> since when we know, and when it is created again."""
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
        self.protocol = protocol
        self._body_bytes_max = protocol.body_bytes_max
        self._create_passing(protocol, now)
        for subscriber in self.subscriptions.values():
            self._begin_subscribing(subscriber, now)
        self._notify()
        self.wake()
        self._listeners.tell(connected=True)

    def offline(self, now: float, why: str) -> None:
        if self.protocol is None:
            return
        self.protocol = None
        self._offline_since = now
        self._row = None
        self._unproven = 0
        self._outgoing.clear()
        self._dirty.clear()
        self._subscribing.clear()
        self._creating.clear()
        self._waiting.clear()
        self._held.clear()
        self.outbox.lost()
        for subscriber in list(self.subscriptions.values()):
            subscriber.lost()
        requests = list(self._requests.values())
        self._requests.clear()
        for pending in requests:
            pending.finish(None, _lost(pending.what, why))
        self.replies.lost(why)
        self._notify()
        self._listeners.tell(connected=False, reason=why)

    def fail(self, failure: Failure) -> None:
        first = self.failure is None
        self.failure = failure
        self.outbox.fail_all(failure)
        for subscriber in list(self.subscriptions.values()):
            subscriber.ended(failure)
        self.subscriptions.clear()
        self._subscribing.clear()
        self._creating.clear()
        self._waiting.clear()
        requests = list(self._requests.values())
        self._requests.clear()
        for pending in requests:
            pending.finish(None, failure)
        self.replies.fail(failure)
        self._notify()
        self.wake()
        if first:
            self._listeners.tell(connected=False, reason=str(failure()), final=True)

    def forget_inherited(self, failure: Failure) -> None:
        """As `fail`, in a forked child: whoever waits belongs to the parent, and is not woken."""
        self.inherited = True
        self.protocol = None
        self.failure = failure
        for subscriber in self.subscriptions.values():
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

    async def request(
        self,
        kind: CommandType,
        queue: str = "",
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        what: str = "",
        idempotent: bool = False,
    ) -> WireMessage:
        """Ask and wait for the answer.

        Args:
            what: named in errors.
            idempotent: ask again when the connection is lost before the answer.

        Raises:
            ConnectionLost, RequestTimeout: it may or may not have happened.
            VibeMQError: the broker refused.
        """
        while True:
            protocol = await self.connected()
            pending = PendingRequest(what or kind.name, anyio.current_time(), None)
            request_id = self._send_request(protocol, pending, kind, queue, payload, headers)
            try:
                await pending.done.wait()
            finally:
                self._forget_request(request_id)
            if pending.failure is None:
                assert pending.answer is not None
                return pending.answer
            error = pending.failure()
            if not (idempotent and isinstance(error, ConnectionLost)):
                raise error

    def ask(
        self, kind: CommandType, queue: str, *, headers: Mapping[str, str], then: Callable[[], None]
    ) -> Latch | None:
        """Ask without waiting. `then` is called, and the event set, when the answer or the end of waiting for it has
        come; None when there is no connection, and nothing was asked."""
        if self.protocol is None:
            return None
        pending = PendingRequest(kind.name, anyio.current_time(), then)
        self._send_request(self.protocol, pending, kind, queue, b"", headers)
        return pending.done

    def subscribe(self, subscriber: Subscriber, now: float) -> None:
        """Make a subscription now, when online, and on every later connection."""
        self.subscriptions[subscriber.id] = subscriber
        self.passing.used(subscriber.queue, now)
        if self.protocol is not None:
            self._begin_subscribing(subscriber, now)

    async def reply_to(self, queue: str, row: bytes, extra: Extra | None, timeout: float) -> Response:
        """Send a request, and wait for the reply to it.

        Raises:
            NoReply: it did not come in time.
            NotConnected: there was no connection in that time, and nothing was sent.
            ConnectionLost: the request may have been carried out.
            VibeMQError: the broker refused it, or nobody will reply.
        """
        deadline, request_id = anyio.current_time() + timeout, ""
        with anyio.move_on_at(deadline):
            protocol = await self.connected()
            request_id = self.new_id()
            left_ms = max(1, whole_ms((deadline - anyio.current_time()) * 1000))
            frame = protocol.ask(request_id, queue, row, left_ms, extra)
            alone = self.is_idle
            awaited = self.replies.add(request_id, queue)
            self._outgoing.append(frame)
            self.wake(alone=alone)
            try:
                await awaited.done.wait()
            finally:
                if not awaited.done.is_set():
                    self._note_unproven()
                self.replies.forget(request_id)
                if not awaited.done.is_set() and protocol is self.protocol and anyio.current_time() < deadline:
                    # The caller was cancelled: nobody needs to begin with it. In the end its time does the same.
                    self._outgoing.append(protocol.give_up(request_id))
                    self.wake()
            return awaited.result()
        if not request_id:
            raise NotConnected(f"no connection to {self.settings.host}:{self.settings.port} within {timeout:g} s")
        raise too_late(queue, timeout)

    async def respond(self, address: str, row: bytes) -> None:
        """
        Raises:
            RequesterGone: nobody waits for it any more.
            ConnectionLost, RequestTimeout: it may or may not have come in time.
        """
        protocol = await self.connected()
        request_id = self.new_id()
        frame = protocol.respond(request_id, address, row)
        pending = self._send(frame, request_id, PendingRequest("a reply", anyio.current_time(), None))
        try:
            await pending.done.wait()
        finally:
            self._forget_request(request_id)
        if pending.failure is not None:
            raise pending.failure()

    def send_flow(self, subscription: str, messages: int, size: int) -> None:
        """Tell the broker what a subscription may hold from now on. Without a connection, and before it has subscribed,
        the Subscribe that is sent later says it."""
        if self.protocol is not None and subscription in self.subscriptions:
            self._outgoing.append(self.protocol.flow(subscription, messages, size))
            self._note_unproven()
            self.wake()

    def forget(self, subscriber: Subscriber) -> None:
        """Neither subscribe it again nor deliver to it. What it has noted is still sent."""
        self.subscriptions.pop(subscriber.id, None)
        self._subscribing.pop(subscriber.id, None)

    def withdraw(self, subscriber: Subscriber) -> bool:
        """Forget it, if the broker does not know of it on this connection yet; whether that was so."""
        if self._waiting.get(subscriber.queue, {}).pop(subscriber.id, None) is None:
            return False
        self.forget(subscriber)
        return True

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
        return self.protocol is not None and bool(
            self._dirty or self._outgoing or self.outbox.waiting or self._farewell
        )

    def data_to_send(self, now: float) -> bytes:
        """Take what is to be written now: settlements, requests, publishes (bounded), at the very end the goodbye."""
        protocol = self.protocol
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
                if batch.size > ROW_BYTES_MAX and len(batch.rows[0]) > ROW_BYTES_MAX:
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

    def row_to_send(self) -> bytes | None:
        """A large row that goes behind the bytes of `data_to_send`, before anything else."""
        row, self._row = self._row, None
        return row

    def postpone(self, seconds: float) -> None:
        """Nothing else could be sent for so long: the waits for answers begin later."""
        self.outbox.postpone(seconds)
        for pending in self._requests.values():
            pending.sent_at += seconds
        for request_id in self._subscribing:
            self._subscribing[request_id] += seconds
        for request_id, (queue, sent_at) in self._creating.items():
            self._creating[request_id] = queue, sent_at + seconds

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
        return bool(self._requests or self._subscribing or self._creating or self.outbox.messages)

    @property
    def is_idle(self) -> bool:
        """Whether nobody here waits for anything of the broker but deliveries."""
        return not (self.outbox.messages or self._requests or self._subscribing or self._creating or len(self.replies))

    @property
    def is_quiet(self) -> bool:
        """Whether there is a connection, and the broker has read all that was sent on it, so that nothing which is
        sent on another one overtakes it. Any thread may ask."""
        # In the order in which the loop moves things: none is missed on its way from one place to the next.
        return not (
            self.protocol is None
            or self._dirty
            or self._outgoing
            or self.outbox.messages
            or self._requests
            or self._subscribing
            or self._creating
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
            self._subscription_ended(frame.id, frame.code, frame.message, frame.queue)
        elif frame.type == CommandType.ERROR:
            self._refused(frame)
        elif frame.type == CommandType.DISCONNECT:
            raise ConnectionLost(f"the broker says goodbye: {frame.headers.get('reason', 'no reason given')}")
        elif frame.id in self._subscribing:
            del self._subscribing[frame.id]
            self.subscriptions[frame.id].established(self.epoch)
        elif frame.id in self._creating:
            self._created_anew(*self._creating.pop(frame.id))
        else:
            self._answered(frame)

    def tick(self, now: float) -> None:
        """Do what is due.

        Raises:
            RequestTimeout: the broker does not answer subscriptions, or the creation of their queues; the connection
                should be replaced.
        """
        self.passing.tick(now)
        if self.protocol is None:
            self._tick_offline(now)
            return
        self._create_held(self.protocol, now)
        overdue = now - self.settings.command_timeout
        for request_id, pending in list(self._requests.items()):
            if pending.sent_at < overdue:
                self._note_unproven()
                del self._requests[request_id]
                pending.finish(None, self._timed_out(pending.what))
        if self.outbox.expire(overdue, self._timed_out("a publish")):
            self._note_unproven()
        for subscriber in list(self.subscriptions.values()):
            subscriber.tick(now)
        if any(sent_at < overdue for sent_at in self._subscribing.values()):
            raise self._timed_out("a subscription")()
        if any(sent_at < overdue for _, sent_at in self._creating.values()):
            raise self._timed_out("the creation of a queue")()

    # -- inside --------------------------------------------------------------------------------------------------

    def _note_unproven(self) -> None:
        """Something goes now, or is on its way, whose being read no answer proves by itself."""
        self._unproven = next(self._numbers)

    def _note_answered(self, request_id: str) -> None:
        if int(request_id, 16) > self._unproven:
            self._unproven = 0

    def _forget_request(self, request_id: str) -> None:
        if request_id in self._requests:
            self._note_unproven()
            del self._requests[request_id]

    def _send_request(
        self,
        protocol: ClientProtocol,
        pending: PendingRequest,
        kind: CommandType,
        queue: str,
        payload: bytes,
        headers: Mapping[str, str] | None,
    ) -> str:
        request_id = self.new_id()
        self._send(protocol.request(kind, request_id, queue, payload, headers), request_id, pending)
        return request_id

    def _send(self, frame: bytes, request_id: str, pending: PendingRequest) -> PendingRequest:
        alone = self.is_idle
        self._outgoing.append(frame)
        self._requests[request_id] = pending
        self.wake(alone=alone)
        return pending

    def _create_passing(self, protocol: ClientProtocol, now: float) -> None:
        for queue, payload in self.passing.to_create():
            self._send_creation(protocol, queue, payload, now)
            self._waiting[queue] = {}

    def _send_creation(self, protocol: ClientProtocol, queue: str, payload: bytes, now: float) -> None:
        request_id = self.new_id()
        self._outgoing.append(protocol.request(CommandType.ADMIN, request_id, "", payload, None))
        self._creating[request_id] = queue, now
        self.wake()

    def _subscribed_queues(self) -> set[str]:
        return {subscriber.queue for subscriber in self.subscriptions.values()}

    def _begin_subscribing(self, subscriber: Subscriber, now: float) -> None:
        """At once, or when its queue is created anew: to subscribe may create another one, with defaults."""
        waiting = self._waiting.get(subscriber.queue)
        if waiting is None:
            self._send_subscribe(subscriber, now)
        else:
            waiting[subscriber.id] = subscriber

    def _created_anew(self, queue: str, now: float) -> None:
        self._held.pop(queue, None)
        for subscriber in self._waiting.pop(queue, {}).values():
            self._send_subscribe(subscriber, now)

    def _send_subscribe(self, subscriber: Subscriber, now: float) -> None:
        assert self.protocol is not None
        try:
            frame = subscriber.subscribe_frame(self.protocol)
        except UnknownCommand as error:
            # This broker, another one than before perhaps, does not know what it asks for.
            self.subscriptions.pop(subscriber.id, None)
            subscriber.ended(_failure(error.code, str(error), subscriber.queue))
            return
        self._outgoing.append(frame)
        self._subscribing[subscriber.id] = now
        self.wake()

    def _answered(self, frame: WireMessage) -> None:
        pending = self._requests.pop(frame.id, None)
        # None: a pong of `ping`, or an answer that came after its deadline.
        if pending is not None:
            self._note_answered(frame.id)
            pending.finish(frame)

    def _confirmed(self, ack: PublishManyAck) -> None:
        batch = self.outbox.settled(ack.id)
        if batch is not None:
            if self._unproven:
                self._note_answered(batch.id)
            if ack.refused and any(code == ErrorCode.RATE_LIMITED for code, _ in ack.refused.values()):
                self.rate_limited = True
            refused = {i: _failure(code, sentence, ack.queue) for i, (code, sentence) in ack.refused.items()}
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
        failure = _failure(code, sentence, frame.queue)
        batch = self.outbox.settled(frame.id)
        pending = self._requests.pop(frame.id, None)
        if batch is not None or pending is not None:
            self._note_answered(frame.id)
        if batch is not None:
            batch.fail(failure)
        elif pending is not None:
            pending.finish(None, failure)
        elif self.replies.refused(frame.id, failure) or code in _LATE:
            pass
        elif frame.id in self._subscribing:
            self._subscription_ended(frame.id, code, sentence, frame.queue)
        elif frame.id in self._creating:
            queue, sent_at = self._creating.pop(frame.id)
            self._not_created(queue, sent_at, error_of(code, sentence, queue))
        else:
            self.last_refusal = f"{code}: {sentence}"
            logger.warning("the broker refused something without saying which request: %s", self.last_refusal)

    def _subscription_ended(self, subscription: str, code: str, sentence: str, queue: str) -> None:
        self._subscribing.pop(subscription, None)
        subscriber = self.subscriptions.get(subscription)
        if subscriber is None:
            return
        error = error_of(code, sentence, queue)
        if isinstance(error, PASSING) and subscriber.known:
            # The broker has just come back and is busy: another connection, a little later, restores what we had.
            raise error
        del self.subscriptions[subscription]
        subscriber.ended(_failure(code, sentence, queue))

    def _not_created(self, queue: str, now: float, error: VibeMQError) -> None:
        if isinstance(error, QueueExclusive):
            since, _ = self._held.get(queue, (now, now))
            if now - since < HELD_S_MAX:
                # This connection stays: another one would only send again what is unconfirmed.
                self._held[queue] = since, now + HELD_RETRY_S
            else:
                _warn_not_created(queue, error)
                self._end_subscriptions(queue, _failure(error.code, str(error), queue))
            return
        if isinstance(error, PASSING):
            raise error
        _warn_not_created(queue, error)
        self._created_anew(queue, now)

    def _end_subscriptions(self, queue: str, failure: Failure) -> None:
        """An exclusive queue is another connection's for good."""
        self._held.pop(queue, None)
        self.passing.deleted(queue)
        for subscriber in self._waiting.pop(queue, {}).values():
            self.subscriptions.pop(subscriber.id, None)
            subscriber.ended(failure)

    def _create_held(self, protocol: ClientProtocol, now: float) -> None:
        for queue, (since, at) in list(self._held.items()):
            request = self.passing.request_of(queue)
            if request is None:  # The program has deleted it meanwhile.
                self._created_anew(queue, now)
            elif at <= now:
                self._held[queue] = since, now + self.settings.command_timeout
                self._send_creation(protocol, queue, request, now)

    def _tick_offline(self, now: float) -> None:
        limit = self.settings.reconnect.offline_timeout
        if limit is not None and now - self._offline_since > limit and self.outbox.messages:
            self.outbox.fail_all(self._too_long_offline)

    def _too_long_offline(self) -> VibeMQError:
        return NotConnected(
            f"no connection to {self.settings.host}:{self.settings.port}"
            f" within {self.settings.reconnect.offline_timeout} s; the client continues to reconnect"
        )

    def _timed_out(self, what: str) -> Failure:
        hint = f" (the broker's latest refusal: {self.last_refusal})" if self.last_refusal else ""
        return lambda: RequestTimeout(
            f"no answer to {what} within {self.settings.command_timeout} s; it may or may not have happened{hint}"
        )


def _failure(code: str, sentence: str, queue: str) -> Failure:
    return lambda: error_of(code, sentence, queue)


def _warn_not_created(queue: str, error: VibeMQError) -> None:
    logger.warning("queue %r cannot be created anew after the connection was lost: %s", queue, error)


def _lost(what: str, why: str) -> Failure:
    return lambda: ConnectionLost(f"the connection was lost before the answer to {what}: {why}")
