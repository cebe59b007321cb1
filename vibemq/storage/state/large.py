"""Where rows above `LARGE_ROW_BYTES` stand: each is a chunk of its own, because others together have at most
256 KiB."""

from bisect import bisect_left
from collections.abc import Sequence

from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.model.runs import Run
from vibemq.model.stored import Chunk, StoredQueue, StoredState


def first_large(chunks: Sequence[Chunk], runs: Sequence[Run]) -> tuple[int, int] | None:
    """(sequence, size) of the first large row of a queue's chunks in the runs; ascending within each."""
    for first, last in runs:
        for at in range(bisect_left(chunks, first, key=lambda chunk: chunk.last), len(chunks)):
            chunk = chunks[at]
            if chunk.first > last:
                break
            if chunk.size > LARGE_ROW_BYTES and first <= chunk.first == chunk.last:
                return chunk.first, chunk.size
    return None


def queues_with_large(state: StoredState) -> set[int]:
    """queue_ids."""
    return {queue_id for queue_id, queue in state.queues.items() if _has_large(queue)}


def _has_large(queue: StoredQueue) -> bool:
    return any(chunk.size > LARGE_ROW_BYTES and chunk.first == chunk.last for chunk in queue.chunks)
