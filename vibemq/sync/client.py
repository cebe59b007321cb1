"""The blocking client."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from vibemq import client as asynchronous
from vibemq.client import (
    ClientSettings,
    Confirm,
    Message,
    Outgoing,
    PublishReport,
    Receipt,
    Response,
)
from vibemq.client.changes import Listener
from vibemq.client.connecting.forking import watch_forks
from vibemq.client.message import route
from vibemq.client.publisher import PackedPublish, Publishing
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import PriorityLike, Seconds
from vibemq.client.publishing.receipts import receipt
from vibemq.client.queues import Difference, OnConflict
from vibemq.errors import NotConnected, VibeMQError
from vibemq.model.arguments import check_flag
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.sync.blocking import Blocking
from vibemq.sync.loop_thread import CLOSED, Answer, LoopThread
from vibemq.sync.open_client import OpenClient
from vibemq.sync.subscription import Subscription, ThreadSettler

T = TypeVar("T")

_HANDED_OVER_MAX = 256 * 1024
"""Bytes of messages that a thread hands over without waiting."""
_COST_OF_A_MESSAGE = 512
"""Besides its bytes."""


def connect(address: str | ClientSettings = "vibemq://localhost", **options: Any) -> "Client":
    """Connect, with the options of `vibemq.connect`. Close it with a `with` block, or `close()`; a client that is
    still open when the process ends, or when nothing refers to it any more, waits for its confirms and disconnects
    then.

    Raises:
        ConfigInvalid: the address or an option cannot be used.
        VibeMQError: no connection.
    """
    return Client(asynchronous.connect(address, **options))


class Client(Blocking):
    """See `vibemq.client.Client`; every verb means the same and raises the same.

    In a forked child it connects anew when it is first used; the parent's subscriptions, and the messages that they
    have delivered, raise ClientForked there.
    """

    def __init__(self, client: asynchronous.Client) -> None:
        self._settings = client.settings
        self._closed = False
        self._listeners = client.listeners
        self.hooks = client.hooks
        self._handed_over = 0
        """About so many bytes since the last call that waited for room."""
        self._running: OpenClient | None = None
        self._run(OpenClient(client))
        watch_forks(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._connecting():
            self._closed = True
            running = self._running
        if running is not None:
            self._dropped.detach()
            running.end(kind, error, trace)

    def close(self) -> None:
        """Disconnect and end the loop; further calls raise. Closing twice is fine."""
        self.__exit__(None, None, None)

    def forked(self) -> None:
        """See `vibemq.client.connecting.forking.Forkable`."""
        # Another thread of the parent may have held the lock.
        self.__dict__.pop("_lock", None)
        self._dropped.detach()
        self._running = None

    def _connecting(self) -> contextlib.AbstractContextManager[bool]:
        """The lock of who connects in a forked child. It is made by the first who needs it there: until then the
        program may have made greenlets of its threads, which an earlier lock would not keep apart."""
        lock: contextlib.AbstractContextManager[bool] = self.__dict__.setdefault("_lock", threading.RLock())
        return lock

    def _is_closed(self) -> bool:
        return self._closed

    def _run(self, running: OpenClient) -> None:
        self._dropped = weakref.finalize(self, running.let_go)
        # It ends with the process by itself.
        self._dropped.atexit = False
        self._running = running

    def _current(self) -> OpenClient:
        """Of this process.

        Raises:
            VibeMQError: it was forked, and there is no connection now.
        """
        running = self._running
        if running is None:
            with self._connecting():
                running = self._running
                if running is None:
                    if self._is_closed():
                        raise NotConnected(CLOSED)
                    running = OpenClient(asynchronous.Client(self._settings, self._listeners, self.hooks))
                    if self._is_closed():
                        # By a signal's handler, while this thread connected.
                        running.end()
                        raise NotConnected(CLOSED)
                    self._run(running)
        return running

    def _connected(self) -> tuple[LoopThread, asynchronous.Client]:
        running = self._current()
        return running.loop, running.client

    @property
    def settings(self) -> ClientSettings:
        return self._settings

    @property
    def is_connected(self) -> bool:
        return self._running is not None and self._running.client.is_connected

    @property
    def reconnects(self) -> int:
        return self._running.client.reconnects if self._running is not None else 0

    @property
    def server_version(self) -> str:
        return self._running.client.server_version if self._running is not None else ""

    @property
    def unconfirmed(self) -> int:
        running = self._running
        return running.client.unconfirmed + running.direct.under_way if running is not None else 0

    def ping(self) -> float:
        loop, client = self._connected()
        return loop.call(client.ping)

    @overload
    def publish(
        self,
        queue: str,
        body: Any,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: datetime | float | None = None,
        dedup_id: str | None = None,
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
    def publish(
        self,
        queue: str,
        body: Any,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: datetime | float | None = None,
        dedup_id: str | None = None,
        wait: bool,
    ) -> Receipt | None: ...

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
        wait: bool = True,
    ) -> Receipt | None:
        running = self._current()
        message = Outgoing(body, id, headers, priority, ttl, delay, deliver_at, dedup_id)
        if self.hooks is not None:
            with self.hooks.publishing(queue, message):
                return self._publish(running, queue, message, wait=wait)
        return self._publish(running, queue, message, wait=wait)

    def _publish(self, running: OpenClient, queue: str, message: Outgoing, *, wait: bool) -> Receipt | None:
        if wait is not True:
            check_flag("wait", wait)
            self._begin_publish(running, queue, message)
            return None
        publishing = running.client.publishing
        running.loop.check_caller()
        packed = publishing.pack(queue, message)
        found: Receipt | None = running.direct.publish(packed)
        if found is None:
            found = running.loop.call_with_answer(partial(_publish, publishing, running.loop, packed))
        return found

    def _begin_publish(self, running: OpenClient, queue: str, message: Outgoing) -> None:
        """What is handed over and not taken yet is bounded by calls that wait, one for many messages."""
        loop, publishing = running.loop, running.client.publishing
        if publishing.unwaited.failed:
            loop.call(publishing.unwaited.raise_failures)
        packed = publishing.pack(queue, message)
        # Threads that change it at the same time make it inexact, which does no harm.
        self._handed_over += len(packed.row) + _COST_OF_A_MESSAGE
        if self._handed_over > _HANDED_OVER_MAX:
            self._handed_over = 0
            loop.call(publishing.room)
        loop.post(partial(publishing.add_unwaited, packed))
        if running.ending:
            # Another thread closes it: what was handed over behind its goodbye is sent by nobody.
            raise NotConnected(f"{CLOSED}; this message may or may not have been published")

    def request(
        self,
        queue: str,
        body: Any,
        *,
        timeout: Seconds = 30.0,
        id: str | None = None,  # noqa: A002  # the name users know
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
    ) -> Response:
        loop, client = self._connected()
        loop.check_caller()
        message, publishing = Outgoing(body, id, headers, priority), client.publishing
        if self.hooks is None:
            return loop.call(publishing.ask_packed, publishing.pack_request(queue, message, timeout))
        with self.hooks.publishing(queue, message):
            return loop.call(publishing.ask_packed, publishing.pack_request(queue, message, timeout))

    def flush(self) -> None:
        if self._running is not None:
            self._running.loop.call(self._running.client.flush)

    def publish_many(
        self,
        queue: str,
        messages: Iterable[Any],
        *,
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: datetime | float | None = None,
        dedup: bool = False,
        return_refused: bool = False,
    ) -> PublishReport:
        """As `vibemq.client.Client.publish_many`. The calling thread iterates over `messages`."""
        running = self._current()
        check_flag("return_refused", return_refused)
        common = Outgoing(None, None, headers, priority, ttl, delay, deliver_at)
        if self.hooks is None:
            report = _publish_many(running, queue, messages, common, dedup=dedup)
            return report if return_refused else report.whole()
        with self.hooks.publishing(queue) as scope:
            common.headers = scope.add_to(headers)
            report = _publish_many(running, queue, scope.add_to_each(messages), common, dedup=dedup)
            scope.messages = len(report)
            return report if return_refused else report.whole()

    def publisher(self, queue: str, *, dedup: bool = False) -> "Publisher":
        return Publisher(self, queue, dedup=dedup)

    def subscribe(self, queue: str, **options: Any) -> "Subscription[Any]":
        """With the options of `vibemq.client.Client.subscribe`."""
        loop, client = self._connected()
        return Subscription(self, loop, loop.call(partial(client.subscribe, queue, **options)))

    def on_connection_change(self, callback: Listener) -> Callable[[], None]:
        """As `vibemq.client.Client.on_connection_change`. It is called in the client's own thread, where a
        blocking call of this client would wait for itself: it may set an event, or put something into a queue."""
        return self._listeners.add(callback)

    def fetch(self, queue: str, *, max: int = 1, timeout: float = 5.0, **options: Any) -> list[Message[Any]]:  # noqa: A002  # the name users know
        loop, client = self._connected()
        ask = partial(client.fetch, queue, max=max, timeout=timeout, **options)
        messages: list[Message[Any]] = []
        try:
            messages = loop.call_or_undo(ask, _give_back)
            route(messages, partial(ThreadSettler, loop, client=self))
            return messages
        except BaseException:
            if messages:
                # A signal's handler raises, and the program never has them. A client that closes gives them back.
                with contextlib.suppress(VibeMQError):
                    loop.post(partial(_give_back, messages))
            raise

    def create_queue(self, queue: str, *, must_match: bool = False, **options: Any) -> None:
        loop, client = self._connected()
        loop.call(partial(client.create_queue, queue, must_match=must_match, **options))

    def declare(self, queue: str, *, on_conflict: OnConflict = "ignore", **options: Any) -> list[Difference]:
        loop, client = self._connected()
        return loop.call(partial(client.declare, queue, on_conflict=on_conflict, **options))

    def change_queue(self, queue: str, **changes: Any) -> None:
        loop, client = self._connected()
        loop.call(partial(client.change_queue, queue, **changes))

    def delete_queue(self, queue: str) -> None:
        loop, client = self._connected()
        loop.call(client.delete_queue, queue)

    def purge_queue(self, queue: str) -> int:
        loop, client = self._connected()
        return loop.call(client.purge_queue, queue)

    def queue_info(self, queue: str) -> QueueInfo | None:
        loop, client = self._connected()
        return loop.call(client.queue_info, queue)

    def list_queues(self) -> list[QueueInfo]:
        loop, client = self._connected()
        return loop.call(client.list_queues)

    def admin(self, verb: str, **arguments: Any) -> Any:
        loop, client = self._connected()
        return loop.call(partial(client.admin, verb, **arguments))


class Publisher(Blocking):
    """See `vibemq.client.Publisher`."""

    def __init__(self, client: Client, queue: str, *, dedup: bool) -> None:
        self._client = client
        self._queue = queue
        self._dedup = dedup
        self._at: tuple[LoopThread, asynchronous.Publisher] = self._open()

    def send(self, body: Any, **options: Any) -> Confirm:
        """The Confirm tells whether it is `done`; `flush` waits."""
        loop, publisher = self._current()
        loop.check_caller()
        message = Outgoing(body, **options)
        hooks = self._client.hooks
        if hooks is None:
            return loop.call(publisher.send_packed, publisher.pack(message))
        with hooks.publishing(self._queue, message):
            return loop.call(publisher.send_packed, publisher.pack(message))

    def flush(self) -> int:
        loop, publisher = self._current()
        return loop.call(publisher.flush)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a forked child there is nothing to wait for, unless it has sent something itself.
        if error is None and not self._at[0].inherited:
            self.flush()

    def _current(self) -> tuple[LoopThread, asynchronous.Publisher]:
        if self._at[0].inherited:
            self._at = self._open()
        return self._at

    def _open(self) -> tuple[LoopThread, asynchronous.Publisher]:
        loop, client = self._client._connected()
        return loop, loop.call(partial(client.publisher, self._queue, dedup=self._dedup))


def _give_back(messages: list[Message[Any]]) -> None:
    """Called in the loop."""
    for message in messages:
        message.release()


def _publish(publishing: Publishing, loop: LoopThread, packed: PackedPublish, answer: Answer) -> None:
    """Called in the loop."""
    link = publishing.link
    link.check()
    if link.outbox.full:
        loop.run_in_task(answer, publishing.one_packed(packed))
    else:
        batch, index = publishing.place(packed)
        batch.when_done(partial(_receipt, answer, batch, index))


def _publish_many(
    running: OpenClient, queue: str, messages: Iterable[Any], common: Outgoing, *, dedup: bool
) -> PublishReport:
    """As `Publishing.many`: packed here, sent by the loop."""
    loop, publishing = running.loop, running.client.publishing
    loop.check_caller()
    sent: list[PublishBatch] = []
    try:
        for batch in publishing.pack_many(queue, messages, common, dedup=dedup):
            loop.call(publishing.put, batch)
            sent.append(batch)
    except Exception as error:
        with contextlib.suppress(VibeMQError):  # Closed meanwhile, it tells nothing, and the error is what counts.
            loop.call(publishing.note_sent, queue, sent, error)
        raise
    return loop.call(publishing.report, queue, sent)


def _receipt(answer: Answer, batch: PublishBatch, index: int) -> None:
    try:
        answer.give(receipt(batch, index))
    except BaseException as error:
        answer.fail(error)
