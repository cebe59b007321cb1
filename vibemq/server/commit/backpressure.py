"""When connections are read: nobody while too much of what was published waits for the disk, and who sends very much by
turns, so that those who send little are served in between.

A socket at full speed would be read for as long as its peer writes (uvloop reads up to 32 times before anybody else has
a turn), and everybody's messages are appended and flushed together: a lone message then waits for megabytes of another
connection. So a connection is not read on in a turn of the loop in which it has been read its share, and of those who
have used theirs a few are let on in each turn, in the order in which they ask. All of them wait while the store makes
room: what it has left of it is for those who send little, because an append that needs more holds up everybody.

However many sockets are readable in one turn, they are all read in it. What has come is worked off for a share of the
turn; what comes behind it is put aside, and has its turn in the next ones. Above a bound of what was put aside nobody
is read, not even in this turn: what has not been read waits in the kernel, and in the end with the peers. Then they are
read on in turns.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Published bytes on their way to disk; above this nobody is read from until half of it is told."""
SHARE_BYTES = 524_288
"""Of one peer, in one turn of the loop: about half a millisecond, and as long again for its append."""
ALONE_SHARE_BYTES = 1_048_576
"""Of a peer that has been the only one for a while: more turns cost it more processor time, up to a tenth."""
ALONE_TURNS = 100
"""In which nobody else has sent anything."""
AT_ONCE = 2
"""Connections that are let on in one turn."""
LOOK_AGAIN_S = 0.001
"""While the store makes room."""
WORK_SHARE_S = 0.002
"""What has come is worked off for so long in one turn of the loop, beside the last of it."""
ASIDE_BYTES = 65_536
"""A peer is not read on when so much of it was put aside."""
ALL_ASIDE_BYTES_MAX = 8 * 1024 * 1024
"""Nobody is read when more was put aside of all peers together, until half of it is worked off."""
READ_ON_AT_ONCE = 32
"""Of those who were not read because of that, in one turn."""
NEVER_ASKED = float("-inf")


class Reading(Protocol):
    """A connection that looks at `overloaded`, and asks `admits`, some time after it was woken."""

    def wake(self) -> None: ...


class Backpressure:
    """Args:
    backlog_bytes: what waits now.
    connections: everybody who reads.
    """

    def __init__(self, backlog_bytes: Callable[[], int], connections: Iterable[Reading]) -> None:
        self._backlog_bytes = backlog_bytes
        self._connections = connections
        self.paused: set[Reading] = set()
        """Connections that are not read from; kept by themselves."""
        self.overloaded = False

    def apply(self) -> None:
        """Stop reading, or read on; called once per loop turn."""
        backlog = self._backlog_bytes()
        if not self.overloaded and backlog > BACKLOG_BYTES_MAX:
            self.overloaded = True
            for connection in self._connections:
                connection.wake()
        elif self.overloaded and backlog < BACKLOG_BYTES_MAX // 2:
            self.overloaded = False
            for connection in list(self.paused):
                connection.wake()


class ReadTurns:
    """Args:
    room_is_ready: whether the store takes some megabytes without making room for them first.
    wake: has `begin` called soon, at the start of a turn of the loop.
    """

    def __init__(self, room_is_ready: Callable[[], bool], *, wake: Callable[[], None]) -> None:
        self._room_is_ready = room_is_ready
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[Reading, None] = OrderedDict()
        self._called: set[Reading] = set()
        """Who may go on, as soon as they ask again."""
        self._places = AT_ONCE
        """What is left of them in this turn."""
        self._looks_again = False
        self._reader: Reading | None = None
        self._shared_turns = 0
        """In which the shares are smaller, because others have sent something."""
        self.share_bytes = ALONE_SHARE_BYTES

    def reads(self, connection: Reading) -> None:
        """Something of it has come."""
        if connection is not self._reader:
            self._reader = connection
            self._shared_turns = ALONE_TURNS
            self.share_bytes = SHARE_BYTES

    def admits(self, connection: Reading) -> bool:
        """Whether somebody who has used its share is read on; if not, it is woken when its turn has come."""
        if connection in self._called:
            self._called.remove(connection)
            return True
        if self._places and not self._waiting and self._room_is_ready():
            self._places -= 1
            return True
        self._waiting.setdefault(connection)
        self._wake()
        return False

    def forget(self, connection: Reading) -> None:
        """It has gone."""
        if self._reader is connection:
            self._reader = None
        self._waiting.pop(connection, None)
        self._called.discard(connection)

    def begin(self) -> None:
        """A turn of the loop begins; those whose turn it is are woken in it."""
        self._places = AT_ONCE
        if self._shared_turns:
            self._shared_turns -= 1
            if not self._shared_turns:
                self.share_bytes = ALONE_SHARE_BYTES
        if not self._waiting:
            return
        if not self._room_is_ready():
            if not self._looks_again:
                self._looks_again = True
                self._loop.call_later(LOOK_AGAIN_S, self._look_again)
            return
        while self._waiting and self._places:
            connection, _ = self._waiting.popitem(last=False)
            self._called.add(connection)
            self._places -= 1
            connection.wake()
        if self._waiting:
            self._wake()

    def _look_again(self) -> None:
        self._looks_again = False
        self._wake()


