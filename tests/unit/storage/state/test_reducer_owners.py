"""Owners of groups and applications in the store, and stores that were written before there were any."""

import orjson
import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, GroupOwned, QueueCreated, TransactionDecided
from vibemq.model.stored import StoredGroup, StoredState, StoredTransaction
from vibemq.storage.kvstore.encoding import _DECODERS
from vibemq.storage.kvstore.values import pack_group, pack_transaction, unpack_group, unpack_transaction
from vibemq.storage.state.dead_letter_facts import DeadTable
from vibemq.storage.state.reducer import apply


def test_values_of_older_versions_have_no_owner() -> None:
    assert unpack_transaction(b'[3,1700000000000,[5,6],"tag"]') == StoredTransaction(
        3, 1700000000000, [5, 6], "tag", "", [(0, 3)]
    ), "every version up to the last counted as committed"
    cursor = [4, 2, 0, 0, 0, False, 1, "spark", [], []]
    for old in (["g", True, 7, 2], ["g", True, 7, 2, cursor]):
        group = unpack_group(1, orjson.dumps(old))
        assert (group.name, group.head, group.owner, group.cursor is not None) == ("g", 7, "", len(old) == 5)
        kept = orjson.loads(pack_group(group))
        assert kept[:4] == old[:4], "a group without an owner is written as ever"
        if len(old) == 5:
            assert kept[4:] == [[*cursor, 0, True, False]], "of an old cursor nobody knows whether it was moved"


def test_records_of_older_versions_have_no_owner() -> None:
    old = memoryview(orjson.dumps(["job", 3, 1700000000000, [5], "tag"]))
    assert _DECODERS[16](old) == TransactionDecided("job", 3, 1700000000000, [5], "tag", "")


def test_owners_are_kept() -> None:
    done = StoredTransaction(3, 1, [5], "tag", "ann", [(0, 1), (3, 3)])
    assert unpack_transaction(pack_transaction(done)) == done
    for cursor in (None, unpack_group(1, b'["g",true,7,2,[4,2,0,0,0,false,1,"x",[],[]]]').cursor):
        for owner, where in (("ann", ""), ("ann", "n > 3"), ("", "n > 3")):
            group = StoredGroup(1, "g", True, 7, 2, cursor=cursor, owner=owner, where=where)
            assert unpack_group(1, pack_group(group)) == group


def test_a_group_with_too_many_texts_is_damage() -> None:
    with pytest.raises(ValueError, match="expected"):
        unpack_group(1, b'["g",true,7,2,"ann","n > 3","more"]')


def test_an_owner_is_applied_to_its_group_alone() -> None:
    state, dead = StoredState(), DeadTable()
    for record in (
        QueueCreated(1, "q", QueueOptions(), 1, "a"),
        GroupCreated(1, 0, "", True, 1),
        GroupCreated(1, 1, "g", True, 1),
        GroupOwned(1, 1, "ann"),
        GroupOwned(1, 9, "ann"),
        GroupOwned(7, 1, "ann"),
    ):
        apply(state, record, dead)
    assert [group.owner for group in state.queues[1].groups.values()] == ["", "ann"]
