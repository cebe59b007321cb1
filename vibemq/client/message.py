"""A received message: a view on its row that decodes what is asked for, and the verbs that settle it."""

import contextlib
import logging
import math
import struct
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from vibemq.client.observing.hooks import Hooks, ProcessScope
from vibemq.client.payload import ReadPayload
from vibemq.client.publishing.outgoing import Outgoing, Seconds
from vibemq.client.publishing.requests import REPLY_TO
from vibemq.client.settlements import BACKOFF, Reason, delay_ms, limit_ms, reason_text
from vibemq.client.waiting.one_process import OfOneProcess
from vibemq.errors import LocalProtocolError, NotConnected, RemoteProtocolError, RequesterGone
from vibemq.model.arguments import check_flag, check_headers, misfit
from vibemq.model.rows import Rows, RowView
from vibemq.model.runs import Run, runs_of
from vibemq.model.shared.settlement import Settlement

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ELSEWHERE: Final = (
    "a message is settled by the connection that delivered it, so it is neither pickled nor copied; give another"
    " process its payload and headers, and settle it here"
)


class Done:
    """Awaitable that is done already: a verb has its effect when it is called, awaiting it is welcome, not needed."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


DONE = Done()


class Settler(Protocol):
    """Who carries settlements to the broker."""

    def settle(self, delivery: "Delivery", verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        """Note the settlement for the next flush; counted and dropped when the delivery is stale."""

    def extend(self, delivery: "Delivery", runs: Sequence[Run], ack_timeout_ms: int) -> None: ...

    def is_stale(self, delivery: "Delivery") -> bool:
        """Whether the connection that delivered is gone, so that the broker hands the messages out again."""

    def is_lost(self, delivery: "Delivery", sequence: int) -> bool:
        """See `Message.lost`."""

    def reply(self, address: str, response: Outgoing) -> Awaitable[None]:
        """See `Message.reply`. The blocking face has done it when this returns."""


class Delivery:
    """What the messages of one delivery frame share."""

    __slots__ = (
        "acquired",
        "deadline",
        "epoch",
        "extended",
        "failed",
        "group",
        "hooks",
        "instants",
        "published_at",
        "queue",
        "settler",
        "subscription",
        "validate",
    )

    def __init__(
        self,
        settler: Settler,
        epoch: int,
        queue: str,
        published_at: int,
        acquired: dict[int, int],
        validate: Callable[[bytes], Any] | None,
        deadline: float = math.inf,
        subscription: str = "",
        hooks: Hooks | None = None,
        group: str | None = None,
        failed: dict[int, int] | None = None,
        instants: dict[int, int] | None = None,
    ) -> None:
        self.settler = settler
        self.instants = instants
        """Sequence -> `published_at` of its own; None when they share one."""
        self.failed = failed
        """Sequence -> failed attempts, of those that have any; None when the broker does not tell."""
        self.hooks = hooks
        self.group = group
        self.subscription = subscription
        self.deadline = deadline
        """Of the client's clock: when the broker hands the messages out again; infinite when nobody has said."""
        self.extended: dict[int, float] | None = None
        """Sequence -> its own deadline, when there are such."""
        self.epoch = epoch
        """Number of the connection; a settlement is good on that connection only."""
        self.queue = queue
        self.published_at = published_at
        self.acquired = acquired
        self.validate = validate


