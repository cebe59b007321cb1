"""Whether the index of dead letters says what the letters say."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeVar

from vibemq.errors import StorageDamaged
from vibemq.model.dead.fingerprint import OTHER, fingerprint, fingerprint_text
from vibemq.model.dead.groups import GROUPS_MAX, GroupKey
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.dead.index import IndexedLetter, indexed, load_order, unpack_group, unpack_indexed
from vibemq.storage.kvstore.encoding import GARBAGE, unseal
from vibemq.storage.kvstore.store import KV

SaidByKey = TypeVar("SaidByKey")


def audit_index(kv: KV) -> Iterator[Problem]:
    """Every difference; nothing when the index is sound. Letters that cannot be read are others' to name."""
    yield from _audit_letters(kv)
    yield from _audit_by_queue(kv)
    yield from _audit_groups(kv)


def _audit_letters(kv: KV) -> Iterator[Problem]:
    """Each letter stands in the index as what it is, and ids ascend with time as far as the store says."""
    order, newest_at = load_order(kv), 0
    for key, value in kv.scan(keys.DEAD, keys.after(keys.DEAD)):
        try:
            queue_id, _, facts = values.unpack_dead(unseal(key, value, kv.where))
        except GARBAGE:
            continue
        name = f"dead letter {facts.dead_id}"
        try:
            found = indexed(kv, queue_id, facts.dead_id)
        except StorageDamaged as error:
            yield _problem(kv, str(error))
            continue
        if found is None:
            yield _problem(kv, f"{name} is missing in the index by queue")
        elif found[0] != facts.reason or found[2:] != (fingerprint(facts.error), facts.dead_at):
            yield _problem(kv, f"{name} stands in the index as what it is not")
        if order is not None and facts.dead_id > order.unordered_id:
            if facts.dead_at < newest_at or facts.dead_id > order.newest_id:
                yield _problem(kv, f"{name} is out of the order of instants that the index tells")
            newest_at = max(newest_at, facts.dead_at)


def _audit_by_queue(kv: KV) -> Iterator[Problem]:
    damaged: list[Problem] = []
    for (queue_id, dead_id), key, value in _rows(kv, keys.DEAD_BY_QUEUE, keys.split_sequence_key, damaged):
        if kv.get(keys.dead_key(dead_id)) is None:
            yield _problem(kv, f"the index by queue names dead letter {dead_id}, which is not there")
            continue
        try:
            found = unpack_indexed(kv, key, value)
        except StorageDamaged:
            continue  # Named with its letter, unless that cannot be read either.
        if kv.get(keys.dead_by_group_key(found.group(queue_id), dead_id)) is None:
            yield _problem(kv, f"dead letter {dead_id} is missing in its group")
    yield from damaged


def _audit_groups(kv: KV) -> Iterator[Problem]:
    stored = dict[GroupKey, tuple[int, int, int, int, int]]()
    damaged: list[Problem] = []
    for group, key, value in _rows(kv, keys.DEAD_GROUP, keys.split_dead_group_key, damaged):
        try:
            found = unpack_group(kv, key, value)
            stored[group] = (found.count, found.first_id, found.first_at, found.last_id, found.last_at)
        except StorageDamaged as error:
            yield _problem(kv, str(error))
    for (queue_id, reason), some in groupby(stored, key=lambda group: group[:2]):
        count = sum(group.fingerprint != OTHER for group in some)
        if count > GROUPS_MAX:
            yield _problem(kv, f"queue {queue_id} has {count} groups of dead letters for reason {reason}")
    letters = _rows(kv, keys.DEAD_BY_GROUP, keys.split_dead_by_group_key, damaged)
    for group, members in groupby(letters, key=lambda letter: letter[0][0]):
        ends = list[tuple[int, int]]()
        count = 0
        for (_, dead_id), *_ in members:
            count += 1
            letter = _sound(kv, group.queue_id, dead_id)
            if letter is not None and letter.group(group.queue_id) != group:
                yield _problem(kv, f"dead letter {dead_id} stands in {_name(group)}, which is not its own")
            at = 0 if letter is None else letter.dead_at
            ends = [ends[0] if ends else (dead_id, at), (dead_id, at)]
        if stored.pop(group, None) != (count, *ends[0], *ends[1]):
            yield _problem(kv, f"{_name(group)} of dead letters has not the {count} letters that stand in it")
    yield from damaged
    for group in stored:
        yield _problem(kv, f"{_name(group)} of dead letters has no letter")


def _rows(
    kv: KV, table: bytes, split: Callable[[bytes, str], SaidByKey], damaged: list[Problem]
) -> Iterator[tuple[SaidByKey, bytes, bytes]]:
    """What the key says, and the pair. `damaged` takes what is no key of the table; it is passed over."""
    for key, value in kv.scan(table, keys.after(table)):
        try:
            said = split(key, kv.where)
        except StorageDamaged as error:
            damaged.append(_problem(kv, str(error)))
        else:
            yield said, key, value


def _sound(kv: KV, queue_id: int, dead_id: int) -> IndexedLetter | None:
    try:
        return indexed(kv, queue_id, dead_id)
    except StorageDamaged:
        return None


def _name(group: GroupKey) -> str:
    return f"group {fingerprint_text(group.fingerprint)} of queue {group.queue_id} and reason {group.reason}"


def _problem(kv: KV, what: str) -> Problem:
    return Problem(what, kv.where, repairable=True)
