"""Publishing: one message, many, or a stream; all of it pipelined, within bounds.

Resending. What a lost connection had not confirmed is sent again on the next. The broker may have accepted the first
copy, so a message that must not be doubled needs a dedup id *in its first copy*. `publish` gives it one of its own
(`safe_retry`). In bulk that takes a quarter to a third of the throughput (measured at 1 KiB: 73k to 56k messages a
second on a strong queue, 92k to 62k on a transient one), and the broker remembers every id for the queue's dedup
window. So `publish_many` and `Publisher` do it on request (`dedup=True`); without it they are at-least-once.
"""

from collections import deque
from collections.abc import AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self

from anyio.lowlevel import checkpoint

from vibemq.client.link import ClientLink
from vibemq.client.observing.hooks import Hooks
from vibemq.client.publishing.explaining import UNPACKED, explain, explain_parts
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import Extra, Outgoing, PriorityLike, RowPacker, Seconds, extra_of, milliseconds
from vibemq.client.publishing.packing import packed_batches
from vibemq.client.publishing.receipts import PublishReport, Receipt, raise_for, receipt
from vibemq.client.publishing.requests import Response
from vibemq.client.publishing.unwaited import UnwaitedPublishes
from vibemq.client.waiting.asynchronous import Asynchronous
from vibemq.errors import LocalProtocolError, VibeMQError
from vibemq.model.arguments import check_flag, check_text, check_time
from vibemq.model.options import check_queue_name

TURN_MESSAGES = 512
"""Messages that a `Publisher` packs before the loop gets a turn."""
TIMEOUT_MS_MAX = 2**32 - 1
"""Of a request."""
REFUSALS_KEPT = 1_000
"""Errors of a `Publisher` since its last flush; of more it knows the number."""
_NAMES_KEPT = 10_000


class PackedPublish(NamedTuple):
    """A message on its way into the outbox."""

    queue: str
    row: bytes
    extra: Extra | None
    own_dedup: bool
    id: str | None
    """As it was given."""


class PackedRequest(NamedTuple):
    queue: str
    row: bytes
    extra: Extra | None
    timeout: float


