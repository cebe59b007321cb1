"""What the messages of the last minutes have died of, from groups that are older and newer than that."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from vibemq.model.dead.fingerprint import fingerprint_text
from vibemq.model.dead.groups import DeadGroup, DeadGroupsWanted, GroupKey, LetterStretch
from vibemq.operations.dead_letters.reader import DeadLetterReader, Found
from vibemq.operations.monitoring.death_errors import KEPT_S, DeathErrors, Died

pytestmark = pytest.mark.anyio
SINCE = 1_000


def group(fingerprint: int, count: int, first_at: int, last_at: int) -> DeadGroup:
    return DeadGroup(GroupKey(7, 1, fingerprint), "jobs", LetterStretch(count, 1, first_at, 9, last_at, b""))


class Letters:
    """Groups, and how many letters of each are newer than SINCE."""

    def __init__(self, *groups: DeadGroup, newer: dict[int, int] | None = None) -> None:
        self.all = list(groups)
        self.newer = newer or {}
        self.done = True
        self.looks = 0

    async def groups(self, wanted: DeadGroupsWanted) -> AsyncIterator[list[DeadGroup]]:
        self.looks += 1
        assert wanted.queue_ids == {7}
        yield self.all

    async def find(self, *, choice: Any, **how: Any) -> Found:
        assert choice.since == SINCE
        return Found(letters=cast(list[Any], [None] * self.newer[choice.fingerprint]), done=self.done)


async def told(letters: Letters, count: int, queue_id: int | None = 7) -> dict[str | None, int]:
    errors = DeathErrors(cast(DeadLetterReader, letters), monotonic=lambda: 0.0)
    rows = await errors.told([Died("jobs", queue_id, count)], SINCE)
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)
    return {row["fingerprint"]: row["count"] for row in rows}


async def test_groups_that_are_new_are_counted_whole() -> None:
    letters = Letters(group(1, 3, 1_500, 1_600), group(2, 4, 1_000, 1_000), group(3, 9, 10, 999))
    assert await told(letters, 7) == {fingerprint_text(2): 4, fingerprint_text(1): 3}


async def test_the_one_that_is_older_has_the_rest_where_its_letters_are_too_many_to_count() -> None:
    letters = Letters(group(1, 3, 1_500, 1_600), group(2, 500, 10, 1_700), newer={2: 5})
    letters.done = False
    assert await told(letters, 10) == {fingerprint_text(2): 7, fingerprint_text(1): 3}


async def test_several_that_are_older_are_counted() -> None:
    letters = Letters(group(1, 300, 10, 1_600), group(2, 500, 10, 1_700), newer={1: 2, 2: 6})
    assert await told(letters, 8) == {fingerprint_text(2): 6, fingerprint_text(1): 2}
    letters.done = False
    assert await told(letters, 9) == {fingerprint_text(2): 6, fingerprint_text(1): 2, None: 1}


async def test_letters_that_were_replayed_are_not_told_of() -> None:
    assert await told(Letters(), 5) == {}
    assert await told(Letters(group(1, 3, 1_500, 1_600)), 13) == {fingerprint_text(1): 3}
    assert await told(Letters(group(1, 300, 10, 1_600), newer={1: 2}), 12) == {fingerprint_text(1): 2}


async def test_letters_of_a_queue_that_is_gone_have_no_error() -> None:
    assert await told(Letters(), 5, queue_id=None) == {None: 5}


async def test_the_index_is_looked_at_now_and_then() -> None:
    letters, now_s = Letters(group(1, 3, 1_500, 1_600)), 0.0
    errors = DeathErrors(cast(DeadLetterReader, letters), monotonic=lambda: now_s)
    for _ in range(3):
        await errors.told([Died("jobs", 7, 3)], SINCE)
    assert letters.looks == 1
    now_s = KEPT_S
    await errors.told([Died("jobs", 7, 3)], SINCE)
    assert letters.looks == 2
    await errors.told([Died("jobs", 7, 4)], SINCE)
    assert letters.looks == 3
