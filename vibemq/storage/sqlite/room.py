"""Arithmetic of a short disk: what a store must leave free so that its log can always be folded, and grow again.

A page that is new in the log has no place in the database's file until it is folded. `growth` is what the file lacks
for all of them; as long as so much is free, the log can be folded, and gives its own bytes back. New messages are
accepted only when that still holds after them, and when they make the file grow they also leave `log_room` free:
a file never gets shorter by being drained, and messages that go into its unused pages pass through the log as well.
The ballast is no part of this. It is there for what nobody can refuse: settlements, and other programs' files.
"""

PAGE_BYTES = 4096
DRAIN_BYTES = 256 << 10
"""What stays free on a full disk for the settlements of the drain, beyond the room that folding the log takes."""
START_BYTES = 512 << 10
"""What opening a store takes on a full disk: the log's index, a log of `LOG_BYTES_MIN` folded, and the first frames of
the next one. So much is kept when the ballast has been given up, too."""
LOG_ROOM_BYTES = 3 << 19
"""The biggest publish that clients send by default, in the log, and `DRAIN_BYTES`."""
LOG_ROOM_PART = 4
"""The room of the log is at most one in so many bytes of the disk."""
LOG_BYTES_MIN = 256 << 10
"""A log that is shorter is not worth two flushes."""
LOG_BYTES_MAX = 4 << 20
BATCH_PAGES = 16
"""Pages of a batch that hold no messages: indexes, and the state of queues and groups."""


def log_room(disk_bytes: int) -> int:
    """What of the disk the database's file never grows into."""
    return min(LOG_ROOM_BYTES, disk_bytes // LOG_ROOM_PART)


def fold_pages(ballast_bytes: int) -> int:
    """After how many pages the log is folded: less than the ballast, which may be all there is to fold it on."""
    return max(LOG_BYTES_MIN, min(LOG_BYTES_MAX, ballast_bytes // 2 or LOG_BYTES_MAX)) // PAGE_BYTES


def bytes_in_pages(rows: int) -> int:
    """What messages with so many bytes take in the database, and in the log."""
    return rows + rows // 64 + BATCH_PAGES * PAGE_BYTES


def needed(rows: int, *, growth: int, unused: int, disk_bytes: int) -> int:
    """What must be free for messages with so many bytes to be written.

    Args:
        growth: what the database's file lacks of the pages that the log has for it.
        unused: bytes of the database's pages that the messages can use.
    """
    pages = bytes_in_pages(rows)
    added = max(0, pages - unused)
    return pages + growth + added + max(DRAIN_BYTES, log_room(disk_bytes) if added else 0)
