"""Many messages packed into frames. Pure: no loop, no sockets."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vibemq.client.payload import JSON_STARTS
from vibemq.client.publishing.explaining import UNPACKED, explain_parts
from vibemq.client.publishing.outbox import FRAME_BYTES_MAX, FRAME_ROWS_MAX, PublishBatch
from vibemq.client.publishing.outgoing import (
    BINARY_HEADERS,
    ROW_BYTES_MAX,
    Extra,
    Outgoing,
    RowPacker,
    extra_of,
    pack_size,
)


def packed_batches(
    packer: RowPacker, queue: str, messages: Iterable[Any], common: Outgoing | None, *, dedup: bool
) -> Iterator[PublishBatch]:
    """Batches, each as soon as it is full: nothing is taken from `messages` before it is packed.

    Args:
        messages: bodies, or `Outgoing`.
        common: what bodies have beside themselves.
        dedup: give each message a dedup id that has none.

    Raises:
        VibeMQError: as `RowPacker.row`, of the first message that cannot be packed. Those before it that were not
            given out in a batch by then are not published.
    """
    if common is None and not dedup:
        return _packed_plain(packer, queue, messages)
    return _packed_each(packer, queue, messages, common, dedup=dedup)


def _packed_each(
    packer: RowPacker, queue: str, messages: Iterable[Any], common: Outgoing | None, *, dedup: bool
) -> Iterator[PublishBatch]:
    batch = PublishBatch(queue)
    row_of, common_extra = _packing(packer, common)
    for item in messages:
        if isinstance(item, Outgoing):
            try:
                row, extra = packer.row(item), extra_of(item)
            except UNPACKED:
                explain_parts(item)
                raise
        else:
            row, extra = row_of(item), common_extra
        own_dedup = dedup and (extra is None or "dedup_id" not in extra)
        if own_dedup:
            extra = {**(extra or {}), "dedup_id": packer.new_dedup_id()}
        if not batch.offer(row, extra):
            yield batch
            batch = PublishBatch(queue)
            batch.offer(row, extra)
        if own_dedup:
            batch.own_dedup.add(batch.count - 1)
    if batch.count:
        yield batch


def _packing(packer: RowPacker, common: Outgoing | None) -> tuple[Callable[[object], bytes], Extra | None]:
    """What packs bodies with all that they have in common, and their common part of the extras."""
    if common is None:
        return packer.plain_row, None
    try:
        return packer.packing(common), extra_of(common)
    except UNPACKED:
        explain_parts(common)
        raise


def _packed_plain(packer: RowPacker, queue: str, messages: Iterable[Any]) -> Iterator[PublishBatch]:
    """The same of messages that mostly are bodies alone. Bytes that are no JSON are packed here, as
    `RowPacker.plain_row` does, and rows are counted when their batch is full, or gets one with extras: a quarter less
    time for a small message, and more of those pass through here than anywhere else."""
    batch = PublishBatch(queue)
    rows, size = batch.rows, 0
    head, numbers, starts, row_of = packer.head, packer.numbers, JSON_STARTS, packer.plain_row
    body_size, packed_size = 0, b""
    for item in messages:
        if type(item) is bytes and item and item[0] not in starts:
            if len(item) != body_size:
                body_size = len(item)
                packed_size = pack_size(body_size)
            row = b"%b%x%b%b%b" % (head, next(numbers), packed_size, item, BINARY_HEADERS)
        elif isinstance(item, Outgoing):
            batch.count_rows(size)
            try:
                row, extra = packer.row(item), extra_of(item)
            except UNPACKED:
                explain_parts(item)
                raise
            if not batch.offer(row, extra):
                yield batch
                batch = PublishBatch(queue)
                batch.offer(row, extra)
            rows, size = batch.rows, batch.size
            continue
        else:
            row = row_of(item)
        size += len(row)
        if size > FRAME_BYTES_MAX or len(rows) >= FRAME_ROWS_MAX:
            if len(row) > ROW_BYTES_MAX:
                packer.check_size(len(row))
            if rows:
                batch.count_rows(size - len(row))
                yield batch
                batch = PublishBatch(queue)
                rows, size = batch.rows, len(row)
        rows.append(row)
    batch.count_rows(size)
    if batch.count:
        yield batch
