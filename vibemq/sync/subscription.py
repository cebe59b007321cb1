"""The blocking form of a subscription, and how settlements get from any thread to the loop."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from vibemq import client as asynchronous
from vibemq.client import Message, MessageBatch, Outgoing, SubscriptionStats
from vibemq.client.connecting.waking import LINGER_S
from vibemq.client.message import DONE, Delivery, Done, Settler
from vibemq.client.receiving.options import check_wait
from vibemq.client.settlements import BACKOFF
from vibemq.errors import LocalProtocolError, NotConnected, VibeMQError
from vibemq.model.runs import Run
from vibemq.model.shared.settlement import Settlement
from vibemq.sync.blocking import BLOCKING, Blocking
from vibemq.sync.loop_thread import LoopThread

T = TypeVar("T")
A = TypeVar("A")


class Subscription(Blocking, Generic[T]):
    """See `vibemq.client.Subscription`. One thread iterates; any thread may settle what it was given."""

    def __init__(self, client: object, loop: LoopThread, subscription: asynchronous.Subscription[T]) -> None:
        """`client`: goes on as long as there is this object, or the subscription goes on."""
        self._client = client
        self._loop = loop
        self._subscription = subscription
        self._draining = False
        self._working: set[int] = set()
        """Threads that iterate and work on a message."""
        self._settler = subscription.settler = _GatheringSettler(loop, subscription)
        subscription.expecting = self._settler.expect

    def __aiter__(self) -> NoReturn:
        raise TypeError(BLOCKING)

    @property
    def id(self) -> str:
        return self._subscription.id

    def delivered_to(
        self, watch: "Callable[[asynchronous.Subscription[T]], None] | None"
    ) -> "asynchronous.Subscription[T]":
        """Have `watch` called in the loop when messages have come or it has ended, in place of an iteration."""
        inner = self._subscription
        inner.watch = None if watch is None else partial(watch, inner)
        return inner

    @property
    def begun(self) -> bool:
        return self._subscription.begun

    @property
    def connected(self) -> bool:
        return self._subscription.connected

    @property
    def held(self) -> int:
        return self._subscription.held

    @property
    def prefetch(self) -> int:
        return self._subscription.prefetch

    @property
    def queue(self) -> str:
        return self._subscription.queue

    @property
    def stats(self) -> SubscriptionStats:
        return self._subscription.stats

    def __enter__(self) -> Self:
        inner = self._subscription
        try:
            self._loop.call(inner.start)
            self._settler.client = self._client
            return self
        except VibeMQError:
            # It never began, or had begun before and goes on.
            raise
        except BaseException:
            # A signal's handler raises, and nobody leaves the block.
            self._settler.client = None
            with contextlib.suppress(VibeMQError):
                self._loop.post(lambda: self._loop.start(inner.stop()))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, *, release: bool = True) -> None:
        """Stop consuming; an iteration in another thread ends. Unsettled messages are given back, unless `release` is
        False. Of a client that is closed it does nothing."""
        if self._loop.inherited:
            return
        try:
            self._loop.call(partial(self._subscription.stop, release=release))
        except NotConnected:
            if not self._loop.closed:
                raise
            # It has given everything back.
        if release:
            self._settler.client = None

    def set_prefetch(self, messages: int | None = None, bytes: int | None = None) -> None:  # noqa: A002  # as prefetch_bytes
        if not self._loop.inherited:
            self._loop.call(self._subscription.set_prefetch, messages, bytes)

    def drain(self, timeout: float | None = None) -> int:
        """As `vibemq.client.Subscription.drain`. From a signal's handler, or the thread that iterates, call it with
        `timeout=0`, which only begins: the iteration ends after the message at hand, and leaving the block gives the
        rest back. Further calls with `timeout=0` change nothing, also when the subscription or the client has ended.

        Raises:
            LocalProtocolError: it would wait for a message that its own thread works on.
        """
        if timeout != 0 and threading.get_ident() in self._working:
            raise LocalProtocolError(
                "this thread works on a message of the subscription, so drain() would wait for itself; write"
                " drain(timeout=0), after which the iteration ends"
            )
        begun, self._draining = self._draining, True
        if self._loop.inherited:
            return 0
        if timeout == 0 and (begun or self._subscription.stopped):
            return self.held
        return self._loop.call(self._subscription.drain, timeout)

    def __iter__(self) -> Iterator[Message[T]]:
        """What is not taken when the loop ends stays, and comes first in the next one, or in `next_batch`."""
        inner = self._subscription
        auto_ack = inner.options.auto_ack
        while (messages := self._wait(inner.begin_next, None)) is not None:
            for message in messages:
                try:
                    if self._draining:
                        message.release()
                        for untaken in messages:
                            untaken.release()
                        return
                    if message.stale:
                        continue
                    if auto_ack:
                        message.ack()
                    thread = threading.get_ident()
                    self._working.add(thread)
                except BaseException:
                    inner.put_back(message)
                    raise
                try:
                    yield message
                finally:
                    self._working.discard(thread)

    def batches(self) -> Iterator[MessageBatch[T]]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, timeout: float | None = None) -> MessageBatch[T] | None:
        """Wait for messages: what a loop has left of its batch, or the next one. None when the subscription was
        stopped, or nothing came within `timeout` seconds.

        Raises:
            VibeMQError: the broker ended it, or the connection is lost for good.
        """
        if timeout is not None:
            check_wait(timeout)
        inner = self._subscription
        batch = self._wait(inner.take_next, timeout)
        if batch is not None and inner.options.auto_ack:
            try:
                batch.ack_all()
            except BaseException:
                inner.put_back(batch)
                raise
        return batch

    def _wait(self, take: Callable[[], A | None], timeout: float | None) -> A | None:
        """Without a hop to the loop: the thread takes what is there, and the loop wakes it when something comes."""
        inner = self._subscription
        self._loop.check()
        inner.check_started()
        until = None if timeout is None else time.monotonic() + timeout
        while (taken := take()) is None and not inner.stopped:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            self._loop.park(inner.parked, inner.something_came, left)
        return taken


class ThreadSettler:
    """Carries settlements from any thread to the loop, which takes all that are there at once."""

    def __init__(self, loop: LoopThread, settler: Settler, client: object = None) -> None:
        self.client = client
        """One that nothing refers to ends, and what it has delivered is given back: so messages refer to it, as long as
        they are not given back already. Not for longer, because a subscription and this refer to each other."""
        self._loop = loop
        self._settler = settler

    def settle(self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        self._loop.post(partial(self._settler.settle, delivery, verb, runs, delay_ms, reason))

    def extend(self, delivery: Delivery, runs: Sequence[Run], ack_timeout_ms: int) -> None:
        self._loop.post(partial(self._settler.extend, delivery, runs, ack_timeout_ms))

    def reply(self, address: str, response: Outgoing) -> Done:
        self._loop.call(self._settler.reply, address, response)
        return DONE

    def is_stale(self, delivery: Delivery) -> bool:
        return self._settler.is_stale(delivery)

    def is_lost(self, delivery: Delivery, sequence: int) -> bool:
        return self._settler.is_lost(delivery, sequence)


class _GatheringSettler(ThreadSettler):
    """Of a subscription: acknowledgements gather here. The loop comes for them by itself, a moment after a delivery;
    only many of them, and such as come later, wake it."""

    def __init__(self, loop: LoopThread, subscription: "asynchronous.Subscription[Any]") -> None:
        super().__init__(loop, subscription)
        self._subscription = subscription
        self._acknowledged: deque[tuple[Delivery, Sequence[Run]]] = deque()
        self._asked = False
        """The loop has been asked to take them, and has not begun. It notes that it begins before it takes."""
        self._many = 0

    def expect(self) -> None:
        """Called in the loop, on each delivery."""
        self._many = self._subscription.ripe
        self._loop.come_back(LINGER_S, self._subscription.settle_together)

    def settle(self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        if verb is not Settlement.ACK:
            super().settle(delivery, verb, runs, delay_ms, reason)
            return
        self._loop.check()
        gathered = self._acknowledged
        gathered.append((delivery, runs))
        if len(gathered) == self._many or runs[-1][1] - runs[0][0] >= self._many:
            self._ask(self._loop.post)
        elif not self._asked:
            self._ask(self._loop.post_lazily)

    def _ask(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._asked = True
        try:
            post(self._take)
        except BaseException:
            # The thread is interrupted, or the client closed.
            self._asked = False
            raise

    def _take(self) -> None:
        self._asked = False
        gathered, settle = self._acknowledged, self._subscription.settle
        while gathered:
            delivery, runs = gathered.popleft()
            settle(delivery, Settlement.ACK, runs, BACKOFF, "")