class Publishing:
    """Everything a client publishes goes through here."""

    def __init__(self, link: ClientLink) -> None:
        self.link = link
        self.unwaited = UnwaitedPublishes()
        self._turn = TURN_MESSAGES
        self._packer = RowPacker(lambda: link.row_bytes_max)
        self._good_names: set[str] = set()

    async def one(self, queue: str, message: Outgoing) -> Receipt:
        link = self.link
        link.check_loop()
        packed = self.pack(queue, message)
        if link.outbox.full:
            return await self.one_packed(packed)
        batch, index = self.place(packed)
        await batch.done.wait()
        return receipt(batch, index)

    async def one_packed(self, packed: PackedPublish) -> Receipt:
        """As `one`, once there is room."""
        await self.link.outbox.room()
        self.link.check()
        batch, index = self.place(packed)
        await batch.done.wait()
        return receipt(batch, index)

    async def ask(self, queue: str, message: Outgoing, timeout: Seconds) -> Response:
        """As `Client.request`."""
        self.link.check_loop()
        return await self.ask_packed(self.pack_request(queue, message, timeout))

    async def ask_packed(self, packed: PackedRequest) -> Response:
        return await self.link.requests.reply_to(*packed)

    def pack_request(self, queue: str, message: Outgoing, timeout: Seconds) -> PackedRequest:
        """Any thread may do it."""
        self._check_name(queue)
        check_time("timeout", timeout)
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if not 0 < seconds <= TIMEOUT_MS_MAX / 1000:
            raise LocalProtocolError(
                f"timeout is {seconds:g} s; it must be more than 0 and at most {TIMEOUT_MS_MAX // 1000:,} s"
            )
        timeout_ms = milliseconds(seconds, "timeout")
        try:
            row, extra = self.link.requests.packer.row(message), extra_of(message)
        except UNPACKED:
            explain_parts(message)
            raise
        return PackedRequest(queue, row, extra, timeout_ms / 1000)

    async def many(self, queue: str, messages: Iterable[Any], common: Outgoing, *, dedup: bool) -> PublishReport:
        """Send all, then wait for all. The error of a body that cannot be packed, or of the iterable, comes once what
        was sent before it is answered; a note of the error says how many messages that is."""
        self.link.check_loop()
        sent: list[PublishBatch] = []
        try:
            for batch in self.pack_many(queue, messages, common, dedup=dedup):
                await self.put(batch)
                sent.append(batch)
                # The writer gets its turn while the next frame is packed.
                await checkpoint()
        except Exception as error:
            await self.note_sent(queue, sent, error)
            raise
        return await self.report(queue, sent)

    def pack_many(
        self, queue: str, messages: Iterable[Any], common: Outgoing, *, dedup: bool
    ) -> Iterator[PublishBatch]:
        """What `put` is given, in order. Any thread may iterate: the messages are the program's, rows of a database
        perhaps that belong to its thread.

        Args:
            common: what bodies have beside themselves.
        """
        self._check_name(queue)
        check_flag("dedup", dedup)
        if isinstance(messages, str | bytes | bytearray | memoryview | Mapping):
            raise LocalProtocolError(
                f"publish_many takes many bodies, and this is one {type(messages).__name__}, whose parts would be"
                " published one by one; write publish(queue, body), or publish_many(queue, [body])"
            )
        if isinstance(messages, AsyncIterable):
            raise LocalProtocolError(
                f"publish_many takes what `for` takes, and this is {messages!r:.80}, for `async for`; write `async with"
                " mq.publisher(queue) as out: async for body in …: await out.send(body)`"
            )
        if not isinstance(messages, Iterable):
            raise LocalProtocolError(
                f"publish_many takes many bodies, and this is {messages!r:.80}; write publish(queue, body), or"
                " publish_many(queue, [body])"
            )
        plain = common == Outgoing(None)
        return packed_batches(self._packer, queue, messages, None if plain else common, dedup=dedup)

    async def put(self, batch: PublishBatch) -> None:
        """Put it on its way, waiting only for room."""
        await self.link.outbox.room()
        self.link.check()
        self.link.outbox.put(batch)
        self.link.wake()

    async def note_sent(self, queue: str, sent: Sequence[PublishBatch], error: Exception) -> None:
        """On the error that a later message has met, once these are answered: how many of them are published."""
        if sent:
            report = await self.report(queue, sent)
            said = f"{report.accepted:,} of the first {len(report):,} messages are published to {queue!r}"
            error.add_note(f"{said}; no later one was sent")

    async def report(self, queue: str, sent: Sequence[PublishBatch]) -> PublishReport:
        """Of batches that are on their way, once all are answered."""
        for batch in sent:
            await batch.done.wait()
        return PublishReport(queue, sent)

    async def submit(self, packed: PackedPublish) -> tuple[PublishBatch, int]:
        """Put one message on its way, waiting only for room; its batch, and its place in it."""
        self.link.check_loop()
        outbox = self.link.outbox
        if outbox.full:
            await outbox.room()
        self.link.check()
        placed = outbox.add(packed.queue, packed.row, packed.extra, own_dedup=packed.own_dedup)
        self.link.wake()
        return placed

    def place(self, packed: PackedPublish) -> tuple[PublishBatch, int]:
        """As `submit`, of a message by itself, when there is room."""
        link = self.link
        alone = link.is_idle
        placed = link.outbox.add(packed.queue, packed.row, packed.extra, own_dedup=packed.own_dedup)
        link.wake(alone=alone)
        return placed

    async def begin(self, queue: str, message: Outgoing) -> None:
        """Put one message on its way, waiting only for room.

        Raises:
            PublishFailed: earlier ones failed; this one was not published.
        """
        self.link.check_loop()
        self.unwaited.raise_failures()
        packed = self.pack(queue, message)
        outbox = self.link.outbox
        if outbox.full:
            await outbox.room()
            self.link.check()
        self.add_unwaited(packed)
        self._turn -= 1
        if not self._turn:
            # A turn for the writer, before the frames outgrow what is worth gathering.
            self._turn = TURN_MESSAGES
            await checkpoint()

    def check_loop(self) -> None:
        """See `ClientLink.check_loop`."""
        self.link.check_loop()

    async def room(self) -> None:
        """Wait until more may be published, or nothing will be."""
        await self.link.outbox.room()

    def pack(self, queue: str, message: Outgoing, *, dedup: bool | None = None) -> PackedPublish:
        """Any thread may do it.

        Args:
            dedup: whether it gets a dedup id, if it has none; None = as `safe_retry` says.
        """
        try:
            self._check(queue)
            return self._packed(queue, message, dedup=self.link.settings.safe_retry if dedup is None else dedup)
        except UNPACKED:
            explain(queue, message)
            raise

    def add_unwaited(self, packed: PackedPublish) -> None:
        """Whatever becomes of it is told by `unwaited`."""
        try:
            self.link.check()
        except VibeMQError as error:
            self.unwaited.fail(packed.queue, packed.id, error)
            return
        batch, index = self.link.outbox.add(packed.queue, packed.row, packed.extra, own_dedup=packed.own_dedup)
        self.unwaited.add(batch, index, packed.id)
        self.link.wake()

    def _packed(self, queue: str, message: Outgoing, *, dedup: bool) -> PackedPublish:
        extra = extra_of(message)
        own_dedup = dedup and message.dedup_id is None
        if own_dedup:
            extra = {**(extra or {}), "dedup_id": self._packer.new_dedup_id()}
        return PackedPublish(queue, self._packer.row(message), extra, own_dedup, message.id)

    def _check_name(self, queue: str) -> None:
        """As `_check`, for what is not called for each message."""
        check_text("queue", queue)
        self._check(queue)

    def _check(self, queue: str) -> None:
        self.link.check()
        if queue not in self._good_names:
            check_queue_name(queue)
            if len(self._good_names) >= _NAMES_KEPT:
                self._good_names.clear()
            self._good_names.add(queue)


