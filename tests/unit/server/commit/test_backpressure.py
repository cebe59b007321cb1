"""Who has used its share is let on by turns, and waits while the store makes room."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import until
from vibemq.server.commit.backpressure import ALONE_SHARE_BYTES, ALONE_TURNS, AT_ONCE, SHARE_BYTES, ReadTurns
from vibemq.server.commit.loop_cycle import LoopCycle


@dataclass(eq=False)
class Sender:
    """Has always more to send: it asks to be read on whenever it is flushed."""

    world: "World"
    delivers: bool = False
    reads: int = 0
    asks: bool = True

    def wake(self) -> None:
        self.world.cycle.flush_later(self)

    def flush(self) -> None:
        if self.asks and self.world.turns.admits(self):
            self.reads += 1
            self.world.read_now += 1
            # It uses its share again with the next readable socket.
            asyncio.get_running_loop().call_soon(self.wake)


@dataclass
class World:
    cycle: LoopCycle = field(default_factory=lambda: LoopCycle(monotonic=lambda: 0.0))
    ready: bool = True
    read_now: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        self.turns = ReadTurns(lambda: self.ready, wake=self.cycle.wake)
        self.cycle.before += [self._begin, self.turns.begin]

    def _begin(self) -> None:
        self.most, self.read_now = max(self.most, self.read_now), 0

    def senders(self, count: int) -> list[Sender]:
        made = [Sender(self) for _ in range(count)]
        for sender in made:
            sender.wake()
        return made


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_few_are_read_in_each_turn_and_all_as_often() -> None:
    async def main() -> None:
        world = World()
        senders = world.senders(3 * AT_ONCE)
        await turns(60)
        assert world.most == AT_ONCE
        reads = [sender.reads for sender in senders]
        assert min(reads) > 3
        assert max(reads) - min(reads) <= 1

    run(main)


def test_one_alone_is_read_in_every_turn() -> None:
    async def main() -> None:
        world = World()
        [sender] = world.senders(1)
        await turns(41)
        assert sender.reads >= 20

    run(main)


def test_nobody_is_let_on_while_the_store_makes_room() -> None:
    async def main() -> None:
        world = World(ready=False)
        senders = world.senders(AT_ONCE + 1)
        await turns(50)
        assert [sender.reads for sender in senders] == [0] * len(senders)
        world.ready = True
        await until(lambda: all(sender.reads for sender in senders))

    run(main)


def test_who_has_gone_holds_up_nobody() -> None:
    async def main() -> None:
        world = World(ready=False)
        gone = world.senders(2 * AT_ONCE)
        await turns(5)
        [last] = world.senders(1)
        await turns(5)
        for sender in gone:
            sender.asks = False
            world.turns.forget(sender)
        world.ready = True
        await until(lambda: last.reads)
        assert not any(sender.reads for sender in gone)

    run(main)


def test_who_is_alone_for_a_while_has_a_larger_share() -> None:
    async def main() -> None:
        world = World()
        one, other = Sender(world), Sender(world)
        for sender in (one, other, one):
            world.turns.reads(sender)
            assert world.turns.share_bytes == SHARE_BYTES
        for _ in range(ALONE_TURNS):
            assert world.turns.share_bytes == SHARE_BYTES
            world.turns.reads(one)
            world.turns.begin()
        assert world.turns.share_bytes == ALONE_SHARE_BYTES
        world.turns.reads(other)
        assert world.turns.share_bytes == SHARE_BYTES

    run(main)
