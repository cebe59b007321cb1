"""Password hashing in threads: each takes tens of milliseconds and megabytes, so few run at a time."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from vibemq.auth.passwords import hash_password

HASHED_TOGETHER_MAX = 2

T = TypeVar("T")


class HashingThreads:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(HASHED_TOGETHER_MAX)

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """`work` hashes a password or checks one."""
        return await to_thread.run_sync(lambda: work(*arguments), limiter=self._limiter)

    async def hash_password(self, password: str) -> str:
        return await self.run(hash_password, password)
