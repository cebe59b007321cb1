"""Reading messages that must be there: an unsettled message without a row is damage and raises an error."""

from collections.abc import Iterable, Iterator, Sequence

from vibemq.errors import StorageDamaged
from vibemq.model.runs import Run
from vibemq.model.stored import Slice, StoredQueue
from vibemq.storage.state.liveness import alive_runs


def all_alive(queue: StoredQueue, parts: Iterable[Slice], first: int, last: int, where: str) -> Iterator[Slice]:
    """Pass on the parts of [first, last], ascending, after a look at each hole between them.

    The state is asked about holes only, so reading a plain backlog costs nothing more.

    Raises:
        StorageDamaged: names the queue and the messages that are alive and have no row.
    """
    following = max(first, 1)
    for part in parts:
        if part.first_sequence > following:
            _need_none_alive(queue, following, part.first_sequence - 1, where)
        following = part.last_sequence + 1
        yield part
    if following <= last:
        _need_none_alive(queue, following, last, where)


def need_none_of(queue: StoredQueue, sequences: Sequence[int], where: str) -> None:
    """Raises StorageDamaged when one of these, which have no row, is alive."""
    for sequence in sequences:
        _need_none_alive(queue, sequence, sequence, where)


def _need_none_alive(queue: StoredQueue, first: int, last: int, where: str) -> None:
    missing = alive_runs(queue, first, last)
    if missing:
        raise StorageDamaged(
            f"messages {span(missing)} of queue {queue.name} are missing",
            path=where,
            hint="restore a backup, or save the rest with `vibemq-admin check --repair`",
            run=missing[0],
        )


def span(runs: list[Run]) -> str:
    """The runs in words, the first few of them."""
    words = [f"{first} to {last}" if first < last else str(first) for first, last in runs[:5]]
    return ", ".join(words) + (" and more" if len(runs) > len(words) else "")