class AsideReading(Protocol):
    """A connection that keeps what has come until it is told to `work_off` it, and asks `holds` when it is woken."""

    @property
    def is_read(self) -> bool: ...

    def work_off(self) -> None: ...

    def hold(self) -> None:
        """It is not read from now on, not even in this turn of the loop."""

    def wake(self) -> None: ...


class PutAside:
    """Connections of which something has come that was not looked at, in the order in which it came.

    Args:
        connections: everybody who reads.
        wake: has `begin` called soon, at the start of a turn of the loop.
        monotonic: seconds.
    """

    def __init__(
        self, connections: Iterable[AsideReading], *, wake: Callable[[], None], monotonic: Callable[[], float]
    ) -> None:
        self._connections = connections
        self._wake = wake
        self._monotonic = monotonic
        self._waiting: OrderedDict[AsideReading, int] = OrderedDict()
        """With the bytes of each."""
        self.size = 0
        """Bytes of all of them."""
        self._full = False
        self._held: OrderedDict[AsideReading, None] = OrderedDict()
        """Who is not read because of that, in the order in which they are read on."""
        self._called: set[AsideReading] = set()
        """Who is read on, as soon as it asks."""
        self._end = self._asked = NEVER_ASKED
        """When this turn's share is over, and when something has come last. After a while without, the turn is another
        one, although nobody may have told so."""

    def has_time(self) -> bool:
        """Whether what has come just now may be worked off at once; if not, the connection is to be put aside."""
        now = self._monotonic()
        if now - self._asked > WORK_SHARE_S:
            self._end = now + WORK_SHARE_S
        self._asked = now
        return now < self._end and not self._waiting

    def add(self, connection: AsideReading, size: int) -> None:
        self._waiting[connection] = self._waiting.get(connection, 0) + size
        self.size += size
        self._wake()
        if self._full:
            self._hold([connection])
        elif self.size > ALL_ASIDE_BYTES_MAX:
            self._full = True
            self._hold(self._connections)

    def _hold(self, connections: Iterable[AsideReading]) -> None:
        for connection in connections:
            if connection.is_read:
                self._held[connection] = None
                connection.hold()

    @property
    def has_line(self) -> bool:
        """Somebody waits to be read: others are read once, and then wait behind."""
        return bool(self._held)

    def holds(self, connection: AsideReading) -> bool:
        """Whether somebody who is not read must wait for those who have waited longer; it is woken when its turn has
        come."""
        if connection in self._called and not self._full:
            self._called.remove(connection)
            return False
        if self._full or self._held:
            self._held.setdefault(connection)
            # Nothing may be put aside any more whose turn would come.
            self._wake()
        return connection in self._held

    def forget(self, connection: AsideReading) -> None:
        """It has gone."""
        self.size -= self._waiting.pop(connection, 0)
        self._held.pop(connection, None)
        self._called.discard(connection)

    def begin(self) -> None:
        """A turn of the loop begins."""
        self._asked = NEVER_ASKED
        if not (self._waiting or self._held):
            # Those who filled it may have gone.
            self._full = False
            return
        end = self._monotonic() + WORK_SHARE_S
        while self._waiting:
            connection, size = self._waiting.popitem(last=False)
            self.size -= size
            connection.work_off()
            if self._monotonic() >= end:
                break
        if self.size <= ALL_ASIDE_BYTES_MAX // 2:
            self._full = False
            self._read_on()
        if self._waiting or self._held:
            self._wake()

    def _read_on(self) -> None:
        for _ in range(min(READ_ON_AT_ONCE, len(self._held))):
            connection, _ = self._held.popitem(last=False)
            self._called.add(connection)
            connection.wake()
