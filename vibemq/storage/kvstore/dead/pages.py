"""Dead letters with their messages: one by one, and in stretches of bounded work."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from vibemq.errors import StorageDamaged
from vibemq.model.stored import INDEX_STEPS, DamagedLetter, DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.state.dead_groups import DeadEntry

Step = tuple[int, DeadEntry | None, int]
"""A dead_id; its letter, None where the index leads past one; and how much work that was, see `INDEX_STEPS`."""
NEIGHBOUR_DISTANCE = 64
NEIGHBOUR_BYTES = 256 * 1024

Reader = Callable[[int, int, int, int], list[Slice]]
"""`IStorageProvider.read`."""


Lock = AbstractContextManager[object]
_NO_LOCK: Lock = nullcontext()


def assemble(state: StoredState, entry: DeadEntry, read: Reader, where: str, lock: Lock = _NO_LOCK) -> DeadLetter:
    """The dead letter with its message. Raises StorageDamaged when the message is not there.

    Args:
        lock: guards the state; `read` is called without it.
    """
    facts = entry.facts
    with lock:
        queue = state.queues.get(entry.queue_id)
    parts = read(entry.queue_id, facts.sequence, facts.sequence, 1) if queue is not None else []
    if queue is None or not parts:
        raise StorageDamaged(
            f"dead letter {facts.dead_id} points at the missing message {facts.sequence} of queue {entry.queue_id}",
            path=where,
        )
    with lock:
        priorities = [priority for priority, runs in queue.priorities.items() if facts.sequence in runs]
    return DeadLetter(
        facts=facts,
        queue_id=entry.queue_id,
        queue=queue.name,
        group=entry.group,
        published_at=parts[0].published_at,
        priority=priorities[0] if priorities else 1,
        row=parts[0].rows[0],
    )


def queues_of(
    state: StoredState, with_letters: Callable[[int], Iterator[int]], after: int, limit: int, name: str | None
) -> list[tuple[int, str]]:
    """See `IStorageProvider.dead_queues`."""
    if name is None:
        return [(queue_id, state.name_of(queue_id)) for queue_id in islice(with_letters(after), limit)]
    named = [queue_id for queue_id in state.queues.named(name) if queue_id > after]
    return [(queue_id, name) for queue_id in named[:limit]]


def select(state: StoredState, entries: Iterator[DeadEntry], limit: int, queue: str | None) -> list[DeadEntry]:
    """The first `limit` entries, of queues with that name if one is given."""
    found: list[DeadEntry] = []
    for entry in entries:
        if len(found) >= limit:
            break
        origin = state.queues.get(entry.queue_id)
        if queue is None or (origin is not None and origin.name == queue):
            found.append(entry)
    return found


def not_yet(wanted: DeadPageWanted) -> DeadPage:
    """See `DeadPage.is_ready`."""
    return DeadPage([], [], wanted.below if wanted.newest_first else wanted.after, done=False, is_ready=False)


def page(
    state: StoredState,
    walk: Callable[[list[DamagedLetter]], Iterator[Step]],
    read: Reader,
    where: str,
    wanted: DeadPageWanted,
    *,
    lock: Lock = _NO_LOCK,
    get: Callable[[int], DeadEntry | None] | None = None,
) -> DeadPage:
    """One stretch of the DLQ, of bounded work: see `IStorageProvider.dead_page`.

    `walk(damaged)`: the letters of the page in its order; those whose facts cannot be read go to `damaged`.

    Args:
        lock: guards the state; `read` is called without it, and with `get` it is found whether a letter was removed
            meanwhile.
    """
    damaged: list[DamagedLetter] = []
    found = DeadPage([], damaged, wanted.below if wanted.newest_first else wanted.after, done=True)
    with lock:
        chosen = _choose(state, walk(damaged), wanted, found)
    if found.done:
        # Those behind the last sound letter are told, too.
        found.last = wanted.after if wanted.newest_first else max([found.last, *(letter.dead_id for letter in damaged)])
    if not wanted.rows:
        found.letters = [_without_row(state, entry) for entry in chosen]
        return _cut(found, wanted)
    size = 0
    for group in _neighbours(chosen):
        rows = _rows(read, group, wanted.max_bytes - size)
        for entry in group:
            try:
                letter = assemble(state, entry, rows or read, where, lock)
            except StorageDamaged as error:
                with lock:
                    if get is not None and get(entry.facts.dead_id) is None:
                        continue
                origin = state.queues.get(entry.queue_id)
                name = "" if origin is None else origin.name
                damaged.append(DamagedLetter(entry.facts.dead_id, entry.queue_id, name, str(error)))
                continue
            size += len(letter.row)
            if found.letters and size > wanted.max_bytes:
                found.last, found.done = found.letters[-1].facts.dead_id, False
                found.examined = found.examined_to[found.last]
                return _cut(found, wanted)
            found.letters.append(letter)
    return _cut(found, wanted)


def _choose(state: StoredState, steps: Iterator[Step], wanted: DeadPageWanted, found: DeadPage) -> list[DeadEntry]:
    """The entries that are wanted, as far as the page goes; `found` is told how far that is."""
    chosen: list[DeadEntry] = []
    work = wanted.scan * INDEX_STEPS
    since, until = wanted.choice.since, wanted.choice.until
    for dead_id, entry, cost in steps:
        if work <= 0 or len(chosen) >= wanted.limit:
            found.done = False
            break
        found.examined, found.last = found.examined + 1, dead_id
        work -= cost
        if entry is None or not since <= entry.facts.dead_at <= until:
            continue
        origin = state.queues.get(entry.queue_id)
        if wanted.fits(entry.facts, "" if origin is None else origin.name):
            chosen.append(entry)
            found.examined_to[dead_id] = found.examined
    return chosen


def _without_row(state: StoredState, entry: DeadEntry) -> DeadLetter:
    origin = state.queues.get(entry.queue_id)
    return DeadLetter(entry.facts, entry.queue_id, "" if origin is None else origin.name, entry.group, 0, 1, b"")


def _cut(found: DeadPage, wanted: DeadPageWanted) -> DeadPage:
    """Damaged letters behind the page's end are told with the next one."""
    last, newest_first = found.last, wanted.newest_first
    bounds = (max(last, wanted.after + 1), wanted.below) if newest_first else (wanted.after + 1, last + 1)
    found.damaged = sorted(
        (letter for letter in found.damaged if bounds[0] <= letter.dead_id < bounds[1]), reverse=newest_first
    )
    return found


