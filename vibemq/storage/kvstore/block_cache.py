"""The blocks of messages that were read last, decoded.

A drain reads a block many times over, a socket's fill at a time, and a page of dead letters reads one message of it
after the other; decoding it once is what makes that cheap. Messages never change under their sequence, so a block whose
info is the same is the same.
"""

from collections import OrderedDict
from collections.abc import Iterator

from vibemq.errors import StorageDamaged
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.model.stored import Slice
from vibemq.storage.kvstore.blocks import SEQUENCE_KEY_MAX, BlockInfo, BlockParts, between, block_infos, load_block
from vibemq.storage.kvstore.store import KV

BLOCKS_AT_HAND = 8


class BlockCache:
    """Of one store. Not thread-safe."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, BlockInfo], BlockParts] = OrderedDict()

    def parts(self, kv: KV, queue_id: int, first: int, last: int, name: str) -> Iterator[Slice]:
        """What the store has of [first, last], ascending; `name` is the queue's, for errors.

        Nothing may be written while it runs. Raises StorageDamaged like `load_block`.
        """
        first, last = max(first, 0), min(last, SEQUENCE_KEY_MAX)
        for info in block_infos(kv, queue_id, first, last):
            try:
                parts = self._block(kv, queue_id, info, name)
            except StorageDamaged as damage:
                # What the block has beside them may be read from elsewhere.
                damage.run = max(first, info.first), min(last, info.last)
                raise
            yield from between(parts, first, last)

    def _block(self, kv: KV, queue_id: int, info: BlockInfo, name: str) -> BlockParts:
        key = (queue_id, info)
        parts = self._blocks.get(key)
        if parts is None:
            parts = load_block(kv, queue_id, info, name)
            if info.size > LARGE_ROW_BYTES:
                return parts
            self._blocks[key] = parts
            if len(self._blocks) > BLOCKS_AT_HAND:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        return parts
