"""Peers that hold the memory for large messages and do not come on make way for those who wait for it.

What is on its way to a peer that hardly takes any of it is let go after a second, and read again when the peer's turn
has come: nothing is lost by that. A download over HTTP cannot be read again, so it is cut off, if it has been slower
than promised since it began; and when consumers have waited for some seconds, the one that would need longest for its
rest, if that is long. What is on its way from a peer exists nowhere else. When somebody has waited for some
seconds, the peer that would need longest for the rest of its message is cut off, and sends it again: one in each look,
so that of slow peers some come to their end. A peer that is not read, because the broker has too much to do, is not
blamed for that.
"""

import asyncio
import math
from typing import Protocol, TypeVar

from vibemq.server.commit.message_memory import MessageMemory

Peer = TypeVar("Peer")

TURN_S = 1.0
"""A row may be on its way to a peer for so long while others wait, however little of it the peer takes."""
SLOW_S = 30.0
"""Who takes the rest within this time keeps its row, or goes on with its download: between the halves of a frame a peer
would hear nothing of us."""
PATIENCE_S = 3.0
"""Somebody waits for so long before a peer is cut off that needs longer than this for the rest."""
DOWNLOAD_PATIENCE_S = 5.0
"""A download is as old as this before its pace counts: a socket takes the first megabytes in one go, or late."""


class CarriesLarge(Protocol):
    """What is asked of a connection."""

    @property
    def large_left(self) -> int:
        """Bytes of a large message that have not come from the peer; 0: none is under way."""

    @property
    def is_read(self) -> bool:
        """Whether what the peer sends is taken in at present."""

    @property
    def row_left(self) -> int:
        """Bytes that the peer's socket has not taken."""

    def let_row_go(self) -> None:
        """Give back the memory of what the peer has not read."""

    def cut_large(self, why: str) -> None:
        """End the connection in the middle of what the peer sends, and tell it why."""


class Downloading(Protocol):
    """What is asked of a download."""

    @property
    def size(self) -> int:
        """Bytes that it has in all."""

    @property
    def row_left(self) -> int:
        """Those that the client's socket has not taken."""

    @property
    def bytes_per_s_min(self) -> int:
        """Who takes as many on average is not cut off for a download that is refused."""

    def cut(self) -> None:
        """End the connection."""


class LargeTurns:
    """`look` about once a second.

    Args:
        incoming, outgoing: the memory for messages that come, and for those that go.
    """

    def __init__(self, incoming: MessageMemory, outgoing: MessageMemory) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._sending: dict[CarriesLarge, float] = {}
        """Since when a row is on its way to it."""
        self._unsent: dict[CarriesLarge, int] = {}
        """What of it was left at the last look, or when it began."""
        self._receiving: dict[CarriesLarge, int] = {}
        """What was left of its message at the last look; 0: there was none, or we did not read."""
        self._downloads: dict[Downloading, float] = {}
        """Since when it is under way."""
        self._refused = False
        self._looked = self._loop.time()

    def sends(self, connection: CarriesLarge) -> None:
        """A row begins to be on its way, or goes on."""
        self._sending[connection] = self._loop.time()
        self._unsent[connection] = connection.row_left

    def downloads(self, download: Downloading) -> None:
        self._downloads[download] = self._loop.time()

    def download_ended(self, download: Downloading) -> None:
        self._downloads.pop(download, None)

    def refused(self) -> None:
        """A download, for want of memory: until the next look it counts as one that waits."""
        self._refused = True

    def receives(self, connection: CarriesLarge) -> None:
        """It has got memory for a large message that the peer has begun."""
        self._receiving[connection] = 0

    def ended(self, connection: CarriesLarge) -> None:
        """The row was sent, or the connection has ended."""
        self._sending.pop(connection, None)

    def gone(self, connection: CarriesLarge) -> None:
        self._sending.pop(connection, None)
        self._receiving.pop(connection, None)

    def look(self) -> None:
        now = self._loop.time()
        elapsed, self._looked = now - self._looked, now
        unsent, self._unsent = self._unsent, {c: c.row_left for c in self._sending}
        if self.outgoing.waited_s >= TURN_S:
            self._make_way(now, unsent, elapsed)
        if self._refused or self.outgoing.waited_s >= TURN_S:
            self._refused = False
            # What one gives back comes after this look.
            if not self._cut_downloads(now) and self.outgoing.waited_s >= PATIENCE_S:
                self._cut_longest(now)
        before = self._receiving
        self._receiving = {c: c.large_left if c.is_read else 0 for c in before if c.large_left}
        if self.incoming.waiting and self.incoming.waited_s >= PATIENCE_S:
            self._cut_slowest(before, elapsed)

    def _make_way(self, now: float, before: dict[CarriesLarge, int], elapsed: float) -> None:
        for connection, since in list(self._sending.items()):
            if not self.outgoing.waiting:
                return
            left = self._unsent[connection]
            taken = before[connection] - left
            if now - since >= TURN_S and _seconds(left, taken, elapsed) > SLOW_S:
                del self._sending[connection]
                connection.let_row_go()

    def _cut_downloads(self, now: float) -> bool:
        """Whether any was."""
        before = len(self._downloads)
        for download, since in list(self._downloads.items()):
            # On average since it began: a socket takes a megabyte or two, and then nothing until these are out.
            took = download.size - download.row_left
            if now - since >= DOWNLOAD_PATIENCE_S and took < download.bytes_per_s_min * (now - since):
                del self._downloads[download]
                download.cut()
        return len(self._downloads) < before

    def _cut_longest(self, now: float) -> None:
        needs_s = {
            download: _seconds(download.row_left, download.size - download.row_left, now - since)
            for download, since in self._downloads.items()
            if now - since >= DOWNLOAD_PATIENCE_S
        }
        longest = _slowest(needs_s, SLOW_S)
        if longest is not None:
            del self._downloads[longest]
            longest.cut()

    def _cut_slowest(self, before: dict[CarriesLarge, int], elapsed: float) -> None:
        needs_s = {
            connection: _seconds(left, before[connection] - left, elapsed)
            for connection, left in self._receiving.items()
            if left and before[connection]
        }
        slowest = _slowest(needs_s, PATIENCE_S)
        if slowest is not None:
            left = self._receiving.pop(slowest)
            slowest.cut_large(
                f"{left:,} B of a large message have not come, and others have waited for"
                f" {self.incoming.waited_s:.0f} s for the memory that is kept for it (limits.message_memory_bytes);"
                " send it again, or faster"
            )


def _slowest(needs_s: dict[Peer, float], patience_s: float) -> Peer | None:
    """Who would need longest for the rest, if that is longer than this."""
    slowest = max(needs_s, key=needs_s.__getitem__, default=None)
    return slowest if slowest is not None and needs_s[slowest] > patience_s else None


def _seconds(left: int, came: int, elapsed: float) -> float:
    return left * elapsed / came if came > 0 else math.inf
