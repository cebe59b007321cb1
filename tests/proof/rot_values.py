"""Rot in stored values, one value at a time: in memory, through the encodings that lmdb and sqlite share.

A damaged value must be refused by whoever reads it, named by the audit, and left out by salvage, which saves the rest.
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple

from tests.proof.rot_journal import Counts
from vibemq.errors import StorageDamaged
from vibemq.model.stored import Slice
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.block_cache import BlockCache
from vibemq.storage.kvstore.blocks import block_infos, limit, load_block
from vibemq.storage.kvstore.dead.index import INDEX_TABLES
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.salvage import drop_missing, salvage
from vibemq.storage.kvstore.store import KV, LOADERS, load_state
from vibemq.testing.memory_kv import MemoryKV

READ_BYTES = 1 << 30
LOADED = {table for table, _ in LOADERS}


class ValueRot(NamedTuple):
    kind: str
    key: bytes
    offset: int
    size: int
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.size} bytes at {self.offset} of value {self.key.hex()}"


def value_flips(pairs: dict[bytes, bytes], stride: int, phase: int = 0) -> Iterator[ValueRot]:
    """One bit in every `stride` bits of all values, taken one after the other."""
    left = phase % stride
    for key, value in pairs.items():
        bits = 8 * len(value)
        for bit in range(left, bits, stride):
            yield ValueRot("flip", key, bit // 8, 1, bit % 8)
        left = (left - bits) % stride


def value_losses(pairs: dict[bytes, bytes], rng: Random) -> Iterator[ValueRot]:
    """Every value zeroed, cut short, and with the bytes of another."""
    for key, value in pairs.items():
        if value:
            yield ValueRot("zeroes", key, 0, len(value))
            yield ValueRot("zeroes", key, rng.randrange(len(value)), 512)
            cut = rng.randrange(len(value))
            yield ValueRot("cut", key, cut, len(value) - cut)
            yield ValueRot("swap", key, 0, len(value))


class RottenValues:
    """The pairs of a sound store, and what they mean."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self.pairs = pairs
        sound = _kv(pairs)
        self._state = load_state(sound)
        self._rows = _all_rows(sound, self._state.queues)
        if list(audit(sound)):
            raise AssertionError(f"the store is not sound to begin with: {list(audit(sound))}")

    def check_repair_of_the_sound(self, counts: Counts) -> None:
        """Repair of what is not damaged must change nothing; what it would lose it loses beside real damage, too."""
        counts.cases += 1
        kv = MemoryKV()
        target = TalliedKV(kv)
        problems = salvage(sorted(self.pairs.items()), target)
        problems += drop_missing(target)
        target.save()
        saved = dict(kv.scan(b"\0", b"\xff"))
        wrong = sorted(key.hex() for key in self.pairs.keys() | saved.keys() if self.pairs.get(key) != saved.get(key))
        if problems or wrong:
            said = problems[0].what if problems else "nothing"
            counts.findings.append(
                f"repair of a sound store changes {len(wrong)} values ({wrong[:3]}) and says: {said}"
            )
        else:
            counts.repaired += 1

    def check(self, rot: ValueRot, counts: Counts, *, repair: bool = True) -> None:
        counts.cases += 1
        try:
            problem = self._check(rot, counts, repair)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            counts.findings.append(f"{rot}: {problem}")

    def _check(self, rot: ValueRot, counts: Counts, repair: bool) -> str | None:
        value = self._damaged(rot)
        if value == self.pairs[rot.key]:
            counts.harmless += 1
            return None
        pairs = {**self.pairs, rot.key: value}
        kv = _kv(pairs)
        problem = self._refused(kv, rot) or self._named(list(audit(kv)), rot)
        if problem is not None:
            return problem
        counts.detected += 1
        return self._saved(pairs, rot, counts) if repair else None

    def _damaged(self, rot: ValueRot) -> bytes:
        value = self.pairs[rot.key]
        if rot.kind == "cut":
            return value[: rot.offset]
        if rot.kind == "swap":
            others = [other for key, other in self.pairs.items() if key[:1] == rot.key[:1] and other != value]
            return others[len(value) % len(others)] if others else value
        old = value[rot.offset : rot.offset + rot.size]
        new = bytes([old[0] ^ 1 << rot.bit]) if rot.kind == "flip" else bytes(len(old))
        return value[: rot.offset] + new + value[rot.offset + rot.size :]

    def _refused(self, kv: MemoryKV, rot: ValueRot) -> str | None:
        """Whoever reads the value raises; what is read of the others is right."""
        table = rot.key[:1]
        if table in LOADED:
            return None if _raises(lambda: load_state(kv)) else "the state is loaded all the same"
        if table == keys.DEAD:
            dead = StoredDead(kv, lambda queue_id: False)
            return None if _raises(lambda: list(dead.after(0))) else "the dead letter is served all the same"
        if table == keys.LENT or table in INDEX_TABLES:
            # Repair alone reads the first, and finds the same in the block's info. The index is no row, and is compared
            # with the letters by the audit.
            return None
        queue_id, first = self._of_block(rot)
        if table == keys.BLOCK_INFO:
            return None if _raises(lambda: list(block_infos(kv, queue_id))) else "the info is read all the same"
        if not _raises(lambda: _read(kv, queue_id, first, first)):
            return "the block is served all the same"
        for info in block_infos(kv, queue_id):
            if info.first != first:
                load_block(kv, queue_id, info)
        return None

    def _named(self, problems: list[Problem], rot: ValueRot) -> str | None:
        """The audit names the value, or the messages in it."""
        table = rot.key[:1]
        if table in (keys.BLOCK, keys.BLOCK_INFO):
            queue_id, first = self._of_block(rot)
            name = self._state.queues[queue_id].name
            ok = any((p.queue == name and p.first_sequence == first) or rot.key.hex() in p.what for p in problems)
        else:
            ok = any(rot.key.hex() in problem.what for problem in problems)
        return None if ok else f"the audit does not name it: {[problem.what for problem in problems][:3]}"

    def _saved(self, pairs: dict[bytes, bytes], rot: ValueRot, counts: Counts) -> str | None:
        target = TalliedKV(MemoryKV())
        problems = salvage(sorted(pairs.items()), target)
        problems += drop_missing(target)
        target.save()
        left = list(audit(target))
        if left:
            return f"after the repair the audit still finds {left[0].what}"
        saved = _all_rows(target, load_state(target).queues)
        wrong = [message for message, row in saved.items() if self._rows.get(message) != row]
        if wrong:
            return f"repair saved {wrong[0]} with other bytes"
        missing = self._rows.keys() - saved.keys()
        if any(message not in self._in_block(rot) for message in missing):
            return f"repair lost {sorted(missing)[:5]}, which were whole"
        if not problems:
            return "repair lists nothing"
        counts.repaired += 1
        return None

    def _of_block(self, rot: ValueRot) -> tuple[int, int]:
        """(queue_id, first sequence) of the messages in the block, which may stand under another key."""
        at = keys.split_sequence_key(rot.key, "the store")
        if rot.key[:1] == keys.BLOCK:
            for queue_id in self._state.queues:
                for info in block_infos(_kv(self.pairs), queue_id):
                    if info.home is not None and info.home[:2] == at:
                        return queue_id, info.first
        return at

    def _in_block(self, rot: ValueRot) -> set[tuple[int, int]]:
        if rot.key[:1] not in (keys.BLOCK, keys.BLOCK_INFO):
            return set()
        queue_id, first = self._of_block(rot)
        last = next(i.last for i in block_infos(_kv(self.pairs), queue_id) if i.first == first)
        return {(queue_id, sequence) for sequence in range(first, last + 1)}


def _kv(pairs: dict[bytes, bytes]) -> MemoryKV:
    kv = MemoryKV()
    kv.fill(pairs)
    return kv


def _all_rows(kv: KV, queues: Iterable[int]) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    for queue_id in queues:
        for part in _read(kv, queue_id, 0, 1 << 62):
            for offset, row in enumerate(part.rows):
                found[queue_id, part.first_sequence + offset] = row
    return found


def _read(kv: KV, queue_id: int, first: int, last: int) -> list[Slice]:
    return list(limit(BlockCache().parts(kv, queue_id, first, last, ""), READ_BYTES))


def _raises(work: Callable[[], object]) -> bool:
    try:
        work()
    except StorageDamaged:
        return True
    return False
