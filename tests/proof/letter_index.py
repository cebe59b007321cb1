"""What the index of dead letters says, compared with the letters: after a crash, with what the journal lays over it."""

from collections.abc import Iterator

from vibemq.model.dead.fingerprint import fingerprint
from vibemq.model.dead.groups import DeadGroup, DeadGroupPage, DeadGroupsWanted, GroupKey, LetterChoice
from vibemq.model.records import DeadFacts
from vibemq.model.stored import DeadPageWanted
from vibemq.storage.interface import IStorageProvider

LETTERS = 500


def index_differences(store: IStorageProvider) -> list[str]:
    """A sentence for each; none when the index is right. A proof has fewer kinds of errors than a queue has groups."""
    by_group: dict[GroupKey, list[DeadFacts]] = {}
    by_queue: dict[int, list[int]] = {}
    after = 0
    while letters := store.dead_letters(after=after, limit=LETTERS):
        for letter in letters:
            facts = letter.facts
            key = GroupKey(letter.queue_id, int(facts.reason), fingerprint(facts.error))
            by_group.setdefault(key, []).append(facts)
            by_queue.setdefault(letter.queue_id, []).append(facts.dead_id)
        after = letters[-1].facts.dead_id
    return [*_of_groups(store, by_group), *_of_queues(store, by_queue)]


def _of_groups(store: IStorageProvider, meant: dict[GroupKey, list[DeadFacts]]) -> Iterator[str]:
    found = {group.key: group for group in _groups(store)}
    for key in sorted(found.keys() | meant.keys()):
        letters = [] if key not in found else _figures(found[key])
        some = meant.get(key, [])
        wanted = [len(some), some[0].dead_id, some[0].dead_at, some[-1].dead_id, some[-1].dead_at] if some else []
        if letters != wanted:
            yield f"the index of dead letters says {letters} of {key}, the letters say {wanted}"


def _figures(group: DeadGroup) -> list[int]:
    letters = group.letters
    return [letters.count, letters.first_id, letters.first_at, letters.last_id, letters.last_at]


def _groups(store: IStorageProvider) -> Iterator[DeadGroup]:
    page = DeadGroupPage()
    while not page.done:
        page = store.dead_groups(DeadGroupsWanted(after=page.last))
        yield from page.groups


def _of_queues(store: IStorageProvider, meant: dict[int, list[int]]) -> Iterator[str]:
    listed = {queue_id for queue_id, _ in store.dead_queues(0, 1 << 20)}
    if not listed >= meant.keys():
        yield f"the index of dead letters has queues {sorted(listed)}, the letters are of {sorted(meant)}"
    # A queue whose letters have gone since the last checkpoint may be listed, and has none.
    for queue_id, ids in ({key: list[int]() for key in listed} | meant).items():
        found: list[int] = []
        last, done = (1 << 63) - 1, False
        choice = LetterChoice(queue_ids=frozenset({queue_id}))
        while not done:
            page = store.dead_page(DeadPageWanted(below=last, newest_first=True, choice=choice, rows=False))
            found += (letter.facts.dead_id for letter in page.letters)
            last, done = page.last, page.done
        if found[::-1] != ids:
            yield f"the index of dead letters has {found[::-1]} of queue {queue_id}, the letters are {ids}"
