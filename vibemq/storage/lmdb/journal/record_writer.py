"""Batches of records as journal records: what may reach the disk, and what a full disk still takes."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from vibemq.errors import StorageFull
from vibemq.model.options import Durability
from vibemq.model.records import (
    GroupCreated,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    Record,
    Returned,
    Settled,
)
from vibemq.model.rows import LargeRow
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore.encoding import LONE_ROW_PREFIX_BYTES, encode_batch
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.large import TAIL_BYTES_MAX, PreparedRow
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.state.dead_letter_facts import DeadIndex
from vibemq.storage.state.reducer import apply, persistent

logger = logging.getLogger(__name__)

NOT_PREPARED = object()
"""Instead of a prepared row: there was no room for it."""
PARTS_BEFORE_ROW = 2
"""Of an encoded batch whose first record adds one row."""
HOLD_ALONE = frozenset({QueueCreated, GroupCreated, Settled, HandedOut, Returned})
"""Facts that do not depend on a message that is added behind them in one batch."""


class RecordWriter:
    """Not thread-safe, but for `prepare_row`; the provider's lock guards it.

    Args:
        on_full: called when the journal has no room for a batch: a checkpoint may make some.
    """

    def __init__(self, journal: Journal, ballast: Ballast, on_full: Callable[[], None]) -> None:
        self._journal = journal
        self._ballast = ballast
        self._on_full = on_full
        self._prepares = False
        """A row was written ahead of its record at some time."""
        self.refusal = ""
        """Why new messages are refused although the disk has room; empty when they are not."""

    def write(self, records: Sequence[Record]) -> JournalPosition:
        self._ballast.refuse_messages(records)
        if self.refusal and any(type(record) is MessagesAdded for record in records):
            raise StorageFull(self.refusal)
        if self._prepares:
            before = _before_large(records)
            position = self._write_prepared(records[:before], records[before:])
            if position is not None:
                return position
        parts = encode_batch(records)
        # A full disk must still be drained: what only settles messages may use the last room, and the ballast.
        urgent = not any(type(record) is MessagesAdded for record in records)
        try:
            return self._journal.append(
                parts, urgent=urgent, largest=None if urgent else partial(_largest_row, records)
            )
        except StorageFull as error:
            # A checkpoint may make room: of what is settled by now it leaves nothing.
            self._on_full()
            if not urgent or not self._ballast.release(error.limit):
                raise
            logger.warning("the ballast is given up so that the queues can be drained: %s", self._ballast.why)
            return self._journal.append(parts, urgent=True)

    def prepare_row(self, row: LargeRow) -> None:
        """Write a row ahead of its record: then its commit is as short as that of any message. May run beside all other
        verbs. Where there is no room the row stays as it is, and `append` says so."""
        self._prepares = True
        try:
            row.prepared = self._journal.prepare_row(row.data, LONE_ROW_PREFIX_BYTES)
        except StorageFull:
            row.prepared = NOT_PREPARED

    def _write_prepared(self, before: Sequence[Record], records: Sequence[Record]) -> JournalPosition | None:
        """In a record of its own, when its row was written ahead and the rest is small enough to stand behind it.
        `before` then is a record before that."""
        prepared = self._prepared_of(records)
        if prepared is None:
            return None
        parts = encode_batch(records)
        if sum(map(len, parts)) > prepared.size + TAIL_BYTES_MAX:
            return None
        if before:
            self._journal.append(encode_batch(before))
        return self._journal.append_prepared(
            b"".join(parts[:PARTS_BEFORE_ROW]), prepared, parts[PARTS_BEFORE_ROW + 1 :]
        )

    def _prepared_of(self, records: Sequence[Record]) -> PreparedRow | None:
        """The row of the first record, when it was written ahead and the rest is small enough to stand behind it."""
        first = records[0] if records else None
        if type(first) is not MessagesAdded or type(first.rows) is not LargeRow:
            return None
        row, prepared = first.rows, first.rows.prepared
        row.prepared = None
        if not isinstance(prepared, PreparedRow) or prepared.size != row.size:
            return None
        return prepared


def durable_part(state: StoredState, dead: DeadIndex, records: Sequence[Record]) -> Sequence[Record]:
    """The records that may reach the disk."""
    born_transient = {
        record.queue_id
        for record in records
        if type(record) is QueueCreated and record.options.durability is Durability.TRANSIENT
    }
    if born_transient:
        # `persistent` knows only queues of earlier batches. It asks for those alone that the records name.
        known, state = state.queues, StoredState()
        for record in records:
            if type(record) is QueueCreated:
                apply(state, record, dead)
            elif (queue := known.get(getattr(record, "queue_id", 0))) is not None:
                state.queues[queue.queue_id] = queue
    durable = [record for record in records if persistent(state, record)]
    return records if len(durable) == len(records) else durable


def _before_large(records: Sequence[Record]) -> int:
    """How many records come before the first with a large row, when each of them holds without it: after a crash in
    between they have happened, and the message, of which nobody was told, has not."""
    for index, record in enumerate(records):
        if type(record) is MessagesAdded:
            return index if type(record.rows) is LargeRow else 0
        if type(record) not in HOLD_ALONE:
            break
    return 0


def _largest_row(records: Sequence[Record]) -> int:
    return max((max(record.rows.row_lengths()) for record in records if type(record) is MessagesAdded), default=0)
