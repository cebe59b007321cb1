"""Addresses of names.

Whoever serves a name decides how long the system's look-up takes, up to half a minute, and nobody can break it off. So
each has a thread of its own, those of one owner are few of all, and there are places that only owners without a look-up
under way may take: names that hang hold up other names of their owner, and those of others as soon as they hang for
`LOOKUPS_FIRST_MAX` owners.
"""

import asyncio
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from vibemq.errors import OutboundFailed

LOOKUPS_MAX = 32
LOOKUPS_FIRST_MAX = 64
"""Beside these, one of each owner."""
LOOKUPS_OF_OWNER_MAX = 8
"""Under way together, those included whose callers have given up."""
NAMES_OF_OWNER_MAX = 256
"""That wait for their look-up, or have one under way."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def tell(texts: Sequence[str], error: Exception | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(texts)

    def look_up() -> None:
        texts: Sequence[str] = ()
        failed: Exception | None = None
        try:
            texts = [str(address[4][0]) for address in socket.getaddrinfo(host, port, type=0, proto=6)]
        except Exception as error:  # Its caller raises it.
            failed = error
        # The broker may have stopped meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, texts, failed)

    # It ends with the process, whatever it waits for.
    try:
        threading.Thread(target=look_up, name="vibemq-lookup", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"the system has no thread for it ({error})") from None
    return await found


@dataclass(slots=True, eq=False)
class _Owner:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKUPS_OF_OWNER_MAX))
    names: int = 0
    """Look-ups that wait or are under way."""
    under_way: int = 0


@dataclass(slots=True, eq=False)
class _LookUp:
    task: asyncio.Task[Sequence[str]]
    callers: int = 0
    has_begun: bool = False


class NameLookups:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._free = asyncio.Semaphore(LOOKUPS_MAX)
        self._first = asyncio.Semaphore(LOOKUPS_FIRST_MAX)
        self._owners: dict[str, _Owner] = {}
        self._known: dict[tuple[str, str], _LookUp] = {}

    def __len__(self) -> int:
        """Look-ups that wait or are under way."""
        return len(self._known)

    async def look_up(self, host: str, port: int, owner: str) -> Sequence[str]:
        """Its addresses, as text. Calls of one owner to one name share a look-up, which does not begin when all of them
        have given up.

        Raises:
            OutboundFailed: the name has none, or too many names of this owner wait.
        """
        key = (owner, host)
        found = self._known.get(key) or self._begin(key, port)
        found.callers += 1
        try:
            return await asyncio.shield(found.task)
        except (OSError, UnicodeError) as error:
            raise OutboundFailed(f"the name {host!r} has no address: {error}") from None
        finally:
            found.callers -= 1
            if not found.callers and not found.has_begun:
                found.task.cancel()
                self._ended(key, found)

    def _begin(self, key: tuple[str, str], port: int) -> _LookUp:
        owner = self._owners.setdefault(key[0], _Owner())
        if owner.names >= NAMES_OF_OWNER_MAX:
            raise OutboundFailed(f"{NAMES_OF_OWNER_MAX} other names wait to be looked up already; try again later")
        begun = _LookUp(asyncio.create_task(self._look_up(key, port, owner)))
        self._known[key] = begun
        owner.names += 1
        begun.task.add_done_callback(lambda _: self._ended(key, begun))
        return begun

    async def _look_up(self, key: tuple[str, str], port: int, owner: _Owner) -> Sequence[str]:
        async with owner.free, self._place(owner):
            self._known[key].has_begun = True
            owner.under_way += 1
            try:
                return await self._resolve(key[1], port)
            finally:
                owner.under_way -= 1

    def _place(self, owner: _Owner) -> asyncio.Semaphore:
        return self._free if owner.under_way or self._first.locked() else self._first

    def _ended(self, key: tuple[str, str], ended: _LookUp) -> None:
        """Or nobody waits for it any more. Called twice for those."""
        if self._known.get(key) is not ended:
            return
        del self._known[key]
        owner = self._owners[key[0]]
        owner.names -= 1
        if not owner.names:
            del self._owners[key[0]]
        if ended.task.done() and not ended.task.cancelled():
            # Whoever has asked may have given up.
            ended.task.exception()

    def close(self) -> None:
        for look_up in list(self._known.values()):
            look_up.task.cancel()
