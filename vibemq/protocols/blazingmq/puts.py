"""PUTs in, ACKs out: consecutive messages of a queue become one Publish, whose answer becomes one ACK event.

An ACK is written once for each PUT that asked for one, on this connection, and only while the client knows the queue:
the answer to a close waits for it. A message that is refused gets its ACK (a NACK) in any case.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from vibemq.errors import MessageTooLarge, VibeMQError
from vibemq.model.commands import Publish
from vibemq.model.effects import Published
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow, Rows, join_rows
from vibemq.protocols.blazingmq.codec.acks import AckStatus, build_acks, build_positive_acks
from vibemq.protocols.blazingmq.codec.events import Event, LargeEvent
from vibemq.protocols.blazingmq.codec.guid import GuidMaker
from vibemq.protocols.blazingmq.codec.put import ACK_REQUESTED, MESSAGE_PROPERTIES, ZERO_GUID, PutMessage, PutReader
from vibemq.protocols.blazingmq.codec.rows import PutLoader, properties_work, row_of_put, rows_of_run
from vibemq.protocols.blazingmq.errors import ack_code_of
from vibemq.protocols.blazingmq.state import BlazingmqState
from vibemq.protocols.blazingmq.streams import OpenedQueue

ROWS_BYTES_MAX = 1 << 20
"""Of one Publish, unless a single message is larger."""
RUN_WORK_SHIFT = 2
"""Four messages that are alike, taken together, are as much work as one that is taken alone."""
_ID = slice(2, 34)
"""Where a row has its id: the GUID's text."""


class _Gathered:
    """Messages of one queue that become one Publish."""

    __slots__ = ("_joined", "correlations", "guids", "ids", "queue", "rows", "size")

    def __init__(self, queue: OpenedQueue) -> None:
        self.queue = queue
        self._joined: list[Rows] = []
        self.rows: list[bytes] = []
        """Behind those that are joined."""
        self.ids: list[bytes] = []
        """As the messages are stored under."""
        self.guids: list[bytes] = []
        self.correlations: list[int] = []
        """Of each message its correlation id, inverted and so negative if it asked for no ACK. Empty while all have
        asked for one and have the id 0, as those of a client that makes its GUIDs."""
        self.size = 0

    def add(self, row: bytes, guid: bytes, correlation: int) -> None:
        if correlation or self.correlations:
            if not self.correlations:
                self.correlations = [0] * len(self.guids)
            self.correlations.append(correlation)
        self.rows.append(row)
        self.ids.append(row[_ID])
        self.guids.append(guid)
        self.size += len(row)

    def add_run(self, rows: Rows, ids: list[bytes], guids: Sequence[bytes]) -> None:
        """Of messages that have asked for an ACK, from a client that makes their GUIDs."""
        if self.correlations:
            self.correlations += [0] * len(guids)
        if self.rows:
            self._joined.append(Rows.of(self.rows))
            self.rows = []
        self._joined.append(rows)
        self.ids += ids
        self.guids += guids
        self.size += rows.size

    def joined(self) -> Rows:
        if self.rows:
            self._joined.append(Rows.of(self.rows))
        return join_rows(self._joined)