def _neighbours(entries: list[DeadEntry]) -> Iterator[list[DeadEntry]]:
    """Letters whose messages stand close enough together to be read in one go."""
    group: list[DeadEntry] = []
    for entry in entries:
        if group:
            ahead = abs(entry.facts.sequence - group[-1].facts.sequence)
            if entry.queue_id != group[0].queue_id or ahead > NEIGHBOUR_DISTANCE:
                yield group
                group = []
        group.append(entry)
    if group:
        yield group


def _rows(read: Reader, group: list[DeadEntry], max_bytes: int) -> Reader | None:
    """Reads the group's rows at once, as far as a page has room for them, and answers for each; those behind that are
    read by themselves. None when that does not work and each is read by itself."""
    if len(group) < 2:
        return None
    found: dict[int, Slice] = {}
    wanted = {entry.facts.sequence for entry in group}
    queue_id, first, last = group[0].queue_id, min(wanted), max(wanted)
    try:
        while first <= last and max_bytes > 0:
            slices = read(queue_id, first, last, NEIGHBOUR_BYTES)
            if not slices:
                first = last + 1
                break
            max_bytes -= sum(part.rows.size for part in slices)
            for part in slices:
                start = part.first_sequence
                for sequence in range(start, start + part.rows.count):
                    if sequence in wanted:
                        index = sequence - start
                        found[sequence] = Slice(sequence, part.published_at, part.rows.slice(index, index + 1))
            first = slices[-1].first_sequence + slices[-1].rows.count
    except StorageDamaged:
        return None

    def one(queue_id: int, sequence: int, last: int, max_bytes: int) -> list[Slice]:
        if sequence >= first:
            return read(queue_id, sequence, last, max_bytes)
        return [found[sequence]] if sequence in found else []

    return one
