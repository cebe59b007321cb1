"""Queues may go away by themselves: their options say so, and a queue knows whether it has had a consumer.

Nothing that is there changes: a queue without these facts stays until somebody deletes it. The number tells a VibeMQ
that does not know them to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
