"""Receiving: an async iterator of messages that survives its connections."""

import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from vibemq.client.failures import Failure, settled_failure
from vibemq.client.link import CLIENT_CLOSED, ClientLink
from vibemq.client.message import DONE, Delivery, Done, Message, MessageBatch, Settler
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.client.receiving.extending import AutoExtension
from vibemq.client.receiving.held import HeldMessages
from vibemq.client.receiving.options import SubscribeOptions, SubscriptionStats, check_wait
from vibemq.client.receiving.prefetch import DEFAULT, Prefetch
from vibemq.client.receiving.untaken import UntakenMessages
from vibemq.client.settlements import BACKOFF, SettleRuns, limit_ms
from vibemq.client.waiting.asynchronous import Asynchronous
from vibemq.client.waiting.latch import Latch
from vibemq.errors import ConnectionLost, LocalProtocolError, NotConnected
from vibemq.model.arguments import check_flag
from vibemq.model.runs import Run
from vibemq.model.shared.settlement import Settlement
from vibemq.protocols.native.codec.extensions import DeliverMany
from vibemq.protocols.native.codec.wire import CommandType

T = TypeVar("T")
A = TypeVar("A")

TURN_MESSAGES = 64
"""Messages handed to the program before the loop gets a turn, so that acks flow while a burst is worked off."""
TURN_S = 0.005
"""The same for batches, which differ in size."""


