"""Places for what reads much."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from vibemq.server.access.scan_slots import ScanSlots

pytestmark = pytest.mark.anyio
ROOM = 8


class Readers:
    """Each holds its place until it is told to end."""

    def __init__(self) -> None:
        self.slots = ScanSlots(ROOM)
        self.begun: list[str] = []
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.ending: dict[str, asyncio.Semaphore] = {}

    async def begin(self, owner: str, count: int = 1) -> None:
        self.ending.setdefault(owner, asyncio.Semaphore(0))
        self.tasks.setdefault(owner, []).extend(asyncio.ensure_future(self._read(owner)) for _ in range(count))
        await self.settle()

    async def _read(self, owner: str) -> None:
        async with self.slots.hold(owner):
            self.begun.append(owner)
            await self.ending[owner].acquire()

    async def end_one(self, owner: str) -> None:
        self.ending[owner].release()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_alone_has_half_and_each_that_comes_finds_a_place() -> None:
    readers = Readers()
    for owner in "abcd":
        await readers.begin(owner, 20)
    assert readers.begun == ["a"] * 4 + ["b"] * 2 + ["c", "d"]
    await readers.begin("e")
    assert len(readers.begun) == ROOM
    await readers.end_one("a")
    assert readers.begun[ROOM:] == ["e"]
    for tasks in readers.tasks.values():
        for task in tasks:
            task.cancel()
    await asyncio.gather(*(task for tasks in readers.tasks.values() for task in tasks), return_exceptions=True)
    async with AsyncExitStack() as stack:
        for _ in range(ROOM // 2):
            await stack.enter_async_context(readers.slots.hold("z"))


async def test_all_who_wait_are_served_in_turn() -> None:
    readers = Readers()
    await readers.begin("a", 6)
    for owner in "bcdef":
        await readers.begin(owner, 2)
    while any(not task.done() for tasks in readers.tasks.values() for task in tasks):
        for owner in "abcdef":
            await readers.end_one(owner)
    assert sorted(readers.begun) == sorted("a" * 6 + "bbccddeeff")


async def test_who_gives_up_leaves_its_turn_to_others() -> None:
    readers = Readers()
    await readers.begin("a", 5)
    for owner in "bcd":
        await readers.begin(owner, 4)
    await readers.begin("e", 2)
    waiting = readers.tasks["e"]
    # One that is given up in the same moment in which its place comes, and one before.
    waiting[0].cancel()
    readers.ending["a"].release()
    await readers.settle()
    assert readers.begun.count("e") == 1
    assert waiting[0].cancelled()
