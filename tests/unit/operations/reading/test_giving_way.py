"""Work that can wait has a part of the loop's time, and all that nobody else wants."""

import asyncio
from itertools import cycle

import pytest

from vibemq.operations.reading import giving_way
from vibemq.operations.reading.giving_way import IDLE_S, SHARE, WORKED_S_MAX, give_way


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(giving_way, "monotonic", clock)
    return clock


async def others(clock: Clock, turn_s: float, turns: list[None]) -> None:
    while True:
        clock.now_s += turn_s
        turns.append(None)
        await asyncio.sleep(0)


async def turns_given(clock: Clock, worked_s: float, turn_s: float) -> int:
    turns: list[None] = []
    busy = asyncio.ensure_future(others(clock, turn_s, turns))
    await give_way(worked_s)
    given = len(turns)
    busy.cancel()
    return given


@pytest.mark.parametrize(("worked_s", "given"), [(0.001, SHARE - 1), (0.00005, 1), (0, 1)])
def test_others_who_want_all_of_it_have_their_share(clock: Clock, worked_s: float, given: int) -> None:
    assert asyncio.run(turns_given(clock, worked_s, 0.001)) == given


def test_a_step_that_was_held_up_waits_no_longer_than_a_long_one(clock: Clock) -> None:
    assert asyncio.run(turns_given(clock, 60.0, 0.001)) == asyncio.run(turns_given(clock, WORKED_S_MAX, 0.001))


def test_it_goes_on_when_nobody_wants_anything(clock: Clock) -> None:
    assert asyncio.run(turns_given(clock, WORKED_S_MAX, 0.00006)) == IDLE_S // 0.00006 + 1


def test_a_short_turn_between_longer_ones_is_not_the_end_of_the_work(clock: Clock) -> None:
    async def given() -> int:
        turns = 0

        async def now_and_then() -> None:
            nonlocal turns
            for turn_s in cycle((0.001, 0.0001)):
                clock.now_s += turn_s
                turns += 1
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(now_and_then())
        await give_way(WORKED_S_MAX)
        busy.cancel()
        return turns

    assert asyncio.run(given()) == 2 * (SHARE - 1) * WORKED_S_MAX // 0.0011 + 1
