"""Stretches of the DLQ: bounded work, nothing twice, nothing left out, damaged letters named."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import StorageDamaged
from vibemq.model.dead.fingerprint import fingerprint
from vibemq.model.dead.groups import LetterChoice
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import DeadPage, DeadPageWanted, Slice, StoredQueue, StoredState
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.dead.pages import page
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable
from vibemq.testing.memory_kv import MemoryKV

IDS = st.sets(st.integers(1, 400), max_size=60)


def entry(dead_id: int) -> DeadEntry:
    """Its message has the sequence of the same number."""
    return DeadEntry(1 + dead_id % 2, "g", DeadFacts(dead_id, dead_id, Reason.REJECTED, "bad", 1, 0, 0, 5))


def state() -> StoredState:
    found = StoredState()
    for queue_id in (1, 2):
        found.queues[queue_id] = StoredQueue(queue_id, f"q{queue_id}", QueueOptions(), 0, "i")
    return found


@given(
    stored=IDS,
    added=IDS,
    gone=IDS,
    broken_facts=IDS,
    broken_rows=IDS,
    scan=st.integers(1, 9),
    limit=st.integers(1, 9),
    room=st.sampled_from([1, 200, 1 << 20]),
)
def test_pages_name_every_letter_once_whatever_is_damaged(
    stored: set[int],
    added: set[int],
    gone: set[int],
    broken_facts: set[int],
    broken_rows: set[int],
    scan: int,
    limit: int,
    room: int,
) -> None:
    kv = MemoryKV()
    dead = StoredDead(kv, lambda queue_id: False)
    for dead_id in sorted(stored):
        dead.add(entry(dead_id))
    dead.flush()
    dead.forget()
    for dead_id in sorted(added - stored):
        dead.add(entry(dead_id))
    for dead_id in gone:
        dead.remove(dead_id)
    broken_facts &= stored - gone
    for dead_id in broken_facts:
        key = keys.dead_key(dead_id)
        kv.put(key, b"\0" + (kv.get(key) or b"")[1:])

    def read(queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if any(first <= number <= last for number in broken_rows):
            raise StorageDamaged("bad checksum", path="here")
        return [Slice(number, 3, Rows.of([pack_row(f"m{number}", b"x" * 50, ())])) for number in range(first, last + 1)]

    there = (stored | added) - gone
    letters: list[int] = []
    damaged: list[int] = []
    found = DeadPage([], [], 0, done=False)
    for _ in range(200):
        wanted = DeadPageWanted(after=found.last, limit=limit, scan=scan, max_bytes=room)
        found = page(state(), partial(dead.walk, wanted), read, "here", wanted)
        letters += [letter.facts.dead_id for letter in found.letters]
        damaged += [letter.dead_id for letter in found.damaged]
        assert len(found.letters) <= limit
        assert all(letter.row for letter in found.letters)
        if found.done:
            break
    assert found.done
    assert sorted(damaged) == sorted(there & (broken_rows | broken_facts))
    assert letters == sorted(there - broken_rows - broken_facts)


def test_a_stretch_ends_below_the_id_that_is_named() -> None:
    dead = StoredDead(MemoryKV(), lambda queue_id: dead_queue_is_transient[queue_id])
    dead_queue_is_transient = {1: False, 2: True}
    for dead_id in (2, 4, 6, 7):
        dead.add(entry(dead_id))
    wanted = DeadPageWanted(after=1, below=5, fits=lambda facts, queue: queue == "q1")

    def read(queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        return [Slice(number, 3, Rows.of([pack_row("m", b"x", ())])) for number in range(first, last + 1)]

    found = page(state(), partial(dead.walk, wanted), read, "here", wanted)
    assert [letter.facts.dead_id for letter in found.letters] == [2, 4]
    assert (found.last, found.done) == (4, True)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 80)), max_size=300))
def test_the_table_gives_its_entries_in_order_whatever_came_and_went(steps: list[tuple[bool, int]]) -> None:
    table = DeadTable()
    expected: set[int] = set()
    for adds, dead_id in steps:
        if adds and dead_id not in expected:
            table.add(entry(dead_id))
            expected.add(dead_id)
        elif not adds:
            table.remove(dead_id)
            expected.discard(dead_id)
    for after in (0, 40):
        assert [found.facts.dead_id for found in table.after(after)] == sorted(n for n in expected if n > after)


def test_a_letter_that_is_not_placed_yet_is_judged_by_its_facts() -> None:
    """A walk past letters that the index does not lead to meets those that have died since it began."""
    dead = StoredDead(MemoryKV(), lambda queue_id: False)
    dead.add(entry(1))
    dead.is_sorted_in(10)
    fresh = entry(2)
    dead._added.entries[2] = fresh
    for choice, wanted in (
        (LetterChoice(fingerprint=fingerprint("bad")), True),
        (LetterChoice(fingerprint=fingerprint("good")), False),
        (LetterChoice(reason=int(Reason.REJECTED)), True),
        (LetterChoice(reason=int(Reason.EXPIRED)), False),
        (LetterChoice(queue_ids=frozenset((2,)), reason=int(Reason.REJECTED)), False),
    ):
        assert dead._is_chosen(choice, fresh) is wanted
