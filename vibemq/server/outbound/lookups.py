"""Addresses of names. A look-up that hangs holds up those of nobody else.

Whoever serves a name decides how long the system's look-up takes, up to half a minute, and nobody can break it off. So
each has a thread of its own, and those of one owner are few of all.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from vibemq.errors import OutboundFailed

LOOKUPS_MAX = 32
LOOKUPS_OF_OWNER_MAX = 8
"""Under way together, those included whose callers have given up."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def tell(texts: Sequence[str], error: OSError | UnicodeError | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(texts)

    def look_up() -> None:
        texts: Sequence[str] = ()
        failed: OSError | UnicodeError | None = None
        try:
            texts = [str(address[4][0]) for address in socket.getaddrinfo(host, port, type=0, proto=6)]
        except (OSError, UnicodeError) as error:
            failed = error
        # The broker may have stopped meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, texts, failed)

    # It ends with the process, whatever it waits for.
    threading.Thread(target=look_up, name="vibemq-lookup", daemon=True).start()
    return await found


@dataclass(slots=True)
class _Owner:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKUPS_OF_OWNER_MAX))
    users: int = 0
    """Look-ups that wait or are under way."""


class NameLookups:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._free = asyncio.Semaphore(LOOKUPS_MAX)
        self._owners: dict[str, _Owner] = {}
        self._under_way: dict[tuple[str, str], asyncio.Task[Sequence[str]]] = {}

    async def look_up(self, host: str, port: int, owner: str) -> Sequence[str]:
        """Its addresses, as text. Calls of one owner to one name share a look-up.

        Raises:
            OutboundFailed: the name has none.
        """
        key = (owner, host)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._look_up(host, port, owner))
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            return await asyncio.shield(task)
        except (OSError, UnicodeError) as error:
            raise OutboundFailed(f"the name {host!r} has no address: {error}") from None

    async def _look_up(self, host: str, port: int, name: str) -> Sequence[str]:
        owner = self._owners.setdefault(name, _Owner())
        owner.users += 1
        try:
            async with owner.free, self._free:
                return await self._resolve(host, port)
        finally:
            owner.users -= 1
            if not owner.users:
                del self._owners[name]

    def _ended(self, key: tuple[str, str], done: asyncio.Task[Sequence[str]]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            # Whoever has asked may have given up.
            done.exception()

    def close(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