class Message(ReadPayload, OfOneProcess, Generic[T]):
    """One delivery of one message. `T` is the `model` of its subscription."""

    __slots__ = ("_delivery", "_row", "_verb", "sequence")

    _elsewhere = _ELSEWHERE

    def __init__(self, delivery: Delivery, sequence: int, row: bytes) -> None:
        self._delivery = delivery
        self._row = row
        self.sequence = sequence
        """Place in the queue, from 1, never reused."""
        self._verb: Settlement | None = None

    def __repr__(self) -> str:
        try:
            message_id = self.id
        except RemoteProtocolError:
            message_id = "damaged"
        return f"<Message {self.queue}#{self.sequence} id={message_id} attempt={self.attempt}>"

    @property
    def id(self) -> str:
        try:
            return RowView(self._row).message_id
        except struct.error:
            raise self._damaged() from None

    @property
    def queue(self) -> str:
        return self._delivery.queue

    @property
    def group(self) -> str | None:
        """The named group that it was delivered to; None for the queue's ordinary one."""
        return self._delivery.group

    @property
    def damaged(self) -> bool:
        """Whether it arrived damaged: `id`, `headers` and `payload` raise RemoteProtocolError."""
        try:
            RowView(self._row).headers  # noqa: B018  # the last part of a row; reads all of it
        except (struct.error, IndexError):
            return True
        return False

    @property
    def subscription_id(self) -> str:
        """`id` of the subscription that received it."""
        return self._delivery.subscription

    @property
    def payload(self) -> bytes:
        """The bytes that were published.

        Raises:
            RemoteProtocolError: they arrived damaged, so that they cannot be told from the rest; so do `id`, `headers`
                and everything that is read from the payload. The message can be settled all the same.
        """
        try:
            return RowView(self._row).payload
        except struct.error:
            raise self._damaged() from None

    @property
    def headers(self) -> dict[str, str]:
        try:
            return RowView(self._row).headers
        except (struct.error, IndexError):
            raise self._damaged() from None

    @property
    def typed(self) -> T:
        """The payload as the subscription's `model`. Raises the ValidationError of its library, pydantic or msgspec."""
        validate = self._delivery.validate
        if validate is None:
            raise TypeError("this subscription has no model; give subscribe(..., model=YourModel)")
        validated: T = validate(self.payload)
        return validated

    @property
    def attempt(self) -> int:
        """1 for the first hand-out of the message, counting every one."""
        return self._delivery.acquired.get(self.sequence, 1)

    @property
    def redelivered(self) -> bool:
        return self.attempt > 1

    @property
    def failures(self) -> int | None:
        """Failed attempts before this one; a released one is none. None when it is not known: a broker of an earlier
        version only numbers hand-outs."""
        failed = self._delivery.failed
        if failed is None:
            return 0 if self.attempt == 1 else None
        return failed.get(self.sequence, 0)

    @property
    def settled(self) -> bool:
        """Whether a verb has been called; further ones have no effect."""
        return self._verb is not None

    @property
    def lost(self) -> bool:
        """Whether it is somebody else's now, as far as this client knows: its ack timeout has passed, it was handed out
        to this subscription again, or its connection is gone. Ask before it is settled; then it is False.

        The timeout is known if the subscription has an `ack_timeout`, or `extend` was called with one.
        """
        return self._verb is None and self._delivery.settler.is_lost(self._delivery, self.sequence)

    @property
    def published_at(self) -> int:
        """Broker's clock, epoch ms."""
        instants = self._delivery.instants
        return self._delivery.published_at if instants is None else instants[self.sequence]

    @property
    def priority(self) -> str | None:
        """The `priority` header, when the publisher sent one."""
        return self.headers.get("priority")

    @property
    def stale(self) -> bool:
        """The connection it came by is gone: the broker hands the message out again, and verbs have no effect here."""
        return self._delivery.settler.is_stale(self._delivery)

    def ack(self) -> Done:
        """Done with it. Travels with the next flush, at the latest when the loop turns."""
        return self._settle(Settlement.ACK, BACKOFF, "")

    def retry(self, delay: Seconds | None = None, reason: Reason = "") -> Done:
        """It failed: hand it out again after `delay` seconds (None: the queue's backoff), or dead-letter it when its
        attempts are used up.

        Raises:
            LocalProtocolError: the delay is negative, infinite or no number, or the reason is neither text nor an
                exception; the message is not settled.
        """
        return self._settle(Settlement.RETRY, delay_ms(delay, "delay"), reason)

    def release(self) -> Done:
        """Give it back unharmed: no attempt counted, first in the queue again."""
        return self._settle(Settlement.RELEASE, BACKOFF, "")

    def reject(self, reason: Reason = "") -> Done:
        """Never to be retried: straight to the dead letters.

        Raises:
            LocalProtocolError: the reason is neither text nor an exception; the message is not settled.
        """
        return self._settle(Settlement.REJECT, BACKOFF, reason)

    def extend(self, ack_timeout: Seconds | None = None) -> Done:
        """Work on it for `ack_timeout` more seconds from now (None: the subscription's own timeout; 0: no limit).

        Raises:
            LocalProtocolError: the timeout is negative, infinite or no number.
        """
        timeout_ms = BACKOFF if ack_timeout is None else limit_ms(ack_timeout, "ack_timeout")
        if self._verb is None:
            self._delivery.settler.extend(self._delivery, [(self.sequence, self.sequence)], timeout_ms)
        return DONE

    def reply(self, body: Any, *, headers: Mapping[str, str] | None = None) -> Awaitable[None]:
        """Send the reply to this message, which is a request; to be awaited, but in vibemq.sync. The message is not
        acknowledged by it.

        Raises:
            LocalProtocolError: the message is no request.
            RequesterGone: nobody waits for the reply any more: this one is late, or another consumer has replied. A
                block of `process` ends then, and acknowledges the message.
            ConnectionLost, RequestTimeout: the reply may or may not have come in time.
        """
        address = self.headers.get(REPLY_TO)
        if headers is not None:
            check_headers(headers)
        if address is None:
            raise LocalProtocolError(
                f"message {self.sequence} of queue {self.queue!r} has no header {REPLY_TO!r}, so nobody waits for a"
                " reply; only messages of Client.request can be replied to"
            )
        return self._delivery.settler.reply(address, Outgoing(body, None, headers))

    def process(
        self,
        *,
        retry_delay: Seconds | None = None,
        reject_on: tuple[type[Exception], ...] = (),
        suppress: bool = False,
    ) -> "Processing[T]":
        """Settle by how the block ends: ack; retry after an exception; reject after one of `reject_on`; release when
        the task is cancelled. Works with `async with` and with `with`.

        RequesterGone is no failure of the work: the block ends with an ack. A group of exceptions counts as what all of
        them are.

        Args:
            reject_on: an exception class, or a tuple of them.
            suppress: log the exception and go on after the block instead of raising it, so that one bad message does
                not end the consumer.
        """
        # Refused here, not while an exception of the block is on its way.
        delay_ms(retry_delay, "retry_delay")
        if reject_on != () or suppress is not False:
            _check_processing(reject_on, suppress)
        return Processing(self, retry_delay, reject_on, suppress)

    def _damaged(self) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"message {self.sequence} of queue {self.queue!r} arrived damaged; a connection with TLS would have noticed"
        )

    def _settle(self, verb: Settlement, delay_ms: int, reason: Reason) -> Done:
        if self._verb is None:
            told = reason_text(reason) if reason else ""
            self._verb = verb
            sequence = self.sequence
            self._delivery.settler.settle(self._delivery, verb, ((sequence, sequence),), delay_ms, told)
        return DONE


