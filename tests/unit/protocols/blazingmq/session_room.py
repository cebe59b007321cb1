"""A session with a client and an engine that says what the test lets it say; everything byte by byte."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from vibemq.model.commands import (
    Publish,
    Subscribe,
)
from vibemq.model.effects import Deliver, Published, Reply, Subscribed
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.session import Authenticate, Request
from vibemq.testing.session_conformance import NOW, SESSION, SOMEBODY, context

URI, QUEUE = "bmq://d/q", "d..q"
R = TypeVar("R")


class SessionRoom:
    """A session and its client, and what the session has asked of the engine."""

    def __init__(
        self, sdk: ModelSdk | None = None, reserve_memory: Callable[[int], Any] | None = None, **domain: Any
    ) -> None:
        self.sdk = sdk or ModelSdk()
        self.flushing = False
        lent = replace(context(), behind_flush=lambda: self.flushing)
        if reserve_memory is not None:
            lent = replace(lent, reserve_memory=reserve_memory)
        self.session = BlazingmqSession(lent, BlazingmqSettings(domains={"d": Domain(**domain)}))
        self.now = NOW
        self.asked: list[Request] = []
        self.say(self.sdk.hello())

    def say(self, data: bytes) -> None:
        self.session.receive_data(data)
        self.take()

    def take(self) -> None:
        self.session.tick(self.now)
        while (requests := self.session.commands()) or self.session.unread:
            for request in requests:
                if isinstance(request, Authenticate):
                    self.session.authenticated(request.token, SOMEBODY)
                else:
                    self.asked.append(request)
        self.sdk.hear(self.session.data_to_send())

    def next(self, kind: type[R]) -> R:
        """The first command of this kind that was not looked at; it is not answered."""
        found = next(request for request in self.asked if isinstance(request, kind))
        self.asked.remove(found)
        return found

    def answer(self, request: Any, result: Any = None) -> None:
        self.session.apply([Reply(SESSION, request.token, result)])
        self.take()

    def answer_all(self) -> None:
        """As an engine that has nothing against anything."""
        while self.asked:
            request: Any = self.asked.pop(0)
            if getattr(request, "token", None) is None:
                continue
            match request:
                case Publish():
                    self.answer(request, Published(request.queue, 1, request.rows.count))
                case Subscribe():
                    self.answer(request, Subscribed(request.queue, "", request.consumer, 1))
                case _:
                    self.answer(request)

    def open(self, flags: int = READ | WRITE) -> None:
        self.say(self.sdk.open(URI, 0, flags=flags)[1])
        self.answer_all()

    def configure(self, **how: Any) -> int:
        """Returns the number of the consumer."""
        self.say(self.sdk.configure(0, **how)[1])
        (subscribe,) = (request for request in self.asked if isinstance(request, Subscribe))
        self.answer_all()
        return subscribe.consumer

    def deliver(self, consumer: int, first: int, *payloads: bytes) -> None:
        rows = Rows.of([pack_row(b"%032X" % (first + index), payload) for index, payload in enumerate(payloads)])
        runs = [(first, first + len(payloads) - 1)]
        self.session.deliver(Deliver(SESSION, consumer, QUEUE, 1, 0, runs), [Slice(first, NOW, rows)])
        self.take()

    @property
    def pushed(self) -> list[bytes]:
        return [push.data for push in self.sdk.got.pushes]


class Share:
    """Of the memory that a broker grants."""

    def __init__(self, size: int) -> None:
        self.size = size
