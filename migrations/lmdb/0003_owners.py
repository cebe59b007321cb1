"""Owners of groups and applications may stand in the store.

Nothing that is there changes: a group or a transaction without an owner belongs to nobody. The number tells a VibeMQ
that cannot read owners to refuse the store as a newer one, before it takes them for damage.
"""

import lmdb


def upgrade(_transaction: lmdb.Transaction) -> None:
    return
