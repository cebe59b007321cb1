"""What became of published messages."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self, overload

from vibemq.client.publishing.outbox import PublishBatch
from vibemq.errors import PublishRefused, VibeMQError


class Receipt(NamedTuple):
    """The broker has the message, as safely as its queue's durability says."""

    queue: str
    sequence: int
    duplicate: bool
    """A message with the same dedup_id was there already; `sequence` is its."""


def receipt(batch: PublishBatch, index: int) -> Receipt:
    """
    Raises:
        VibeMQError: why this message was not accepted.
    """
    refusal = batch.refusal(index)
    if refusal is not None:
        raise refusal
    return Receipt(batch.queue, batch.sequence(index), batch.is_duplicate(index))


class PublishReport(Sequence[Receipt]):
    """Receipts of `publish_many`, in the order of the bodies, made when looked at.

    Looking at one that was refused raises its error; `refused` says which.
    """

    __slots__ = ("_batches", "_starts", "queue", "refused")

    def __init__(self, queue: str, batches: Sequence[PublishBatch]) -> None:
        self.queue = queue
        self._batches = batches
        self._starts: list[int] = []
        self.refused: Mapping[int, VibeMQError]
        """Index -> why."""
        refused: dict[int, VibeMQError] = {}
        start = 0
        for batch in batches:
            self._starts.append(start)
            for index, error in batch.refusals():
                refused[start + index] = error
            start += batch.count
        self._starts.append(start)
        self.refused = refused

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        return f"<PublishReport {self.queue}: {self.accepted} accepted, {len(self.refused)} refused>"

    @property
    def accepted(self) -> int:
        return len(self) - len(self.refused)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...

    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        batch_index = bisect_left(self._starts, index + 1) - 1
        return receipt(self._batches[batch_index], index - self._starts[batch_index])

    def __iter__(self) -> Iterator[Receipt]:
        for batch in self._batches:
            for index in range(batch.count):
                yield receipt(batch, index)

    def raise_for_refused(self) -> None:
        """
        Raises:
            PublishRefused: some were; the others are accepted all the same.
            VibeMQError: all were, for one and the same kind of reason.
        """
        raise_for(self.queue, self.refused, self.accepted)

    def whole(self) -> Self:
        """Itself, if nothing was refused. Raises as `raise_for_refused`."""
        self.raise_for_refused()
        return self


def raise_for(queue: str, refused: Mapping[int, VibeMQError], accepted: int, more: int = 0) -> None:
    """See `PublishReport.raise_for_refused`. `more`: refused, too, beyond those."""
    if not refused:
        return
    if not (accepted or more) and len({type(error) for error in refused.values()}) == 1:
        raise next(iter(refused.values()))
    raise PublishRefused(queue, refused, accepted=accepted, more=more)
