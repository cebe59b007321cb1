"""Who has used its share is let on by turns, and waits while the store makes room."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import until
from vibemq.server.commit.backpressure import (
    ALL_ASIDE_BYTES_MAX,
    ALONE_SHARE_BYTES,
    ALONE_TURNS,
    AT_ONCE,
    SHARE_BYTES,
    WORK_SHARE_S,
    PutAside,
    ReadTurns,
)
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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Spoken:
    """Something of it has come."""

    clock: Clock
    cost_s: float
    done: list["Spoken"]
    is_read: bool = True
    woken: int = 0

    def hold(self) -> None:
        assert self.is_read
        self.is_read = False

    def wake(self) -> None:
        self.woken += 1

    def work_off(self) -> None:
        self.clock.now += self.cost_s
        self.done.append(self)
        self.wake()


def read_all(aside: PutAside, spoken: list[Spoken]) -> list[Spoken]:
    """Those that were worked off at once."""
    at_once = []
    for each in spoken:
        if aside.has_time():
            each.work_off()
            at_once.append(each)
        else:
            aside.add(each, 10)
    return at_once


def test_what_many_have_sent_in_one_turn_is_worked_off_in_several_and_in_order() -> None:
    clock, woken = Clock(), list[None]()
    aside = PutAside([], wake=lambda: woken.append(None), monotonic=clock)
    done: list[Spoken] = []
    spoken = [Spoken(clock, WORK_SHARE_S / 4, done) for _ in range(22)]
    assert read_all(aside, spoken[:18]) == spoken[:4]
    aside.forget(spoken[10])
    aside.begin()
    assert done == spoken[:8]
    # Who sends now does not pass those that wait, nor does what comes behind it from one of them.
    assert read_all(aside, [*spoken[18:], spoken[8]]) == []
    while woken:
        woken.clear()
        before = len(done)
        aside.begin()
        assert len(done) - before <= 4
    assert done == [*spoken[:10], *spoken[11:]]
    assert aside.has_time()


def test_each_turn_has_a_share_of_its_own() -> None:
    clock = Clock()
    aside = PutAside([], wake=lambda: None, monotonic=clock)
    long = Spoken(clock, WORK_SHARE_S, [])
    for begin in (aside.begin, lambda: setattr(clock, "now", clock.now + 2 * WORK_SHARE_S)):
        assert read_all(aside, [long]) == [long]
        assert not aside.has_time()
        begin()
    assert aside.has_time()


def test_what_is_put_aside_of_all_connections_has_a_bound() -> None:
    """In the turn in which it is reached, nobody is read any more; then those who were held are read on in turns, and
    none is passed over, though each sends as much again as soon as it is read."""
    clock = Clock()
    piece, connections = 65_536, [Spoken(clock, WORK_SHARE_S / 40, []) for _ in range(400)]
    aside = PutAside(connections, wake=lambda: None, monotonic=clock)
    reads = dict.fromkeys(connections, 0)
    for _ in range(400):
        for each in connections:
            if each.is_read:
                reads[each] += 1
                if aside.has_time():
                    each.work_off()
                    each.is_read = not aside.has_line
                else:
                    aside.add(each, piece)
                    each.is_read = False
        assert aside.size <= ALL_ASIDE_BYTES_MAX + piece
        aside.begin()
        for each in connections:
            if each.woken and not each.is_read:
                each.is_read = not aside.holds(each)
            each.woken = 0
    assert min(reads.values()) >= 0.8 * max(reads.values()) > 10


def test_nobody_is_held_when_what_was_put_aside_is_worked_off_or_has_gone() -> None:
    clock = Clock()
    one, other, late = connections = [Spoken(clock, WORK_SHARE_S, []) for _ in range(3)]
    aside = PutAside(connections, wake=lambda: None, monotonic=clock)
    aside.add(one, ALL_ASIDE_BYTES_MAX)
    assert [each.is_read for each in connections] == [True, True, True]
    aside.add(other, 1)
    assert [each.is_read for each in connections] == [False, False, False]
    assert aside.holds(late)
    aside.forget(late)
    aside.forget(one)
    assert aside.size == 1
    aside.begin()
    assert aside.size == 0
    assert not any(map(aside.holds, connections))
    assert not one.woken
    assert other.woken
    assert not late.woken


def test_who_asks_when_all_have_gone_that_filled_it_is_woken() -> None:
    clock, turns = Clock(), list[None]()
    gone, asking = connections = [Spoken(clock, WORK_SHARE_S, []) for _ in range(2)]
    asking.is_read = False  # For another reason: its share of the turn is used.
    aside = PutAside(connections, wake=lambda: turns.append(None), monotonic=clock)
    aside.add(gone, ALL_ASIDE_BYTES_MAX + 1)
    for a_turn_begins_between in (True, False):
        aside.forget(gone)
        turns.clear()
        if a_turn_begins_between:
            aside.begin()
            assert not aside.holds(asking)
        else:
            assert aside.holds(asking)
            assert turns
            aside.begin()
            assert asking.woken
            assert not aside.holds(asking)
        aside.add(gone, ALL_ASIDE_BYTES_MAX + 1)
