"""How many dead letters fit a filter."""

import math

from vibemq.operations.dead_letters import DeadLetterReader, LetterFilter, LetterFilters

LOOKED_AT_MAX = 100_000
"""Letters looked at where a number that is not known will do."""
AT_ONCE = 1_000


async def count_letters(reader: DeadLetterReader, wanted: LetterFilters, *, last_id: int, exact: bool) -> int:
    """-1 = that would be long work, and need not be `exact`. Only what the filter needs is read.

    `wanted`: without ages, which are instants by now. `last_id`: those that die during the count are not counted.
    """
    if wanted.need_rows and not exact:
        return -1
    chosen = LetterFilter(wanted, 0)
    queue_ids = await reader.queue_ids(wanted.queue, None)
    below = min(chosen.below, last_id + 1)
    most = math.inf if exact else LOOKED_AT_MAX
    # Of an end behind which there are few letters these are counted.
    endless = wanted.model_copy(update={"to_id": None})
    if endless.means_groups and (found := await _by_groups(reader, chosen, queue_ids)) is not None:
        count, newest = found
        # What dies from here on is in no group that was read.
        later = await _one_by_one(
            reader, endless, LetterFilter(endless, 0), queue_ids, below - 1, newest + 1, LOOKED_AT_MAX
        )
        if not later or (later > 0 and not exact):
            return max(0, count - later)
    return await _one_by_one(reader, wanted, chosen, queue_ids, chosen.after, below, most)


async def _one_by_one(
    reader: DeadLetterReader,
    wanted: LetterFilters,
    chosen: LetterFilter,
    queue_ids: frozenset[int] | None,
    after: int,
    below: int,
    most: float,
) -> int:
    """-1 = more than `most` had to be looked at."""
    count, last, looked_at, done = 0, after, 0, False
    while not done:
        if looked_at > most:
            return -1
        found = await reader.find(
            chosen.fits,
            choice=chosen.choice(queue_ids),
            stretches=chosen.stretches,
            after=last,
            below=below,
            limit=AT_ONCE,
            rows=wanted.need_rows,
            row_fits=chosen.row_fits if wanted.need_rows else None,
        )
        count += len(found.letters)
        last, done = found.last, found.done
        looked_at += found.examined
    return count


async def _by_groups(
    reader: DeadLetterReader, chosen: LetterFilter, queue_ids: frozenset[int] | None
) -> tuple[int, int] | None:
    """How many, and the highest id among them. None: some of them may stand in a group of others."""
    wanted = chosen.groups(queue_ids)
    if await reader.may_be_others(wanted):
        return None
    count = newest = 0
    async for part in reader.groups(wanted):
        count += sum(group.letters.count for group in part)
        newest = max(newest, *(group.letters.last_id for group in part))
    return count, newest
