"""Messages of a committed stage enter their queue where they are: infos of blocks may name a block of a stage, and a
record says that a stage was moved.

Nothing that is there changes: stages that an older version has written are moved bundle by bundle. The number tells a
VibeMQ that does not know such blocks to refuse the store as a newer one, before it takes them for damage.
"""

import lmdb


def upgrade(_transaction: lmdb.Transaction) -> None:
    return
