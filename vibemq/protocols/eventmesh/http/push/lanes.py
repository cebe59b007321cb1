"""The URLs of a group, and which of them may be given a message. Pure.

However many there are, and however many of them rest, each question costs the same.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from urllib.parse import urlsplit

from vibemq.protocols.eventmesh.http.push.slots import PushSlot, UrlStanding

REST_MS, REST_MAX_MS = 2_000, 30_000
"""How long a URL is left alone that has not answered; doubled each time."""
PROVEN_MS = 600_000
"""A URL that has answered is taken for one that does."""


class UrlLane:
    """One URL of a group."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = urlsplit(url).netloc.lower()
        """With the port."""
        self.sync = False
        self.busy = 0
        """Pushes under way."""
        self.failures = 0
        """In a row."""
        self.rests_until = 0
        self.worked_at = 0
        self.wish: PushSlot | None = None
        """It waits for a slot."""

    def standing(self, now: int) -> UrlStanding:
        if self.failures:
            return UrlStanding.FAILING
        return UrlStanding.PROVEN if self.worked_at and now - self.worked_at < PROVEN_MS else UrlStanding.NEW

    def failed(self, now: int) -> int:
        """How long it rests."""
        rest_ms = min(REST_MS << min(self.failures, 5), REST_MAX_MS)
        self.rests_until = now + rest_ms
        self.failures += 1
        return rest_ms

    def worked(self, now: int) -> None:
        self.failures, self.rests_until, self.worked_at = 0, 0, now


class UrlLanes:
    """Args:
    concurrency: pushes that may be under way to one URL.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._by_url: dict[str, UrlLane] = {}
        self._free: OrderedDict[UrlLane, None] = OrderedDict()
        """Those that may be given a message: the next one in turn first."""
        self._resting: set[UrlLane] = set()
        self._rests: list[tuple[int, int, UrlLane]] = []
        """A heap of (until, number, URL); some of them do not rest any more, or for longer."""
        self._last_rest = 0

    def __len__(self) -> int:
        return len(self._by_url)

    def __contains__(self, lane: UrlLane) -> bool:
        return self._by_url.get(lane.url) is lane

    def __iter__(self) -> Iterator[UrlLane]:
        return iter(self._by_url.values())

    def add(self, url: str) -> UrlLane:
        lane = self._by_url.get(url)
        if lane is None:
            lane = self._by_url[url] = UrlLane(url)
            self.changed(lane)
        return lane

    def remove(self, url: str) -> UrlLane | None:
        lane = self._by_url.pop(url, None)
        if lane is not None:
            self._free.pop(lane, None)
            self._resting.discard(lane)
        return lane

    def changed(self, lane: UrlLane) -> None:
        """Something has begun or ended for it: a push, a wish for a slot, a rest."""
        # One call finds out whether a URL works again.
        most = 1 if lane.failures else self._concurrency
        if lane in self and lane.wish is None and lane.busy < most and lane not in self._resting:
            self._free[lane] = None
        else:
            self._free.pop(lane, None)

    def failed(self, lane: UrlLane, now: int) -> int:
        """How long it rests."""
        rest_ms = lane.failed(now)
        if lane in self:
            self._resting.add(lane)
            self._last_rest += 1
            heappush(self._rests, (lane.rests_until, self._last_rest, lane))
        self.changed(lane)
        return rest_ms

    def worked(self, lane: UrlLane, now: int) -> None:
        lane.worked(now)
        self._resting.discard(lane)
        self.changed(lane)

    def has_awake(self, now: int) -> bool:
        self._wake(now)
        return len(self._by_url) > len(self._resting)

    def next_free(self, now: int, failed_at: str | None) -> UrlLane | None:
        """The next one in turn that is free and does not rest; the URL where the message has failed is passed over
        while there is another one."""
        self._wake(now)
        failed = None if failed_at is None else self._by_url.get(failed_at)
        has_others = len(self._by_url) - len(self._resting) > 1
        for lane in self._free:
            if lane is not failed or not has_others:
                self._free.move_to_end(lane)
                return lane
        return None

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    def next_awake_at(self) -> int:
        """When the first of those that rest goes on; 0: none does."""
        while self._rests:
            until, _, lane = self._rests[0]
            if lane in self._resting and lane.rests_until == until:
                return until
            heappop(self._rests)
        return 0

    def _wake(self, now: int) -> None:
        while 0 < self.next_awake_at() <= now:
            lane = heappop(self._rests)[2]
            self._resting.discard(lane)
            self.changed(lane)
