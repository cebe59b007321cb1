"""Configures: the subscriptions of a stream are replaced by others, which are consumers of the engine.

The old ones stand aside while the new ones are asked for. Once all of these are let in, the old ones end, and the
response hands over: what was written before it has the old sIds, what comes behind it the new ones. If any is refused,
the old ones go on as if nothing had been asked, and the client is told why.

Configures of one stream are carried out one after another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model.commands import SetCapacity, SetShare, Unsubscribe
from vibemq.model.runs import END
from vibemq.protocols.blazingmq.codec.messages import (
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
)
from vibemq.protocols.blazingmq.errors import UnknownHere, WrongRequest
from vibemq.protocols.blazingmq.state import AwaitedAnswers, BlazingmqState
from vibemq.protocols.blazingmq.streams import OpenedQueue, Stream, StreamConsumer
from vibemq.protocols.blazingmq.subscriptions import ReaderWish, read_wishes, share_name, wishes_of_legacy

NOT_OPEN = "No queue with specified Id"
"""As BlazingMQ's broker says it."""
WAITING_MAX = 64
"""Configures of one stream that may wait for the one that is carried out. An SDK sends none before the answer."""
SUBSCRIPTION_WORK_SHIFT = 3
"""A subscription is as much work as eight messages: its expression may be long."""


@dataclass(slots=True)
class _Configure:
    stream: Stream
    wishes: Sequence[ReaderWish]
    r_id: int
    response: Callable[[], Any]
    old: list[StreamConsumer] = field(default_factory=list)
    new: list[tuple[StreamConsumer, ReaderWish]] = field(default_factory=list)


@dataclass(slots=True)
class _Reading:
    """A configure whose subscriptions are being read."""

    r_id: int
    request: ConfigureStream
    wishes: list[ReaderWish]
    steps: Iterator[None]


