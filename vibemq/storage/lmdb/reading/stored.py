"""Reading blocks of messages from LMDB, with the few last used ones at hand."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vibemq.errors import StorageDamaged
from vibemq.model.records import StageMoved
from vibemq.model.stored import Slice
from vibemq.storage.kvstore.block_cache import BlockCache
from vibemq.storage.kvstore.blocks import pick
from vibemq.storage.lmdb.environment.tables import reading
from vibemq.storage.lmdb.open_store import OpenStore


@contextmanager
def shifted_damage(shift: int) -> Iterator[None]:
    """The messages of a stage are told by the numbers that they have in their queue."""
    try:
        yield
    except StorageDamaged as damage:
        if damage.run is not None:
            damage.run = damage.run[0] + shift, damage.run[1] + shift
        raise


class StoredRows:
    """Not thread-safe; the provider's lock guards it."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._blocks = BlockCache()

    def read(self, queue_id: int, first: int, last: int, *, name: str) -> Iterator[Slice]:
        """What the store has of [first, last], ascending; `name` is the queue's, for errors.

        One snapshot lives until the iterator is exhausted or dropped: do either at once.
        """
        with reading(self._store.env, self._store.where) as kv:
            yield from self._blocks.parts(kv, queue_id, first, last, name)

    def read_moved(self, moved: StageMoved, first: int, last: int, *, name: str) -> Iterator[Slice]:
        """As `read`, of messages that came with a stage: the store has them there or, after a checkpoint of which the
        caller does not know yet, in their queue."""
        shift = moved.shift
        with reading(self._store.env, self._store.where) as kv:
            with shifted_damage(shift):
                for part in self._blocks.parts(kv, moved.stage_id, first - shift, last - shift, name):
                    yield Slice(part.first_sequence + shift, moved.published_at, part.rows)
            yield from self._blocks.parts(kv, moved.queue_id, first, last, name)

    def pick(self, queue_id: int, sequences: Sequence[int], start: int, *, name: str) -> tuple[list[Slice], int]:
        """See `blocks.pick`."""
        with reading(self._store.env, self._store.where) as kv:
            return pick(kv, queue_id, sequences, start, name)
