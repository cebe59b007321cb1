"""Options of queues say whether a message that has failed holds up those behind it, and whether priorities count among
the subscribers of a fan-out.

Nothing that is there changes: no queue of an older version does so. The number tells a VibeMQ that does not know the
options to refuse the store as a newer one, before it takes the queue for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
