"""Owners of groups and applications may stand in the store.

Nothing that is there changes: a group or a transaction without an owner belongs to nobody. The number tells a VibeMQ
that cannot read owners to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
