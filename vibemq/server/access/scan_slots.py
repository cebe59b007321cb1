"""Places for operations that read much, shared among those who ask for them."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ScanSlots:
    """Nobody has more of the places than are free for others, so there is one for whoever comes next: one alone has
    half, the second a quarter, and so on. Who finds none waits; of those who wait, one operation of each owner has its
    turn before the second one of another."""

    def __init__(self, room: int) -> None:
        self._free = room
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By owner, whose turn is next first."""

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        await self._take(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    async def _take(self, owner: str) -> None:
        if owner not in self._waiting and self._fits(owner):
            self._grant(owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(owner, turn)
            else:
                # The place came together with the end of whoever waited for it.
                self._give_back(owner)
            raise

    def _fits(self, owner: str) -> bool:
        return self._held[owner] < self._free

    def _grant(self, owner: str) -> None:
        self._held[owner] += 1
        self._free -= 1

    def _give_back(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._serve()

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        """Unless its turn was passed over already, because it was given up."""
        turns = self._waiting.get(owner, deque())
        if turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[owner]

    def _serve(self) -> None:
        while (owner := next(filter(self._fits, self._waiting), None)) is not None:
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():
                self._grant(owner)
                turn.set_result(None)
