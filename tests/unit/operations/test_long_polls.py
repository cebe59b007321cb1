"""Readers that wait: woken by what they wait for, by nothing else, and never for ever."""

import asyncio

from vibemq.operations.long_polls import LongPolls


def waiters_over(tails: dict[str, int]) -> LongPolls:
    return LongPolls(tails.get)


def test_what_is_there_is_not_waited_for() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({"q": 5}).wait("q", 4, 3600), 60))


def test_a_queue_that_is_gone_is_not_waited_for() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({}).wait("q", 4, 3600), 60))


def test_a_wait_ends_with_its_time() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({"q": 5}).wait("q", 5, 0.01), 60))


def test_a_look_wakes_those_whose_messages_came() -> None:
    async def main() -> None:
        tails = {"q": 5, "r": 1}
        waiters = waiters_over(tails)
        first = asyncio.ensure_future(waiters.wait("q", 5, 3600))
        other = asyncio.ensure_future(waiters.wait("r", 1, 3600))
        await asyncio.sleep(0)
        tails["q"] = 6
        waiters.look()
        await asyncio.wait_for(first, 60)
        assert not other.done()
        waiters.wake_all()
        await asyncio.wait_for(other, 60)

    asyncio.run(main())


def test_a_missed_look_is_made_up_for() -> None:
    async def main() -> None:
        tails = {"q": 5}
        waiting = asyncio.ensure_future(waiters_over(tails).wait("q", 5, 3600))
        await asyncio.sleep(0)
        tails["q"] = 6
        await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


def test_after_the_end_nobody_begins_to_wait() -> None:
    waiters = waiters_over({"q": 5})
    waiters.wake_all()
    asyncio.run(asyncio.wait_for(waiters.wait("q", 5, 3600), 60))
