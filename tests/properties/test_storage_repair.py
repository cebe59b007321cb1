"""Repairing what is not broken changes nothing, whatever the store holds."""

import shutil
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.blocks import BLOCK_BYTES, block_infos, load_block, merge_blocks, store_blocks
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.encoding import seal
from vibemq.storage.kvstore.integrity import TableSums, TalliedKV, write_tally
from vibemq.storage.kvstore.salvage import drop_missing, salvage
from vibemq.storage.kvstore.store import KV, load_state, write_dirty
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply
from vibemq.testing.memory_kv import MemoryKV
from vibemq.testing.storage_workload import Model, Workload, comparable

ALL = 2**63 - 1
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""A random store has no smaller one that is easier to read, and the search for it takes minutes."""
PROVIDERS = [name for name in ("sqlite", "lmdb") if find_spec(f"vibemq.storage.{name}.provider")]
EVERY_KIND = frozenset(
    {
        keys.META,
        keys.QUEUE,
        keys.GROUP,
        keys.RUN_PAGE,
        keys.VALUE_PAGE,
        keys.CHUNK,
        keys.DEDUP,
        keys.PLAN,
        keys.TRANSACTION,
        keys.USER,
        keys.TOKEN,
        keys.DEAD,
        keys.DEAD_BY_MESSAGE,
        keys.DEAD_BY_QUEUE,
        keys.DEAD_BY_GROUP,
        keys.DEAD_GROUP,
        keys.BLOCK_INFO,
        keys.LENT,
        keys.BLOCK,
    }
)


def pairs(kv: KV) -> dict[bytes, bytes]:
    return dict(kv.scan(b"\0", b"\xff"))


def sound_store(random: Random, batches: int) -> MemoryKV:
    """As the checkpointer writes one, some batches per transaction, or as a transactional provider does, in small
    blocks that are joined later. Transient messages are never written."""
    kv, model, workload = MemoryKV(), Model(), Workload(random, transient=False)
    kv.put(keys.VERSION, seal(keys.VERSION, b"\0\0\0\2"))
    write_tally(kv, TableSums())
    state, unmerged = load_state(kv), dict[int, int]()
    for _ in range(batches):
        tallied, dirty = TalliedKV(kv), Dirty()
        dead, arrivals = StoredDead(tallied, lambda _: False), Arrivals()
        for _ in range(random.randint(1, 4)):
            batch = workload.batch(model)
            model.apply(batch)
            for record in batch:
                apply(state, record, dead, dirty)
                arrivals.take(record)
            state.lsn += 1
        sizes = random.choice((300, 20_000, BLOCK_BYTES))
        store_blocks(tallied, state, arrivals, dirty.left, merge_tail=random.random() < 0.6, block_bytes=sizes)
        unmerged = arrivals.beginnings() | unmerged
        if random.random() < 0.3:
            starts = {queue_id: merge_blocks(tallied, state, queue_id, at) for queue_id, at in unmerged.items()}
            unmerged = {queue_id: at for queue_id, at in starts.items() if at is not None}
        dead.flush()
        write_dirty(tallied, state, dirty)
        tallied.save()
    return kv


def repaired(found: Iterable[tuple[bytes, bytes]]) -> MemoryKV:
    fresh = MemoryKV()
    tallied = TalliedKV(fresh)
    assert salvage(found, tallied) == []
    assert drop_missing(tallied) == []
    tallied.save()
    return fresh


def kept_pairs(kv: MemoryKV) -> dict[bytes, bytes]:
    """All but how far the instants of letters went back behind their ids, which tells of letters that are gone, too,
    and the tally that counts it; `audit` compares the tally."""
    return {key: value for key, value in pairs(kv).items() if key not in (keys.DEAD_ORDER, keys.TALLY)}


@settings(max_examples=8, phases=UNSHRUNK, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_repair_of_a_sound_store_keeps_every_pair(random: Random, batches: int) -> None:
    kv = sound_store(random, batches)
    assert list(audit(kv)) == []
    _assert_each_block_has_one_info(kv)
    saved = repaired(pairs(kv).items())
    assert list(audit(saved)) == []
    assert kept_pairs(saved) == kept_pairs(kv)
    # Pages that damaged ones lead to a second time.
    found = list(pairs(kv).items())
    again = repaired(found + found[random.randrange(len(found)) :])
    assert list(audit(again)) == []
    assert kept_pairs(again) == kept_pairs(kv)


def _assert_each_block_has_one_info(kv: MemoryKV) -> None:
    """Nothing is left of what was joined, rewritten or gone, wherever it stood."""
    homes: list[tuple[int, int]] = []
    for key, _ in kv.scan(keys.BLOCK_INFO, keys.after(keys.BLOCK_INFO)):
        queue_id, first = keys.split_sequence_key(key, kv.where)
        [info] = block_infos(kv, queue_id, first, first)
        assert load_block(kv, queue_id, info)
        homes.append((queue_id, first) if info.home is None else info.home[:2])
    blocks = [keys.split_sequence_key(key, kv.where) for key, _ in kv.scan(keys.BLOCK, keys.after(keys.BLOCK))]
    assert sorted(homes) == blocks


def test_the_stores_have_every_kind_of_value() -> None:
    found = set[bytes]()
    for seed in range(12):
        found.update(key[:1] for key in pairs(sound_store(Random(seed), 60)))
        if found == EVERY_KIND:
            return
    assert found == EVERY_KIND


def everything(storage: IStorageProvider, state_queues: list[int]) -> tuple[object, object]:
    parts = {queue_id: storage.read(queue_id, 1, ALL, 1 << 40) for queue_id in state_queues}
    rows = {
        (queue_id, part.first_sequence + index): (row, part.published_at)
        for queue_id, slices in parts.items()
        for part in slices
        for index, row in enumerate(part.rows)
    }
    return rows, storage.dead_letters(limit=100_000)


@pytest.mark.parametrize("provider", PROVIDERS)
@settings(max_examples=3, phases=UNSHRUNK, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.randoms(use_true_random=False), clean=st.booleans())
def test_repair_of_a_sound_directory_changes_nothing(provider: str, random: Random, clean: bool) -> None:
    """Also when part of it is still in the journal, as a crash leaves it."""
    plugin = find("storage", provider)
    folder = Path(tempfile.mkdtemp(prefix="vibemq-repair-"))
    try:
        storage = plugin.create(folder, plugin.settings())
        storage.open()
        model, workload = Model(), Workload(random, transient=False)
        for index in range(30):
            batch = workload.batch(model)
            storage.append(batch)
            model.apply(batch)
            if index == 15 and provider == "lmdb":
                storage.checkpoint()
        storage.sync()
        queues = list(model.state.queues)
        before = everything(storage, queues)
        (storage.close if clean else getattr(storage, "abandon", storage.close))()
        assert plugin.repair(folder, plugin.settings()) == []
        storage = plugin.create(folder, plugin.settings())
        state = storage.open()
        assert comparable(state) == comparable(model.state)
        assert (state.instant, state.next_dead_id) == (model.state.instant, model.state.next_dead_id)
        assert _living(everything(storage, queues), model) == _living(before, model)
        assert list(storage.check()) == []
        storage.close()
    finally:
        shutil.rmtree(folder)


def _living(found: tuple[object, object], model: Model) -> tuple[object, object]:
    """Without rows that are there but that nobody needs any more."""
    rows, letters = found
    assert isinstance(rows, dict)
    wanted = {(q, s) for q in model.state.queues for s in model.alive(q)}
    return {key: value for key, value in rows.items() if key in wanted}, letters
