"""`vibemq.connect` and the client it gives."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

import anyio

from vibemq.client.address import ClientSettings, compressions, settings_of
from vibemq.client.changes import ConnectionListeners, Listener
from vibemq.client.connecting.forking import watch_forks
from vibemq.client.connecting.own_task import OwnTask, current_loop
from vibemq.client.connecting.supervisor import Supervisor
from vibemq.client.fetch import fetch
from vibemq.client.link import ClientLink
from vibemq.client.message import Message
from vibemq.client.observing.hooks import ClientHook, Hooks, hooks_of_a_client
from vibemq.client.payload import validator
from vibemq.client.publisher import Publisher, Publishing
from vibemq.client.publishing.outgoing import Outgoing, PriorityLike, Seconds
from vibemq.client.publishing.receipts import PublishReport, Receipt
from vibemq.client.publishing.requests import Response
from vibemq.client.queues import ClientQueues, Difference, OnConflict, option_values
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.client.subscription import Subscription
from vibemq.client.waiting.asynchronous import Asynchronous
from vibemq.errors import LocalProtocolError, NotConnected, VibeMQError
from vibemq.model.arguments import check_flag, check_text, check_whole
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec.wire import CommandType

T = TypeVar("T")
TASK_CANCELLED = (
    "the client's own task, 'vibemq client', was cancelled from outside, as by a shutdown that cancels all tasks of the"
    " loop; close the client before that, or leave this task out"
)
_PARTS = frozenset({"_link", "_supervisor", "_publishing", "_queues"})


def connect(
    address: str | ClientSettings = "vibemq://localhost",
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls: bool | None = None,
    tls_ca: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    tls_server_name: str | None = None,
    verify_certificate: bool | None = None,
    command_timeout: float | None = None,
    keep_alive: float | None = None,
    reconnect: ReconnectPolicy | None = None,
    compression: str | None = None,
    name: str | None = None,
    safe_retry: bool | None = None,
    publish_connection: bool | None = None,
    max_unconfirmed: int | None = None,
    max_unconfirmed_bytes: int | None = None,
    max_message_bytes: int | None = None,
    hooks: Iterable[ClientHook] = (),
) -> "Client":
    """A client for `async with`, which connects when the block is entered, or for `open()` and `close()`. Times in
    seconds.

    Args:
        address: a URL (`vibemq://user:secret@host:2925?…`) or `host=…;port=…;…`; see `vibemq.client.address`.
        tls_ca: file of the authorities (PEM) that may have signed the broker's certificate. This, tls_certificate and
            tls_server_name turn TLS on.
        tls_certificate, tls_key: files (PEM) of the certificate that this client presents, and its key.
        tls_server_name: the name in the broker's certificate, when it is not the host of the address.
        verify_certificate: False accepts any certificate; for trials only.
        compression: `none` (the default), `auto`, or a comma list of `brotli` and `gzip`.
        name: shown by the broker beside the connection.
        hooks: observers of what it publishes and processes; see `vibemq.client.ClientHook`.

    What is given here wins over the address; the defaults stand in `ClientSettings`.

    Raises:
        ConfigInvalid: the address or a value cannot be used.
    """
    settings = settings_of(address)
    given = {
        "username": username,
        "password": password,
        "token": token,
        "tls": tls,
        "tls_ca": tls_ca,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "tls_server_name": tls_server_name,
        "verify_certificate": verify_certificate,
        "command_timeout": command_timeout,
        "keep_alive": keep_alive,
        "reconnect": reconnect,
        "compression": None if compression is None else compressions(compression),
        "name": name,
        "safe_retry": safe_retry,
        "publish_connection": publish_connection,
        "max_unconfirmed": max_unconfirmed,
        "max_unconfirmed_bytes": max_unconfirmed_bytes,
        "max_message_bytes": max_message_bytes,
    }
    settings = replace(settings, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
    return Client(settings, hooks=hooks_of_a_client(settings, hooks))


class Client(Asynchronous):
    """A connection to one broker that reconnects. Made by `connect`; used within `async with`, or between `open()`
    and `close()`, which any tasks of one loop may call: fixtures, start-up and shut-down hooks.

    Tasks of the same loop may share it freely: what they publish and settle in one turn travels together.
    """

    _usage = (
        "vibemq.connect has the client for await, which is opened by `async with vibemq.connect(…) as mq:` or by "
        "`await mq.open()`; vibemq.sync.connect has the blocking client, for `with`"
    )

    def __init__(
        self, settings: ClientSettings, listeners: ConnectionListeners | None = None, hooks: Hooks | None = None
    ) -> None:
        self.settings = settings
        self.listeners = listeners or ConnectionListeners()
        self.hooks = hooks
        self._life: OwnTask | None = None
        self._link: ClientLink
        self._supervisor: Supervisor
        self._publishing: Publishing
        self._queues: ClientQueues

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there: the parts that `__aenter__` makes.
        if name in _PARTS:
            raise NotConnected(
                "this client is not connected: write `async with vibemq.connect(…) as mq:` and use it in that block, "
                "or `await mq.open()` first"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. `close` ends it, from this task or another one of the same loop.

        Raises:
            NotConnected: nobody listens there, or the client was opened before.
            VibeMQError: the broker refuses.
        """
        if self._life is not None:
            if self._link.inherited:
                self._link.check()
            raise NotConnected("a client is opened once; make another with vibemq.connect")
        self._link = ClientLink(self.settings, anyio.current_time(), self.listeners, current_loop(), self.hooks)
        self._supervisor = Supervisor(self._link)
        self._publishing = Publishing(self._link)
        self._queues = ClientQueues(self._link)
        self._life = OwnTask(self._supervisor.live, self._broken, self._cancelled)
        watch_forks(self._supervisor)
        self._life.start()
        try:
            while self._link.protocol is None:
                self._link.check()
                await self._link.changed.wait()
            for queue in self.settings.queues:
                await self.create_queue(queue)
        except BaseException as error:
            await self._end(error)
            raise

    async def close(self) -> None:
        """Wait for the confirms of what is published, and disconnect. Closing twice, or without `open`, is fine; in a
        forked child, where the connection is the parent's, it does nothing.

        It takes at most `command_timeout` in all, with or without a connection; what is not confirmed then has failed.

        Raises:
            PublishFailed: messages of `publish(..., wait=False)` failed; the client is closed all the same.
            LocalProtocolError: this is not the event loop that opened it; nothing has changed.
        """
        await self._end(None)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        """`error`: of the program, on its way."""
        if self._life is None or self._link.inherited:
            return
        unwaited = self._publishing.unwaited
        if self._life.ended:
            unwaited.tell(error)
            return
        self._link.check_loop()
        try:
            await self._supervisor.close(wait_for_confirms=error is None)
        except BaseException as cancelled:
            unwaited.tell(cancelled)
            raise
        finally:
            await self._life.stop()
        unwaited.tell(error)

    def _broken(self, error: Exception) -> None:
        self._link.fail(lambda: _failed(error))

    def _cancelled(self) -> None:
        self._link.fail(lambda: NotConnected(TASK_CANCELLED))
        self._publishing.unwaited.log()

    @property
    def is_connected(self) -> bool:
        return self._life is not None and self._link.protocol is not None

    @property
    def reconnects(self) -> int:
        """Connections made after the first."""
        return max(0, self._supervisor.connections - 1)

    @property
    def server_version(self) -> str:
        """Of the broker at hand; empty while offline."""
        return self._link.protocol.server_version if self._link.protocol is not None else ""

    @property
    def unconfirmed(self) -> int:
        """Messages published and not confirmed yet."""
        return self._link.outbox.messages

    def on_connection_change(self, callback: Listener) -> Callable[[], None]:
        """Have `callback(change)` called whenever a connection was made or lost, with a ConnectionChange. Returns a
        function that removes it.

        It is called in the client's event loop and must not wait. The client knows about the change by then: publishes
        wait or go on, subscriptions with `restore=False` have ended.
        """
        return self.listeners.add(callback)

    async def ping(self) -> float:
        """Seconds to the broker and back. Everything sent before has been handled by then."""
        began = anyio.current_time()
        await self._link.requests.request(CommandType.PING, what="ping", idempotent=True)
        return anyio.current_time() - began

    # -- publishing ------------------------------------------------------------------------------------------------

    @overload
    async def publish(
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
    async def publish(
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

    async def publish(
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
        """Publish one message and wait for the broker's confirm. Calls from many tasks travel together.

        A lost connection is waited for and the message sent again, without doubling it (see `publisher`).

        Args:
            wait: False returns None as soon as the message is on its way. It waits only while `max_unconfirmed` or
                `max_unconfirmed_bytes` is reached, also when the broker does not answer: until what was sent times out,
                or `offline_timeout` has passed. What fails later is raised as PublishFailed by the next call with
                `wait=False`, by `flush`, and when the client is closed.

        Raises:
            VibeMQError: it was refused.
            RequestTimeout, NotConnected: it may or may not have been accepted.
            PublishFailed: with `wait=False`, earlier messages failed, and this one was not published.
        """
        message = Outgoing(body, id, headers, priority, ttl, delay, deliver_at, dedup_id)
        if self.hooks is not None:
            with self.hooks.publishing(queue, message):
                return await self._publish(queue, message, wait=wait)
        if wait is True:
            return await self._publishing.one(queue, message)
        return await self._publish(queue, message, wait=wait)

    async def _publish(self, queue: str, message: Outgoing, *, wait: bool) -> Receipt | None:
        if wait is True:
            return await self._publishing.one(queue, message)
        check_flag("wait", wait)
        await self._publishing.begin(queue, message)
        return None

    async def request(
        self,
        queue: str,
        body: Any,
        *,
        timeout: Seconds = 30.0,
        id: str | None = None,  # noqa: A002  # the name users know
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
    ) -> Response:
        """Publish a message and wait for the reply to it (`message.reply` of its consumer), which needs no queue.

        The message expires after `timeout` seconds, so nobody begins to work on what nobody waits for. It is never sent
        twice: after a lost connection the caller decides.

        Raises:
            NoReply: it did not come in time. The request may have been carried out.
            RequestFailed: the request was rejected, became a dead letter, was dropped or removed.
            ConnectionLost: the connection was lost. The request may have been carried out.
            NotConnected: there was no connection in that time; nothing was sent.
            VibeMQError: the broker refused the message, and nothing happened.
        """
        message = Outgoing(body, id, headers, priority)
        if self.hooks is None:
            return await self._publishing.ask(queue, message, timeout)
        with self.hooks.publishing(queue, message):
            return await self._publishing.ask(queue, message, timeout)

    async def flush(self) -> None:
        """Wait for the confirms of everything that `publish(..., wait=False)` was given before.

        Raises:
            PublishFailed: some of it failed, now or since the last time that failures were raised.
        """
        self._link.check_loop()
        await self._publishing.unwaited.settled()
        self._publishing.unwaited.raise_failures()

    @property
    def publishing(self) -> Publishing:
        """For faces of the client that hand messages over themselves."""
        return self._publishing

    async def publish_many(
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
        """Publish bodies, or `Outgoing` messages, pipelined, and wait once. Waits while too much is unconfirmed, so
        `messages` may be a generator of any length.

        Args:
            headers, priority, ttl, delay, deliver_at: for those that are plain bodies.
            dedup: no doubles when a lost connection makes the client send something again; costs throughput.
            return_refused: leave refusals to the reader of the report instead of raising.

        Raises:
            PublishRefused: some were refused; its `refused` says which and why, the others are accepted.
            VibeMQError: all were, for one kind of reason.
        """
        check_flag("return_refused", return_refused)
        common = Outgoing(None, None, headers, priority, ttl, delay, deliver_at)
        if self.hooks is None:
            report = await self._publishing.many(queue, messages, common, dedup=dedup)
            return report if return_refused else report.whole()
        with self.hooks.publishing(queue) as scope:
            common.headers = scope.add_to(headers)
            report = await self._publishing.many(queue, scope.add_to_each(messages), common, dedup=dedup)
            scope.messages = len(report)
            return report if return_refused else report.whole()

    def publisher(self, queue: str, *, dedup: bool = False) -> Publisher:
        """A stream into one queue: `async with mq.publisher("orders") as out: await out.send(body)`."""
        return Publisher(self._publishing, queue, dedup=dedup, hooks=self.hooks)

    # -- receiving -------------------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        queue: str,
        *,
        group: str | None = None,
        prefetch: int | None = None,
        prefetch_bytes: int = 0,
        share: str | None = None,
        priority: int = 0,
        weight: int = 1,
        where: str | None = None,
        ack_timeout: Seconds | None = None,
        start: str | int = "default",
        model: type[T],
        auto_extend: bool = False,
        auto_ack: bool = False,
        restore: bool = True,
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self,
        queue: str,
        *,
        group: str | None = None,
        prefetch: int | None = None,
        prefetch_bytes: int = 0,
        share: str | None = None,
        priority: int = 0,
        weight: int = 1,
        where: str | None = None,
        ack_timeout: Seconds | None = None,
        start: str | int = "default",
        model: None = None,
        auto_extend: bool = False,
        auto_ack: bool = False,
        restore: bool = True,
    ) -> Subscription[Any]: ...

    def subscribe(
        self,
        queue: str,
        *,
        group: str | None = None,
        prefetch: int | None = None,
        prefetch_bytes: int = 0,
        share: str | None = None,
        priority: int = 0,
        weight: int = 1,
        where: str | None = None,
        ack_timeout: Seconds | None = None,
        start: str | int = "default",
        model: type[Any] | None = None,
        auto_extend: bool = False,
        auto_ack: bool = False,
        restore: bool = True,
    ) -> Subscription[Any]:
        """Consume a queue: `async with mq.subscribe("orders") as messages: async for message in messages: …`.

        Restored by itself after a lost connection, unless `restore` is False; what was held then is handed out again.

        Args:
            group: a named, durable group with a pass of its own over the queue; None = the queue's ordinary one.
            prefetch, prefetch_bytes: most messages (500) and bytes held unsettled, and so the bound of memory; 0 bytes
                = no bound. `Subscription.set_prefetch` changes them.
            share: the subscriptions of this client with the same name have one prefetch together, whatever their
                queues; another prefetch than theirs is refused, none takes theirs.
            priority: only the consumers of the highest priority receive, also while they have no room; with `where`,
                those of each selector.
            weight: so many messages in a row are this consumer's turn, where several take turns.
            where: only messages that match are delivered: `'region == "eu" && total > 100'`, a condition on their
                headers; see the reference of selectors. What matches no consumer of the group waits in the queue.
            ack_timeout: seconds until an unsettled message is delivered again; None = the queue's, 0 = no limit:
                it is held until it is settled or the connection ends.
            start: where a new group begins: default, beginning, now, or a sequence.
            model: type of `message.typed`: a pydantic model, a msgspec.Struct, a dataclass, `list[…]` of them.
            auto_extend: keep extending what is held, for handlers that take longer than the timeout.
            auto_ack: what the program is given is acknowledged by that: an error of the program, or its end, loses it.
            restore: False ends the subscription with ConnectionLost when the connection is lost, for programs that have
                to clean up before messages are handed out again. Publishes go on by themselves all the same.

        Raises:
            InvalidSelector: `where` cannot be read; the sentence says at which character.
        """
        options = SubscribeOptions(
            queue=queue,
            group=group,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            share=share,
            priority=priority,
            weight=weight,
            where=where,
            ack_timeout=ack_timeout,
            start=start,
            auto_extend=auto_extend,
            auto_ack=auto_ack,
            restore=restore,
        )
        return Subscription(self._link, options, validator(model))

    async def fetch(
        self,
        queue: str,
        *,
        max: int = 1,  # noqa: A002  # the name users know
        timeout: float = 5.0,
        group: str | None = None,
        ack_timeout: Seconds | None = None,
        start: str | int = "default",
        model: type[Any] | None = None,
    ) -> list[Message[Any]]:
        """Take at most `max` messages: returns as soon as any are there, [] when none came within `timeout` seconds.

        They are settled one by one, like those of a subscription. `timeout=0` takes what is there now. A broker that
        does not answer at all has `command_timeout` in addition.

        Raises:
            NotConnected: there was no connection at the end, so what waits in the queue is not known.
            RequestTimeout: the broker has not answered in time.
        """
        check_whole("max", max)
        if max < 1:
            raise LocalProtocolError(f"max is {max}; it must be 1 or more")
        options = SubscribeOptions(
            queue=queue, group=group, prefetch=max, credit=max, ack_timeout=ack_timeout, start=start
        )
        return await fetch(self._link, options, timeout, validator(model))

    # -- queues ----------------------------------------------------------------------------------------------------

    async def create_queue(self, queue: str, *, must_match: bool = False, **options: Any) -> None:
        """Create a queue with the fields of `QueueOptions`; those in ms also by seconds (`ack_timeout=30`).

        An existing queue is left as it is; with `must_match` other options are an error.

        Raises:
            InvalidOptions: an unknown option or an impossible value.
            QueueExists: with `must_match`, it has other options.
        """
        await self._queues.create(queue, option_values(options), must_match=must_match)

    async def declare(self, queue: str, *, on_conflict: OnConflict = "ignore", **options: Any) -> list[Difference]:
        """Create a missing queue; compare an existing one, and give the differences.

        Args:
            on_conflict: `ignore` logs them; `fail` raises QueueExists unless all are harmless; `override` changes the
                queue in place, and never deletes messages to do so (the broker refuses what it cannot change).
        """
        return await self._queues.declare(queue, option_values(options), on_conflict)

    async def change_queue(self, queue: str, **changes: Any) -> None:
        """Change options of an existing queue."""
        await self._queues.change(queue, option_values(changes))

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue with its messages; deleting a missing one succeeds."""
        check_text("queue", queue)
        await self._queues.admin("queue.delete", {"queue": queue})

    async def purge_queue(self, queue: str) -> int:
        """Drop what waits, not what is in flight; how many."""
        check_text("queue", queue)
        return int((await self._queues.admin("queue.purge", {"queue": queue}))["count"])

    async def queue_info(self, queue: str) -> QueueInfo | None:
        """None for a missing queue."""
        return await self._queues.info(queue)

    async def list_queues(self) -> list[QueueInfo]:
        """By name."""
        return await self._queues.every()

    async def admin(self, verb: str, **arguments: Any) -> Any:
        """An operator's verb (`dlq.replay`, `broker.info`, …) with its arguments; the JSON result."""
        return await self._queues.admin(verb, arguments)


def _failed(error: Exception) -> VibeMQError:
    failure = NotConnected(f"the client has failed in an unforeseen way: {error!r}")
    failure.__cause__ = error
    return failure
