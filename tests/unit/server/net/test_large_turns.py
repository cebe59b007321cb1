"""Who makes way for those who wait for the memory of large messages, and who does not."""

import asyncio

import pytest

from vibemq.server.commit.message_memory import MemoryShare, MessageMemory
from vibemq.server.net.large_turns import LargeTurns

MIB = 1 << 20

pytestmark = pytest.mark.anyio


class Peer:
    """How far a large message is, either way."""

    def __init__(self, *, large_left: int = 0, row_left: int = 0) -> None:
        self.large_left = large_left
        self.row_left = row_left
        self.is_read = True
        self.was_cut = False
        self.row_let_go = False

    def let_row_go(self) -> None:
        self.row_let_go = True

    def cut_large(self, why: str) -> None:
        self.was_cut = True


class Downloader:
    """How far a download is."""

    def __init__(self, size: int) -> None:
        self.size = self.row_left = size
        self.bytes_per_s_min = 256 * 1024
        self.was_cut = False

    def take(self, count: int) -> None:
        self.row_left = max(0, self.row_left - count)

    def cut(self) -> None:
        self.was_cut = True


class Turns:
    """With memory that is all held, and somebody who waits for more in each direction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)
        memories = [MessageMemory(MIB), MessageMemory(MIB)]
        self.held = [memory.take("first", MIB, print) for memory in memories]
        self.granted: list[MemoryShare] = []
        for memory in memories:
            assert memory.take("second", MIB, self.granted.append) is None
        self.turns = LargeTurns(*memories)

    def pass_s(self, seconds: int, *, refused: bool = False) -> None:
        """`refused`: another download, in each second."""
        for _ in range(seconds):
            self.now += 1
            if refused:
                self.turns.refused()
            self.turns.look()


async def test_who_takes_nothing_is_let_go_and_who_goes_on_keeps_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    stalled, slow = Peer(row_left=16 * MIB), Peer(row_left=16 * MIB)
    test.turns.sends(stalled)
    test.turns.sends(slow)
    for _ in range(10):
        slow.row_left -= MIB
        test.pass_s(1)
    assert (stalled.row_let_go, slow.row_let_go) == (True, False)
    test.pass_s(2)
    assert slow.row_let_go


async def test_who_is_not_read_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    paused, stalled = Peer(large_left=8 * MIB), Peer(large_left=4 * MIB)
    paused.is_read = False
    test.turns.receives(paused)
    test.turns.receives(stalled)
    test.pass_s(5)
    assert (paused.was_cut, stalled.was_cut) == (False, True)
    paused.is_read = True
    test.pass_s(1)
    assert not paused.was_cut, "it has just begun to be read"
    test.pass_s(1)
    assert paused.was_cut


async def test_a_download_in_bursts_that_keeps_its_pace_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    test.turns.outgoing.forget("second")
    bursts = Downloader(48 * MIB)
    test.turns.downloads(bursts)
    while bursts.row_left:
        test.pass_s(2, refused=True)
        # A socket takes nothing until a third of its buffer is out, and then as much as that.
        bursts.take(1_400_000)
        assert not bursts.was_cut


async def test_a_download_below_its_pace_is_cut_off_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    test.turns.outgoing.forget("second")
    stalled, slow, enough = (Downloader(64 * MIB) for _ in range(3))
    for download in (stalled, slow, enough):
        test.turns.downloads(download)
    slow.take(2 * MIB)
    enough.take(2 * MIB)
    for second in range(1, 61):
        slow.take(100_000)
        enough.take(256 * 1024)
        test.pass_s(1, refused=True)
        assert stalled.was_cut == (second >= 5)
    assert (slow.was_cut, enough.was_cut) == (True, False)


async def test_while_consumers_wait_the_longest_download_is_cut_off_however_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = Turns(monkeypatch)
    stalled, longest, long, short = (Downloader(mib * MIB) for mib in (8, 24, 20, 9))
    every = (longest, long, short)
    for download in (stalled, *every):
        test.turns.downloads(download)
    cut_at: dict[Downloader, int] = {}
    for second in range(1, 16):
        for download in every:
            download.take(300 * 1024)
        test.pass_s(1)
        for download in (stalled, *every):
            if download.was_cut:
                cut_at.setdefault(download, second)
    # Who is below its pace goes first: what it gives back may be enough.
    assert cut_at == {stalled: 5, longest: 6, long: 7}


async def test_consumers_that_have_hardly_waited_end_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    test.turns.outgoing.forget("second")
    download = Downloader(64 * MIB)
    test.turns.downloads(download)
    for _ in range(10):
        download.take(300 * 1024)
        test.pass_s(1)
    assert test.turns.outgoing.take("third", MIB, print) is None
    for second in range(1, 4):
        download.take(300 * 1024)
        test.pass_s(1)
        assert download.was_cut == (second == 3)


async def test_no_download_is_cut_off_while_nobody_wants_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Turns(monkeypatch)
    test.turns.outgoing.forget("second")
    stalled, ended = Downloader(64 * MIB), Downloader(64 * MIB)
    test.turns.downloads(stalled)
    test.turns.downloads(ended)
    test.pass_s(20)
    assert not stalled.was_cut
    test.turns.download_ended(ended)
    test.turns.refused()
    test.pass_s(1)
    assert (stalled.was_cut, ended.was_cut) == (True, False)