class Puts:
    """
    Args:
        answered: called when publishes of a queue have been answered: something may wait for that.
    """

    def __init__(self, state: BlazingmqState, answered: Callable[[OpenedQueue], None]) -> None:
        self._state = state
        self._answered = answered
        self._reader = PutReader()
        self._gathered: _Gathered | None = None
        self._loading: tuple[PutLoader, OpenedQueue, PutMessage, tuple[int, bytes]] | None = None
        """A compressed or large message that takes several steps."""
        self._memory: Any = None
        """Of the large message that is being taken."""
        self.waits_for_memory = False
        """A message is large once it is decompressed, and there is no memory for it."""
        self._left: list[PutMessage] = []
        """Those behind it that have been taken."""
        self._guids = GuidMaker(state.context.connection_id, state.context.now)

    @property
    def waiting(self) -> bool:
        """Whether messages have come that `read` has not taken."""
        return self._loading is not None or bool(self._left) or bool(self._reader)

    def add(self, events: Iterable[Event]) -> None:
        self._reader.add(events)

    def add_large(self, event: LargeEvent) -> None:
        """An event with one large message; nothing may be `waiting`."""
        self._reader.add((event,))
        self._memory = event.memory

    def read(self, most: int) -> int:
        """Take up to `most` messages; return how much work they were. `flush` sends the last ones on.

        Raises:
            RemoteProtocolError
        """
        if self._loading is not None:
            return self._load_on(*self._loading)
        if not self._left and (work := self._read_run()):
            return work
        messages = self._left or self._reader.take(most)
        self._left = []
        work = 0
        for place, message in enumerate(messages):
            if self._loading is not None or work >= most:
                self._left = messages[place:]
                break
            gathered = self._gather(message[0])
            if gathered is None:
                work += 1
                continue
            work += 1 + (len(message[6]) >> 14) + self._take(gathered, message)
        if self._loading is None:
            self._memory = None
        return max(1, work)

    def _load_on(self, loader: PutLoader, queue: OpenedQueue, message: PutMessage, ack: tuple[int, bytes]) -> int:
        """A step of a message that takes several; those behind it wait."""
        if loader.memory_wanted:
            self._memory = self._state.context.reserve_memory(loader.memory_wanted)
            self.waits_for_memory = self._memory is None
            if self._memory is None:
                return 0
            loader.memory_is_there()
        try:
            row = loader.step()
        except VibeMQError:
            self._loading = self._memory = None
            self._refuse(queue, message)
        else:
            if row is not None:
                self._loading = None
                if self._gathered is None or self._gathered.queue is not queue:
                    self.flush()
                    self._gathered = _Gathered(queue)
                self._add(self._gathered, row, *ack)
                self._memory = None
        return loader.work

    def _gather(self, q_id: int) -> _Gathered | None:
        """None: the client does not have the queue open, and would not survive an ACK of it."""
        gathered = self._gathered
        if gathered is None or q_id != gathered.queue.q_id or gathered.size > ROWS_BYTES_MAX:
            self.flush()
            queue = self._state.queues.get(q_id)
            gathered = self._gathered = None if queue is None or queue.closing else _Gathered(queue)
        return gathered

    def _read_run(self) -> int:
        """Take messages that are alike and have nothing special about them; return how much work that was. 0: the next
        ones are no such messages."""
        run = self._reader.next_run() if self._state.makes_guids else None
        if run is None:
            return 0
        limit = self._state.context.limits.message_bytes_max
        q_id = run.plain_queue_id(ACK_REQUESTED)
        gathered = None if q_id is None or run.each > limit else self._gather(q_id)
        if gathered is None or not gathered.queue.writers:
            return 0
        columns = run.columns()
        if columns is None or ZERO_GUID in columns[0]:
            return 0
        guids, payloads = columns
        self._reader.skip_run(run)
        gathered.add_run(*rows_of_run(guids, payloads), guids)
        return 1 + (len(guids) >> RUN_WORK_SHIFT) + (run.end - run.start >> 15)

    def _take(self, gathered: _Gathered, message: PutMessage) -> int:
        """Returns how much work it was beside the copying. With `_loading` set it takes more steps, and the next ones
        have to wait."""
        _, guid, flags, _, _, _, _, fault = message
        unusable = False
        if self._state.makes_guids:
            correlation = 0
            unusable = guid == ZERO_GUID
        else:
            correlation = message.correlation_id
            guid = self._guids.make(self._state.now)
        if not flags & ACK_REQUESTED:
            correlation = ~correlation
        if unusable or fault or not gathered.queue.writers:
            self._refuse(gathered.queue, message)
            return 0
        work = 0
        limit = self._state.context.limits.message_bytes_max
        try:
            if len(message[6]) > limit and not message[3]:
                raise MessageTooLarge(f"a message of {len(message[6]):,} bytes; at most {limit:,} are accepted")
            if message[3] or not isinstance(message[6], bytes):
                loader = PutLoader(message, guid, limit, has_memory=self._memory is not None)
                row = loader.step()
                work = loader.work
                if row is None:
                    self._loading = loader, gathered.queue, message, (correlation, guid)
                    return work
            else:
                if flags & MESSAGE_PROPERTIES:
                    work = properties_work(message[6])
                row = row_of_put(message, guid)
        except VibeMQError:
            self._refuse(gathered.queue, message)
            return work
        self._add(gathered, row, correlation, guid)
        return work

    def _add(self, gathered: _Gathered, row: bytes, correlation: int, guid: bytes) -> None:
        if len(row) > LARGE_ROW_BYTES:
            self._publish_large(gathered.queue, row, correlation, guid)
            return
        gathered.add(row, guid, correlation)

    def _refuse(self, queue: OpenedQueue, message: PutMessage) -> None:
        if queue.known:
            correlation = 0 if self._state.makes_guids else message.correlation_id
            guid = message.guid if self._state.makes_guids else ZERO_GUID
            self._state.send(build_acks([(AckStatus.UNKNOWN, correlation, guid, queue.q_id)]))

    def flush(self) -> None:
        """Publish what has been gathered."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None and gathered.ids:
            self._publish(gathered, gathered.joined())

    def _publish_large(self, queue: OpenedQueue, row: bytes, correlation: int, guid: bytes) -> None:
        self.flush()
        self._gathered = _Gathered(queue)
        alone = _Gathered(queue)
        alone.add(row[: _ID.stop], guid, correlation)
        # Without memory it is a message just below the bound, which its headers have brought above it.
        memory, self._memory = self._memory, None
        self._publish(alone, LargeRow(row, memory))

    def _publish(self, gathered: _Gathered, rows: Rows) -> None:
        state, queue = self._state, gathered.queue
        queue.unanswered_puts += 1
        # Python's collector looks at a tuple of bytes once, and at a list again and again.
        token = state.asked(partial(self._published, queue, tuple(gathered.guids), gathered.correlations))
        extras = None
        if state.makes_guids and queue.domain.deduplication_ms:
            extras = ExtraColumns(range(len(gathered.ids)), dedup_ids=tuple(gathered.ids))
        state.ask(Publish(state.context.session, token, queue.name, rows, extras, create=False))

    def _published(self, queue: OpenedQueue, guids: Sequence[bytes], correlations: list[int], result: Any) -> None:
        queue.unanswered_puts -= 1
        if queue.known:
            refused = result.refused or {} if isinstance(result, Published) else None
            if refused is not None and not refused and not correlations:
                self._state.send(build_positive_acks(guids, queue.q_id))
            else:
                told = _told(queue.q_id, guids, correlations, result, refused)
                if told:
                    self._state.send(build_acks(told))
        self._answered(queue)


def _told(
    q_id: int, guids: Sequence[bytes], correlations: list[int], result: Any, refused: Mapping[int, VibeMQError] | None
) -> list[tuple[int, int, bytes, int]]:
    """What the ACKs say.

    Args:
        result: an error of all of them if `refused` is None.
    """
    messages = enumerate(zip(correlations or [0] * len(guids), guids, strict=True))
    if refused is None:
        code = ack_code_of(result)
        return [(code, _sent(correlation), guid, q_id) for _, (correlation, guid) in messages]
    return [
        (ack_code_of(refused[index]) if index in refused else 0, _sent(correlation), guid, q_id)
        for index, (correlation, guid) in messages
        if correlation >= 0 or index in refused
    ]


def _sent(correlation: int) -> int:
    return correlation if correlation >= 0 else ~correlation
