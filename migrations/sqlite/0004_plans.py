"""Plans of readers may stand in the store, and cursors know up to where their hold is over and whether they were moved.

Nothing that is there changes: a cursor without these facts counts as moved, and has no plans. The number tells a VibeMQ
that cannot read them to refuse the store as a newer one, before it takes them for damage.
"""

import sqlite3


def upgrade(_transaction: sqlite3.Connection) -> None:
    return
