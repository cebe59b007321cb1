"""Finding letters by the index takes few looks at the store, however many queues and groups there are."""

from collections.abc import Iterator
from typing import cast

import pytest

from vibemq.model.dead.fingerprint import fingerprint
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted, GroupKey, LetterChoice, LetterStretch
from vibemq.model.records import DeadFacts, Reason
from vibemq.storage.kvstore.dead.index_reading import GROUPS_TRIED, QUEUES_TRIED, chosen_ids
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.lmdb.reading.dead import GoneLetters, SnapshotKV
from vibemq.storage.state.dead_groups import STREAMS_MAX
from vibemq.storage.state.dead_letter_facts import DeadEntry
from vibemq.testing.memory_kv import MemoryKV

ERRORS = ("late", "gone")
AT_ONCE = 50


class CountedKV(MemoryKV):
    """Counts single looks and scans."""

    looks = 0

    def get(self, key: bytes) -> bytes | None:
        self.looks += 1
        return super().get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.looks += 1
        return super().scan(start, stop)


def letters(queues: int, reasons: int) -> tuple[CountedKV, dict[int, tuple[int, int, int]]]:
    """Of each queue, reason and error one; dead_id -> (queue_id, reason, fingerprint)."""
    kv = CountedKV()
    dead = StoredDead(kv, lambda queue_id: False)
    known: dict[int, tuple[int, int, int]] = {}
    for queue_id in range(1, queues + 1):
        for reason in range(reasons):
            for error in ERRORS:
                dead_id = len(known) + 1
                dead.add(DeadEntry(queue_id, "", DeadFacts(dead_id, dead_id, Reason(reason), error, 1, 1, 5, dead_id)))
                known[dead_id] = (queue_id, reason, fingerprint(error))
    dead.flush()
    kv.looks = 0
    return kv, known


@pytest.mark.parametrize("error", [*ERRORS, "of no letter"])
@pytest.mark.parametrize(("queues", "reasons"), [(60, 1), (60, len(Reason)), (3, len(Reason)), (300, 2)])
def test_letters_of_one_fingerprint_are_found_in_few_looks(queues: int, reasons: int, error: str) -> None:
    kv, known = letters(queues, reasons)
    number = fingerprint(error)
    found = chosen_ids(kv, LetterChoice(fingerprint=number), 0, len(known) + 1, newest_first=False)
    assert kv.looks <= 2 * STREAMS_MAX + 1 + 2 * GROUPS_TRIED
    if (queues, reasons) == (60, 1):
        # Where each queue begins; its first group, and the one that is looked for; and that there is no other reason.
        assert kv.looks <= 61 + 3 * 60
    if queues > STREAMS_MAX:
        assert found is None
    else:
        assert found is not None
        expected = [dead_id for dead_id, (_, _, own) in known.items() if own == number]
        assert [dead_id for dead_id, fits in found if fits] == expected


@pytest.mark.parametrize(
    "wanted", [range(1, 61), range(40, 240), range(1, 20_001), range(1, 20_001, 100), range(250, 500)]
)
def test_queues_that_are_named_are_found_in_few_looks(wanted: range) -> None:
    """Of a user who sees some of very many queues."""
    kv, known = letters(300, 1)
    found = chosen_ids(kv, LetterChoice(queue_ids=frozenset(wanted)), 0, len(known) + 1, newest_first=False)
    assert kv.looks <= QUEUES_TRIED
    expected = [dead_id for dead_id, (queue_id, _, _) in known.items() if queue_id in wanted]
    assert found is None or [dead_id for dead_id, _ in found] == expected
    assert (found is None) == (len(expected) > STREAMS_MAX * len(ERRORS))


def test_the_queue_of_a_letter_that_does_not_say_it_is_looked_for_in_parts() -> None:
    kv, known = letters(300, 1)
    stored = cast(SnapshotKV, kv)
    [here, *_] = (dead_id for dead_id, (queue_id, _, _) in known.items() if queue_id == 250)
    group = GroupKey(*known[here])
    gone = GoneLetters({here: 0, 1_000_000: 0, 1_000_001: 0})
    most, calls = 0, 1
    while not gone.stand_at(stored, 1, AT_ONCE):
        most, calls, kv.looks = max(most, kv.looks), calls + 1, 0
    assert most <= 2 * AT_ONCE
    assert calls >= (250 + 300 + 300) // AT_ONCE
    assert gone.without(stored, group, LetterStretch(1, here, 5, here, 5, b"")) is None
    # What no queue has, none will have later.
    kv.looks = 0
    assert gone.stand_at(stored, 2, AT_ONCE)
    assert kv.looks == 0


@pytest.mark.parametrize("reason", [None, int(Reason.EXPIRED), int(Reason.MOVED)])
@pytest.mark.parametrize("queue_ids", [range(1, 20_001), range(200, 20_001), range(10_000, 20_001), range(2, 300, 7)])
def test_groups_of_queues_that_are_named_are_found_in_parts(queue_ids: range, reason: int | None) -> None:
    kv, known = letters(300, 2)
    dead = StoredDead(kv, lambda queue_id: False)
    kv.looks, most, page = 0, 0, DeadGroupPage()
    found: list[GroupKey] = []
    while not page.done:
        page = dead.group_page(
            DeadGroupsWanted(queue_ids=frozenset(queue_ids), reason=reason, after=page.last, scan=2_000), str
        )
        found += (group.key for group in page.groups)
        most, kv.looks = max(most, kv.looks), 0
    assert most <= 2_003
    fitting = {GroupKey(*key) for key in known.values() if key[0] in queue_ids and reason in (None, key[1])}
    assert found == sorted(fitting)
