"""One callback a turn, and a bounded part of the connections in it."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

from vibemq.server.commit.loop_cycle import FLUSH_SHARE_S, LoopCycle


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Connection:
    """Whose flush takes some of the clock's time."""

    def __init__(
        self, clock: Clock, cost_s: float, then: Callable[[], None] = lambda: None, *, delivers: bool = False
    ) -> None:
        self.flushes = 0
        self.delivers = delivers
        self._clock = clock
        self._cost_s = cost_s
        self._then = then

    def flush(self) -> None:
        self.flushes += 1
        self._clock.now_s += self._cost_s
        self._then()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_everybody_who_asked_is_flushed_once_in_the_same_turn() -> None:
    async def main() -> None:
        clock = Clock()
        cycle = LoopCycle(monotonic=clock)
        connections = [Connection(clock, 0) for _ in range(5)]
        for connection in (*connections, *connections):
            cycle.flush_later(connection)
        await turns(1)
        assert [connection.flushes for connection in connections] == [1] * 5
        await turns(5)
        assert [connection.flushes for connection in connections] == [1] * 5

    asyncio.run(main())


def test_a_crowd_is_flushed_over_several_turns_and_the_work_before_it_is_done_in_each() -> None:
    async def main() -> None:
        clock = Clock()
        cycle = LoopCycle(monotonic=clock)
        begun: list[float] = []
        cycle.before.append(lambda: begun.append(clock.now_s))
        connections = [Connection(clock, FLUSH_SHARE_S / 4) for _ in range(40)]
        for connection in connections:
            cycle.flush_later(connection)
        await turns(1)
        assert sum(connection.flushes for connection in connections) == 4
        await turns(20)
        assert [connection.flushes for connection in connections] == [1] * 40
        assert all(later - earlier < 1.5 * FLUSH_SHARE_S for earlier, later in pairwise(begun))

    asyncio.run(main())


def test_who_asks_again_in_its_flush_comes_after_those_that_wait() -> None:
    async def main() -> None:
        clock = Clock()
        cycle = LoopCycle(monotonic=clock)
        greedy = Connection(clock, FLUSH_SHARE_S, lambda: cycle.flush_later(greedy))
        others = [Connection(clock, FLUSH_SHARE_S) for _ in range(10)]
        for connection in (greedy, *others):
            cycle.flush_later(connection)
        await turns(11)
        assert [connection.flushes for connection in others] == [1] * 10
        assert greedy.flushes == 1
        await turns(2)
        assert greedy.flushes > 1

    asyncio.run(main())


def test_answers_do_not_wait_for_deliveries_and_deliveries_go_on() -> None:
    async def main() -> None:
        clock = Clock()
        cycle = LoopCycle(monotonic=clock)
        consumers = [Connection(clock, FLUSH_SHARE_S, delivers=True) for _ in range(10)]
        for consumer in consumers:
            cycle.flush_later(consumer)
        await turns(1)
        publisher = Connection(clock, FLUSH_SHARE_S / 2)
        cycle.flush_later(publisher)
        await turns(1)
        assert publisher.flushes == 1
        busy = Connection(clock, FLUSH_SHARE_S, lambda: cycle.flush_later(busy))
        cycle.flush_later(busy)
        await turns(8)
        assert [consumer.flushes for consumer in consumers] == [1] * 10

    asyncio.run(main())


def test_what_comes_behind_the_flushes_may_have_others_flushed_in_the_same_turn() -> None:
    async def main() -> None:
        clock, order = Clock(), []
        cycle = LoopCycle(monotonic=clock)
        first = Connection(clock, 0, lambda: order.append("first"))
        second = Connection(clock, 0, lambda: order.append("second"))

        def behind() -> None:
            order.append("behind")
            cycle.flush_later(second)

        cycle.before.append(lambda: cycle.behind(behind) if not order else None)
        cycle.flush_later(first)
        await turns(1)
        assert order == ["first", "behind", "second"]

    asyncio.run(main())


def test_work_behind_the_flushes_that_is_asked_for_outside_a_turn_has_the_next() -> None:
    async def main() -> None:
        cycle, done = LoopCycle(), []
        cycle.behind(lambda: done.append(1))
        await turns(3)
        assert done == [1]

    asyncio.run(main())
