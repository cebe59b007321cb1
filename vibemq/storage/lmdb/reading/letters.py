"""Dead letters whose rows are read beside appends."""

from collections.abc import Iterator

from vibemq.model.stored import DamagedLetter, DeadPage, DeadPageWanted, Slice
from vibemq.storage.kvstore.dead.pages import Step, not_yet, page
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE
from vibemq.storage.kvstore.letter_reader import LetterReader
from vibemq.storage.lmdb.open_store import OpenStore
from vibemq.storage.lmdb.reading.dead import JournaledDead
from vibemq.storage.lmdb.reading.rows import RowReader
from vibemq.storage.state.dead_letter_facts import DeadEntry


class JournaledLetters(LetterReader):
    """As `LetterReader`, but for `page`: it takes the lock itself, and not while it reads rows."""

    def __init__(self, store: OpenStore, rows: RowReader, dead: JournaledDead) -> None:
        super().__init__(dead, lambda: store.state, rows.read_locked, store.where)
        self._store = store
        self._rows = rows

    def page(self, wanted: DeadPageWanted) -> DeadPage:
        """May run beside all other verbs."""
        if wanted.choice.needs_index and not self._is_sorted_in():
            return not_yet(wanted)

        def walk(damaged: list[DamagedLetter]) -> Iterator[Step]:
            self._store.require_open()
            return self._dead.walk(wanted, damaged)

        lock, where = self._store.lock, self._store.where
        return page(self._store.state, walk, self.read_beside, where, wanted, lock=lock, get=self._get)

    def _is_sorted_in(self) -> bool:
        with self._store.lock:
            self._store.require_open()
            return self._dead.is_sorted_in(SORTED_AT_ONCE)

    def _get(self, dead_id: int) -> DeadEntry | None:
        self._store.require_open()
        return self._dead.get(dead_id)

    def read_beside(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """As `read`. The state does not know how large messages are for which only a letter stands, so the blocks are
        asked: a large one is read without the lock."""
        with self._store.lock:
            self._store.require_open()
            large = self._rows.first_large_block(queue_id, first, last, max_bytes)
            if large is None:
                return self._rows.read_locked(queue_id, first, last, max_bytes)
            before = self._rows.read_locked(queue_id, first, large - 1, max_bytes) if large > first else []
        return before or self._rows.read_large(queue_id, large)
