"""A store with very many queues and dead letters, filled through a provider's own appends."""

import time

from bench.scale.stores import AT_ONCE, HOUR_MS, Batches, queues
from vibemq.model.records import DeadFacts, DeadLettered, HandedOut, MessagesAdded, Reason
from vibemq.model.rows import Rows, pack_row

LETTER_QUEUES = 20
ERRORS = 1_000


def store(queue_count: int, letter_count: int) -> Batches:
    """Empty queues, and dead letters of the first of them with very many errors."""
    yield from queues(queue_count)
    now = time.time_ns() // 1_000_000
    for batch, first in enumerate(range(1, letter_count + 1, AT_ONCE)):
        queue_id = 1 + batch % LETTER_QUEUES
        at = now - HOUR_MS + first // 1_000
        ids = range(first, first + AT_ONCE)
        begin = 1 + batch // LETTER_QUEUES * AT_ONCE
        rows = Rows.of([pack_row(f"m{number}", b'{"n": 1}', [("tenant", f"t{number % 20}")]) for number in ids])
        letters = [
            DeadFacts(number, begin + index, Reason.REJECTED, f"no article {_word(number)}", 1, 1, at, at)
            for index, number in enumerate(ids)
        ]
        yield [
            MessagesAdded(queue_id, begin, at, rows),
            HandedOut(queue_id, 1, [(begin, begin + AT_ONCE - 1)]),
            DeadLettered(queue_id, 1, letters),
        ]


def _word(number: int) -> str:
    """One of ERRORS, without a digit: numbers do not tell errors apart."""
    return f"{number % ERRORS:03d}".translate(str.maketrans("0123456789", "abcdefghij"))
