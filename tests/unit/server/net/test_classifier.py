"""Questions about messages are answered from their rows, in steps of bounded work."""

import asyncio
from collections.abc import Sequence
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate, isgenerator
from typing import Any

import pytest

from bench.guard.counting import instructions
from vibemq.errors import StorageDamaged
from vibemq.model.commands import Classified, Command
from vibemq.model.effects import Classify
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.model.selector import Selector
from vibemq.model.stored import Slice
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.classifier import Classifier, Look
from vibemq.server.net.pacer import Pacer
from vibemq.storage.memory.provider import MemoryStorage

MANY = 512
FEW = 96
INSTRUCTIONS_MAX = 300_000
SELECTORS = tuple(map(Selector.parse, ("n % 2 == 0", 'region == "eu"', "n > 500")))


def stored(*, alike: bool = False) -> MemoryStorage:
    storage = MemoryStorage()
    storage.open()
    storage.append([QueueCreated(1, "q", QueueOptions(), 1, "1" * 32), GroupCreated(1, 0, "", True, 1)])
    numbers = [4 if alike else sequence for sequence in range(1, MANY + 1)]
    rows = [pack_row("m", b"x", [("n", str(number)), ("region", "eu")]) for number in numbers]
    storage.append([MessagesAdded(1, 1, 1, Rows.of(rows))])
    return storage


class Damaged(MemoryStorage):
    """A store in which one row cannot be read."""

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if first <= 7 <= last:
            raise StorageDamaged("a row", path="store")
        return super().read(queue_id, first, last, max_bytes)


def question(runs: list[tuple[int, int]], *selectors: Selector) -> Classify:
    return Classify(0, 1, 1, runs, selectors)


async def answer(storage: Any, asked: Classify, *, blocking: bool = False) -> list[tuple[int, int, int]]:
    told: asyncio.Future[Sequence[Command]] = asyncio.get_running_loop().create_future()
    store = Store(storage)
    store.blocking = blocking
    try:
        Classifier(store, Pacer(), decide=told.set_result, failed=told.set_exception).take(asked)
        (command,) = await told
    finally:
        store.abandon()
    assert isinstance(command, Classified)
    assert (command.number, command.token) == (1, None)
    return command.matched


@pytest.mark.anyio
@pytest.mark.parametrize("blocking", [False, True])
async def test_each_selector_has_its_bit(*, blocking: bool) -> None:
    found = await answer(stored(), question([(1, 4), (499, 503)], *SELECTORS), blocking=blocking)
    assert found == [
        (1, 1, 0b010),
        (2, 2, 0b011),
        (3, 3, 0b010),
        (4, 4, 0b011),
        (499, 499, 0b010),
        (500, 500, 0b011),
        (501, 501, 0b110),
        (502, 502, 0b111),
        (503, 503, 0b110),
    ]


@pytest.mark.anyio
async def test_what_is_alike_is_one_run_and_what_is_gone_matches_nothing() -> None:
    assert await answer(stored(alike=True), question([(1, 900)], *SELECTORS)) == [(1, MANY, 0b011)]


@pytest.mark.anyio
async def test_a_damaged_message_is_handed_out_so_that_somebody_meets_it() -> None:
    storage = Damaged()
    storage.open()
    sound = stored()
    storage.__dict__.update(sound.__dict__)
    found = await answer(storage, question([(5, 9)], Selector.parse("n > 1000")))
    assert found == [(7, 7, 1)]


@pytest.mark.anyio
async def test_what_a_read_raises_is_told() -> None:
    class Broken(MemoryStorage):
        def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
            raise OSError("gone")

    for blocking in (False, True):
        with pytest.raises(OSError, match="gone"):
            await answer(Broken(), question([(1, 4)], *SELECTORS), blocking=blocking)


def _costs(*selectors: Selector) -> list[int]:
    """Of each step in which some rows are looked at."""
    look = Look(question([(1, FEW)], *selectors), [(1, FEW)])
    storage, costs = stored(), []
    while look.rest:
        steps = look.steps(storage, 64, 131_072)
        assert isgenerator(steps)
        while getgeneratorstate(steps) != GEN_CLOSED:
            costs.append(sum(instructions(partial(next, steps, None)).values()))
    return costs


@pytest.mark.parametrize("many", [1, 64])
def test_a_step_is_short_however_many_selectors_there_are(many: int) -> None:
    texts = [f"n == {place} || n % 7 > 3 && exists(region)" for place in range(many)]
    assert max(_costs(*SELECTORS, *map(Selector.parse, texts[len(SELECTORS) :]))) <= INSTRUCTIONS_MAX


def test_the_headers_of_a_row_are_read_once_for_all_selectors() -> None:
    texts = [f"n == {place}" for place in range(64)]
    one, all_of_them = (sum(_costs(*map(Selector.parse, some))) for some in (texts[:1], texts))
    assert all_of_them < 32 * one
