"""A restored store begins a new timeline: its queues get new incarnations.

A backup gives out sequence numbers a second time: those of the messages that were published after it was made. A reader
that keeps its positions outside the broker would take the new messages for those that it has read. A queue of another
incarnation refuses it.

`store.json` of a backup says `"restored": true`, and so does that of a directory that `vibemq-admin restore` made of
anything. The first broker that starts on it gives the incarnations, and then removes the word. After a crash between
the two the next start gives others, and nobody has seen the first. `check` and the other offline tools leave both as
they are. A copy of a stopped broker's directory has no such word, and keeps the incarnations.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vibemq.errors import RestoreUnfinished, StorageError
from vibemq.model.stored import StoredState
from vibemq.storage.interface import StoragePlugin
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.encoding import seal, unseal
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.store import KV
from vibemq.storage.kvstore.values import pack_queue, unpack_meta, unpack_queue
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.replace import finish_replacing
from vibemq.storage.local.store_file import read_store_info, write_store_info
from vibemq.storage.migrate import provider_module

logger = logging.getLogger(__name__)


def is_restored(data_dir: Path) -> bool:
    """Whether the store there has to begin a new timeline. Raises StorageDamaged: see `read_store_info`."""
    info = read_store_info(data_dir)
    return info is not None and info.restored


def mark_restored(data_dir: Path) -> None:
    info = read_store_info(data_dir)
    if info is None:
        raise StorageError(f"{data_dir} holds no store")
    write_store_info(data_dir, replace(info, restored=True))


def begin_timeline(plugin: StoragePlugin, data_dir: Path, settings: Any, new_id: Callable[[], str]) -> None:
    """Give every queue of a restored store a new incarnation; nothing for any other store.

    Args:
        new_id: text that was never given to another queue.

    Raises:
        StorageError: as `open` of the provider, and when something in the store's journal could not be applied.
    """
    # What an interrupted restore has finished is completed first: it may be such a store.
    finish_replacing(data_dir)
    if not is_restored(data_dir):
        return
    # The store is checked and repaired after a crash before anything is written, and its journal is emptied.
    provider = plugin.create(data_dir, settings)
    lsn = provider.open().lsn
    provider.close()
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        info = read_store_info(data_dir)
        assert info is not None
        with provider_module(info.provider).open_store(data_dir) as store, store.transaction() as transaction:
            count = _renew(store.kv(transaction), lsn, new_id)
        write_store_info(data_dir, replace(info, restored=False))
    finally:
        lock.release()
    logger.warning(
        "%s was restored from a backup: its %d queues have new incarnations, and readers that keep their positions "
        "elsewhere have to start over",
        data_dir,
        count,
    )


def refuse_restored(data_dir: Path) -> None:
    """Raise RestoreUnfinished where a restore came between `begin_timeline` and the opening of the store."""
    if is_restored(data_dir):
        raise RestoreUnfinished(f"{data_dir} was restored from a backup while the broker started; start it again")


def _renew(kv: KV, lsn: int, new_id: Callable[[], str]) -> int:
    facts = StoredState()
    value = kv.get(keys.STATE_META)
    if value is not None:
        unpack_meta(facts, unseal(keys.STATE_META, value, kv.where))
    if facts.lsn < lsn:
        raise StorageError(f"the journal beside {kv.where} could not be applied; see the log, and start again")
    tallied = TalliedKV(kv)
    found = list(kv.scan(keys.QUEUE, keys.after(keys.QUEUE)))
    for key, sealed in found:
        queue = unpack_queue(keys.split_queue_key(key), unseal(key, sealed, kv.where))
        queue.incarnation = new_id()
        tallied.put(key, seal(key, pack_queue(queue)))
    tallied.save()
    return len(found)
