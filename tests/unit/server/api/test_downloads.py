"""Bodies that HTTP clients download, and the memory that they count as."""

import asyncio
from collections.abc import Callable

import pytest

from vibemq.errors import Blocked
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.server.api.downloads import Download, Downloads
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.net.large_turns import LargeTurns

pytestmark = pytest.mark.anyio

SIZE = LARGE_ROW_BYTES + 1
AT_ONCE = 2


class World:
    """Memory for two large bodies."""

    def __init__(self) -> None:
        self.turns = LargeTurns(MessageMemory(SIZE), MessageMemory(AT_ONCE * SIZE))
        self.memory = self.turns.outgoing
        self.downloads = Downloads(self.turns)

    def download(self) -> Download:
        return self.downloads.counted(memoryview(bytes(SIZE)))


async def test_who_finds_no_memory_is_refused_at_once_and_small_bodies_never_are() -> None:
    world = World()
    held = [world.download() for _ in range(AT_ONCE)]
    with pytest.raises(Blocked, match=r"limits\.message_memory_bytes\) is with others; try again"):
        world.download()
    assert world.downloads.counted(memoryview(b"small")).body == b"small"
    assert (world.memory.bytes_held, world.memory.waiting) == (len(held) * SIZE, 0)


async def test_who_waits_is_before_who_downloads() -> None:
    world = World()
    held = [world.download()]
    world.memory.take("a consumer", AT_ONCE * SIZE, print)
    with pytest.raises(Blocked):
        world.download()
    assert len(held) == 1


def dropped(held: list[Download]) -> None:
    held.pop()


def sent(held: list[Download]) -> None:
    with held[0].under_way(pytest.fail, 1):
        pass


@pytest.mark.parametrize("ending", [dropped, sent])
async def test_a_download_that_has_ended_gives_back_its_memory(ending: Callable[[list[Download]], None]) -> None:
    world = World()
    held = [world.download() for _ in range(AT_ONCE)]
    ending(held)
    assert world.memory.bytes_held == SIZE
    assert len(world.download().body) == SIZE


async def test_a_client_that_takes_nothing_is_cut_off_when_another_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    world = World()
    stalled, quick = world.download(), world.download()
    cut: list[str] = []
    with (
        stalled.under_way(lambda: cut.append("stalled"), SIZE // 100),
        quick.under_way(lambda: cut.append("quick"), SIZE // 100),
    ):
        for _ in range(10):
            now += 1
            quick.row_left -= SIZE // 20
            world.turns.look()
        assert cut == [], "nobody wants the memory"
        with pytest.raises(Blocked):
            world.download()
        world.turns.look()
        assert cut == ["stalled"]
