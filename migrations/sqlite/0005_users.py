"""Users and access tokens may stand in the store.

Nothing that is there changes. The number tells a VibeMQ that cannot read them to refuse the store as a newer one,
before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
