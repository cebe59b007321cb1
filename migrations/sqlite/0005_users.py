"""Users and access tokens may stand in the store, and plans of readers know which batch of which query they are.

Nothing that is there changes: a plan without these facts is one that nobody has begun to read. The number tells a
VibeMQ that cannot read them to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
