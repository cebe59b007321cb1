"""Requests whose messages leave their queue otherwise than by a settlement: nobody will answer them."""

from collections.abc import Iterable, Iterator
from itertools import islice

from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.waiting import PER_UNIT, Waiting
from vibemq.errors import NoReply, RequestFailed, VibeMQError
from vibemq.model.options import Durability
from vibemq.model.records import Reason
from vibemq.model.runs import Run, runs_of

_WORDS = {
    Reason.MAX_ATTEMPTS: "its attempts are used up",
    Reason.DESERIALIZATION: "it could not be read",
    Reason.REJECTED: "a consumer rejected it",
    Reason.OVERFLOW: "the queue is full, and the message was dropped for others",
    Reason.PURGED: "it was removed from the queue",
    Reason.RETENTION: "the queue has dropped it, because its log is full",
    Reason.QUEUE_DELETED: "the queue was deleted",
    Reason.MOVED: "it is in another queue",
}
GROUPS_PER_UNIT = 8
"""Groups that are asked about one request for the cost of one run."""
NOTED_PER_UNIT = 16
"""Requests whose messages are acknowledged for the cost of one run."""


def fail_requests(
    queue: Queue, runs: Iterable[Run], reason: Reason, error: str = "", *, group: Group | None = None
) -> None:
    """These messages are gone, from all groups or from one of them.

    A request that another group still has is not lost.
    """
    for waiting in list(_among(queue, runs)):
        if group is None or not _elsewhere(queue, group, waiting.sequence):
            waiting.fail(_why(waiting, reason, error))


def fail_sequences(queue: Queue, group: Group, sequences: Iterable[int], reason: Reason, error: str) -> None:
    """The same of messages one by one."""
    fail_requests(queue, runs_of(sequences), reason, error, group=group)


def fail_some(queue: Queue) -> None:
    """Of a deleted queue: some of its requests."""
    for waiting in list(islice(queue.requests.values(), PER_UNIT)):
        waiting.fail(_why(waiting, Reason.QUEUE_DELETED, ""))


def fail_redirected(queue: Queue, runs: Iterable[Run]) -> None:
    """They became dead letters where they were published."""
    for waiting in list(_among(queue, runs)):
        waiting.fail(_failed(waiting, "the queue is full, and the message has become a dead letter"))


def fail_unheld(queue: Queue, sequence: int) -> int:
    """Unless a group has the message, or will have it. Returns what it has cost."""
    waiting = queue.requests.get(sequence)
    if waiting is None or (queue.unseen and sequence >= queue.unseen[0].first):
        return 1
    for looked, group in enumerate(queue.groups.values()):
        if group.unsettled_within(sequence, sequence):
            return 1 + looked // GROUPS_PER_UNIT
    fail_without_group(queue, [(sequence, sequence)])
    return 1 + len(queue.groups) // GROUPS_PER_UNIT


def fail_without_group(queue: Queue, runs: Iterable[Run]) -> None:
    """No group has these messages."""
    for waiting in list(_among(queue, runs)):
        waiting.fail(_failed(waiting, "no subscription has it any more"))


def note_acknowledged(queue: Queue, runs: Iterable[Run]) -> None:
    """Whoever has acknowledged them may reply later, whatever happens to them in other groups."""
    for waiting in _among(queue, runs):
        waiting.acknowledged = True


def fail_unstored(queue: Queue, first: int, last: int) -> None:
    """These messages could not be stored. Where a publish is confirmed after that, its publisher hears it as the answer
    to the publish; where it was confirmed before, as the end of the request."""
    confirmed = queue.options.durability <= Durability.ASYNC
    for waiting in list(_among(queue, [(first, last)])):
        if confirmed:
            waiting.fail(_failed(waiting, "the store had no room for it"))
        else:
            waiting.table.forget(waiting)


def _among(queue: Queue, runs: Iterable[Run]) -> Iterator[Waiting]:
    return (waiting for run in runs for waiting in queue.requests.within(*run))


def _elsewhere(queue: Queue, group: Group, sequence: int) -> bool:
    others = (other for other in queue.groups.values() if other is not group)
    return any(other.unsettled_within(sequence, sequence) for other in others)


def _why(waiting: Waiting, reason: Reason, error: str) -> VibeMQError:
    if reason is Reason.EXPIRED:
        return NoReply(
            f"no reply to the request to queue {waiting.queue!r} within {waiting.requester.timeout_ms / 1000:g} s; it "
            "has expired, and nobody works on it"
        )
    return _failed(waiting, _WORDS[reason] + (f": {error}" if error else ""))


def _failed(waiting: Waiting, because: str) -> RequestFailed:
    return RequestFailed(f"the request to queue {waiting.queue!r} was not answered, because {because}")
