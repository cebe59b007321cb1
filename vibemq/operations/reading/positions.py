"""Where in a queue an instant is."""

from vibemq.operations.contracts import ReaderQuestions, StoreAccess

LOOK_BYTES = 1 << 20


async def sequence_at(readers: ReaderQuestions, store: StoreAccess, queue: str, instant: int) -> int:
    """The first sequence published at or after the instant. The index is coarse; the stored instants are exact.

    Raises:
        QueueNotFound
    """
    head = readers.queue(queue)
    first = max(readers.first_near(queue, instant), 1)
    while first < head.tail:
        slices = await store.read(store.provider.read, head.queue_id, first, head.tail - 1, LOOK_BYTES)
        for part in slices:
            if part.published_at >= instant:
                return part.first_sequence
        if not slices:
            break
        first = slices[-1].first_sequence + slices[-1].rows.count
    return head.tail
