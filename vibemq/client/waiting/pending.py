"""Requests to the broker that wait for their answer."""

from collections.abc import Callable

from vibemq.client.failures import Failure
from vibemq.client.waiting.latch import Latch
from vibemq.errors import ConnectionLost
from vibemq.protocols.native.codec.wire import WireMessage


class PendingRequest:
    """One request on one connection, and its answer."""

    __slots__ = ("_answer", "_failure", "done", "sent_at", "then", "what")

    def __init__(self, what: str, sent_at: float, then: Callable[[], None] | None = None) -> None:
        self.what = what
        self.sent_at = sent_at
        self.then = then
        self.done = Latch()
        self._answer: WireMessage | None = None
        self._failure: Failure | None = None

    def finish(self, answer: WireMessage | None, failure: Failure | None = None) -> None:
        self._answer = answer
        self._failure = failure
        self.done.set()
        if self.then is not None:
            self.then()

    def result(self) -> WireMessage:
        """
        Raises:
            VibeMQError: why there is no answer.
        """
        if self._failure is not None:
            raise self._failure()
        assert self._answer is not None
        return self._answer


class PendingRequests:
    """All that are on their way; they belong to the connection that carries them."""

    def __init__(self) -> None:
        self.by_id: dict[str, PendingRequest] = {}

    def lost(self, why: str) -> None:
        """The connection is gone."""
        for pending in self._all_at_once():
            pending.finish(None, _lost(pending.what, why))

    def fail(self, failure: Failure) -> None:
        for pending in self._all_at_once():
            pending.finish(None, failure)

    def sent_before(self, instant: float) -> list[str]:
        """Ids of those that were."""
        return [request_id for request_id, pending in self.by_id.items() if pending.sent_at < instant]

    def expire(self, request_ids: list[str], timed_out: Callable[[str], Failure]) -> None:
        for request_id in request_ids:
            pending = self.by_id.pop(request_id)
            pending.finish(None, timed_out(pending.what))

    def postpone(self, seconds: float, now: float) -> None:
        """The waits for answers begin so much later, at the latest now."""
        for pending in self.by_id.values():
            pending.sent_at = min(pending.sent_at + seconds, now)

    def _all_at_once(self) -> list[PendingRequest]:
        requests = list(self.by_id.values())
        self.by_id.clear()
        return requests


def _lost(what: str, why: str) -> Failure:
    return lambda: ConnectionLost(f"the connection was lost before the answer to {what}: {why}")
