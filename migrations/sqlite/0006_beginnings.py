"""Cursors say how their readers began, and plans who told of the batches without rows behind them.

Nothing that is there changes: what an older version has written does not say it. The number tells a VibeMQ that cannot
read these facts to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
