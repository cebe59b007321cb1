"""Cursors say how their readers began, plans who told of batches without rows, and queues may go away by themselves.

Queues' options say when they go, and a queue knows whether it has had a consumer. Nothing that is there changes: what
an older version has written does not say it, and a queue without these options stays until somebody deletes it. The
number tells a VibeMQ that cannot read these facts to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