class Confirm:
    """The answer to come for one message of a `Publisher`: `receipt = await confirm`."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PublishBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        return self._batch.done.is_set()

    def __await__(self) -> Generator[Any, Any, Receipt]:
        """
        Raises:
            VibeMQError: why the message was not accepted.
        """
        yield from self._batch.done.wait().__await__()
        return receipt(self._batch, self._index)


class _Piece:
    """Consecutive messages of a `Publisher`; others' may stand before and behind them in their batch."""

    __slots__ = ("batch", "count", "first", "start")

    def __init__(self, batch: PublishBatch, first: int, start: int) -> None:
        self.batch = batch
        self.first = first
        """Place of the first one in the batch."""
        self.start = start
        """Its number in the stream."""
        self.count = 1

    def refusals(self) -> Iterator[tuple[int, VibeMQError]]:
        """By the numbers in the stream."""
        for index, error in self.batch.refusals(self.first, self.count):
            yield self.start + index - self.first, error


class Publisher(Asynchronous):
    """A stream of messages into one queue. `send` waits only while too much is unconfirmed.

    Leaving the block waits for every confirm, and raises PublishRefused for what was refused.
    """

    _usage = (
        "a publisher of vibemq.connect is used with `async with`, and not awaited; vibemq.sync.connect has the blocking"
        " client, for `with`"
    )

    def __init__(self, publishing: Publishing, queue: str, *, dedup: bool, hooks: Hooks | None = None) -> None:
        check_text("queue", queue)
        check_flag("dedup", dedup)
        self.queue = queue
        self._hooks = hooks
        self._publishing = publishing
        self._dedup = dedup
        self._pieces: deque[_Piece] = deque()
        self._refused: dict[int, VibeMQError] = {}
        self._refused_more = 0
        self._sent = 0
        self._flushed = 0
        """So many of them were told about."""

    @property
    def unconfirmed(self) -> int:
        return sum(piece.count for piece in self._pieces if not piece.batch.done.is_set())

    async def send(
        self,
        body: Any,
        *,
        id: str | None = None,  # noqa: A002  # the name users know
        headers: Mapping[str, str] | None = None,
        priority: PriorityLike | None = None,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: datetime | float | None = None,
        dedup_id: str | None = None,
    ) -> Confirm:
        """Put one message on its way. Awaiting the Confirm is optional: `flush` tells about all of them."""
        message = Outgoing(body, id, headers, priority, ttl, delay, deliver_at, dedup_id)
        if self._hooks is not None:
            with self._hooks.publishing(self.queue, message):
                return await self.send_packed(self.pack(message))
        return await self.send_packed(self.pack(message))

    def pack(self, message: Outgoing) -> PackedPublish:
        """For `send_packed`. Any thread may do it."""
        return self._publishing.pack(self.queue, message, dedup=self._dedup)

    async def send_packed(self, packed: PackedPublish) -> Confirm:
        """As `send`, for faces of the client that call the hooks themselves."""
        batch, index = await self._publishing.submit(packed)
        piece = self._pieces[-1] if self._pieces else None
        if piece is not None and piece.batch is batch and index == piece.first + piece.count:
            piece.count += 1
        else:
            self._drop_settled()
            self._pieces.append(_Piece(batch, index, self._sent))
        self._sent += 1
        if batch.full or self._sent % TURN_MESSAGES == 0:
            # A turn for the writer, before the frame outgrows what is worth gathering.
            await checkpoint()
        return Confirm(batch, index)

    async def flush(self) -> int:
        """Wait for every confirm; how many messages were accepted since the last flush. What is sent meanwhile is for
        the next one, unless it is confirmed by then.

        Raises:
            PublishRefused: some were refused; their indexes count from the last flush. It has the errors of the first
                1,000, and the number of those beyond.
        """
        self._publishing.check_loop()
        for piece in list(self._pieces):
            await piece.batch.done.wait()
        self._drop_settled()
        begin, self._flushed = self._flushed, self._pieces[0].start if self._pieces else self._sent
        refused, self._refused = {number - begin: error for number, error in self._refused.items()}, {}
        more, self._refused_more = self._refused_more, 0
        accepted = self._flushed - begin - len(refused) - more
        raise_for(self.queue, refused, accepted, more)
        return accepted

    async def __aenter__(self) -> Self:
        self._publishing.check_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()

    def _drop_settled(self) -> None:
        while self._pieces and self._pieces[0].batch.done.is_set():
            for number, error in self._pieces.popleft().refusals():
                if len(self._refused) < REFUSALS_KEPT:
                    self._refused[number] = error
                else:
                    self._refused_more += 1
