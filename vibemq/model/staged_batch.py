"""Staged batches: messages on their way through a transaction, as the payload of one staged row.

    head size u32 BE | head, JSON {"queue", "extras"} | count u32 | row lengths, count x u32 | rows

`extras` is [[index, priority, expires_at, deliver_at, dedup id in hex] …]. A staged batch is
what a broker wrote itself, so whatever does not fit is damage.
"""

import struct

import orjson

from vibemq.errors import StorageDamaged
from vibemq.model.extras.message_extra import Extras, MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row

_U32 = struct.Struct("!I")
_NO_HEADERS_BYTES = 2


def pack_staged_batch(name: str, queue: str, rows: Rows, extras: Extras | None) -> Rows:
    """One row called `name` that holds everything."""
    packed = [[index, e.priority, e.expires_at, e.deliver_at, e.dedup_id.hex()] for index, e in (extras or {}).items()]
    head = orjson.dumps({"queue": queue, "extras": packed})
    before = _U32.pack(len(head)) + head + _U32.pack(rows.count)
    size = len(before) + len(rows.lengths) + len(rows.data)
    framed, headers = _around_payload(name, size)
    # The messages are copied once, from the frame that brought them.
    row = b"".join((framed, before, rows.lengths, rows.data, headers))
    return Rows(1, _U32.pack(len(row)), row)


def _around_payload(name: str, size: int) -> tuple[bytes, bytes]:
    """What a row has before and behind a payload of `size` bytes."""
    empty = pack_row(name, b"")
    at = len(empty) - _U32.size - _NO_HEADERS_BYTES
    return empty[:at] + _U32.pack(size), empty[at + _U32.size :]


def unpack_staged_batch(row: bytes) -> tuple[str, Rows, Extras | None]:
    """(queue, rows, extras).

    Raises:
        StorageDamaged: the row holds no staged batch.
    """
    try:
        view = RowView(row)
        end = view.headers_at
        start = end - view.payload_size
        (head_size,) = _U32.unpack_from(row, start)
        at = start + 4 + head_size
        head = orjson.loads(row[start + 4 : at])
        (count,) = _U32.unpack_from(row, at)
        data_at = at + 4 + 4 * count
        if not data_at <= end <= len(row):
            raise ValueError("it is cut short")
        rows = Rows(count, row[at + 4 : data_at], row[data_at:end])
        if sum(rows.row_lengths()) != len(rows.data):
            raise ValueError("row lengths do not add up")
        extras = {
            index: MessageExtra(priority, expires_at, deliver_at, bytes.fromhex(dedup_id))
            for index, priority, expires_at, deliver_at, dedup_id in head["extras"]
        }
        return str(head["queue"]), rows, extras or None
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise StorageDamaged(f"a staged batch cannot be read ({error})", path="a stage") from error