class Configures:
    def __init__(self, state: BlazingmqState) -> None:
        self._state = state
        self._reading: _Reading | None = None

    def stream(self, r_id: int, request: ConfigureStream) -> None:
        """Begins it; its subscriptions are read with `read_on`."""
        wishes: list[ReaderWish] = []
        steps = read_wishes(request.stream_parameters.subscriptions, wishes)
        self._reading = _Reading(r_id, request, wishes, steps)

    @property
    def reading(self) -> bool:
        """A configure has come, and `read_on` has not come to its end."""
        return self._reading is not None

    def read_on(self, most: int) -> int:
        """Read some of its subscriptions, and behind the last one carry it out; return how much work it was."""
        reading, count = self._reading, 0
        assert reading is not None, "a configure is being read"
        while reading is self._reading and count <= most >> SUBSCRIPTION_WORK_SHIFT:
            count += 1
            try:
                if next(reading.steps, self) is self:
                    self._reading = None
                    self._take_read(reading)
            except VibeMQError as error:
                self._reading = None
                self._state.refuse(reading.r_id, error)
        return count << SUBSCRIPTION_WORK_SHIFT

    def _take_read(self, reading: _Reading) -> None:
        """Raises UnknownHere, WrongRequest."""
        request = reading.request
        stream = self._find(request.q_id, lambda queue: queue.stream_of(request.stream_parameters.app_id))
        self._take(_Configure(stream, reading.wishes, reading.r_id, lambda: ConfigureStreamResponse(request=request)))

    def queue_stream(self, r_id: int, request: ConfigureQueueStream) -> None:
        """Raises UnknownHere, WrongRequest."""
        info = request.stream_parameters.sub_id_info
        sub_id = 0 if info is None else info.sub_id
        stream = self._find(request.q_id, lambda queue: queue.streams.get(sub_id))
        wishes = wishes_of_legacy(sub_id, request.stream_parameters)
        self._take(_Configure(stream, wishes, r_id, lambda: ConfigureQueueStreamResponse(request=request)))

    def _find(self, q_id: int, find: Callable[[OpenedQueue], Stream | None]) -> Stream:
        queue = self._state.queues.get(q_id)
        stream = None if queue is None else find(queue)
        if stream is None or stream.closing:
            raise UnknownHere(NOT_OPEN)
        return stream

    def _take(self, configure: _Configure) -> None:
        stream = configure.stream
        if not stream.configuring:
            stream.configuring = True
            self._begin(configure)
        elif len(stream.configures) < WAITING_MAX:
            stream.configures.append(configure)
        else:
            raise WrongRequest(f"more than {WAITING_MAX} configures of one stream wait for their answers")

    def _begin(self, configure: _Configure) -> None:
        state, session, stream = self._state, self._state.context.session, configure.stream
        configure.old = state.active_of(stream)
        for consumer in configure.old:
            # It keeps what it has. What comes is for the new ones, in a broadcast what has come before, too.
            state.ask(SetCapacity(session, None, consumer.number, 0))
        answers = AwaitedAnswers(partial(self._let_in, configure))
        beside = configure.old[0].number if configure.old else None
        for place, wish in enumerate(_served(configure)):
            state.last_consumer += 1
            consumer = StreamConsumer(state.last_consumer, stream, wish.s_id, wish.receives, writable=False)
            configure.new.append((consumer, wish))
            stream.consumers.add(consumer.number)
            state.consumers[consumer.number] = consumer
            limits = None if configure.old else self._limits(wish)
            number, token = consumer.number, state.asked_of(answers)
            state.ask(wish.subscribe(session, token, stream, number, place, limits, beside))
            beside = number if beside is None else beside
        if not (configure.old or configure.new):
            state.in_turn(answers)
        answers.done()

    def _limits(self, wish: ReaderWish) -> tuple[int, int]:
        return wish.limits(self._state.settings.unconfirmed_messages_max)

    def _let_in(self, configure: _Configure, error: VibeMQError | None) -> None:
        """The new ones may be there, or not."""
        if error is None and self._is_open(configure.stream):
            self._end_old(configure)
        else:
            self._refuse(configure, error)

    def _end_old(self, configure: _Configure) -> None:
        state, session, stream = self._state, self._state.context.session, configure.stream
        answers = AwaitedAnswers(partial(self._hand_over, configure))
        for consumer in configure.old:
            consumer.active = False
            state.ask(Unsubscribe(session, state.asked_of(answers), consumer.number))
        if configure.old:
            for place, (_, wish) in enumerate(configure.new):
                # What the old ones hold counts towards the new limits.
                state.ask(SetShare(session, None, share_name(stream, place), *self._limits(wish)))
        answers.done()

    def _hand_over(self, configure: _Configure, error: VibeMQError | None) -> None:
        state, session = self._state, self._state.context.session
        for consumer in configure.old:
            consumer.writable = False
            state.forget_if_done(consumer)
        if error is not None or not self._is_open(configure.stream):
            self._refuse(configure, error)
            return
        state.respond(configure.r_id, configure.response())
        for consumer, _ in configure.new:
            consumer.writable = True
            if consumer.active and consumer.receives:
                state.ask(SetCapacity(session, None, consumer.number, END))
        self._next(configure.stream)

    def _refuse(self, configure: _Configure, error: VibeMQError | None) -> None:
        state, session = self._state, self._state.context.session
        for consumer, _ in configure.new:
            consumer.active = False
            state.ask(Unsubscribe(session, None, consumer.number))
            state.forget_if_done(consumer)
        for consumer in configure.old:
            if consumer.active and consumer.receives:
                state.ask(SetCapacity(session, None, consumer.number, END))
        state.refuse(configure.r_id, error or UnknownHere(NOT_OPEN))
        self._next(configure.stream)

    def _next(self, stream: Stream) -> None:
        waiting = stream.configures
        while waiting and not self._is_open(stream):
            self._state.refuse(waiting.popleft().r_id, UnknownHere(NOT_OPEN))
        if waiting:
            self._begin(waiting.popleft())
        else:
            stream.configuring = False

    def _is_open(self, stream: Stream) -> bool:
        queue = self._state.queues.get(stream.q_id)
        return not stream.closing and queue is not None and queue.streams.get(stream.sub_id) is stream


def _served(configure: _Configure) -> Sequence[ReaderWish]:
    """Nothing is handed to an application that the domain does not know."""
    return configure.wishes if configure.stream.served else ()
