"""A load: how many messages of which size, how fast; bodies that know when they were sent; quantiles of what was seen.

Times are seconds of `time.perf_counter`, which on Linux is CLOCK_MONOTONIC and so comparable between processes.
"""

import asyncio
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

now = time.perf_counter
Go = Callable[[], None]
"""Called by a load when it is connected; returns when the measurement begins."""

COARSE_S = 0.0015
_STAMP = struct.Struct("<dq")
WARM_UP_SHARE = 0.1
WARM_UP_MESSAGES_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    messages: int
    size: int = 1024
    window: int = 0
    """Unconfirmed messages at most; 0 = what is best for that client."""
    batch: int = 500
    """Messages per fetch, for clients that fetch."""
    prefetch: int = 1000
    rate: float = 0.0
    """Messages per second, open loop; 0 = as fast as the window allows."""
    subscribers: int = 1
    """Independent passes over the queue (fan-out)."""
    width: int = 1
    """Queues, or connections, in benchmarks about many of them."""


@dataclass(slots=True)
class Span:
    """From the first message sent or asked for to the last confirm or acknowledgement."""

    began: float
    ended: float
    messages: int
    latencies_s: list[float] = field(default_factory=list, repr=False)
    """Not shown: asyncio writes the result of a program's main task into a message that nobody reads."""


class Bodies:
    """Message bodies: time of sending, number, then bytes that do not compress and are no JSON."""

    def __init__(self, size: int) -> None:
        if size < _STAMP.size:
            raise ValueError(f"a body has at least {_STAMP.size} bytes, not {size}")
        self._tail = os.urandom(size - _STAMP.size)

    def make(self, number: int, at: float | None = None) -> bytes:
        return _STAMP.pack(now() if at is None else at, number) + self._tail


def sent_at(body: bytes | bytearray | memoryview) -> float:
    stamp: float = _STAMP.unpack_from(body)[0]
    return stamp


class Pacer:
    """Open loop: message i is due at `began + i / rate`, however late the broker is.

    Latencies count from that instant, not from the moment of sending, so a stalled broker cannot hide the messages
    that it kept from being sent (coordinated omission).
    """

    def __init__(self, rate: float, messages: int) -> None:
        self._rate = rate
        self._messages = messages
        self.began = now()

    def due_at(self, number: int) -> float:
        return self.began + number / self._rate

    def delay(self, sent: int) -> float:
        """Seconds until the next message is due; negative when it is overdue."""
        return self.due_at(sent) - now()

    async def wait_until_due(self, number: int) -> float:
        """For clients on an event loop, whose timers count whole milliseconds: returns from when a latency counts. That
        is the instant of sending as long as only the timer was late, by less than `COARSE_S`. Blocking clients sleep as
        finely as the kernel lets them."""
        delay = self.delay(number)
        if delay > 0:
            await asyncio.sleep(delay)
        due_at, at = self.due_at(number), now()
        return at if at - due_at < COARSE_S else due_at

    def due(self, sent: int) -> int:
        """Messages to be sent now, at least one."""
        return max(1, min(self._messages, int((now() - self.began) * self._rate) + 1) - sent)


def quantiles_ms(latencies_s: Sequence[float]) -> dict[str, float]:
    if not latencies_s:
        return {}
    ordered = sorted(latencies_s)
    last = len(ordered) - 1
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
    found = {name: ordered[min(last, int(len(ordered) * share))] * 1e3 for name, share in shares.items()}
    return {**found, "max_ms": ordered[last] * 1e3, "count": len(ordered)}


def without_warm_up(latencies_s: list[float]) -> list[float]:
    return latencies_s[min(int(len(latencies_s) * WARM_UP_SHARE), WARM_UP_MESSAGES_MAX) :]
