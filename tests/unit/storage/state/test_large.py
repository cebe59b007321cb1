from vibemq.model.options import QueueOptions
from vibemq.model.stored import Chunk, StoredQueue, StoredQueues, StoredState
from vibemq.storage.state.large import first_large, queues_with_large

LARGE = 2 << 20


def queue(*chunks: tuple[int, int, int], queue_id: int = 1) -> StoredQueue:
    made = StoredQueue(queue_id, "q", QueueOptions(), 0, "1" * 32)
    made.chunks.extend(Chunk(first, last, size, 0) for first, last, size in chunks)
    return made


def test_the_first_large_row_of_the_runs_is_found() -> None:
    stored = queue((1, 9, 900), (10, 10, LARGE), (11, 20, 100), (21, 21, LARGE + 1))
    assert queues_with_large(StoredState(queues=StoredQueues([stored, queue(queue_id=2)]))) == {1}
    assert first_large(stored.chunks, [(1, 30)]) == (10, LARGE)
    assert first_large(stored.chunks, [(11, 30)]) == (21, LARGE + 1)
    assert first_large(stored.chunks, [(1, 9), (11, 20)]) is None
    assert first_large(stored.chunks, [(11, 12), (21, 21)]) == (21, LARGE + 1)
    assert first_large(stored.chunks, [(22, 30)]) is None
    assert first_large(stored.chunks, []) is None


def test_many_rows_that_are_large_together_are_not() -> None:
    stored = queue((1, 2_000, LARGE))
    assert first_large(stored.chunks, [(1, 2_000)]) is None
    assert queues_with_large(StoredState(queues=StoredQueues([stored]))) == set()
