"""Records of new messages say whether a delay has ended since the message before.

A delayed message takes its place by the instant at which it falls due. Nothing that is there changes: what an older
version has written does not say it, and its delayed messages are placed as exactly as the ages of the others are known.
The number tells a VibeMQ that cannot read these records to refuse the store as a newer one, before it takes them for
damage.
"""

import lmdb


def upgrade(_transaction: lmdb.Transaction) -> None:
    return
