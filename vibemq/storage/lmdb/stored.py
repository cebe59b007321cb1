"""Reading blocks of messages from LMDB, with the few last used ones at hand.

A drain reads a block many times over, a socket's fill at a time; decoding it once is what makes that cheap. Messages
never change under their sequence, so a block whose info is the same is the same.
"""

from collections import OrderedDict
from collections.abc import Iterator

import lmdb

from vibemq.model.stored import Slice
from vibemq.storage.blocks import SEQUENCE_MAX, BlockInfo, block_infos, clip, load_block
from vibemq.storage.kv import KV
from vibemq.storage.lmdb.tables import reading

BLOCKS_AT_HAND = 8


class StoredRows:
    """Not thread-safe; the provider's lock guards it."""

    def __init__(self, env: lmdb.Environment, where: str) -> None:
        self.env = env
        self._where = where
        self._blocks: OrderedDict[tuple[int, BlockInfo], list[Slice]] = OrderedDict()

    def read(self, queue_id: int, first: int, last: int, *, name: str) -> Iterator[Slice]:
        """What the store has of [first, last], ascending; `name` is the queue's, for errors.

        One snapshot lives until the iterator is exhausted or dropped: do either at once.
        """
        first, last = max(first, 0), min(last, SEQUENCE_MAX)
        with reading(self.env, self._where) as kv:
            for info in block_infos(kv, queue_id, first, last):
                yield from clip(self._block(kv, queue_id, info, name), [(first, last)])

    def _block(self, kv: KV, queue_id: int, info: BlockInfo, name: str) -> list[Slice]:
        key = (queue_id, info)
        parts = self._blocks.get(key)
        if parts is None:
            parts = self._blocks[key] = load_block(kv, queue_id, info, name)
            if len(self._blocks) > BLOCKS_AT_HAND:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        return parts
