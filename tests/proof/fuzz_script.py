"""What scripts of sessions have in common, whatever the protocol: bytes, answers, deliveries and time, in any order.

script       flags u8 | items
items        verb u8 | size u8 | size bytes
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any

from tests.proof.fuzz_engine import Broken
from vibemq.errors import AuthFailed, QueueNotFound, RemoteProtocolError
from vibemq.model.commands import CloseSession, Command, Publish, Subscribe
from vibemq.model.effects import ConsumerEnded, Deliver, Published, Reply, Subscribed
from vibemq.model.rows import Rows
from vibemq.model.stored import Slice
from vibemq.protocols.session import Authenticate, Goodbye, OperationRequest, Principal, Request
from vibemq.testing.session_conformance import NOW, SESSION

Verb = Callable[[int, bytes], None]
"""(verb, piece) of an item."""
ITEMS_MAX = 8_192
"""More are more work of the engine and the clock, of which no byte comes from a peer."""


class SessionScript:
    """One session and what it was asked for. The protocols say how its peer reads, and what its requests mean."""

    held: Rows
    """Three messages of the queue q, which deliveries bring."""
    wait_unit_ms = 50
    """Time that each byte of a wait stands for."""

    def __init__(self, session: Any, now: int, *, authentication: bool) -> None:
        self.session = session
        self.now = now
        self.authentication = authentication
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
        self.kinds.add(type(request).__name__)
        if isinstance(request, Authenticate):
            self.authenticate(request)
        elif self.session.principal is None:
            raise Broken(f"{type(request).__name__} of a stranger")
        elif isinstance(request, Goodbye):
            self.over = True
        elif isinstance(request, CloseSession) or not isinstance(request, Command | OperationRequest):
            raise Broken(f"a session may not ask for {type(request).__name__}")
        else:
            self.asked(request)

    def authenticate(self, request: Authenticate) -> None:
        if not self.authentication or request.password == "secret":
            self.session.authenticated(request.token, Principal(request.username or "somebody"))
        else:
            self.session.refused(request.token, AuthFailed("no"))

    def asked(self, request: Any) -> None:
        """A command or an operation of somebody who has logged in."""
        if getattr(request, "token", None) is not None:
            self.open.append(request)

    def answer(self, well: bool) -> None:
        """To all that is open, well or badly."""
        requests, self.open = self.open, []
        self.session.apply([effect for request in requests for effect in self.effects(request, well)])
        self.take()

    def effects(self, request: Any, well: bool) -> Iterator[Any]:
        yield Reply(SESSION, request.token, self.result(request) if well else QueueNotFound("q"))

    def result(self, request: Any) -> Any:
        match request:
            case Subscribe():
                self.consumers.append(request.consumer)
                return Subscribed(request.queue, request.group or "", request.consumer, 1)
            case Publish():
                return Published(request.queue, 1, request.rows.count)
            case _:
                return None

    def deliver(self, number: int) -> None:
        if self.consumers:
            consumer = self.consumers[number % len(self.consumers)]
            self.session.deliver(self.delivery(consumer, number), [Slice(5, NOW, self.held)])
            self.take()

    def delivery(self, consumer: int, number: int) -> Deliver:
        return Deliver(SESSION, consumer, "q", 1, 0, [(5, 7)])

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

    def verbs(self) -> Sequence[Verb]:
        """What an item's verb means, by its remainder."""
        return (
            *(lambda verb, piece: self.hear(piece),) * 4,
            lambda verb, piece: self.answer(well=bool(verb & 0x80)),
            lambda verb, piece: self.deliver(len(piece)),
            lambda verb, piece: self.wait(len(piece) * self.wait_unit_ms),
            lambda verb, piece: self.end_consumer(len(piece)),
            lambda verb, piece: self.hear(b""),
        )


def played(make: Callable[[int], SessionScript], data: bytes, flags: int) -> Hashable:
    """One script from its first item to its end, or to the session's; what was seen.

    Args:
        make: the session that the first byte of the script asks for.
        flags: the bits of it that mean something.
    """
    if not data:
        return None
    script = make(data[0])
    verbs = script.verbs()
    for verb, piece in islice(items(data[1:]), ITEMS_MAX):
        verbs[verb % len(verbs)](verb, piece)
        if script.over:
            break
    script.session.shutdown("server_shutdown")
    script.read()
    return data[0] & flags, script.over, frozenset(script.kinds)


def items(script: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(script):
        verb, size = script[at], script[at + 1]
        yield verb, script[at + 2 : at + 2 + size]
        at += 2 + size


def item(verb: int, piece: bytes = b"") -> bytes:
    return bytes((verb, len(piece))) + piece
