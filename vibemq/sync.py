"""The client without `await`, for threads: the same names, plain context managers and iterators.

    with vibemq.sync.connect("vibemq://localhost") as mq:
        mq.publish("orders", {"id": 1})
        with mq.subscribe("orders") as messages:
            for message in messages:
                with message.process():
                    handle(message.json())

A client has a loop of its own in a daemon thread. Any thread may use it. A thread that waits costs one hop to the loop
per call, per *batch* when it iterates; settlements are collected and cross over together.
"""

import atexit
import importlib.util
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from vibemq import client as asynchronous
from vibemq.client import (
    ClientSettings,
    Confirm,
    Message,
    MessageBatch,
    Outgoing,
    PublishReport,
    Receipt,
    ReconnectPolicy,
    SubscriptionStats,
)
from vibemq.client.message import Delivery, Settler, route
from vibemq.client.publishing.outgoing import PriorityLike, Seconds
from vibemq.client.queues import Difference, OnConflict
from vibemq.errors import NotConnected
from vibemq.model.commands import Settlement
from vibemq.model.effects import QueueInfo
from vibemq.model.runs import Run

__all__ = [
    "Client",
    "Message",
    "MessageBatch",
    "Outgoing",
    "PublishReport",
    "Publisher",
    "Receipt",
    "ReconnectPolicy",
    "Subscription",
    "connect",
]

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def connect(address: str | ClientSettings = "vibemq://localhost", **options: Any) -> "Client":
    """Connect, with the options of `vibemq.connect`. Close it with a `with` block, or `close()`; a client that is
    still open when the interpreter ends says goodbye then.

    Raises:
        ConfigInvalid: the address or an option cannot be used.
        VibeMQError: no connection.
    """
    return Client(asynchronous.connect(address, **options))


class _Portal:
    """The way into the loop of a client, until it is closed."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._closed = False

    def close(self) -> None:
        self._closed = True

    @overload
    def call(self, function: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R: ...

    @overload
    def call(self, function: Callable[[*Ts], R], *args: *Ts) -> R: ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Any:
        self._check()
        return self._portal.call(function, *args)

    def start_task_soon(self, function: Callable[[], object]) -> None:
        self._check()
        self._portal.start_task_soon(function)

    def _check(self) -> None:
        if self._closed:
            raise NotConnected("this client is closed; make another with vibemq.sync.connect")


class Client:
    """See `vibemq.client.Client`; every verb means the same and raises the same."""

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._stack = ExitStack()
        uvloop = importlib.util.find_spec("uvloop") is not None
        portal = start_blocking_portal("asyncio", {"use_uvloop": uvloop}, name="vibemq-client")
        with ExitStack() as stack:
            running = stack.enter_context(portal)
            self._portal = _Portal(running)
            stack.callback(self._portal.close)
            stack.enter_context(running.wrap_async_context_manager(client))
            self._stack = stack.pop_all()
        _open_clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open_clients.discard(self)
        self._stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Say goodbye and end the loop; further calls raise. Closing twice is fine."""
        self.__exit__(None, None, None)

    @property
    def settings(self) -> ClientSettings:
        return self._client.settings

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def reconnects(self) -> int:
        return self._client.reconnects

    @property
    def server_version(self) -> str:
        return self._client.server_version

    def ping(self) -> float:
        return self._portal.call(self._client.ping)

    def publish(
        self,
        queue: str,
        body: Any,
        *,
        id: str | None = None,  # noqa: A002  # the name users know
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: datetime | float | None = None,
        dedup_id: str | None = None,
    ) -> Receipt:
        return self._portal.call(
            partial(
                self._client.publish,
                queue,
                body,
                id=id,
                headers=headers,
                priority=priority,
                ttl=ttl,
                delay=delay,
                deliver_at=deliver_at,
                dedup_id=dedup_id,
            )
        )

    def publish_many(self, queue: str, messages: Iterable[Any], **options: Any) -> PublishReport:
        """`messages` is iterated in the loop's thread: a generator that waits would hold up everything else of this
        client."""
        return self._portal.call(partial(self._client.publish_many, queue, messages, **options))

    def publisher(self, queue: str, *, dedup: bool = False) -> "Publisher":
        return Publisher(self._portal, self._portal.call(partial(self._client.publisher, queue, dedup=dedup)))

    def subscribe(self, queue: str, **options: Any) -> "Subscription[Any]":
        """With the options of `vibemq.client.Client.subscribe`."""
        return Subscription(self._portal, self._portal.call(partial(self._client.subscribe, queue, **options)))

    def fetch(self, queue: str, *, max: int = 1, timeout: float = 5.0, **options: Any) -> list[Message[Any]]:  # noqa: A002  # the name users know
        messages: list[Message[Any]] = self._portal.call(
            partial(self._client.fetch, queue, max=max, timeout=timeout, **options)
        )
        route(messages, partial(_ThreadSettler, self._portal))
        return messages

    def create_queue(self, queue: str, *, must_match: bool = False, **options: Any) -> None:
        self._portal.call(partial(self._client.create_queue, queue, must_match=must_match, **options))

    def declare(self, queue: str, *, on_conflict: OnConflict = "ignore", **options: Any) -> list[Difference]:
        return self._portal.call(partial(self._client.declare, queue, on_conflict=on_conflict, **options))

    def change_queue(self, queue: str, **changes: Any) -> None:
        self._portal.call(partial(self._client.change_queue, queue, **changes))

    def delete_queue(self, queue: str) -> None:
        self._portal.call(self._client.delete_queue, queue)

    def purge_queue(self, queue: str) -> int:
        return self._portal.call(self._client.purge_queue, queue)

    def queue_info(self, queue: str) -> QueueInfo | None:
        return self._portal.call(self._client.queue_info, queue)

    def list_queues(self) -> list[QueueInfo]:
        return self._portal.call(self._client.list_queues)

    def admin(self, verb: str, **arguments: Any) -> Any:
        return self._portal.call(partial(self._client.admin, verb, **arguments))


