"""The index of dead letters in a store: right whatever comes and goes, and right again where it was damaged."""

import sys
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.model.dead.fingerprint import OTHER, fingerprint
from vibemq.model.dead.groups import GroupKey
from vibemq.model.records import DeadFacts, Reason
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.dead import index
from vibemq.storage.kvstore.dead.index import build_some, load_order, unpack_group, update_index
from vibemq.storage.kvstore.dead.index_audit import audit_index
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.integrity import TableSums, TalliedKV, write_tally
from vibemq.storage.state.dead_letter_facts import DeadEntry
from vibemq.testing.memory_kv import MemoryKV

ERRORS = ("order {n} is unknown", "no stock", "late", "gone", "'{n}' refused")


def entry(dead_id: int, queue_id: int = 1, error: str = "no stock", at: int = 0) -> DeadEntry:
    return DeadEntry(queue_id, "", DeadFacts(dead_id, dead_id, Reason.REJECTED, error, 1, 1, 5, at or dead_id))


class Store:
    """Letters in a store that keeps its tally."""

    def __init__(self) -> None:
        self.kv = MemoryKV()
        write_tally(self.kv, TableSums())
        self.tallied = TalliedKV(self.kv)
        self.dead = StoredDead(self.tallied, lambda queue_id: False)

    def write(self) -> None:
        self.dead.flush()
        self.dead.forget()
        self.tallied.save()

    def groups(self) -> dict[GroupKey, tuple[int, int, int]]:
        rows = self.kv.scan(keys.DEAD_GROUP, keys.after(keys.DEAD_GROUP))
        found = {keys.split_dead_group_key(key, "here"): unpack_group(self.kv, key, value) for key, value in rows}
        return {key: (one.count, one.first_id, one.last_id) for key, one in found.items()}

    def damage(self, key: bytes) -> None:
        value = self.kv.get(key)
        assert value is not None
        self.kv.put(key, value[:-1] + bytes([value[-1] ^ 1]))


def key_of(error: str, queue_id: int = 1) -> GroupKey:
    return GroupKey(queue_id, int(Reason.REJECTED), fingerprint(error))


STEPS = st.lists(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 2), st.sampled_from(ERRORS), st.integers(1, 9)), max_size=8),
    max_size=8,
)


