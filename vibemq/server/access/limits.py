"""Token buckets, and bounded tables of them. Pure: the caller brings the time."""

from collections import OrderedDict

from vibemq.auth.addresses import network_of

TABLE_MAX = 100_000


class TokenBucket:
    """`rate` tokens a second, at most `burst` saved up; full at birth."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated = now

    def take(self, count: int, now: float) -> bool:
        """Take `count` tokens; a batch bigger than the burst is let through when the bucket is full, on credit."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < min(count, self._burst):
            return False
        self._tokens -= count
        return True


class KeyedLimiter:
    """A bucket for each key; the least recently seen keys are forgotten first."""

    def __init__(self, rate: float, burst: float, *, table_max: int = TABLE_MAX) -> None:
        self._rate = rate
        self._burst = burst
        self._table_max = table_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> bool:
        """Count one event of that key. `now` in monotonic seconds."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now)
            if len(self._buckets) > self._table_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(1, now)


class AddressLimiter:
    """Limits how often something happens per address."""

    def __init__(self, per_minute: int, *, table_max: int = TABLE_MAX) -> None:
        self._per_minute = per_minute
        self._seen = KeyedLimiter(per_minute / 60, per_minute, table_max=table_max)

    def __len__(self) -> int:
        return len(self._seen)

    def allows(self, host: str, now: float) -> bool:
        """Count one event of that host. `now` in monotonic seconds. Loopback and local sockets are exempt."""
        key = network_of(host)
        return not self._per_minute or key is None or self._seen.take(key, now)
