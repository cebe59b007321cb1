"""Look-ups of names: whose name waits for whose, and what is left of those for which nobody waits any more."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.waiting import until
from vibemq.errors import OutboundFailed
from vibemq.server.outbound.lookups import (
    LOOKUPS_OF_OWNER_MAX,
    NAMES_OF_OWNER_MAX,
    NameLookups,
    resolve_by_system,
)

pytestmark = pytest.mark.anyio


class Names:
    """Hang until `answers` is set, but for those that begin with "works"."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if not host.startswith("works"):
            await self.answers.wait()
        return ["192.0.2.1"]


async def give_up(lookups: NameLookups, names: Sequence[str], owner: str) -> None:
    """As many callers, none of which waits for its answer."""
    callers = [asyncio.create_task(lookups.look_up(name, 80, owner)) for name in names]
    for _ in range(4):
        await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)


async def test_nothing_is_left_of_names_for_which_nobody_waits() -> None:
    names = Names()
    lookups = NameLookups(names.resolve)
    for batch in range(10):
        await give_up(lookups, [f"hangs{batch}-{number}" for number in range(100)], "mallory")
    assert len(lookups) == LOOKUPS_OF_OWNER_MAX
    names.answers.set()
    await until(lambda: not len(lookups))
    assert len(names.asked) == LOOKUPS_OF_OWNER_MAX
    assert not lookups._owners


async def test_an_owners_next_name_does_not_wait_behind_names_that_nobody_wants() -> None:
    names = Names()
    lookups = NameLookups(names.resolve)
    await give_up(lookups, [f"hangs{number}" for number in range(LOOKUPS_OF_OWNER_MAX - 1)], "ann")
    await give_up(lookups, ["unwanted1", "unwanted2"], "ann")
    names.asked.clear()
    good = asyncio.create_task(lookups.look_up("works", 80, "ann"))
    names.answers.set()
    assert await good == ["192.0.2.1"]
    assert names.asked == ["works"]


async def test_a_name_works_beside_those_of_many_owners_that_hang() -> None:
    names = Names()
    lookups = NameLookups(names.resolve)
    for owner in range(20):
        await give_up(lookups, [f"hangs{number}" for number in range(LOOKUPS_OF_OWNER_MAX)], f"mallory{owner}")
    assert await lookups.look_up("works", 80, "ann") == ["192.0.2.1"]
    lookups.close()
    await until(lambda: not len(lookups))


async def test_names_of_one_owner_that_wait_are_bounded() -> None:
    lookups = NameLookups(Names().resolve)
    waiting = [asyncio.create_task(lookups.look_up(f"name{number}", 80, "ann")) for number in range(NAMES_OF_OWNER_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(OutboundFailed, match="256 other names wait"):
        await lookups.look_up("one-more", 80, "ann")
    assert await lookups.look_up("works", 80, "bob")
    lookups.close()
    assert all(
        isinstance(found, asyncio.CancelledError) for found in await asyncio.gather(*waiting, return_exceptions=True)
    )


async def test_calls_to_one_name_share_a_look_up_that_goes_on_for_those_who_stay() -> None:
    names = Names()
    lookups = NameLookups(names.resolve)
    stays = asyncio.create_task(lookups.look_up("hangs", 80, "ann"))
    await give_up(lookups, ["hangs"] * 3, "ann")
    names.answers.set()
    assert await stays == ["192.0.2.1"]
    assert names.asked == ["hangs"]


async def test_a_look_up_without_a_thread_fails_like_one_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OutboundFailed, match="the system has no thread"):
        await NameLookups(resolve_by_system).look_up("localhost", 80, "ann")
