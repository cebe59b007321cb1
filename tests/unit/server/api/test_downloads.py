"""Bodies that HTTP clients download, and the memory that they count as; the clock is the test's."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from vibemq.errors import Blocked
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.server.api import downloads
from vibemq.server.api.downloads import UNCOUNTED_MAX, Download, Downloads
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.net.large_turns import LargeTurns

pytestmark = pytest.mark.anyio

SIZE = LARGE_ROW_BYTES + 1
AT_ONCE = 2


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """A store with large bodies, which counts those that somebody has."""

    def __init__(self) -> None:
        self.turns = LargeTurns(MessageMemory(SIZE), MessageMemory(AT_ONCE * SIZE))
        self.memory = self.turns.outgoing
        self.downloads = Downloads(self.turns)
        self.alive = 0
        self.alive_max = 0
        self.reads = 0

    async def body(self) -> memoryview:
        self.reads += 1
        await asyncio.sleep(0)
        return memoryview(Body(self))

    async def wait(self, turns: int = 5) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def held(self) -> list[Download]:
        """All the memory that there is."""
        return [await self.downloads.read(self.body) for _ in range(AT_ONCE)]


class Body(bytearray):
    def __init__(self, world: World) -> None:
        super().__init__(SIZE)
        self.world = world
        world.alive += 1
        world.alive_max = max(world.alive_max, world.alive)

    def __del__(self) -> None:
        self.world.alive -= 1


async def test_a_hundred_clients_have_no_more_bodies_together_than_there_is_memory_for() -> None:
    world, done = World(), 0

    async def client() -> None:
        nonlocal done
        download = await world.downloads.read(world.body)
        assert world.memory.bytes_held <= AT_ONCE * SIZE
        with download.under_way(cut=pytest.fail):
            await world.wait()
            assert len(download.body) == SIZE
        done += 1

    await asyncio.gather(*(client() for _ in range(100)))
    assert (done, world.alive, world.memory.bytes_held, world.memory.waiting) == (100, 0, 0, 0)
    assert world.alive_max <= AT_ONCE + UNCOUNTED_MAX


async def test_a_small_body_waits_for_nobody() -> None:
    world = World()
    held = await world.held()

    async def small() -> memoryview:
        return memoryview(b"small")

    assert (await world.downloads.read(small)).body == b"small"
    assert world.memory.bytes_held == len(held) * SIZE


async def dropped(world: World, held: list[Download], waits: "asyncio.Task[Download]") -> None:
    held.pop()


async def sent(world: World, held: list[Download], waits: "asyncio.Task[Download]") -> None:
    with held[0].under_way(cut=pytest.fail):
        pass


@pytest.mark.parametrize("ending", [dropped, sent])
async def test_who_waits_gets_the_memory_of_a_download_that_has_ended(
    ending: Callable[[World, list[Download], "asyncio.Task[Download]"], Awaitable[None]],
) -> None:
    world = World()
    held = await world.held()
    waits = asyncio.create_task(world.downloads.read(world.body))
    await world.wait()
    assert (world.memory.waiting, world.alive) == (1, AT_ONCE)
    await ending(world, held, waits)
    await world.wait()
    assert waits.done()
    assert len((await waits).body) == SIZE


async def test_who_has_gone_does_not_wait_any_more() -> None:
    world = World()
    held = await world.held()
    waits = asyncio.create_task(world.downloads.read(world.body))
    await world.wait()
    waits.cancel()
    await world.wait()
    assert world.memory.waiting == 0
    held.clear()
    assert world.memory.bytes_held == 0


async def test_who_waits_too_long_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PATIENCE_S", 0.0)
    world = World()
    held = await world.held()
    with pytest.raises(Blocked, match=r"limits\.message_memory_bytes\) is with others; try again"):
        await world.downloads.read(world.body)
    assert (world.memory.waiting, world.alive) == (0, len(held))


async def test_a_client_that_takes_nothing_is_cut_off_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    world = World()
    stalled, quick = await world.held()
    cut: list[str] = []
    with stalled.under_way(cut=lambda: cut.append("stalled")), quick.under_way(cut=lambda: cut.append("quick")):
        for _ in range(3):
            now += 1
            world.turns.look()
        assert cut == [], "nobody waits"
        world.memory.take("a consumer", SIZE, print)
        for _ in range(3):
            now += 1
            quick.row_left -= SIZE // 4
            world.turns.look()
        assert cut == ["stalled"]
    assert (await world.downloads.read(world.body)).row_left == SIZE
