"""Subscriptions on the connection that there is, and the queues that are created anew ahead of them.

A subscription goes out at once, or when its queue is there again: to subscribe may create another one, with defaults.
"""

import logging
import math
from collections.abc import Iterable
from functools import partial
from typing import Protocol
from weakref import WeakSet

from vibemq.client.failures import PASSING, Failure, error_of, failure_of
from vibemq.client.passing import PassingQueues
from vibemq.client.protocol import ClientProtocol
from vibemq.client.receiving.put_off import Creation, PutOff, Restoration
from vibemq.client.waiting.latch import Latch
from vibemq.errors import LocalProtocolError, QueueExclusive, StorageFull, UnknownCommand, VibeMQError
from vibemq.protocols.native.codec.extensions import DeliverMany
from vibemq.protocols.native.codec.wire import CommandType

logger = logging.getLogger(__name__)

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

    @property
    def tick_s(self) -> float:
        """How often `tick` has to be called; infinite when it need not be."""

    def tick(self, now: float) -> None: ...

    def halt(self) -> None:
        """End the iteration: the client closes."""

    def forget_inherited(self) -> None:
        """Forget what was delivered and wake nobody: this is a forked child, and all of it is the parent's."""


class FrameSender(Protocol):
    """The link, as its subscriptions see it."""

    protocol: ClientProtocol | None

    def new_id(self) -> str: ...

    def put(self, frame: bytes) -> None:
        """To be sent soon."""


