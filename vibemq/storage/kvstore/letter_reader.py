"""The verbs of `IStorageProvider` that read dead letters: the same for every provider."""

from collections.abc import Callable
from functools import partial

from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, StoredState
from vibemq.storage.kvstore.dead.pages import Reader, assemble, not_yet, page, queues_of, select
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE, StoredDead


class LetterReader:
    """Called with the provider's lock held.

    Args:
        state: what the store's state is now.
        read: the provider's.
        where: the store, for errors.
    """

    def __init__(self, dead: StoredDead, state: Callable[[], StoredState], read: Reader, where: str) -> None:
        self._dead = dead
        self._state = state
        self.read = read
        self._where = where

    def letters(self, after: int, limit: int, queue: str | None) -> list[DeadLetter]:
        state = self._state()
        entries = select(state, self._dead.after(after), limit, queue)
        return [assemble(state, entry, self.read, self._where) for entry in entries]

    def letter(self, dead_id: int) -> DeadLetter | None:
        entry = self._dead.get(dead_id)
        return None if entry is None else assemble(self._state(), entry, self.read, self._where)

    def page(self, wanted: DeadPageWanted) -> DeadPage:
        if wanted.choice.needs_index and not self._dead.is_sorted_in(SORTED_AT_ONCE):
            return not_yet(wanted)
        return page(self._state(), partial(self._dead.walk, wanted), self.read, self._where, wanted)

    def groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        if not self._dead.is_sorted_in(SORTED_AT_ONCE):
            return DeadGroupPage(last=wanted.after)
        return self._dead.group_page(wanted, self._state().name_of)

    def queues(self, after: int, limit: int, name: str | None) -> list[tuple[int, str]]:
        return queues_of(self._state(), self._dead.queues, after, limit, name)
