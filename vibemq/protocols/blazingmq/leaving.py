"""The ways out, of a stream, a queue or the client, in an order that an SDK survives.

First the consumers end, then what they hold is given back, then the publishes of the queue are waited for, whose ACKs
come before the answer; a disconnect is answered last, behind everything.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from vibemq.errors import VibeMQError
from vibemq.model.commands import Settle, Settlement, Unsubscribe
from vibemq.protocols.base_session import emptied, runs_by_consumer
from vibemq.protocols.blazingmq.codec.messages import CloseQueue, CloseQueueResponse, DisconnectResponse
from vibemq.protocols.blazingmq.configuring import NOT_OPEN
from vibemq.protocols.blazingmq.delivery_index import BlazingmqDeliveryIndex
from vibemq.protocols.blazingmq.errors import UnknownHere, WrongRequest
from vibemq.protocols.blazingmq.state import AwaitedAnswers, BlazingmqState
from vibemq.protocols.blazingmq.streams import OpenedQueue, Stream

RETURNED_AT_ONCE = 2_000
"""Messages that are given back in about a millisecond."""


@dataclass(slots=True)
class _Leaving:
    """A close, or without a queue a disconnect, whose streams have been given back or will be."""

    r_id: int
    queue: OpenedQueue | None = None
    streams: Sequence[Stream] = ()
    writers: int = 0


class Departures:
    def __init__(self, state: BlazingmqState, delivery_index: BlazingmqDeliveryIndex) -> None:
        self._state = state
        self._delivery_index = delivery_index
        self._closing: dict[int, list[_Leaving]] = {}
        """By qId what waits for the publishes of its queue."""
        self._under_way: Counter[int] = Counter()
        """By qId the closes that are not answered."""
        self._streams: list[Stream] = []
        """Of a disconnect that has begun, those that have not been ended."""
        self._disconnected: AwaitedAnswers | None = None
        self._returns: deque[Iterator[None]] = deque()
        """What very many messages of a stream are given back by, some at a step."""
        self._parting: _Leaving | None = None
        """A disconnect that waits for everything."""

    def close(self, r_id: int, request: CloseQueue) -> None:
        """Raises UnknownHere, WrongRequest."""
        handle = request.handle_parameters
        queue = self._state.queues.get(handle.q_id)
        if queue is None:
            raise UnknownHere(NOT_OPEN)
        streams: list[Stream] = []
        if handle.read_count:
            sub_id = 0 if handle.sub_id_info is None else handle.sub_id_info.sub_id
            stream = queue.streams.get(sub_id)
            if stream is None or stream.closing:
                raise UnknownHere(NOT_OPEN)
            streams.append(stream)
        writers = handle.write_count
        if not 0 <= writers <= queue.writers - queue.leaving_writers:
            raise WrongRequest(f"closeQueue gives up {writers} writers of qId {handle.q_id}, which has not so many")
        queue.leaving_writers += writers
        left = len(queue.streams) - queue.closing_streams - len(streams)
        queue.closing = queue.writers == queue.leaving_writers and not left
        self._under_way[handle.q_id] += 1
        self._release(streams, _Leaving(r_id, queue, streams, writers))

    def closes(self, q_id: int) -> bool:
        """Whether a close of the queue is not answered yet."""
        return q_id in self._under_way

    def _closed(self, leaving: _Leaving, queue: OpenedQueue) -> None:
        state = self._state
        for stream in leaving.streams:
            state.drop_stream(queue, stream)
        queue.leaving_writers -= leaving.writers
        # Those of an open that was refused meanwhile are off already.
        state.add_writers(queue, -min(leaving.writers, queue.writers))
        state.forget_unused(queue)
        self._under_way[queue.q_id] -= 1
        if not self._under_way[queue.q_id]:
            del self._under_way[queue.q_id]
        state.respond(leaving.r_id, CloseQueueResponse())

    def _release(self, streams: Sequence[Stream], leaving: _Leaving) -> None:
        """Have what the streams hold given back, in its order; what is handed out meanwhile goes back unwritten."""
        answers = AwaitedAnswers(partial(self._when_drained, leaving))
        for stream in streams:
            self._end(stream, answers)
        if answers.count == 1:
            self._state.in_turn(answers)
        answers.done()

    def _end(self, stream: Stream, leaving: AwaitedAnswers) -> None:
        state, session = self._state, self._state.context.session
        queue = state.queues.get(stream.q_id)
        if queue is None or queue.streams.get(stream.sub_id) is not stream:
            # Its open was refused meanwhile.
            return
        stream.closing = True
        queue.closing_streams += 1
        leaving.count += 1
        answers = AwaitedAnswers(partial(self._give_back, stream, leaving))
        for consumer in state.active_of(stream):
            consumer.active = False
            state.ask(Unsubscribe(session, state.asked_of(answers), consumer.number))
        if answers.count == 1:
            state.in_turn(answers)
        answers.done()

    def _give_back(self, stream: Stream, leaving: AwaitedAnswers, _: VibeMQError | None) -> None:
        returns = self._returned(stream, leaving)
        if next(returns, returns) is not returns:
            self._returns.append(returns)

    def _returned(self, stream: Stream, leaving: AwaitedAnswers) -> Iterator[None]:
        """The oldest first, so that others get them in their order."""
        state, session = self._state, self._state.context.session
        held = self._delivery_index.take_stream((stream.q_id, stream.sub_id))
        entries = iter(held.values())
        while some := list(islice(entries, RETURNED_AT_ONCE)):
            for number, runs in runs_by_consumer(some).items():
                state.ask(Settle(session, state.asked_of(leaving), number, Settlement.RELEASE, runs))
            if len(some) == RETURNED_AT_ONCE:
                yield
        for number in stream.consumers:
            state.consumers.pop(number, None)
        stream.consumers.clear()
        leaving.done()
        if len(held) > RETURNED_AT_ONCE:
            yield from emptied(held, RETURNED_AT_ONCE)

    # -- publishes on their way ---------------------------------------------------------------------------------------

    def _when_drained(self, leaving: _Leaving, _: VibeMQError | None) -> None:
        queue = leaving.queue
        if queue is None:
            self._parting = leaving
        elif queue.unanswered_puts:
            self._closing.setdefault(queue.q_id, []).append(leaving)
        else:
            self._closed(leaving, queue)

    def puts_answered(self, queue: OpenedQueue) -> None:
        """The ACKs of some publishes are written: answer what has waited for the last of them."""
        if not queue.unanswered_puts:
            for leaving in self._closing.pop(queue.q_id, ()):
                self._closed(leaving, queue)

    # -- disconnect ---------------------------------------------------------------------------------------------------

    def disconnect(self, r_id: int) -> None:
        """Begins it; its streams end with `go_on`."""
        state = self._state
        state.disconnecting = True
        self._streams = [
            stream for queue in state.queues.values() for stream in queue.streams.values() if not stream.closing
        ]
        self._disconnected = AwaitedAnswers(partial(self._when_drained, _Leaving(r_id)))

    @property
    def under_way(self) -> bool:
        """A disconnect has begun, or very many messages are given back, and `go_on` has not come to its end."""
        return self._disconnected is not None or bool(self._returns)

    def go_on(self, most: int) -> int:
        """Give back some messages, or end some of the streams; return how much work it was."""
        state, answers = self._state, self._disconnected
        if self._returns:
            if next(self._returns[0], self) is self:
                self._returns.popleft()
            return most
        assert answers is not None, "something is under way"
        streams, self._streams = self._streams[:most], self._streams[most:]
        for stream in streams:
            self._end(stream, answers)
        if not self._streams:
            self._disconnected = None
            if answers.count == 1:
                state.in_turn(answers)
            answers.done()
        return len(streams)

    def part_if_done(self) -> None:
        """Answer the disconnect, behind everything else."""
        state = self._state
        if self._parting is not None and not state.unanswered:
            state.respond(self._parting.r_id, DisconnectResponse())
            self._parting = None
            state.say_goodbye()