class Publisher:
    """See `vibemq.client.Publisher`."""

    def __init__(self, portal: _Portal, publisher: asynchronous.Publisher) -> None:
        self._portal = portal
        self._publisher = publisher

    def send(self, body: Any, **options: Any) -> Confirm:
        """The Confirm tells whether it is `done`; `flush` waits."""
        return self._portal.call(partial(self._publisher.send, body, **options))

    def flush(self) -> int:
        return self._portal.call(self._publisher.flush)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()


class Subscription(Generic[T]):
    """See `vibemq.client.Subscription`. One thread iterates; any thread may settle what it was given."""

    def __init__(self, portal: _Portal, subscription: asynchronous.Subscription[T]) -> None:
        self._portal = portal
        self._subscription = subscription
        self._settler = subscription.settler = _ThreadSettler(portal, subscription)

    @property
    def queue(self) -> str:
        return self._subscription.queue

    @property
    def stats(self) -> SubscriptionStats:
        return self._subscription.stats

    def __enter__(self) -> Self:
        self._portal.call(self._subscription.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop consuming; an iteration in another thread ends. Unsettled messages are given back."""
        self._portal.call(self._settler.flush)
        self._portal.call(self._subscription.stop)

    def __iter__(self) -> Iterator[Message[T]]:
        for batch in self.batches():
            for message in batch:
                if not message.stale:
                    yield message

    def batches(self) -> Iterator[MessageBatch[T]]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, timeout: float | None = None) -> MessageBatch[T] | None:
        """Wait for messages; None when the subscription was stopped, or nothing came within `timeout` seconds.

        Raises:
            VibeMQError: the broker ended it, or the connection is lost for good.
        """
        return self._portal.call(self._subscription.next_batch_or_none, timeout)


class _ThreadSettler:
    """Carries settlements from any thread to the loop: they gather, and one hop takes all that are there."""

    def __init__(self, portal: _Portal, settler: Settler) -> None:
        self._portal = portal
        self._settler = settler
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = Lock()
        self._scheduled = False

    def settle(self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        self._later(partial(self._settler.settle, delivery, verb, runs, delay_ms, reason))

    def extend(self, delivery: Delivery, runs: Sequence[Run], ack_timeout_ms: int) -> None:
        self._later(partial(self._settler.extend, delivery, runs, ack_timeout_ms))

    def is_stale(self, delivery: Delivery) -> bool:
        return self._settler.is_stale(delivery)

    def flush(self) -> None:
        """Called in the loop."""
        with self._lock:
            self._scheduled = False
        while self._waiting:
            self._waiting.popleft()()

    def _later(self, settle: Callable[[], None]) -> None:
        self._waiting.append(settle)
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._portal.start_task_soon(self.flush)


@atexit.register
def _close_open_clients() -> None:
    for client in list(_open_clients):
        client.close()
