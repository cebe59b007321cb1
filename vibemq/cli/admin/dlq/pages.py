"""The DLQ of a running broker, in pages: the loops behind the `dlq` verbs and the demo."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Protocol

import anyio

from vibemq.cli.admin.dlq.replay_plan import ReplayPlan
from vibemq.cli.progress import Tracker
from vibemq.errors import VibeMQError
from vibemq.model.runs import runs_of

PAGE = 1000
"""Most letters that one admin verb touches."""
PART_BYTES = 16 << 20
"""Of letters with payloads that are in memory at a time."""
STEPS_PER_SECOND = 4
"""A rate is kept by so many small batches, so that `--rate 100` is 25 at a time and not one burst."""

Sleep = Callable[[float], Awaitable[None]]


class Admin(Protocol):
    """The one verb of the client that this file needs."""

    async def admin(self, verb: str, **arguments: Any) -> Any: ...


async def letters(
    mq: Admin, arguments: dict[str, Any], limit: int | None = None, damaged: list[dict[str, Any]] | None = None
) -> AsyncIterator[list[dict[str, Any]]]:
    """Pages of matching letters without payloads, ascending by dead id, `limit` in all. Those that cannot be read are
    left out; `damaged` gets them."""
    after, left = int(arguments.get("after", 0)), limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        answer = await mq.admin("dlq.list", **{**arguments, "after": after, "limit": size})
        page = answer["letters"]
        if damaged is not None:
            damaged += answer.get("damaged", ())
        if page:
            yield page
        if left is not None:
            left -= len(page)
        if not answer.get("next"):
            return
        after = answer["next"]


async def groups(mq: Admin, arguments: dict[str, Any], limit: int) -> AsyncIterator[list[dict[str, Any]]]:
    """Pages of groups, `limit` in all."""
    after: str | None = None
    while limit > 0:
        more = {} if after is None else {"after": after}
        answer = await mq.admin("dlq.groups", **arguments, **more, limit=min(PAGE, limit))
        yield answer["groups"]
        limit -= len(answer["groups"])
        after = answer["next"]
        if after is None:
            return


async def chosen(mq: Admin, arguments: dict[str, Any], limit: int | None) -> ReplayPlan:
    """Which letters a replay means: fixed now, so that what dies again meanwhile is not replayed again."""
    ids: list[int] = []
    newest = 0
    async for page in letters(mq, arguments, limit):
        ids += [letter["dead_id"] for letter in page]
        newest = max(newest, *(letter["dead_at"] for letter in page))
    return ReplayPlan(runs_of(ids), newest)


async def count(mq: Admin, arguments: dict[str, Any], limit: int | None, to: str | None = None) -> tuple[int, int]:
    """How many letters fit by now, `limit` at most: (at least, at most), because counting all may be long work."""
    more = {} if to is None else {"to": to}
    found = await mq.admin("dlq.preview", **arguments, **more)
    least = int(found["count"])
    # A broker of before tells only how many it has counted.
    most = int(found.get("count_max", least))
    return (least, most) if limit is None else (min(least, limit), min(most, limit))


async def newest_id(mq: Admin, queue: str | None) -> int:
    """Of the letters of the queue, or of all that may be seen; 0 when there is none."""
    place = {} if queue is None else {"queue": queue}
    answer = await mq.admin("dlq.list", **place, order="newest", limit=1)
    return max((letter["dead_id"] for letter in (*answer["letters"], *answer.get("damaged", ()))), default=0)


class Replay:
    """Puts the letters of a plan back, batch after batch. `done` is right at every moment, also after an error."""

    def __init__(
        self,
        mq: Admin,
        plan: ReplayPlan,
        *,
        to: str | None = None,
        rate: float | None = None,
        sleep: Sleep = anyio.sleep,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._mq = mq
        self._plan = plan
        self._to = {} if to is None else {"to": to}
        self._rate = rate
        self._sleep = sleep
        self._clock = clock
        self.done = 0

    async def run(self, progress: Tracker) -> int:
        """Replay all of it; return how many went. Letters that somebody else took meanwhile are skipped."""
        ids = self._plan.ids()
        size = PAGE if self._rate is None else max(1, min(PAGE, int(self._rate / STEPS_PER_SECOND)))
        started = self._clock()
        progress(0, len(ids))
        for at in range(0, len(ids), size):
            await self._keep_rate(started)
            await self._batch(ids[at : at + size])
            progress(self.done, len(ids))
        return self.done

    async def _batch(self, ids: list[int]) -> None:
        after, left = ids[0] - 1, len(ids)
        while left > 0 and after < ids[-1]:
            arguments = {"ids": ids, "after": after, "limit": left, "dry_run": False, **self._to}
            answer = await self._mq.admin("dlq.replay", **arguments)
            self.done += answer["count"]
            left -= answer["count"]
            if answer["done"]:
                return
            after = answer["next"]

    async def _keep_rate(self, started: float) -> None:
        if self._rate is not None and (ahead := started + self.done / self._rate - self._clock()) > 0:
            await self._sleep(ahead)


def in_parts(page: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The same letters, as many at a time as are read together with their payloads."""
    part: list[dict[str, Any]] = []
    size = 0
    for letter in page:
        if part and size + letter.get("size_bytes", 0) > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(letter)
        size += letter.get("size_bytes", 0)
    if part:
        yield part


async def with_payloads(mq: Admin, page: list[dict[str, Any]], parallel: int = 32) -> list[dict[str, Any]]:
    """The same letters whole, in the same order; those that left the DLQ meanwhile are left out."""
    found: dict[int, dict[str, Any]] = {}
    waiting = list(reversed(page))

    async def fetch() -> None:
        while waiting:
            listed = waiting.pop()
            # A user may be permitted to inspect this queue alone.
            letter = await show(mq, listed["dead_id"], listed["queue"] or None)
            if letter is not None:
                found[listed["dead_id"]] = letter

    async with anyio.create_task_group() as tasks:
        for _ in range(min(parallel, len(page))):
            tasks.start_soon(fetch)
    return [found[letter["dead_id"]] for letter in page if letter["dead_id"] in found]


async def show(
    mq: Admin, dead_id: int, queue: str | None = None, *, decode: str | None = None
) -> dict[str, Any] | None:
    """One letter with its payload; None when it is not there (any more), or died in another queue than `queue`."""
    given = {"queue": queue, "decode": decode}
    try:
        letter: dict[str, Any] | None = await mq.admin(
            "dlq.show", dead_id=dead_id, **{name: value for name, value in given.items() if value is not None}
        )
    except VibeMQError as error:
        if error.code == "MESSAGE_NOT_FOUND":
            return None
        raise
    return letter