@settings(max_examples=60)
@given(steps=STEPS, most=st.sampled_from([1, 2, 1000]))
def test_whatever_comes_and_goes_the_index_is_sound(steps: list[list[tuple[int, int, str, int]]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "GROUPS_MAX", most)
        patch.setattr("vibemq.storage.kvstore.dead.index_audit.GROUPS_MAX", most)
        store, there = Store(), set[int]()
        for step in steps:
            for dead_id, queue_id, error, at in step:
                if dead_id in there:
                    store.dead.remove(dead_id)
                    there.discard(dead_id)
                else:
                    store.dead.add(entry(dead_id, queue_id, error.format(n=at), at))
                    there.add(dead_id)
            store.write()
            assert [problem.what for problem in audit_index(store.kv)] == []
            assert sum(count for count, _, _ in store.groups().values()) == len(there)


def test_an_id_that_comes_back_in_one_transaction_is_counted_once() -> None:
    store = Store()
    update_index(store.tallied, {}, [entry(1), entry(1, error="late")])
    assert store.groups() == {key_of("late"): (1, 1, 1)}


def test_a_letter_that_cannot_be_read_leaves_its_group() -> None:
    store = Store()
    for dead_id in (1, 2, 3):
        store.dead.add(entry(dead_id, error="late" if dead_id == 2 else "no stock"))
    store.write()
    for dead_id in (1, 2):
        store.damage(keys.dead_key(dead_id))
        store.dead.remove(dead_id)
    store.write()
    assert store.groups() == {key_of("no stock"): (1, 3, 3)}
    assert [problem.what for problem in audit_index(store.kv)] == []


def test_what_a_letter_costs_does_not_grow_with_the_other_queues_that_get_one() -> None:
    def work(queues: int) -> int:
        """What one more queue with a letter costs behind so many, in instructions of the index."""
        store = Store()
        change = index._Change(store.kv)
        for number in range(1, queues + 1):
            change.add(entry(number, number))
        done = 0

        def count(frame: FrameType, event: str, argument: object) -> object:
            nonlocal done
            frame.f_trace_opcodes = frame.f_code.co_filename == index.__file__
            done += event == "opcode"
            return count

        sys.settrace(count)  # type: ignore[arg-type]
        try:
            change.add(entry(queues + 1, queues + 1))
        finally:
            sys.settrace(None)
        return done

    assert work(10) == work(1_000)


@pytest.mark.parametrize("leaves", [False, True], ids=["a letter comes", "a letter goes"])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_group_whose_row_is_lost_is_counted_again(how: str, leaves: bool) -> None:
    store = Store()
    for dead_id in (1, 2, 3):
        store.dead.add(entry(dead_id))
    store.write()
    row = keys.dead_group_key(key_of("no stock"))
    if how == "damaged":
        store.damage(row)
    else:
        store.kv.delete(row)
    assert list(audit_index(store.kv))
    if leaves:
        store.dead.remove(1)
    else:
        store.dead.add(entry(4))
    store.write()
    assert store.groups() == {key_of("no stock"): (2, 2, 3) if leaves else (4, 1, 4)}
    assert list(audit_index(store.kv)) == []


def test_a_letter_whose_row_by_queue_is_damaged_leaves_its_group() -> None:
    store = Store()
    for dead_id in (1, 2):
        store.dead.add(entry(dead_id))
    store.write()
    store.damage(keys.dead_by_queue_key(1, 1))
    store.dead.remove(1)
    store.write()
    assert store.groups() == {key_of("no stock"): (1, 2, 2)}
    assert list(audit_index(store.kv)) == []


def test_the_order_of_ids_is_known_up_to_where_it_was_broken() -> None:
    store = Store()
    for dead_id, at in ((1, 10), (2, 20), (3, 15), (4, 20), (5, 30)):
        store.dead.add(entry(dead_id, at=at))
    store.write()
    order = load_order(store.kv)
    assert order is not None
    assert tuple(order) == (5, 30, 3)
    # A repair gives an old id to a letter that it makes up.
    store.dead.remove(2)
    store.write()
    store.dead.add(entry(2, at=40))
    store.write()
    order = load_order(store.kv)
    assert order is not None
    assert tuple(order) == (5, 40, 5)
    assert list(audit_index(store.kv)) == []


SPOILED = {
    "a letter is missing": lambda kv: kv.delete(keys.dead_by_queue_key(1, 2)),
    "a letter too many": lambda kv: kv.put(keys.dead_by_queue_key(1, 9), kv.get(keys.dead_by_queue_key(1, 2))),
    "not in its group": lambda kv: kv.delete(keys.dead_by_group_key(key_of("no stock"), 2)),
    "in another group": lambda kv: kv.put(keys.dead_by_group_key(key_of("late"), 2), b""),
    "a group is missing": lambda kv: kv.delete(keys.dead_group_key(key_of("no stock"))),
    "a group too many": lambda kv: kv.put(
        keys.dead_group_key(GroupKey(1, 0, OTHER)), kv.get(keys.dead_group_key(key_of("no stock")))
    ),
    "no order": lambda kv: kv.delete(keys.DEAD_ORDER),
}


@pytest.mark.parametrize("what", SPOILED)
def test_check_names_what_is_wrong_and_a_build_makes_it_right(what: str) -> None:
    store = Store()
    for dead_id in (1, 2, 3):
        store.dead.add(entry(dead_id, error="late" if dead_id == 3 else "no stock"))
    store.write()
    assert list(audit_index(store.kv)) == []
    sound = store.groups()
    SPOILED[what](store.kv)
    assert list(audit_index(store.kv)), what
    while build_some(store.kv):
        pass
    assert list(audit_index(store.kv)) == []
    assert store.groups() == sound


@pytest.mark.parametrize("table", [keys.DEAD_GROUP, keys.DEAD_BY_GROUP, keys.DEAD_BY_QUEUE])
def test_a_key_of_another_length_is_damage_that_is_named(table: bytes) -> None:
    store = Store()
    store.dead.add(entry(1))
    store.write()
    store.kv.put(table + b"\0\0\0\1\1", b"")
    found = [problem.what for problem in audit_index(store.kv)]
    assert any(f"a key of 6 bytes stands in table {table.decode()}" in what for what in found), found
