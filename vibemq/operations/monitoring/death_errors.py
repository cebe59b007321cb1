"""What the messages of the last minutes have died of: counts by queue and by the fingerprints of their errors."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vibemq.model.dead.fingerprint import fingerprint_text
from vibemq.model.dead.groups import DeadGroup, DeadGroupsWanted, LetterChoice
from vibemq.operations.dead_letters.reader import DeadLetterReader

KEPT_S = 5.0
GROUPS_MAX = 300
"""Of one queue that are looked at."""
COUNTED_MAX = 1_000
"""Letters of a group that are counted one by one."""
COUNTED_S = 0.05


class Died(NamedTuple):
    """Of one queue."""

    queue: str
    queue_id: int | None
    """None: it is gone."""
    letters: int


class DeathErrors:
    """Looks at the index of dead letters, every few seconds at most for the same deaths."""

    def __init__(self, letters: DeadLetterReader, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._letters = letters
        self._monotonic = monotonic
        self._kept: dict[tuple[Died, ...], tuple[float, list[dict[str, Any]]]] = {}

    async def told(self, died: Sequence[Died], since_ms: int) -> list[dict[str, Any]]:
        """Most first: letters that are there. Those that were replayed or purged meanwhile are not told of.

        `fingerprint` is None for letters of a queue that is gone, and where too much would have to be looked at."""
        key, now_s = tuple(died), self._monotonic()
        self._kept = {one: kept for one, kept in self._kept.items() if now_s - kept[0] < KEPT_S}
        if key not in self._kept:
            found = [row for one in died for row in await self._of_queue(one, since_ms)]
            self._kept[key] = now_s, sorted(found, key=lambda row: -int(row["count"]))
        return self._kept[key][1]

    async def _of_queue(self, died: Died, since_ms: int) -> list[dict[str, Any]]:
        if died.queue_id is None:
            return [_row(died.queue, None, died.letters)]
        recent: list[DeadGroup] = []
        looked_at = 0
        async for part in self._letters.groups(DeadGroupsWanted(queue_ids=frozenset({died.queue_id}))):
            recent += [group for group in part if group.letters.last_at >= since_ms]
            looked_at += len(part)
            if looked_at >= GROUPS_MAX:
                break
        counts: dict[int, int] = {}
        is_all = looked_at < GROUPS_MAX
        older = [group for group in recent if group.letters.first_at < since_ms]
        for group in recent:
            if group.letters.first_at >= since_ms:
                counts[group.key.fingerprint] = counts.get(group.key.fingerprint, 0) + group.letters.count
        for group in older:
            count, is_counted = await self._counted(group, since_ms)
            if not is_counted and len(older) == 1:
                # What the others have not died of: too much only by what was replayed or purged meanwhile.
                count = max(count, min(died.letters - sum(counts.values()), group.letters.count))
            is_all = is_all and (is_counted or len(older) == 1)
            if count:
                counts[group.key.fingerprint] = counts.get(group.key.fingerprint, 0) + count
        rest = died.letters - sum(counts.values())
        rows = [_row(died.queue, fingerprint_text(fingerprint), count) for fingerprint, count in counts.items()]
        return rows + ([_row(died.queue, None, rest)] if rest > 0 and not is_all else [])

    async def _counted(self, group: DeadGroup, since_ms: int) -> tuple[int, bool]:
        """How many, and whether that is all."""
        choice = LetterChoice(
            queue_ids=frozenset({group.key.queue_id}),
            reason=group.key.reason,
            fingerprint=group.key.fingerprint,
            since=since_ms,
        )
        found = await self._letters.find(
            choice=choice, newest_first=True, limit=COUNTED_MAX, seconds=COUNTED_S, rows=False
        )
        return len(found.letters), found.done


def _row(queue: str, fingerprint: str | None, count: int) -> dict[str, Any]:
    return {"queue": queue, "fingerprint": fingerprint, "count": count}
