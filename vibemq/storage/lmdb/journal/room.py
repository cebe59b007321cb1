"""Arithmetic of a short disk: what must stay free so that the journal can always be checkpointed, and written again.

A checkpoint moves the journal into the store's file: into pages that nothing uses there, and for the rest the file
grows. That file never gets shorter by being drained; only messages that were settled make room in it for others. So new
messages are accepted only when

    the file may grow by all that the journal holds, and by these messages, and
    when it has to, the journal's own room is left: what later goes into unused pages passes through the journal, too.

The ballast is no part of this. It is there for what nobody can refuse: settlements, and other programs' files.
"""

CHECKPOINT_ROOM = 1.5
"""Bytes that LMDB may take for a byte of journal."""
DRAIN_BYTES = 256 << 10
"""What stays free on a full disk for the settlements of the drain, beyond the room that checkpoints take."""
JOURNAL_ROOM_BYTES = 3 << 19
"""The biggest publish that clients send by default, in the journal, and `DRAIN_BYTES`."""
JOURNAL_ROOM_SEGMENTS = 4
"""One that is written, one ready, and two that a checkpoint is at."""
JOURNAL_ROOM_PART = 4
"""The journal's room is at most one in so many bytes of the disk."""
VALUE_BYTES = 36 << 10
"""Up to which values of the store are small: blocks of messages that are smaller themselves, on a short disk."""


class StoreRoom:
    """What the journal has to know of the file that checkpoints write. This one may grow, and has no unused pages."""

    reserve = 0
    """Bytes of the disk into which the file never grows: the journal's own room."""

    def limit(self) -> int | None:
        """Bytes by which the file may be filled further, whatever the disk has; None when it is not limited."""
        return None

    def unused(self, value_bytes: int) -> int:
        """Bytes of the file that values can use of which none has more than `value_bytes`."""
        return 0


def journal_room(disk_bytes: int, segment_bytes: int) -> int:
    """What of the disk the store's file never grows into."""
    return min(max(JOURNAL_ROOM_BYTES, JOURNAL_ROOM_SEGMENTS * segment_bytes), disk_bytes // JOURNAL_ROOM_PART)


def in_store(waiting: int) -> int:
    """What so many bytes of journal may take in the store."""
    return int(waiting * CHECKPOINT_ROOM)


def needed(size: int, *, waiting: int, unused: int, reserve: int) -> int:
    """What must be free, segments that nothing needs included, for a new segment of `size` bytes to be filled.

    Args:
        waiting: bytes of journal that no checkpoint has released, or that may still be written to what there is.
        unused: bytes of the store's file that its messages can use.
        reserve: as `journal_room` says.
    """
    growth = max(0, in_store(waiting + size) - unused)
    return size + growth + (reserve if growth else min(reserve, DRAIN_BYTES))
