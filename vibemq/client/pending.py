"""Requests that wait for their answer."""

from collections.abc import Callable

import anyio

from vibemq.client.publishing.outbox import Failure
from vibemq.protocols.native.codec.wire import WireMessage


class Pending:
    """One request on one connection."""

    __slots__ = ("answer", "done", "failure", "sent_at", "then", "what")

    def __init__(self, what: str, sent_at: float, then: Callable[[], None] | None) -> None:
        self.what = what
        self.sent_at = sent_at
        self.then = then
        self.done = anyio.Event()
        self.answer: WireMessage | None = None
        self.failure: Failure | None = None

    def finish(self, answer: WireMessage | None, failure: Failure | None = None) -> None:
        self.answer = answer
        self.failure = failure
        self.done.set()
        if self.then is not None:
            self.then()
