"""Long operations let the loop have its turn, although nothing that they ask for makes them wait."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from vibemq.auth.policy import Actor, Policy
from vibemq.auth.users import ANONYMOUS
from vibemq.errors import MessageNotFound
from vibemq.model.commands import ListQueues, PurgeDead
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.effects import Counted, QueuePage
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.rows import pack_row
from vibemq.model.stored import DamagedLetter, DeadLetter, DeadPage, DeadPageWanted
from vibemq.operations.dead_letters import DeadLetterReader, DeadLetters
from vibemq.operations.dead_letters.groups import DeadGroupListArguments, DeadLetterGroups
from vibemq.operations.dead_letters.letters import LETTERS_PER_STEP, LetterAccess, PurgeArguments, ShowArguments
from vibemq.operations.dead_letters.reader import SLICE_IDS
from vibemq.operations.monitoring import turns
from vibemq.operations.monitoring.turns import in_slices
from vibemq.operations.queues import QueueListArguments, Queues
from vibemq.operations.registry import Caller

CALLER = Caller(ANONYMOUS, Actor(""))
EVERYBODY = Policy({}, enabled=False)
GROUP_PAGES = 40


class Rooms:
    """A local session, a store and its provider, none of which ever waits. Counts the work between two turns."""

    def __init__(self, letters: set[int] = frozenset(), damaged: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.letters, self.damaged = set(letters), set(damaged)
        self.provider = self
        self.work = self.most = self.pages = 0
        self.purges: list[int] = []

    async def ask(self, make: Callable[[int, int], Any]) -> Any:
        self._works()
        command = make(0, 1)
        if isinstance(command, PurgeDead):
            self.purges.append(len(command.dead_ids))
            self.letters -= set(command.dead_ids)
            self.damaged -= set(command.dead_ids)
            return Counted(len(command.dead_ids))
        assert isinstance(command, ListQueues)
        number = int(command.after or 0) + 1
        return QueuePage([], [], str(number) if number < 40 else None)

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self._works()
        return work(*arguments)

    read = read_rows = call

    async def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        self._works()
        self.pages += 1
        here = sorted(n for n in self.letters if wanted.after < n < wanted.below)
        found = [n for n in here if wanted.fits(_letter(n).facts, "q")][: wanted.limit]
        last = found[-1] if len(found) == wanted.limit else wanted.below
        damaged = [DamagedLetter(n, 0, "", "damaged") for n in self.damaged if wanted.after < n < wanted.below]
        letters, examined = [_letter(number) for number in found], len(found) + len(damaged)
        return DeadPage(letters, damaged, last, last == wanted.below, examined)

    async def dead_queues(self, after: int, limit: int, name: str | None = None) -> list[tuple[int, str]]:
        self._works()
        return []

    async def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        """What came last is being sorted in."""
        self._works()
        self.pages += 1
        return DeadGroupPage(done=self.pages == GROUP_PAGES)

    def _works(self) -> None:
        self.work += 1
        self.most = max(self.most, self.work)

    async def turns(self) -> None:
        while True:
            self.work = 0
            await asyncio.sleep(0)

    def run(self, work: Awaitable[Any]) -> Any:
        async def main() -> Any:
            turns = asyncio.ensure_future(self.turns())
            try:
                return await work
            finally:
                turns.cancel()

        return asyncio.run(main())

    def dead_letters(self) -> DeadLetters:
        store = cast(Any, self)
        return DeadLetters(cast(Any, None), store, DeadLetterReader(store), self, cast(Any, None), cast(Any, None))


def _letter(dead_id: int) -> DeadLetter:
    facts = DeadFacts(dead_id, dead_id, Reason.REJECTED, "", 1, 0, 0, 0)
    return DeadLetter(facts, 1, "q", "", 0, 1, pack_row("m", b"x", ()))


def purged(rooms: Rooms, **arguments: Any) -> Any:
    return rooms.run(rooms.dead_letters().purge(CALLER, PurgeArguments.model_validate(arguments)))


def test_a_list_of_many_queues_is_gathered_page_by_page() -> None:
    rooms = Rooms()
    queues = Queues(cast(Any, None), rooms, EVERYBODY, QueueOptions())
    assert rooms.run(queues.every(CALLER, QueueListArguments.model_validate({}))) == []
    assert rooms.most == 1


def test_groups_are_asked_for_again_with_turns_between() -> None:
    rooms = Rooms()
    store = cast(Any, rooms)
    groups = DeadLetterGroups(cast(Any, None), store, DeadLetterReader(store), LetterAccess(EVERYBODY))
    assert rooms.run(groups.page(CALLER, DeadGroupListArguments.model_validate({}))) == {"groups": [], "next": None}
    assert (rooms.pages, rooms.most) == (GROUP_PAGES, 1)


@pytest.mark.parametrize("there", [set[int](), set(range(1, 2_000, 3))])
def test_many_scattered_ids_are_purged_in_slices(there: set[int]) -> None:
    rooms = Rooms(there)
    ids = list(range(1, 4_000, 2))
    answer = purged(rooms, ids=ids)
    gone = there & set(ids)
    assert (answer["count"], answer["next"], answer["done"]) == (len(gone), 3_999, True)
    assert rooms.letters == there - gone
    assert rooms.most <= SLICE_IDS + 1
    assert rooms.pages <= 3 * len(ids) / SLICE_IDS, "ids that stand close together are looked for in one go"
    assert max(rooms.purges, default=0) <= LETTERS_PER_STEP


@pytest.mark.parametrize("step", [2, 500])
def test_letters_between_the_ids_are_left_alone(step: int) -> None:
    there = set(range(1, 4_000))
    rooms = Rooms(there, {1_501, 2_002})
    ids = list(range(2, 4_000, step))
    answer = purged(rooms, ids=ids)
    assert answer["count"] == len(ids)
    assert [letter["dead_id"] for letter in answer["damaged"]] == [2_002]
    assert rooms.letters == there - set(ids)
    assert rooms.damaged == {1_501}


def test_a_long_run_of_ids_is_purged_in_slices() -> None:
    rooms = Rooms(set(range(1, 1_001)), {1_001})
    answer = purged(rooms, ids=list(range(1_100)))
    assert (answer["count"], [letter["dead_id"] for letter in answer["damaged"]]) == (1_001, [1_001])
    assert rooms.purges == [LETTERS_PER_STEP] * (1_000 // LETTERS_PER_STEP) + [1]
    assert not rooms.letters | rooms.damaged
    assert rooms.most <= 2


def test_a_dry_run_purges_nothing() -> None:
    rooms = Rooms({1, 2, 3})
    answer = purged(rooms, ids=[1, 3, 5], dry_run=True)
    assert (answer["count"], rooms.purges) == (2, [])


def test_of_all_works_in_slices_each_turn_has_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0)
    turn, taken = 0, list[tuple[int, str]]()

    async def many_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def steps(name: str) -> Iterator[None]:
        for _ in range(4):
            taken.append((turn, name))
            yield

    async def works() -> None:
        counting = asyncio.ensure_future(many_turns())
        going_on = [asyncio.ensure_future(in_slices(steps(name))) for name in "abc"]
        await asyncio.sleep(0)
        gone = asyncio.ensure_future(in_slices(steps("gone")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(*going_on)
        counting.cancel()

    asyncio.run(works())
    assert "".join(name for _, name in taken) == "a" + "abc" * 3 + "bc", "one after the other"
    assert len({at for at, _ in taken}) == len(taken), "two held up the same turn"


def test_there_is_no_letter_with_the_id_zero() -> None:
    rooms = Rooms({1})
    assert purged(rooms, ids=[0])["count"] == 0
    with pytest.raises(MessageNotFound):
        rooms.run(rooms.dead_letters().show(CALLER, ShowArguments.model_validate({"dead_id": 0})))