def _check_processing(reject_on: object, suppress: object) -> None:
    check_flag("suppress", suppress)
    kinds = reject_on if isinstance(reject_on, tuple) else (reject_on,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise misfit("reject_on", reject_on, "an exception class, or a tuple of them")


class Processing(Generic[T]):
    """See `Message.process`."""

    __slots__ = ("_message", "_reject_on", "_retry_delay", "_scope", "_suppress")

    def __init__(
        self,
        message: Message[T],
        retry_delay: Seconds | None,
        reject_on: tuple[type[Exception], ...],
        suppress: bool,
    ) -> None:
        self._message = message
        self._retry_delay = retry_delay
        self._reject_on = reject_on
        self._suppress = suppress
        self._scope: ProcessScope | None = None

    def __enter__(self) -> Message[T]:
        hooks = self._message._delivery.hooks
        if hooks is not None:
            self._scope = hooks.processing(self._message)
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        verb = self._settle(error) if self._scope is None else self._settle_observed(error, self._scope)
        if _is_only(error, RequesterGone):
            logger.info("nobody waits for the reply to %r: %s", self._message, error)
            return True
        if self._suppress and verb in ("retry", "reject"):
            logger.warning("processing %r failed", self._message, exc_info=error)
            return True
        return False

    def _settle(self, error: BaseException | None) -> str:
        """The verb that the end of the block stands for; it has no effect when the block has called one itself."""
        message = self._message
        if error is None or _is_only(error, RequesterGone):
            message.ack()
            return "ack"
        verb, settle = self._verb_for(error)
        # A client that is closed, or the parent's, cannot say anything more of the message, which is handed out again:
        # the error of the block is what counts.
        with contextlib.suppress(NotConnected):
            settle()
        return verb

    def _settle_observed(self, error: BaseException | None, scope: ProcessScope) -> str:
        """As `_settle`; the observers are told the verb that has had its effect, also when none can have any more."""
        failed = None if _is_only(error, RequesterGone) else error
        try:
            return self._settle(error)
        except BaseException as unsettled:
            failed = unsettled
            raise
        finally:
            verb = self._message._verb
            scope.end("" if verb is None else verb.name.lower(), failed)

    def _verb_for(self, error: BaseException) -> tuple[str, Callable[[], object]]:
        message = self._message
        if not isinstance(error, Exception):
            # Cancellation, Ctrl-C: the message is not to blame.
            return "release", message.release
        if self._reject_on and _is_only(error, self._reject_on):
            return "reject", partial(message.reject, error)
        return "retry", partial(message.retry, self._retry_delay, error)

    async def __aenter__(self) -> Message[T]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, trace)


