"""Bundles: messages on their way through a transaction, as the payload of one staged row.

    head size u32 BE | head, JSON {"queue", "extras"} | count u32 | row lengths, count x u32 | rows

`extras` is [[index, priority, expires_at, deliver_at, dedup id in hex] …]. A bundle is what a broker wrote itself, so
whatever does not fit is damage.
"""

import struct

import orjson

from vibemq.errors import StorageDamaged
from vibemq.model.records import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row

_U32 = struct.Struct("!I")

Extras = dict[int, MessageExtra]


def pack_staged_batch(name: str, queue: str, rows: Rows, extras: Extras | None) -> Rows:
    """One row called `name` that holds everything."""
    packed = [[index, e.priority, e.expires_at, e.deliver_at, e.dedup_id.hex()] for index, e in (extras or {}).items()]
    head = orjson.dumps({"queue": queue, "extras": packed})
    payload = b"".join((_U32.pack(len(head)), head, _U32.pack(rows.count), rows.lengths, rows.data))
    return Rows.of([pack_row(name, payload)])


def unpack_staged_batch(row: bytes) -> tuple[str, Rows, Extras | None]:
    """(queue, rows, extras).

    Raises:
        StorageDamaged: the row holds no bundle.
    """
    try:
        payload = RowView(row).payload
        (head_size,) = _U32.unpack_from(payload)
        head = orjson.loads(payload[4 : 4 + head_size])
        at = 4 + head_size
        (count,) = _U32.unpack_from(payload, at)
        data_at = at + 4 + 4 * count
        rows = Rows(count, payload[at + 4 : data_at], payload[data_at:])
        if sum(rows.row_lengths()) != len(rows.data):
            raise ValueError("row lengths do not add up")
        extras = {
            index: MessageExtra(priority, expires_at, deliver_at, bytes.fromhex(dedup_id))
            for index, priority, expires_at, deliver_at, dedup_id in head["extras"]
        }
        return str(head["queue"]), rows, extras or None
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise StorageDamaged(f"a bundle cannot be read ({error})", path="a stage") from error
