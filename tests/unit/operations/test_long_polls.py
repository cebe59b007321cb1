"""Readers that wait: woken by what they wait for, by nothing else, and never for ever."""

import asyncio

from vibemq.operations.long_polls import QUEUES_AT_ONCE, LongPolls


def waiters_over(tails: dict[str, int], *, glance_s: float = 3600) -> LongPolls:
    return LongPolls(tails.get, glance_s=glance_s)


def test_what_is_there_is_not_waited_for() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({"q": 5}).wait("q", 4, 3600), 60))


def test_a_queue_that_is_gone_is_not_waited_for() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({}).wait("q", 4, 3600), 60))


def test_a_wait_ends_with_its_time() -> None:
    asyncio.run(asyncio.wait_for(waiters_over({"q": 5}).wait("q", 5, 0.01), 60))


def test_a_look_wakes_those_whose_messages_came() -> None:
    async def main() -> None:
        tails = {"q": 5, "r": 1}
        long_polls = waiters_over(tails)
        first = asyncio.ensure_future(long_polls.wait("q", 5, 3600))
        other = asyncio.ensure_future(long_polls.wait("r", 1, 3600))
        await asyncio.sleep(0)
        tails["q"] = 6
        long_polls.look()
        await asyncio.wait_for(first, 60)
        assert not other.done()
        long_polls.wake_all()
        await asyncio.wait_for(other, 60)

    asyncio.run(main())


def test_a_missed_look_is_made_up_for() -> None:
    async def main() -> None:
        tails = {"q": 5}
        waiting = asyncio.ensure_future(waiters_over(tails, glance_s=0.01).wait("q", 5, 3600))
        await asyncio.sleep(0)
        tails["q"] = 6
        await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


def test_after_the_end_nobody_begins_to_wait() -> None:
    long_polls = waiters_over({"q": 5})
    long_polls.wake_all()
    asyncio.run(asyncio.wait_for(long_polls.wait("q", 5, 3600), 60))


def test_a_queue_that_was_made_anew_before_its_waiter_ran_is_waited_for() -> None:
    """Woken for the queue that went, and nothing is there in the new one: it waits, and leaves the loop to others."""

    async def main() -> None:
        tails: dict[str, int] = {"q": 5}
        long_polls = waiters_over(tails)
        waiting = asyncio.ensure_future(long_polls.wait("q", 5, 3600))
        await asyncio.sleep(0)
        del tails["q"]
        long_polls.look()
        tails["q"] = 1
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        tails["q"] = 6
        long_polls.look()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


def test_many_queues_are_looked_at_in_parts() -> None:
    """A look takes a bounded number of queues, and what changes behind its round is found by the next round."""

    async def main() -> None:
        names = [f"q{number}" for number in range(3 * QUEUES_AT_ONCE)]
        looked: list[str] = []
        tails = dict.fromkeys(names, 1)

        def tail(queue: str) -> int:
            looked.append(queue)
            return tails[queue]

        long_polls = LongPolls(tail, glance_s=3600)
        waiting = {name: asyncio.ensure_future(long_polls.wait(name, 1, 3600)) for name in names}
        await asyncio.sleep(0)
        looked.clear()
        long_polls.look()
        assert len(looked) == QUEUES_AT_ONCE
        tails[names[0]] = tails[names[-1]] = 2
        long_polls.look()
        assert len(looked) == QUEUES_AT_ONCE
        await asyncio.wait_for(asyncio.gather(waiting.pop(names[0]), waiting.pop(names[-1])), 60)
        assert not any(task.done() for task in waiting.values())
        long_polls.wake_all()
        await asyncio.wait_for(asyncio.gather(*waiting.values()), 60)

    asyncio.run(main())
