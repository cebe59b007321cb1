"""Dead letters stand in an index, by queue and by group; jobs may stand in the store.

The index follows from the letters, so the code that keeps it makes it: a later layout of it is made from the letters as
well. Nothing else that is there changes. The number tells a VibeMQ that does not keep the index to refuse the store as
a newer one.
"""

import lmdb

from vibemq.storage.kvstore.dead.index import build_some
from vibemq.storage.kvstore.store import KV


def build(kv: KV) -> bool:
    return build_some(kv)


def upgrade(_transaction: lmdb.Transaction) -> None:
    return
