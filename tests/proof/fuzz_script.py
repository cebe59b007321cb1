"""What scripts of sessions have in common, whatever the protocol: bytes, answers, deliveries and time, in any order.

items        verb u8 | size u8 | size bytes
"""

from collections.abc import Hashable, Iterator
from typing import Any

from tests.proof.fuzz_engine import Broken
from vibemq.errors import QueueNotFound, RemoteProtocolError
from vibemq.model.effects import ConsumerEnded
from vibemq.protocols.session import Request
from vibemq.testing.session_conformance import SESSION


class SessionScript:
    """One session and what it was asked for. The protocols say how its peer reads, and what its requests mean."""

    session: Any

    def __init__(self, session: Any, now: int) -> None:
        self.session = session
        self.now = now
        self.open: list[Any] = []
        """Requests without an answer."""
        self.consumers: list[int] = []
        self.kinds: set[Hashable] = set()
        self.over = False

    def hear(self, data: bytes) -> None:
        """As the server does: bytes, time, then commands until there are none."""
        if self.over:
            return
        self.session.receive_data(data)
        self.session.tick(self.now)
        self.take()

    def take(self) -> None:
        try:
            while (requests := self.session.commands()) or self.session.unread:
                for request in requests:
                    self.ask(request)
        except RemoteProtocolError:
            self.over = True
            if not self.session.closing:
                raise Broken("the stream is broken, and the session stays open") from None
        self.read()

    def read(self) -> None:
        """What the peer gets can be read by it."""
        raise NotImplementedError

    def ask(self, request: Request) -> None:
        raise NotImplementedError

    def end_consumer(self, number: int) -> None:
        if self.consumers:
            consumer = self.consumers.pop(number % len(self.consumers))
            self.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
            self.take()

    def wait(self, ms: int) -> None:
        self.now += ms
        deadline = self.session.next_deadline()
        if deadline is not None and deadline <= self.now:
            self.session.tick(self.now)
            self.take()


def items(script: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(script):
        verb, size = script[at], script[at + 1]
        yield verb, script[at + 2 : at + 2 + size]
        at += 2 + size


def item(verb: int, piece: bytes = b"") -> bytes:
    return bytes((verb, len(piece))) + piece
