"""How many dead letters fit a filter."""

from vibemq.model.records import DeadFacts
from vibemq.operations.dead_letters import DeadLetterReader, LetterFilter, LetterFilters

LOOKED_AT_MAX = 100_000
"""Letters looked at where a number that is not known will do."""
ROWS_AT_ONCE = 1_000


async def count_letters(
    reader: DeadLetterReader, chosen: LetterFilter, wanted: LetterFilters, *, below: int, exact: bool
) -> int:
    """-1 = that would be long work, and need not be `exact`. Only what the filter needs is read."""
    count, after = 0, 0
    looked = LOOKED_AT_MAX

    def counted(facts: DeadFacts, queue: str) -> bool:
        nonlocal count
        count += chosen.fits(facts, queue)
        return False

    if wanted.ids is not None:
        after, below = max(0, min(wanted.ids, default=1) - 1), min(below, max(wanted.ids, default=0) + 1)
    if wanted.need_rows and not exact:
        return -1
    while True:
        if wanted.need_rows:
            found = await reader.find(
                chosen.fits, after=after, below=below, limit=ROWS_AT_ONCE, row_fits=chosen.row_fits
            )
            count += len(found.letters)
        else:
            found = await reader.find(counted, after=after, below=below, limit=1, scan=10_000)
        after = found.last
        if found.done:
            return count
        looked -= 10_000
        if looked <= 0 and not exact:
            return -1
