"""Options of queues say whether a message that has failed holds up those behind it, and whether priorities count among
the subscribers of a fan-out. Groups may have a filter.

Nothing that is there changes: no queue of an older version does so, and no group has one. The number tells a VibeMQ
that knows neither to refuse the store as a newer one, before it takes the queue for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
