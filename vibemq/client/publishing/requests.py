"""Requests: messages whose sender waits for the reply."""

from collections.abc import Callable

from vibemq.client.failures import Failure
from vibemq.client.payload import ReadPayload
from vibemq.client.waiting.latch import Latch
from vibemq.errors import ConnectionLost, NoReply, VibeMQError
from vibemq.model.rows import RowView

REPLY_TO = "reply-to"
"""The header of a request that says where its reply goes."""


class Response(ReadPayload):
    """The reply to a request."""

    __slots__ = ("_view",)

    def __init__(self, row: bytes) -> None:
        self._view = RowView(row)

    def __repr__(self) -> str:
        return f"<Response id={self.id} {self._view.payload_size} bytes>"

    @property
    def id(self) -> str:
        return self._view.message_id

    @property
    def payload(self) -> bytes:
        """The bytes that were sent."""
        return self._view.payload

    @property
    def headers(self) -> dict[str, str]:
        return self._view.headers


class AwaitedReply:
    """One request on one connection."""

    __slots__ = ("_failure", "_row", "done", "queue")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.done = Latch()
        self._row = b""
        self._failure: Failure | None = None

    def finish(self, row: bytes, failure: Failure | None = None) -> None:
        self._row, self._failure = row, failure
        self.done.set()

    def result(self) -> Response:
        """
        Raises:
            VibeMQError: why there is no reply.
        """
        if self._failure is not None:
            raise self._failure()
        return Response(self._row)


class AwaitedReplies:
    """All requests that are on their way; they belong to the connection that carries them."""

    def __init__(self) -> None:
        self._awaited: dict[str, AwaitedReply] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def add(self, request_id: str, queue: str) -> AwaitedReply:
        awaited = self._awaited[request_id] = AwaitedReply(queue)
        return awaited

    def forget(self, request_id: str) -> None:
        """Nobody waits any more; what comes later is passed over."""
        self._awaited.pop(request_id, None)
        if not self._awaited:
            # A dict keeps the room of what it has had.
            self._awaited = {}

    def received(self, request_id: str, row: bytes) -> None:
        awaited = self._awaited.get(request_id)
        if awaited is not None:
            awaited.finish(row)

    def refused(self, request_id: str, failure: Failure) -> bool:
        """Whether it was one of these."""
        awaited = self._awaited.get(request_id)
        if awaited is not None:
            awaited.finish(b"", failure)
        return awaited is not None

    def lost(self, why: str) -> None:
        """The connection is gone, and with it every reply address."""
        for awaited in self._awaited.values():
            awaited.finish(b"", _lost(awaited.queue, why))

    def fail(self, failure: Failure) -> None:
        for awaited in self._awaited.values():
            awaited.finish(b"", failure)


def too_late(queue: str, timeout: float) -> NoReply:
    return NoReply(
        f"no reply to the request to queue {queue!r} within {timeout:g} s; it may have been carried out, unless "
        "nobody consumes the queue"
    )


def _lost(queue: str, why: str) -> Callable[[], VibeMQError]:
    return lambda: ConnectionLost(
        f"the connection was lost before the reply to the request to queue {queue!r}: {why}; the request may have been "
        "carried out. Ask again if carrying it out twice does no harm"
    )
