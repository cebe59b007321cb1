"""One timer for all deadlines, and a bounded part of the sessions that are due in each turn of the loop."""

import asyncio
from typing import Any, cast

from tests.unit.server.fakes import FakeEngine
from vibemq.server.clock import Clock
from vibemq.server.net.timers import SHARE_S, Timers


class Hands:
    """A clock that a test, or the work of a session, moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Peer:
    """A session with one deadline, whose tick takes a while."""

    def __init__(self, hands: Hands, deadline: int, cost_s: float) -> None:
        self.scheduled_tick: int | None = None
        self.ending = False
        self.ticks = 0
        self._hands = hands
        self._deadline: int | None = deadline
        self._cost_s = cost_s

    def next_deadline(self) -> int | None:
        return self._deadline

    def tick(self) -> None:
        self.ticks += 1
        self._deadline = None
        self._hands.now_s += self._cost_s


def test_ten_thousand_deadlines_of_one_instant_are_spread_over_turns() -> None:
    async def main() -> None:
        hands = Hands()
        clock = Clock(wall=hands, monotonic=hands)
        timers = Timers(FakeEngine(), cast(Any, None), clock, monotonic=hands)
        peers = [Peer(hands, clock.now() + 1000, SHARE_S / 100) for _ in range(10_000)]
        for peer in peers:
            timers.watch(peer)
        hands.now_s += 2
        timers.look_now()
        at_once = sum(peer.ticks for peer in peers)
        assert 0 < at_once <= 101
        async with asyncio.timeout(120):
            while sum(peer.ticks for peer in peers) < len(peers):
                await asyncio.sleep(0)
        assert {peer.ticks for peer in peers} == {1}
        timers.stop()

    asyncio.run(main())