class RestoredSubscriptions:
    """Frames from the broker come with the id that `subscribing` or `creating` has."""

    def __init__(self, sender: FrameSender) -> None:
        self._sender = sender
        self.by_id: dict[str, Subscriber] = {}
        self._retired: WeakSet[Subscriber] = WeakSet()
        """Nothing more comes for them, and their messages may still be settled: these keep them."""
        self.passing = PassingQueues(self._subscribed_queues)
        """They are created anew on each connection, ahead of the subscriptions."""
        self.subscribing: dict[str, float] = {}
        self.creating: dict[str, tuple[str, float]] = {}
        """Requests that create queues anew -> queue, and when it was sent."""
        self.waiting: dict[str, dict[str, Subscriber]] = {}
        """Queue that is being created anew -> its subscriptions, which the broker does not know yet."""
        self._put_off = PutOff()
        self.hurried = Latch()
        """Set, and replaced, when `tick` has to be called more often than before."""

    def _subscribed_queues(self) -> set[str]:
        return {subscriber.queue for subscriber in self.by_id.values()}

    # -- life ---------------------------------------------------------------------------------------------------

    def restore(self, protocol: ClientProtocol, now: float) -> None:
        """On a new connection."""
        for queue, payload in self.passing.to_create():
            self._send_creation(protocol, queue, payload, now)
            self.waiting[queue] = {}
        for subscriber in list(self.by_id.values()):
            self._begin(subscriber, now)

    def lost(self) -> None:
        """The connection is gone."""
        self._forget_connection()
        for subscriber in self.all():
            subscriber.lost()

    def fail(self, failure: Failure) -> None:
        for subscriber in self.all():
            subscriber.ended(failure)
        self.by_id.clear()
        self._retired.clear()
        self._forget_connection()

    def _forget_connection(self) -> None:
        self.subscribing.clear()
        self.creating.clear()
        self.waiting.clear()
        self._put_off.clear()

    # -- what the program asks ----------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber, now: float) -> None:
        """Make a subscription now, when online, and on every later connection."""
        if not math.isinf(subscriber.tick_s) and subscriber.tick_s < self.tick_s:
            hurried, self.hurried = self.hurried, Latch()
            hurried.set()
        self.by_id[subscriber.id] = subscriber
        self.passing.used(subscriber.queue, now)
        if self._sender.protocol is not None:
            self._begin(subscriber, now)

    def forget(self, subscriber: Subscriber) -> None:
        """Neither subscribe it again nor deliver to it."""
        self.by_id.pop(subscriber.id, None)
        self._retired.discard(subscriber)
        self.subscribing.pop(subscriber.id, None)
        self._put_off.forget(Restoration(subscriber.id))

    def retire(self, subscriber: Subscriber) -> None:
        """The broker knows that it is over, and nothing more comes for it. A program that leaves messages to their ack
        timeout leaves one behind for each fetch."""
        self.forget(subscriber)
        self._retired.add(subscriber)

    def all(self) -> list[Subscriber]:
        return [*self.by_id.values(), *self._retired]

    def withdraw(self, subscriber: Subscriber) -> bool:
        """Forget it, if the broker does not know of it on this connection yet; whether that was so."""
        waits = self.waiting.get(subscriber.queue, {}).pop(subscriber.id, None) is not None
        if not waits and not self._put_off.waits(Restoration(subscriber.id)):
            return False
        self.forget(subscriber)
        return True

    def deleted(self, queue: str, now: float) -> None:
        """The program has deleted the queue: it is not created anew, and its subscriptions wait for that no longer."""
        self.passing.deleted(queue)
        if self._put_off.waits(Creation(queue)):
            self._created_anew(queue, now)

    # -- what the broker says -----------------------------------------------------------------------------------

    def established(self, subscription: str, epoch: int) -> None:
        del self.subscribing[subscription]
        self._put_off.forget(Restoration(subscription))
        self.by_id[subscription].established(epoch)

    def created(self, request_id: str) -> None:
        self._created_anew(*self.creating.pop(request_id))

    def not_created(self, request_id: str, code: str, sentence: str) -> None:
        """Raises VibeMQError: this connection is of no more use."""
        queue, sent_at = self.creating.pop(request_id)
        error = error_of(code, sentence, queue)
        if self.passing.request_of(queue) is None:
            # The program has deleted it meanwhile, or nobody has used it for so long that it has expired.
            self._created_anew(queue, sent_at)
            return
        if isinstance(error, QueueExclusive):
            # This connection stays: another one would only send again what is unconfirmed.
            refused_s = self._put_off.refuse(Creation(queue), sent_at)
            if refused_s is not None and refused_s >= HELD_S_MAX:
                _warn_not_created(queue, error)
                self._end_those_of(queue, failure_of(error.code, str(error), queue))
            return
        if isinstance(error, PASSING):
            raise error
        _warn_not_created(queue, error)
        self._created_anew(queue, sent_at)

    def ended(self, subscription: str, code: str, sentence: str, queue: str) -> None:
        """Raises VibeMQError: this connection is of no more use."""
        sent_at = self.subscribing.pop(subscription, None)
        subscriber = self.by_id.get(subscription)
        if subscriber is None:
            return
        error = error_of(code, sentence, queue)
        if isinstance(error, StorageFull) and subscriber.known and sent_at is not None:
            # It is consumers that make room.
            if self._put_off.refuse(Restoration(subscription), sent_at) is None:
                logger.warning("the subscription of queue %r is not restored yet: %s", subscriber.queue, error)
            return
        if isinstance(error, PASSING) and subscriber.known:
            # The broker has just come back and is busy: another connection, a little later, restores what we had.
            raise error
        self.forget(subscriber)
        subscriber.ended(failure_of(code, sentence, queue))

    # -- time -----------------------------------------------------------------------------------------------------

    def try_again(self, protocol: ClientProtocol, now: float) -> None:
        """What the broker has refused for the time being, as far as it is time."""
        for request in self._put_off.take_due(now):
            if isinstance(request, Restoration):
                self._send_subscribe(self.by_id[request.subscription], now)
            elif (payload := self.passing.request_of(request.queue)) is not None:
                self._send_creation(protocol, request.queue, payload, now)
            else:  # Nobody has used it for so long that it has expired.
                self._created_anew(request.queue, now)

    @property
    def tick_s(self) -> float:
        """How often `tick` has to be called."""
        return min((subscriber.tick_s for subscriber in self.all()), default=math.inf)

    def tick(self, now: float) -> None:
        for subscriber in self.all():
            subscriber.tick(now)

    def overdue(self, sent_before: float) -> str:
        """What the broker should have answered by now; empty when nothing is overdue."""
        if any(sent_at < sent_before for sent_at in self.subscribing.values()):
            return "a subscription"
        if any(sent_at < sent_before for _, sent_at in self.creating.values()):
            return "the creation of a queue"
        return ""

    def postpone(self, seconds: float, now: float) -> None:
        """The waits for answers begin so much later, at the latest now."""
        for request_id, sent_at in self.subscribing.items():
            self.subscribing[request_id] = min(sent_at + seconds, now)
        for request_id, (queue, sent_at) in self.creating.items():
            self.creating[request_id] = queue, min(sent_at + seconds, now)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _begin(self, subscriber: Subscriber, now: float) -> None:
        waiting = self.waiting.get(subscriber.queue)
        if waiting is None:
            self._send_subscribe(subscriber, now)
        else:
            waiting[subscriber.id] = subscriber

    def _send_subscribe(self, subscriber: Subscriber, now: float) -> None:
        assert self._sender.protocol is not None
        try:
            frame = subscriber.subscribe_frame(self._sender.protocol)
        except UnknownCommand as error:
            # This broker, another one than before perhaps, does not know what it asks for.
            self.forget(subscriber)
            subscriber.ended(failure_of(error.code, str(error), subscriber.queue))
            return
        except LocalProtocolError as error:
            # A name that no frame takes would be met again on every connection, and end it.
            self.forget(subscriber)
            subscriber.ended(partial(LocalProtocolError, str(error)))
            return
        self.subscribing[subscriber.id] = now
        self._sender.put(frame)

    def _send_creation(self, protocol: ClientProtocol, queue: str, payload: bytes, now: float) -> None:
        request_id = self._sender.new_id()
        self.creating[request_id] = queue, now
        self._sender.put(protocol.request(CommandType.ADMIN, request_id, "", payload, None))

    def _created_anew(self, queue: str, now: float) -> None:
        self._put_off.forget(Creation(queue))
        for subscriber in self.waiting.pop(queue, {}).values():
            self._send_subscribe(subscriber, now)

    def _end_those_of(self, queue: str, failure: Failure) -> None:
        """An exclusive queue is another connection's for good."""
        self._put_off.forget(Creation(queue))
        self.passing.deleted(queue)
        for subscriber in self.waiting.pop(queue, {}).values():
            self.forget(subscriber)
            subscriber.ended(failure)


def _warn_not_created(queue: str, error: VibeMQError) -> None:
    logger.warning("queue %r cannot be created anew after the connection was lost: %s", queue, error)
