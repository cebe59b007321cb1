"""What the broker says is left, and what has died: the other half of both demos' ledgers."""

from collections import Counter
from typing import Any

from vibemq.cli.admin.dlq import pages


def left_in(info: dict[str, Any]) -> int:
    """Messages that nobody has settled, by a queue's `queue.info`."""
    return int(info["ready"] + info["in_flight"] + info["delayed"])


async def dead_by_reason(mq: pages.Admin, queue: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    async for page in pages.letters(mq, {"queue": queue}):
        counts.update(f"{letter['reason']}: {letter['error']}".lower() for letter in page)
    return dict(counts)
