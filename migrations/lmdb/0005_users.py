"""Users and access tokens may stand in the store.

Nothing that is there changes. The number tells a VibeMQ that cannot read them to refuse the store as a newer one,
before it takes them for damage.
"""

import lmdb


def upgrade(_transaction: lmdb.Transaction) -> None:
    return
