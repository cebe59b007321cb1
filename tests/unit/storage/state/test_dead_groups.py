"""The index of the letters in memory does a bounded number of things at a time, however many there are."""

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from vibemq.model.dead.fingerprint import fingerprint
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted, GroupKey, LetterChoice
from vibemq.model.records import DeadFacts, Reason
from vibemq.storage.kvstore import dead_letters
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.state import dead_groups
from vibemq.storage.state.dead_groups import STREAMS_MAX, LetterGroups
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable
from vibemq.testing.memory_kv import MemoryKV

COUNT = 3_000
AT_ONCE = 64


def entry(dead_id: int, queue_id: int = 1, error: str = "late") -> DeadEntry:
    return DeadEntry(queue_id, "", DeadFacts(dead_id, dead_id, Reason.REJECTED, error, 1, 1, 5, dead_id))


def word(number: int) -> str:
    """Errors that differ in numbers alone are one."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


class CountedEntries(dict[int, DeadEntry]):
    """Counts looks at single ones, and allows none at all."""

    looks = 0

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def _all(self) -> NoReturn:
        raise AssertionError("all letters are looked at in one go")

    def __iter__(self) -> Iterator[int]:
        self._all()

    keys = values = items = _all


def test_letters_are_sorted_in_in_parts_from_the_first_question_on() -> None:
    table = DeadTable()
    table.entries = counted = CountedEntries()
    for dead_id in range(1, COUNT + 1):
        table.add(entry(dead_id, dead_id % 7))
    for dead_id in range(5, COUNT, 3):
        table.remove(dead_id)
    calls = 1
    while table.place(AT_ONCE):
        calls += 1
        assert counted.looks <= AT_ONCE
        counted.looks = 0
        if calls == 5:
            # One comes behind where the sorting is, one before it, and of those that are sorted in one goes.
            table.add(entry(COUNT + 1))
            table.remove(1)
            table.add(entry(5))
            table.remove(COUNT)
    left = sorted(set(range(2, COUNT)) - set(range(8, COUNT, 3)) | {COUNT + 1})
    assert calls >= COUNT // AT_ONCE
    assert [dead_id for dead_id, _ in table.groups.ids(LetterChoice(), 0, COUNT + 2, newest_first=False)] == left


@pytest.mark.parametrize("number", [None, fingerprint(word(2_900)), 7])
def test_a_page_of_groups_looks_at_those_of_the_page(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    dead = StoredDead(MemoryKV(), lambda queue_id: queue_id % 2 == 0)
    for dead_id in range(1, COUNT + 1):
        dead.add(entry(dead_id, 1 + dead_id // 500, word(dead_id)))
    while not dead.is_sorted_in(AT_ONCE):
        pass
    looks, fits = 0, dead_letters.fits

    def counted(*arguments: Any) -> bool:
        nonlocal looks
        looks += 1
        return fits(*arguments)

    monkeypatch.setattr(dead_letters, "fits", counted)
    found: list[GroupKey] = []
    page = DeadGroupPage()
    while not page.done:
        looks = 0
        page = dead.group_page(DeadGroupsWanted(after=page.last, fingerprint=number, limit=100, scan=400), str)
        found += (group.key for group in page.groups)
        assert looks <= 2 * 401
    every = [GroupKey(1 + n // 500, int(Reason.REJECTED), fingerprint(word(n))) for n in range(1, COUNT + 1)]
    assert found == sorted(key for key in every if number in (None, key.fingerprint))


@pytest.mark.parametrize("queues", [STREAMS_MAX, 2 * STREAMS_MAX, 5_000])
def test_letters_of_one_fingerprint_are_found_in_however_many_queues(queues: int) -> None:
    table = DeadTable()
    for dead_id in range(1, queues + 1):
        table.add(entry(dead_id, dead_id, "late" if dead_id % 2 else "gone"))
    while table.place(AT_ONCE):
        pass
    choice = LetterChoice(fingerprint=fingerprint("late"))
    looked = list(table.groups.ids(choice, 0, queues + 1, newest_first=False))
    assert [dead_id for dead_id, fits in looked if fits] == list(range(1, queues + 1, 2))
    assert len(looked) == (queues // 2 if queues <= 2 * STREAMS_MAX else queues)


def test_of_queues_that_have_no_letters_any_more_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is made anew has a new number. The group of all others stays until it is empty."""
    monkeypatch.setattr(dead_groups, "GROUPS_MAX", 2)
    groups = LetterGroups()
    for queue_id in range(1, 100):
        ids = [4 * queue_id + number for number in range(4)]
        letters = {dead_id: entry(dead_id, queue_id, word(dead_id)) for dead_id in ids}
        assert not groups.catch_up(letters, ids, 10)
        assert len(list(groups.keys_from(None))) == 3
        choice = LetterChoice(queue_ids=None, reason=Reason.REJECTED, fingerprint=None)
        for gone in ids:
            found = [dead_id for dead_id, chosen in groups.ids(choice, 0, 1 << 40, newest_first=False) if chosen]
            assert found == [dead_id for dead_id in ids if dead_id >= gone]
            groups.remove(gone)
        assert len(groups._own) == 0