def _is_only(error: BaseException | None, kinds: type[Exception] | tuple[type[Exception], ...]) -> bool:
    """Whether it is one of these, or a group of such alone, as a task group raises it."""
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, kinds):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


class MessageBatch(OfOneProcess, Sequence[Message[T]]):
    """Messages that arrived together: consecutive ones, or such as fell due one after the other. Costs per batch,
    unless its messages are looked at one by one."""

    __slots__ = ("_delivery", "_messages", "_rows", "_sequences", "_verb")

    _elsewhere = _ELSEWHERE

    def __init__(self, delivery: Delivery, sequences: Sequence[int], rows: Rows) -> None:
        """`sequences`: of the rows, in their order."""
        self._delivery = delivery
        self._rows = rows
        self._sequences = sequences
        self._messages: list[Message[T]] | None = None
        self._verb: Settlement | None = None
        """Of all, before they were looked at one by one."""

    def __len__(self) -> int:
        return self._rows.count

    def __repr__(self) -> str:
        return f"<MessageBatch {self.queue}#{self.first_sequence}+{len(self)}>"

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message[T]]: ...

    def __getitem__(self, index: int | slice) -> Message[T] | list[Message[T]]:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message[T]]:
        return iter(self.messages)

    @property
    def queue(self) -> str:
        return self._delivery.queue

    @property
    def first_sequence(self) -> int:
        """Of the first message."""
        return self._sequences[0]

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self._rows.size

    @property
    def messages(self) -> list[Message[T]]:
        if self._messages is None:
            delivery, rows = self._delivery, self._rows
            if rows.count == 1:
                self._messages = [Message(delivery, self._sequences[0], rows.data)]
            else:
                self._messages = [Message(delivery, n, row) for n, row in zip(self._sequences, rows, strict=True)]
            for message in self._messages if self._verb is not None else ():
                message._verb = self._verb
        return self._messages

    @property
    def stale(self) -> bool:
        return self._delivery.settler.is_stale(self._delivery)

    def payloads(self) -> list[bytes]:
        """Every payload in order, without making message objects."""
        return self._rows.payloads()

    def ack_all(self) -> Done:
        return self._settle_all(Settlement.ACK, BACKOFF, "")

    def retry_all(self, delay: Seconds | None = None, reason: Reason = "") -> Done:
        return self._settle_all(Settlement.RETRY, delay_ms(delay, "delay"), reason)

    def release_all(self) -> Done:
        return self._settle_all(Settlement.RELEASE, BACKOFF, "")

    def reject_all(self, reason: Reason = "") -> Done:
        return self._settle_all(Settlement.REJECT, BACKOFF, reason)

    def _settle_all(self, verb: Settlement, delay_ms: int, reason: Reason) -> Done:
        """Settle what no message of the batch has settled on its own."""
        told = reason_text(reason) if reason else ""
        runs: Sequence[Run]
        if self._messages is None:
            runs = () if self._verb is not None else runs_of(self._sequences)
        else:
            unsettled = [message for message in self._messages if message._verb is None]
            runs = runs_of(message.sequence for message in unsettled)
            for message in unsettled:
                message._verb = verb
        if self._verb is None:
            self._verb = verb
        if runs:
            self._delivery.settler.settle(self._delivery, verb, runs, delay_ms, told)
        return DONE


def batch_of(messages: list[Message[T]]) -> MessageBatch[T]:
    """Messages of one batch, those that are left of it."""
    rows = Rows.of([message._row for message in messages])
    batch: MessageBatch[T] = MessageBatch(messages[0]._delivery, [message.sequence for message in messages], rows)
    batch._messages = messages
    return batch


def route(messages: Iterable[Message[Any]], wrap: Callable[[Settler], Settler]) -> None:
    """Make the messages, and all that came with them, settle through `wrap(their settler)`."""
    for delivery in {id(message._delivery): message._delivery for message in messages}.values():
        delivery.settler = wrap(delivery.settler)