class Subscription(Asynchronous, Generic[T]):
    """Made by `Client.subscribe`; an async context manager and an async iterator.

    Leaving the block stops the consumption: settlements are sent, everything unsettled is given back unharmed.
    """

    _usage = (
        "a subscription of vibemq.connect is used with `async with` and `async for`, and not awaited;"
        " vibemq.sync.connect has the blocking client, for `with` and `for`"
    )

    def __init__(
        self,
        link: ClientLink,
        options: SubscribeOptions,
        validate: Callable[[bytes], Any] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = f"s{link.new_id()}"
        self.options = options
        self.stats = SubscriptionStats()
        self.known = False
        """The broker has accepted it once; from then on it is restored, not given up."""
        self.settler: Settler = self
        """Where messages bring their settlements; the blocking face puts its own door before this one."""
        self.watch: Callable[[], None] | None = None
        """Called when messages have come or the subscription has ended, in place of an iteration that waits."""
        self.parked: deque[Lock] = deque()
        """Held locks of threads that wait for the same; see `take_next`."""
        self.expecting: Callable[[], None] | None = None
        """Called on each delivery: soon there will be settlements."""
        self._link = link
        self._clock = clock
        self._validate = validate
        self._epoch = 0
        """Of the connection that delivers; 0 = none."""
        self._untaken: UntakenMessages[T] = UntakenMessages()
        self._current: Iterator[Message[T]] = iter(())
        """The rest of the batch that an iteration is in, each acknowledged when it is taken, if that is wanted."""
        self._turn = TURN_MESSAGES
        self._turn_at = 0.0
        self._changed = Latch()
        self._held = HeldMessages()
        self._prefetch = Prefetch(DEFAULT if options.prefetch is None else options.prefetch, options.prefetch_bytes)
        self._extension = AutoExtension(options.timeout, wanted=options.auto_extend)
        self._failure: Failure | None = None
        self._started = False
        self._lost_at: float | None = None
        """When the first connection was lost that had been asked for it."""
        self._stopped = False
        self._left = False
        """The broker has confirmed that no more comes."""
        self._releasing = True
        """Whether leaving gives back what is unsettled."""
        self._draining = False

    @property
    def queue(self) -> str:
        return self.options.queue

    @property
    def prefetch(self) -> int:
        """Most messages that may be held unsettled; with `share`, by all subscriptions that share it."""
        return self._prefetch.messages

    @property
    def connected(self) -> bool:
        """Whether the broker knows this subscription at the moment; it is restored by itself."""
        return self._epoch > 0

    @property
    def begun(self) -> bool:
        """Whether it was started, which it is once."""
        return self._started or self._stopped

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def stopped(self) -> bool:
        """Whether nothing more comes, or will soon: it was stopped, drained, or its client closed."""
        return self._stopped

    @property
    def failure(self) -> Failure | None:
        """Why it has ended by itself, when it has."""
        return self._failure

    @property
    def held(self) -> int:
        """Messages delivered and not yet settled."""
        return len(self._held)

    @property
    def buffered(self) -> int:
        """Messages delivered that the program has not taken yet, those of the batch it is in left out."""
        return len(self._untaken)

    # -- for the program -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __iter__(self) -> NoReturn:
        raise TypeError(self._usage)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        self._turn -= 1
        if not self._turn:
            # Before a message is taken: one that is cancelled here would be held, and shown to nobody.
            self._turn = TURN_MESSAGES
            await checkpoint()
        message = next(self._current, None)
        if message is None:
            rest = await self._arrived(self._untaken.begin)
            self._current = map(_acknowledged, rest) if self.options.auto_ack else rest
            self._turn = TURN_MESSAGES
            return next(self._current)
        return message

    def batches(self) -> AsyncIterator[MessageBatch[T]]:
        """Messages as they came, many at a time: `async for batch in sub.batches(): …; batch.ack_all()`."""
        return _Batches(self)

    async def next_batch(self) -> MessageBatch[T]:
        """Wait for messages: what an iteration has left of its batch, or the next one.

        Raises:
            StopAsyncIteration: the subscription was stopped.
            LocalProtocolError: it was never started.
            ConnectionLost: the connection is lost, and `restore` is False.
            VibeMQError: the broker ended it, or the connection is lost for good.
        """
        batch = await self._arrived(self._untaken.take_batch)
        if self.options.auto_ack:
            batch.ack_all()
        return batch

    async def _arrived(self, take: Callable[[bool], A | None]) -> A:
        self._link.check_loop()
        self.check_started()
        # A turn for the loop after a while, so that a busy program starves nobody; who waits for messages gives it one.
        if self._untaken.batches and self._clock() >= self._turn_at:
            await checkpoint()
            self._turn_at = self._clock() + TURN_S
        while (arrived := take(self._stopped)) is None:
            if self._stopped:
                raise StopAsyncIteration
            self._check_goes_on()
            await self._changed.wait()
        return arrived

    def take_next(self) -> MessageBatch[T] | None:
        """The messages that come next; None when there are none yet, or the subscription was stopped. Any thread may
        call it; one that means to wait puts a lock of its own into `parked` before.

        Raises:
            VibeMQError: the broker ended it, or the connection is lost for good.
        """
        batch = self._untaken.take_batch(self._stopped)
        if batch is None and not self._stopped:
            self._check_goes_on()
        return batch

    def begin_next(self) -> Iterator[Message[T]] | None:
        """As `take_next`, for an iteration: what it does not take stays here, and other threads may take it, too."""
        messages = self._untaken.begin(self._stopped)
        if messages is None:
            if not self._stopped:
                self._check_goes_on()
        elif self.parked:
            self._wake_threads()
        return messages

    def put_back(self, given: Message[T] | MessageBatch[T]) -> None:
        """By a thread that took it and was interrupted before the program had it: it comes next."""
        self._untaken.put_back(given)
        self._wake_threads()

    def _check_goes_on(self) -> None:
        if self._failure is not None:
            raise self._failure()
        if self._link.failure is not None:
            raise self._link.failure()

    def something_came(self) -> bool:
        """Whether there is no reason to wait."""
        return bool(self._untaken) or self._stopped or self._failure is not None

    def check_started(self) -> None:
        """
        Raises:
            LocalProtocolError: it was never started.
        """
        if not self._started:
            raise LocalProtocolError(
                f"this subscription of {self.queue!r} has not begun, so nothing would ever come; enter it first:"
                " `async with mq.subscribe(…) as messages:` (`with` in vibemq.sync), then iterate over `messages`"
            )

    async def next_batch_or_none(self, timeout: float | None = None) -> MessageBatch[T] | None:
        """As `next_batch`; None when the subscription was stopped or nothing came within `timeout` seconds.

        Raises:
            LocalProtocolError: the timeout is no number (NaN).
        """
        if timeout is not None:
            check_wait(timeout)
        with anyio.move_on_after(timeout):
            try:
                return await self.next_batch()
            except StopAsyncIteration:
                return None
        # With no time to wait, the turn that the loop was given has used it up.
        batch = self.take_next()
        if batch is not None and self.options.auto_ack:
            batch.ack_all()
        return batch

    async def arrival(self) -> None:
        """Wait until messages are there, or the subscription has ended."""
        while not self.something_came():
            await self._changed.wait()

    def take_buffered(self) -> list[Message[T]]:
        """Every message that is there, also after `stop(release=False)`."""
        return [message for batch in self._untaken.take_batches() for message in batch]

    async def start(self) -> None:
        """Subscribe and wait until the broker knows.

        Raises:
            LocalProtocolError: it has begun before; one subscription is consumed once.
            VibeMQError: the broker refuses, or does not answer in time.
        """
        if self.begun:
            state = "has ended" if self._stopped else "has begun already"
            raise LocalProtocolError(
                f"this subscription of {self.queue!r} {state}; make another one with subscribe({self.queue!r}, ...)"
            )
        self._started = True
        try:
            await self._link.connected()
        except BaseException:
            # Nothing was asked for: it may begin later.
            self._started = False
            raise
        if self.options.prefetch is None:
            self._adopt_prefetch()
        self._link.restored.subscribe(self, anyio.current_time())
        try:
            while not self._epoch:
                if self._failure is not None:
                    raise self._failure()
                # Its Subscribe may be lost with a connection, and goes out again with the next one.
                await self._link.connected()
                if not self._epoch and self._failure is None:
                    await self._changed.wait()
        except BaseException:
            self.leave(release=True)
            raise

    async def stop(self, *, release: bool = True) -> None:
        """Stop consuming. Returns when nothing more comes.

        Args:
            release: give back what is unsettled; otherwise it may still be settled, while the connection lasts.
        """
        check_flag("release", release)
        if not self._stopped and not self._link.inherited:
            self._link.check_loop()
        left = self.leave(release=release)
        if left is not None:
            await left.wait()

    def leave(self, *, release: bool) -> Latch | None:
        """As `stop`, without waiting: the event is set when nothing more comes. None: there is nobody to tell."""
        if self._stopped:
            if release and self._draining:
                self._draining = False
                self.abandon()
            elif release and not self._releasing:
                # What the program has been given may still be settled; the rest is out of its reach.
                self._give_back_untaken()
            return None
        self._stopped = True
        self._releasing = release
        if release:
            self._untaken.clear()
        self._notify()
        if self.id not in self._link.subscriptions or self._link.restored.withdraw(self):
            return None
        headers = {"subscription-id": self.id}
        asked = self._link.requests.ask(CommandType.UNSUBSCRIBE, self.queue, headers=headers, then=self._on_left)
        if asked is None:
            self._link.restored.forget(self)
        return asked

    def abandon(self) -> None:
        """Leave without waiting, and give back what has come, even if leaving was meant to keep it."""
        if self._stopped:
            self._releasing = True
            self._untaken.clear()
            if self._left:
                self._link.mark(self)
        else:
            self.leave(release=True)

    def set_prefetch(self, messages: int | None = None, bytes: int | None = None) -> Done:  # noqa: A002  # as prefetch_bytes
        """Change what may be held unsettled; with `share`, of all subscriptions that share it. It takes effect without
        `await`, and holds for later connections, too. What is held already counts, and stays.

        Args:
            messages: 0 pauses: nothing is delivered until it is raised. None = as it is.
            bytes: 0 = no bound. None = as it is.

        Raises:
            LocalProtocolError: a number that is negative or too large; nothing is changed.
        """
        self._link.check_loop()
        self._prefetch.change(messages, bytes)
        for told in self._told_of_prefetch():
            self._link.send_flow(told.id, self._prefetch.messages, self._prefetch.bytes)
        return DONE

    def _told_of_prefetch(self) -> "list[Subscription[Any]]":
        """By which subscriptions the broker hears of a change: of a share one that it knows, else all that it may have
        been told of."""
        if self.options.share is None or (self.connected and not self._stopped):
            return [self]
        sharing = list(self._sharing())
        return next(([other] for other in sharing if other.connected), [*sharing, self])

    async def drain(self, timeout: float | None = None) -> int:
        """End gracefully: take nothing more, give back what the program has not been given, and wait until it has
        settled the rest and the broker knows. Then nothing of it is delivered again. Iterations end.

        Call it from another task than the one that works on messages, which would wait for itself; `timeout=0` only
        begins, and may be called anywhere. When the connection is lost meanwhile, there is nothing to wait for: the
        broker delivers again what it does not know to be settled.

        Args:
            timeout: seconds to wait; None = until all is settled.

        Returns:
            How many messages the program still holds; leaving the block gives them back.
        """
        if timeout is not None:
            check_wait(timeout)
        self._link.check_loop()
        left = self.begin_drain()
        with anyio.move_on_after(timeout):
            if left is not None:
                await left.wait()
            while self._held:
                await self._changed.wait()
            await self._settlements_known()
        return self.held

    def begin_drain(self) -> Latch | None:
        """As `drain`, without waiting: the event is set when nothing more comes. None: there is nobody to tell."""
        if self._stopped:
            return None
        self._draining = True
        left = self.leave(release=False)
        self._give_back_untaken()
        return left

    def _give_back_untaken(self) -> None:
        """What a thread takes meanwhile, it gives back."""
        for message in self._untaken.take_begun():
            message.release()
        for batch in self._untaken.take_batches():
            batch.release_all()

    async def _settlements_known(self) -> None:
        """What was sent before an answered ping has been carried out."""
        link = self._link
        if self._failure is None and link.failure is None and link.protocol is not None:
            try:
                await link.requests.request(CommandType.PING, what="ping")
            except ConnectionLost:
                return  # As `drain` says.

    def check(self) -> None:
        """
        Raises:
            VibeMQError: why the broker ended the subscription, when it did.
        """
        if self._failure is not None:
            raise self._failure()

    def halt(self) -> None:
        """End the iteration without a word to the broker: the whole client says goodbye."""
        self._stopped = True
        self._failure = self._failure or _closed
        self._notify()

    # -- for the link ----------------------------------------------------------------------------------------------

    def subscribe_frame(self, protocol: ClientProtocol) -> bytes:
        if self.options.where is not None:
            protocol.check_selectors()
        headers = self.options.headers(self._prefetch)
        return protocol.request(CommandType.SUBSCRIBE, self.id, self.queue, headers=headers)

    def established(self, epoch: int) -> None:
        self._epoch = epoch
        if not self.known:
            self._adopt_prefetch()
        self.known = True
        self._extension.begin_anew()
        self._notify()

    def deliver(self, delivered: DeliverMany) -> None:
        rows = delivered.rows
        # A delivery may overtake the answer to Subscribe.
        epoch = self._epoch = self._link.epoch
        delivery = self._delivery(delivered, epoch)
        sequences = self._held.add(delivered, delivery)
        self.stats.received += rows.count
        if self._link.hooks is not None:
            self._link.hooks.received(self.queue, rows.count)
        self._untaken.add(MessageBatch(delivery, sequences, rows))
        if self._draining:
            self._give_back_untaken()
        if self.expecting is not None:
            self.expecting()
        self._notify()

    def _delivery(self, delivered: DeliverMany, epoch: int) -> Delivery:
        timeout = self.options.timeout
        deadline = self._clock() + timeout if timeout else math.inf
        return Delivery(
            self.settler,
            epoch,
            self.queue,
            delivered.published_at,
            delivered.acquired,
            self._validate,
            deadline,
            self.id,
            self._link.hooks,
            self.options.group,
            delivered.failed if self._link.knows_failures else None,
            dict(zip(delivered.sequences, delivered.instants, strict=True)) if delivered.sequences else None,
        )

    def ended(self, failure: Failure) -> None:
        self._failure = failure
        self._forget_deliveries()
        self._notify()

    def lost(self) -> None:
        self.stats.interruptions += 1
        self._forget_deliveries()
        if self._lost_at is None:
            self._lost_at = self._link.resending.lost_at
        if not self.options.restore and self._failure is None:
            self._failure = self._lost_for_good
        elif not self.known and self._failure is None and self._link.resending.is_over(self._lost_at):
            self._failure = settled_failure(partial(self._link.no_answer, f"the subscription of {self.queue!r}"))
        if self._stopped or self._failure is not None:
            self._link.restored.forget(self)
        self._notify()

    def forget_inherited(self) -> None:
        """In a forked child: what was delivered is the parent's."""
        self._epoch = 0
        self._untaken.clear()

    def take_frames(self, protocol: ClientProtocol) -> Iterator[bytes]:
        yield from self._held.take_frames(protocol, self.id)
        if self._left:
            if self._releasing and self._held:
                yield protocol.settle(self.id, SettleRuns(Settlement.RELEASE, BACKOFF, "", self._held.runs.runs()))
            if self._releasing or not self._held:
                self._link.restored.forget(self)
                self._forget_deliveries()
            elif self.id in self._link.subscriptions:
                self._link.restored.retire(self)
        if self._stopped:
            self._notify()  # Somebody may wait in `drain`.

    @property
    def tick_s(self) -> float:
        return self._extension.tick_s

    def tick(self, now: float) -> None:
        timeout = self.options.timeout
        if timeout is None or not self._held or not self._extension.is_due(now):
            return
        instant = self._clock()
        self._extension.note(now, instant)
        if self._held.extend(limit_ms(timeout, "ack_timeout"), instant + timeout):
            self._link.mark(self)

    @property
    def ripe(self) -> int:
        """Acknowledgements of so many messages go out at once, fewer linger."""
        return self._prefetch.ripe

    def settle_together(self, take: Callable[[], None]) -> None:
        """See `ClientLink.settle_together`."""
        self._link.settle_together(take)

    # -- for messages ----------------------------------------------------------------------------------------------

    def settle(self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        if delivery.epoch != self._epoch:
            self.stats.stale_settlements += sum(last - first + 1 for first, last in runs)
            return
        if self._link.is_elsewhere():
            self._link.hand_over(partial(self._settle_here, delivery, verb, runs, delay_ms, reason))
        else:
            self._settle_here(delivery, verb, runs, delay_ms, reason)

    def _settle_here(
        self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str
    ) -> None:
        if delivery.epoch != self._epoch:
            # The connection was lost while this was handed over.
            self.stats.stale_settlements += sum(last - first + 1 for first, last in runs)
            return
        settlements = self._held.settlements
        before = settlements.count
        self._held.settle(verb, runs, delay_ms, reason)
        if verb is not Settlement.ACK:
            self._link.mark(self)
        elif before < self._prefetch.ripe <= settlements.count:
            # When nothing else is held, nothing can join it.
            self._link.mark(self, alone=settlements.count >= len(self._held))
        elif not before:
            self._link.mark(self, linger=True)

    def extend(self, delivery: Delivery, runs: Sequence[Run], ack_timeout_ms: int) -> None:
        if delivery.epoch != self._epoch:
            return
        if self._link.is_elsewhere():
            self._link.hand_over(partial(self._extend_here, delivery, runs, ack_timeout_ms))
        else:
            self._extend_here(delivery, runs, ack_timeout_ms)

    def _extend_here(self, delivery: Delivery, runs: Sequence[Run], ack_timeout_ms: int) -> None:
        if delivery.epoch == self._epoch:
            self._held.extensions.append((ack_timeout_ms, list(runs)))
            self._link.mark(self)
            timeout = self.options.timeout or 0.0 if ack_timeout_ms < 0 else ack_timeout_ms / 1_000
            deadline = self._clock() + timeout if timeout else math.inf
            if delivery.extended is None:
                delivery.extended = {}
            delivery.extended.update((n, deadline) for first, last in runs for n in range(first, last + 1))
            if self.options.auto_extend:
                self._held.note_deadline(runs, deadline)

    async def reply(self, address: str, response: Outgoing) -> None:
        self._link.check_loop()
        await self._link.requests.respond(address, self._link.requests.packer.row(response))

    def is_stale(self, delivery: Delivery) -> bool:
        return delivery.epoch != self._epoch

    def is_lost(self, delivery: Delivery, sequence: int) -> bool:
        if delivery.epoch != self._epoch or self._held.newest.get(sequence, delivery) is not delivery:
            return True
        deadline = (delivery.extended or {}).get(sequence, delivery.deadline)
        return self._extension.has_lapsed(deadline, self._clock())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _adopt_prefetch(self) -> None:
        """Of the subscriptions with the same share: what is changed for one of them holds for all, also when they are
        made anew."""
        other = next(self._sharing(), None)
        if other is not None:
            size = self.options.prefetch_bytes
            differs = not self.known and size not in (0, other._prefetch.bytes)
            # The broker refuses bytes that are not those of the share.
            self._prefetch = Prefetch(other._prefetch.messages, size) if differs else other._prefetch

    def _sharing(self) -> "Iterator[Subscription[Any]]":
        """The other subscriptions with the same share that go on."""
        if self.options.share is not None:
            for other in self._link.subscriptions.values():
                if not isinstance(other, Subscription) or other is self or other.stopped:
                    continue
                if other.options.share == self.options.share:
                    yield other

    def _lost_for_good(self) -> ConnectionLost:
        return ConnectionLost(
            f"the connection was lost, and with it the subscription of {self.queue!r}; the broker delivers again what"
            " was not settled. Subscribe again, or leave out restore=False"
        )

    def _on_left(self) -> None:
        self._left = True
        self._link.mark(self)

    def _notify(self) -> None:
        if self._changed.is_awaited:
            changed, self._changed = self._changed, Latch()
            changed.set()
        watch = self.watch  # Another thread may take it away meanwhile.
        if watch is not None:
            watch()
        if self.parked:
            self._wake_threads()

    def _wake_threads(self) -> None:
        while self.parked:
            with contextlib.suppress(IndexError):  # The thread has not waited for longer.
                self.parked.popleft().release()

    def _forget_deliveries(self) -> None:
        """The broker hands all of it out again: settle nothing of it, show nothing more of it."""
        self._epoch = 0
        self._untaken.clear()
        self._held = HeldMessages()


def _acknowledged(message: Message[T]) -> Message[T]:
    message.ack()
    return message


def _closed() -> NotConnected:
    return NotConnected(CLIENT_CLOSED)


class _Batches(Generic[T]):
    """See `Subscription.batches`."""

    def __init__(self, subscription: Subscription[T]) -> None:
        self._subscription = subscription

    def __iter__(self) -> NoReturn:
        raise TypeError(Subscription._usage)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageBatch[T]:
        return await self._subscription.next_batch()
