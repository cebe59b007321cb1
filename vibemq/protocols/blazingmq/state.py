"""What the parts of one session share: who the client is, its requests, its bytes to send in their order."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model.commands import Unsubscribe
from vibemq.model.rows import LargeRow
from vibemq.protocols.base_session import SharedState, emptied
from vibemq.protocols.blazingmq.codec.control import encode_control
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event
from vibemq.protocols.blazingmq.codec.messages import ControlChoice, RequestStatus, StatusCategory
from vibemq.protocols.blazingmq.domain_use import ClientUse, DomainUse
from vibemq.protocols.blazingmq.errors import category_of, status_text
from vibemq.protocols.blazingmq.settings import BlazingmqSettings
from vibemq.protocols.blazingmq.streams import OpenedQueue, Stream, StreamConsumer
from vibemq.protocols.session import Goodbye

QUEUES_AT_ONCE = 500
"""Queues with their streams, or consumers, that are freed in about half a millisecond."""


@dataclass(slots=True)
class AwaitedAnswer:
    """Token of a command: what its answer is for."""

    then: Callable[[Any], None]
    """Called with the result, or with an error of the family."""


@dataclass(slots=True)
class AwaitedAnswers:
    """Of several commands, for which one response waits. Made with a count of 1, which `done` takes off when all
    commands have been asked."""

    then: Callable[[VibeMQError | None], None]
    """Called with the first error among them, if there is any."""
    count: int = 1
    error: VibeMQError | None = None

    def one(self, result: Any) -> None:
        if isinstance(result, VibeMQError) and self.error is None:
            self.error = result
        self.done()

    def done(self) -> None:
        self.count -= 1
        if not self.count:
            self.then(self.error)


@dataclass(slots=True)
class BlazingmqState(SharedState[BlazingmqSettings]):
    negotiated: bool = False
    codec: ControlCodec = ControlCodec.BER
    """That of the client's own first packet."""
    makes_guids: bool = False
    """The client gives its messages GUIDs; for others the broker makes them."""
    knows_heartbeats: bool = True
    new_style: bool = True
    """The client reads new-style properties."""
    client_name: str = ""
    disconnecting: bool = False
    """The client has said that it leaves: nothing more is taken from it."""
    queues: dict[int, OpenedQueue] = field(default_factory=dict)
    """By the client's qId."""
    consumers: dict[int, StreamConsumer] = field(default_factory=dict)
    """By number."""
    handles: int = 0
    """Readers and writers of all queues."""
    flushed_writers: int = 0
    """Of those, writers of queues whose messages are flushed before they are acknowledged."""
    last_consumer: int = 0
    before_rows: deque[tuple[list[bytes], LargeRow]] = field(default_factory=deque)
    """What is written before `out`: bytes, and a part of a large row behind them."""
    unanswered: int = 0
    """Commands whose answers this session waits for."""
    use: ClientUse = field(default_factory=lambda: ClientUse(DomainUse()))
    """What it has open, of what the limits of domains count."""

    def asked(self, then: Callable[[Any], None]) -> AwaitedAnswer:
        """The token of a command whose answer is waited for."""
        self.unanswered += 1
        return AwaitedAnswer(then)

    def asked_of(self, answers: AwaitedAnswers) -> AwaitedAnswer:
        """The token of one command more that a response waits for."""
        answers.count += 1
        return self.asked(answers.one)

    def in_turn(self, answers: AwaitedAnswers) -> None:
        """Wait for what was asked before, by asking for something that does nothing."""
        self.ask(Unsubscribe(self.context.session, self.asked_of(answers), 0))

    def answered(self, token: AwaitedAnswer, result: Any) -> None:
        self.unanswered -= 1
        token.then(result)

    def send_row(self, row: LargeRow) -> None:
        """Write a part of a row, which is not copied; bytes that belong around it are sent before and behind."""
        self.before_rows.append((self.out, row))
        self.out = []

    # -- queues and consumers ---------------------------------------------------------------------------------------

    def add_stream(self, queue: OpenedQueue, stream: Stream) -> None:
        queue.streams[stream.sub_id] = queue.by_app[stream.app_id] = stream
        self.handles += 1
        self.use.count(queue, consumers=1)

    def drop_stream(self, queue: OpenedQueue, stream: Stream) -> None:
        if queue.streams.get(stream.sub_id) is stream:
            del queue.streams[stream.sub_id], queue.by_app[stream.app_id]
            queue.closing_streams -= stream.closing
            self.handles -= 1
            self.use.count(queue, consumers=-1)

    def add_writers(self, queue: OpenedQueue, count: int) -> None:
        queue.writers += count
        self.handles += count
        self.use.count(queue, producers=count)
        if queue.domain.flushes:
            self.flushed_writers += count

    def forget_unused(self, queue: OpenedQueue) -> None:
        if not (queue.writers > 0 or queue.streams) and self.queues.get(queue.q_id) is queue:
            del self.queues[queue.q_id]

    def active_of(self, stream: Stream) -> list[StreamConsumer]:
        known = self.consumers
        return [known[number] for number in sorted(stream.consumers) if known[number].active]

    def forget_if_done(self, consumer: StreamConsumer) -> None:
        if not (consumer.active or consumer.held):
            self.consumers.pop(consumer.number, None)
            consumer.stream.consumers.discard(consumer.number)

    def settled(self, consumer: StreamConsumer, count: int) -> None:
        """So many of the messages that it held are confirmed."""
        consumer.held -= count
        if not (consumer.active or consumer.writable):
            self.forget_if_done(consumer)

    # -- control events ---------------------------------------------------------------------------------------------

    def use_codec_of(self, event: Event) -> None:
        if event.codec == ControlCodec.JSON:
            self.codec = ControlCodec.JSON

    def respond(self, r_id: int, choice: ControlChoice) -> None:
        self.send(encode_control(self.codec, r_id, choice))

    def refuse(self, r_id: int, error: VibeMQError) -> None:
        self.respond_status(r_id, category_of(error), status_text(error))

    def respond_status(self, r_id: int, category: StatusCategory, text: str) -> None:
        self.respond(r_id, RequestStatus(category=category, code=int(category), message=text))

    # -- the end ----------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """The connection ends once everything is answered, and its client has not died."""
        if not self.failed:
            self.failed = True
            self.use.leave()
            self.ask(Goodbye())

    def close(self) -> None:
        self.failed = self.closing = True
        self.use.leave()

    def let_go(self) -> Iterator[None]:
        """What the client had open, in steps."""
        yield from self.use.let_go()
        for queue in self.queues.values():
            if len(queue.streams) > QUEUES_AT_ONCE:
                yield from emptied(queue.by_app, QUEUES_AT_ONCE)
                yield from emptied(queue.streams, QUEUES_AT_ONCE)
        yield from emptied(self.queues, QUEUES_AT_ONCE)
        yield from emptied(self.consumers, QUEUES_AT_ONCE)
