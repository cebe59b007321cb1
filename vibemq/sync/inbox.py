"""Messages of many subscriptions in one place, for programs that wait for file descriptors: kombu's hub, Qt, select."""

import contextlib
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Any, Self

from vibemq import client as asynchronous
from vibemq.client import Message
from vibemq.client.connecting.forking import watch_forks
from vibemq.client.waiting.one_process import OfOneProcess
from vibemq.errors import ClientForked, LocalProtocolError, NotConnected, VibeMQError
from vibemq.model.arguments import SECONDS, check_whole, misfit
from vibemq.sync.subscription import Subscription
from vibemq.sync.wakeup import Wakeup

FORKED = (
    "this inbox was filled before the process was forked, and its messages belong to the parent; make another in the"
    " child"
)
CLOSED = "this inbox is closed; make another with vibemq.sync.Inbox()"

Inner = asynchronous.Subscription[Any]
Arrived = Message[Any] | Callable[[], VibeMQError]
"""A message, or why its subscription has ended."""


class Inbox(OfOneProcess):
    """Any number of subscriptions, of any blocking clients, deliver into it. Any thread may use it.

        inbox = vibemq.sync.Inbox()
        inbox.add(mq.subscribe("orders", prefetch=4))
        hub.add_reader(inbox.fileno(), lambda: handle(inbox.take(64)))

    It has at most what the subscriptions may hold unsettled, their `prefetch`. Messages whose connection is lost leave
    it by themselves.
    """

    def __init__(self) -> None:
        self._arrived: deque[tuple[Inner, Arrived]] = deque()
        self._subscriptions: dict[str, tuple[Inner, Subscription[Any]]] = {}
        self._interruptions: Counter[str] = Counter()
        """Of each subscription, those after which was looked for what is stale."""
        self._sweeping = False
        self._wakeup = Wakeup()
        # Not by `close`: another thread may be about to read from it, and the number may be somebody else's by then.
        weakref.finalize(self, self._wakeup.close).atexit = False
        self._closed = False
        self._inherited = False
        watch_forks(self)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription[Any]) -> Subscription[Any]:
        """Begin a subscription, which delivers here: neither enter it nor iterate over it.

        Raises:
            LocalProtocolError: it has begun already.
            VibeMQError: the broker refuses.
        """
        self._check()
        _check_subscription(subscription)
        if subscription.begun:
            raise LocalProtocolError(
                "this subscription has begun already; write inbox.add(mq.subscribe(…)), without a `with` block"
            )
        inner = subscription.delivered_to(self._collect)
        self._subscriptions[inner.id] = inner, subscription
        try:
            subscription.__enter__()
        except BaseException:
            self._subscriptions.pop(inner.id, None)
            raise
        return subscription

    def remove(self, subscription: Subscription[Any]) -> None:
        """End a subscription. What is unsettled is given back, also what has not been taken."""
        _check_subscription(subscription)
        subscription.delivered_to(None)
        for key, (_, mine) in list(self._subscriptions.items()):
            if mine is subscription:
                self._subscriptions.pop(key, None)
                self._interruptions.pop(key, None)
        self._wakeup.set()  # A thread that waits may have nothing to wait for.
        # A client that is closed has given everything back.
        with contextlib.suppress(NotConnected):
            subscription.stop()

    def close(self) -> None:
        """Remove all subscriptions; a thread that waits is told. Closing twice is fine."""
        self._closed = True
        for _, subscription in list(self._subscriptions.values()):
            self.remove(subscription)
        self._arrived.clear()
        self._wakeup.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- messages -------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """A descriptor that is readable when `take` has something to give, and sometimes when it has nothing. Only
        wait for it; `take` and `get` read from it. It is closed with the object."""
        return self._wakeup.fileno()

    def __len__(self) -> int:
        """What is in here, including messages that `take` leaves out because their connection is lost."""
        return len(self._arrived)

    def take(self, max: int = 64) -> list[Message[Any]]:  # noqa: A002  # as in Client.fetch
        """At most `max` messages that are there, in the order in which they came; [] when there are none. Never waits.

        Raises:
            ConnectionLost, VibeMQError: why a subscription has ended; raised once, when all that came before is taken.
                The others go on.
            NotConnected: the inbox, or the client of a subscription, is closed.
        """
        self._check()
        grabbed: list[tuple[Inner, Arrived]] = []
        taken: list[Message[Any]] = []
        try:
            try:
                # Not by a comprehension: Python 3.12 and 3.13 know places in one where what is raised meets no handler.
                for inner, message in self._take(grabbed, max):
                    if _is_given(inner, message):
                        taken.append(message)
            finally:
                self._clear_if_empty()
            return taken
        except BaseException:
            # A signal's handler has raised, and the next call returns them; or a subscription has ended, which is not
            # among them.
            self._put_back(grabbed, 0)
            if self._arrived:
                self._wakeup.set()
            check_whole("max", max)
            raise

    def get(self, timeout: float | None = None) -> Message[Any] | None:
        """Wait for one message; None when none came within `timeout` seconds. Raises as `take`, and LocalProtocolError
        when there is no subscription that could deliver one."""
        try:
            return self._get(timeout)
        except VibeMQError:
            # Another thread may wait for what has ended, and nothing else would wake it.
            self._wakeup.set()
            raise

    def _get(self, timeout: float | None) -> Message[Any] | None:
        try:
            until = None if timeout is None else time.monotonic() + timeout
        except TypeError:
            raise misfit("timeout", timeout, SECONDS) from None
        while not (taken := self.take(1)):
            left = None if until is None else until - time.monotonic()
            if left is not None and not left > 0:
                return None
            if not (self._arrived or self._sweeping) and all(
                inner.stopped for inner, _ in list(self._subscriptions.values())
            ):
                self._check()
                raise LocalProtocolError(
                    "this inbox has no subscription that goes on, so nothing would ever come; write"
                    " inbox.add(mq.subscribe(…)) first"
                )
            self._wakeup.wait(left)
        return taken[0]

    def forked(self) -> None:
        """See `vibemq.client.connecting.forking.Forkable`."""
        self._inherited = True
        self._subscriptions.clear()
        self._wakeup.replace()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._inherited:
            raise ClientForked(FORKED)
        if self._closed:
            raise NotConnected(CLOSED)

    def _clear_if_empty(self) -> None:
        if not self._arrived:
            self._wakeup.clear()
            # What came in between has made it readable before it was read.
            if self._arrived:
                self._wakeup.set()

    def _take(self, grabbed: list[tuple[Inner, Arrived]], most: int) -> list[tuple[Inner, Message[Any]]]:
        """What may be given. At every instant, all that has left the inbox is in `grabbed`, because a signal's handler
        may raise between any two lines."""
        given: list[tuple[Inner, Message[Any]]] = []
        while len(given) < most and (fresh := self._grab(grabbed, most - len(given))):
            for position in range(len(grabbed) - fresh, len(grabbed)):
                inner, arrived = grabbed[position]
                if isinstance(arrived, Message):
                    if self._may_be_given(inner, arrived):
                        given.append((inner, arrived))
                elif given:
                    # The next call raises it.
                    self._put_back(grabbed, position)
                    return given
                else:
                    self._put_back(grabbed, position + 1)
                    grabbed.clear()
                    raise arrived()
        return given

    def _grab(self, grabbed: list[tuple[Inner, Arrived]], most: int) -> int:
        """How many were there. One call in C, which no signal's handler interrupts."""
        before = len(grabbed)
        with contextlib.suppress(IndexError):
            grabbed.extend(islice(iter(self._arrived.popleft, None), most))
        return len(grabbed) - before

    def _put_back(self, grabbed: list[tuple[Inner, Arrived]], start: int) -> None:
        """What stands at `start` and behind it; in C as well."""
        self._arrived.extendleft(islice(iter(grabbed.pop, None), len(grabbed) - start))

    def _may_be_given(self, inner: Inner, message: Message[Any]) -> bool:
        if message.settled:
            # Acknowledged by a call that was interrupted before it returned: the broker has forgotten it.
            return inner.options.auto_ack
        if message.stale:
            return False
        if inner.draining:
            # A client that was closed meanwhile has given everything back.
            with contextlib.suppress(NotConnected):
                message.release()
            return False
        return inner.id in self._subscriptions

    def _collect(self, inner: Inner) -> None:
        """Called in the loop of its client, when something has come or it has ended."""
        messages = inner.take_buffered()
        self._arrived.extend((inner, message) for message in messages)
        interruptions = inner.stats.interruptions
        if inner.draining or interruptions > self._interruptions[inner.id]:
            self._interruptions[inner.id] = interruptions
            self._sweep(inner)
        # A subscription that was never accepted is refused to whoever adds it.
        failure = inner.failure if inner.known else None
        ended = failure is not None and self._subscriptions.pop(inner.id, None) is not None
        if ended:
            self._interruptions.pop(inner.id, None)
        if failure is not None and ended:
            self._arrived.append((inner, failure))
        if messages or ended or inner.stopped or self._arrived:
            self._wakeup.set()

    def _sweep(self, inner: Inner) -> None:
        """Let go of what nobody has taken: who drains waits for it, and may be the only one to take; what is stale
        would gather with each lost connection."""
        self._sweeping = True
        swept: list[tuple[Inner, Arrived]] = []
        # A thread that takes meanwhile finds less, and is woken when the rest is back.
        self._grab(swept, len(self._arrived))
        self._arrived.extendleft([entry for entry in reversed(swept) if not _is_over(inner, *entry)])
        self._sweeping = False


def _is_over(inner: Inner, owner: Inner, arrived: Arrived) -> bool:
    """Whether it is a message of this subscription that nobody is to be given any more; of one that drains it is given
    back."""
    if owner is not inner or not isinstance(arrived, Message) or arrived.settled:
        return False
    if arrived.stale:
        return True
    if inner.draining:
        # As in `_may_be_given`.
        with contextlib.suppress(NotConnected):
            arrived.release()
    return inner.draining


def _check_subscription(subscription: object) -> None:
    if not isinstance(subscription, Subscription):
        raise misfit("subscription", subscription, "what subscribe() of a client of vibemq.sync has returned")


def _is_given(inner: Inner, message: Message[Any]) -> bool:
    """Acknowledge a message that `take` is about to return, if that is wanted. False: its client was closed meanwhile,
    and the broker hands the message out again."""
    try:
        if inner.options.auto_ack:
            message.ack()
    except NotConnected:
        return False
    return True
