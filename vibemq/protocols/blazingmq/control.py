"""Requests of a client, one by one, and their answers.

Requests are asked of the engine as they come, and answered as the engine answers them, which is in their order: so the
answers for one queue never overtake each other. What ends something waits for what was asked of it before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vibemq.errors import NotAuthorized, VibeMQError
from vibemq.model.commands import CreateQueue, Publish, SetCapacity, Settle, Settlement, Unsubscribe
from vibemq.model.rows import Rows
from vibemq.model.runs import END, Run
from vibemq.protocols.blazingmq.codec.messages import (
    AdminCommand,
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    RoutingConfiguration,
    StatusCategory,
    Unserved,
)
from vibemq.protocols.blazingmq.delivery_index import BlazingmqDeliveryIndex
from vibemq.protocols.blazingmq.errors import UnknownHere, WrongRequest
from vibemq.protocols.blazingmq.queue_names import QueueUri, parse_uri
from vibemq.protocols.blazingmq.settings import DEFAULT_APP_ID, DomainMode
from vibemq.protocols.blazingmq.state import BlazingmqState
from vibemq.protocols.blazingmq.streams import OpenedQueue, Stream, StreamConsumer
from vibemq.protocols.blazingmq.subscriptions import ReaderWish, wishes_of, wishes_of_legacy
from vibemq.protocols.session import Goodbye

ADMIN, READ, WRITE = 1, 2, 4
"""Flags of openQueue."""
RESERVED_Q_ID = 0xFFFF_FFF6
_ROUTING = {DomainMode.PRIORITY: 2, DomainMode.FANOUT: 10, DomainMode.BROADCAST: 7}
_NO_ROWS = Rows(0, b"", b"")


@dataclass(slots=True)
class _Waiting:
    """Answers that one response waits for."""

    count: int
    then: Callable[[VibeMQError | None], None]
    """Called with the first error among them, if there is any."""
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
class _Leaving:
    """A close, or without a queue a disconnect, whose streams have been given back or will be."""

    r_id: int
    queue: OpenedQueue | None = None
    streams: Sequence[Stream] = ()
    writers: int = 0


class ControlRequests:
    def __init__(self, state: BlazingmqState, delivery_index: BlazingmqDeliveryIndex) -> None:
        self._state = state
        self._delivery_index = delivery_index
        self._leaving: list[_Leaving] = []
        """What waits for the publishes of a queue, or for everything, to be answered."""

    def hear(self, message: ControlMessage) -> None:
        state, r_id = self._state, message.r_id
        if r_id is None or r_id < 0:
            return
        try:
            match message.choice:
                case OpenQueue():
                    self._open(r_id, message.choice)
                case ConfigureStream():
                    self._configure_stream(r_id, message.choice)
                case ConfigureQueueStream():
                    self._configure_queue_stream(r_id, message.choice)
                case CloseQueue():
                    self._close(r_id, message.choice)
                case Disconnect():
                    self._disconnect(r_id)
                case AdminCommand():
                    text = "admin commands of BlazingMQ are not served; use vibemq-admin"
                    state.respond_status(r_id, StatusCategory.E_NOT_SUPPORTED, text)
                case Unserved(category, reason):
                    state.respond_status(r_id, category, reason)
                case _:
                    text = f"{type(message.choice).__name__} is no request of a client"
                    state.respond_status(r_id, StatusCategory.E_NOT_SUPPORTED, text)
        except VibeMQError as error:
            state.refuse(r_id, error)

    # -- openQueue ----------------------------------------------------------------------------------------------------

    def _open(self, r_id: int, request: OpenQueue) -> None:
        state, handle = self._state, request.handle_parameters
        uri = parse_uri(handle.uri)
        _check_handle(handle)
        named = state.settings.queue_of(uri)
        if named is None:
            raise UnknownHere(
                f"domain {uri.domain!r} is not served here; declare it in the settings, "
                f'[protocols.blazingmq.domains."{uri.domain}"]'
            )
        name, domain = named
        queue = state.queues.get(handle.q_id)
        if queue is None:
            queue = OpenedQueue(handle.q_id, uri._replace(app_id=None), name, domain)
        elif queue.uri.canonical != uri.canonical:
            raise WrongRequest(f"qId {handle.q_id} is in use for {queue.uri.canonical}")
        stream = self._stream_for(queue, uri, handle) if handle.read_count else None
        if stream is not None:
            queue.streams[stream.sub_id] = stream
        queue.writers += handle.write_count
        queue.closing = False
        state.queues[handle.q_id] = queue
        asked = 1 + (handle.write_count > 0)
        waiting = _Waiting(asked, partial(self._opened, r_id, request, queue, stream))
        session = state.context.session
        groups = domain.app_ids if domain.mode is DomainMode.FANOUT else ()
        token = state.asked(partial(_created, waiting))
        state.ask(CreateQueue(session, token, name, domain.queue_options(), groups=groups))
        if handle.write_count:
            # Tells whether the client may publish, and whether a queue that it may not create is there.
            state.ask(Publish(session, state.asked(waiting.one), name, _NO_ROWS, create=False))

    def _stream_for(self, queue: OpenedQueue, uri: QueueUri, handle: QueueHandleParameters) -> Stream:
        """The new stream of a reader."""
        info, domain = handle.sub_id_info, queue.domain
        sub_id = 0 if info is None else info.sub_id
        app_id = uri.app_id or (DEFAULT_APP_ID if info is None else info.app_id)
        if sub_id in queue.streams:
            raise WrongRequest(f"subId {sub_id} of qId {handle.q_id} is open already")
        if sum(len(opened.streams) for opened in self._state.queues.values()) >= self._state.settings.queues_max:
            raise UnknownHere(f"a connection may read {self._state.settings.queues_max} queues; open another one")
        if domain.mode is not DomainMode.FANOUT:
            if app_id != DEFAULT_APP_ID:
                raise UnknownHere(f"domain {uri.domain!r} has no applications; leave ?id={app_id} out")
            return Stream(queue.q_id, queue.name, domain, sub_id, app_id, None)
        if app_id == DEFAULT_APP_ID:
            raise UnknownHere(f"a queue of domain {uri.domain!r} is read as one of its applications; write ?id=APPID")
        return Stream(queue.q_id, queue.name, domain, sub_id, app_id, app_id, served=app_id in domain.app_ids)

    def _opened(
        self, r_id: int, request: OpenQueue, queue: OpenedQueue, stream: Stream | None, error: VibeMQError | None
    ) -> None:
        state, handle = self._state, request.handle_parameters
        if error is not None:
            if stream is not None and queue.streams.get(stream.sub_id) is stream:
                del queue.streams[stream.sub_id]
            queue.writers -= handle.write_count
            self._forget_unused(queue)
            state.refuse(r_id, error)
            return
        queue.known = True
        routing = RoutingConfiguration(flags=_ROUTING[queue.domain.mode])
        dedup_ms = min(queue.domain.deduplication_ms, 0x7FFF_FFFF)
        state.respond(
            r_id,
            OpenQueueResponse(original_request=request, routing_configuration=routing, deduplication_time_ms=dedup_ms),
        )

    def _forget_unused(self, queue: OpenedQueue) -> None:
        if not (queue.writers > 0 or queue.streams) and self._state.queues.get(queue.q_id) is queue:
            del self._state.queues[queue.q_id]

    # -- configureStream ----------------------------------------------------------------------------------------------

    def _configure_stream(self, r_id: int, request: ConfigureStream) -> None:
        stream = self._find(request.q_id, lambda queue: queue.stream_of(request.stream_parameters.app_id))
        wishes = wishes_of(request.stream_parameters.subscriptions)
        self._configure(stream, wishes, r_id, lambda: ConfigureStreamResponse(request=request))

    def _configure_queue_stream(self, r_id: int, request: ConfigureQueueStream) -> None:
        info = request.stream_parameters.sub_id_info
        sub_id = 0 if info is None else info.sub_id
        stream = self._find(request.q_id, lambda queue: queue.streams.get(sub_id))
        wishes = wishes_of_legacy(sub_id, request.stream_parameters)
        self._configure(stream, wishes, r_id, lambda: ConfigureQueueStreamResponse(request=request))

    def _find(self, q_id: int, find: Callable[[OpenedQueue], Stream | None]) -> Stream:
        queue = self._state.queues.get(q_id)
        stream = None if queue is None else find(queue)
        if stream is None or stream.closing:
            raise UnknownHere("No queue with specified Id")
        return stream

    def _configure(self, stream: Stream, wishes: Sequence[ReaderWish], r_id: int, response: Callable[[], Any]) -> None:
        """The old sIds end with the response, the new ones begin with it: nothing is handed out for those before.

        An old consumer keeps what it has, and a capacity that it shares with its successor counts that.
        """
        state, session = self._state, self._state.context.session
        old = self._active(stream)
        new: list[tuple[StreamConsumer, ReaderWish]] = []
        waiting = _Waiting(1, partial(self._configured, stream, old, new, r_id, response))
        for consumer in old:
            consumer.active = False
            waiting.count += 1
            state.ask(Unsubscribe(session, state.asked(waiting.one), consumer.number))
        for place, wish in enumerate(wishes if stream.served else ()):
            state.last_consumer += 1
            consumer = StreamConsumer(state.last_consumer, stream, wish.s_id, writable=False)
            new.append((consumer, wish))
            stream.consumers.add(consumer.number)
            state.consumers[consumer.number] = consumer
            waiting.count += 1
            token, most = state.asked(waiting.one), state.settings.unconfirmed_messages_max
            state.ask(wish.subscribe(session, token, stream, consumer.number, place, most))
        # The reserved one: with nothing to ask, the answer still comes behind those of earlier requests.
        if waiting.count > 1:
            waiting.done()
        else:
            self._in_turn(waiting)

    def _in_turn(self, waiting: _Waiting) -> None:
        """Answer behind what was asked before, by asking for something that does nothing."""
        state = self._state
        state.ask(Unsubscribe(state.context.session, state.asked(waiting.one), 0))

    def _configured(
        self,
        stream: Stream,
        old: list[StreamConsumer],
        new: list[tuple[StreamConsumer, ReaderWish]],
        r_id: int,
        response: Callable[[], Any],
        error: VibeMQError | None,
    ) -> None:
        state, session = self._state, self._state.context.session
        for consumer in old:
            consumer.writable = False
            self._forget_if_done(consumer)
        queue = state.queues.get(stream.q_id)
        gone = stream.closing or queue is None or queue.streams.get(stream.sub_id) is not stream
        if error is not None or gone:
            for consumer, _ in new:
                consumer.active = False
                state.ask(Unsubscribe(session, None, consumer.number))
                self._forget_if_done(consumer)
            state.refuse(r_id, error or UnknownHere("No queue with specified Id"))
            return
        state.respond(r_id, response())
        for consumer, wish in new:
            consumer.writable = True
            if consumer.active and wish.receives:
                state.ask(SetCapacity(session, None, consumer.number, END))

    def _active(self, stream: Stream) -> list[StreamConsumer]:
        known = self._state.consumers
        return [known[number] for number in sorted(stream.consumers) if known[number].active]

    def _forget_if_done(self, consumer: StreamConsumer) -> None:
        if not (consumer.active or consumer.held):
            self._state.consumers.pop(consumer.number, None)
            consumer.stream.consumers.discard(consumer.number)

    def settled(self, consumer: StreamConsumer, count: int) -> None:
        """So many of the messages that it held are confirmed."""
        consumer.held -= count
        if not (consumer.active or consumer.writable):
            self._forget_if_done(consumer)

    def ended(self, number: int) -> None:
        """The queue is gone, or what allowed its reading; the client hears nothing of it."""
        consumer = self._state.consumers.get(number)
        if consumer is not None:
            consumer.active = consumer.writable = False
            consumer.held = 0
            self._delivery_index.forget((consumer.stream.q_id, consumer.stream.sub_id), number)
            self._forget_if_done(consumer)

    # -- closeQueue ---------------------------------------------------------------------------------------------------

    def _close(self, r_id: int, request: CloseQueue) -> None:
        handle = request.handle_parameters
        queue = self._state.queues.get(handle.q_id)
        if queue is None:
            raise UnknownHere("No queue with specified Id")
        streams: list[Stream] = []
        if handle.read_count:
            sub_id = 0 if handle.sub_id_info is None else handle.sub_id_info.sub_id
            stream = queue.streams.get(sub_id)
            if stream is None or stream.closing:
                raise UnknownHere("No queue with specified Id")
            streams.append(stream)
        writers = min(handle.write_count, queue.writers)
        left = sum(not stream.closing for stream in queue.streams.values()) - len(streams)
        queue.closing = (queue.writers - writers <= 0) and not left
        self._release(streams, _Leaving(r_id, queue, streams, writers))

    def _closed(self, leaving: _Leaving, queue: OpenedQueue) -> None:
        for stream in leaving.streams:
            queue.streams.pop(stream.sub_id, None)
        queue.writers -= leaving.writers
        self._forget_unused(queue)
        self._state.respond(leaving.r_id, CloseQueueResponse())

    def _release(self, streams: Sequence[Stream], leaving: _Leaving) -> None:
        """Have what the streams hold given back, in its order; what is handed out meanwhile goes back unwritten."""
        state, session = self._state, self._state.context.session
        waiting = _Waiting(1, partial(self._give_back, streams, leaving))
        for stream in streams:
            stream.closing = True
            for consumer in self._active(stream):
                consumer.active = False
                waiting.count += 1
                state.ask(Unsubscribe(session, state.asked(waiting.one), consumer.number))
        if waiting.count > 1:
            waiting.done()
        else:
            state.ask(Unsubscribe(session, state.asked(waiting.one), 0))

    def _give_back(self, streams: Sequence[Stream], leaving: _Leaving, _: VibeMQError | None) -> None:
        state, session = self._state, self._state.context.session
        waiting = _Waiting(1, partial(self._when_drained, leaving))
        for stream in streams:
            held: dict[int, list[Run]] = self._delivery_index.take_stream((stream.q_id, stream.sub_id))
            for number, runs in held.items():
                waiting.count += 1
                token = state.asked(waiting.one)
                state.ask(Settle(session, token, number, Settlement.RELEASE, runs))
            for number in stream.consumers:
                state.consumers.pop(number, None)
            stream.consumers.clear()
        waiting.done()

    # -- publishes on their way ---------------------------------------------------------------------------------------

    def _when_drained(self, leaving: _Leaving, _: VibeMQError | None) -> None:
        self._leaving.append(leaving)
        self.look_at_drained()

    def look_at_drained(self) -> None:
        """Answer what has waited for ACKs, once they are written; a disconnect last, behind everything else."""
        if not self._leaving:
            return
        waiting, self._leaving = sorted(self._leaving, key=lambda leaving: leaving.queue is None), []
        for leaving in waiting:
            queue = leaving.queue
            if self._state.unanswered if queue is None else queue.unanswered_puts:
                self._leaving.append(leaving)
            elif queue is not None:
                self._closed(leaving, queue)
            else:
                self._parted(leaving)

    # -- disconnect ---------------------------------------------------------------------------------------------------

    def _disconnect(self, r_id: int) -> None:
        state = self._state
        state.disconnecting = True
        streams = [stream for queue in state.queues.values() for stream in queue.streams.values() if not stream.closing]

        self._release(streams, _Leaving(r_id))

    def _parted(self, leaving: _Leaving) -> None:
        state = self._state
        state.respond(leaving.r_id, DisconnectResponse())
        state.failed = True
        state.ask(Goodbye())


def _created(waiting: _Waiting, result: Any) -> None:
    """Who may not create a queue may use one that is there: what is asked next tells."""
    waiting.one(None if isinstance(result, NotAuthorized) else result)


def _check_handle(handle: QueueHandleParameters) -> None:
    """Raises WrongRequest."""
    reads, writes = bool(handle.flags & READ), bool(handle.flags & WRITE)
    if handle.admin_count or handle.flags & ADMIN:
        raise WrongRequest("a client cannot open a queue for administration")
    if (handle.read_count, handle.write_count) != (int(reads), int(writes)):
        raise WrongRequest("flags and counts of openQueue disagree")
    if not (reads or writes):
        raise WrongRequest("openQueue asks neither for reading nor for writing")
    if handle.q_id >= RESERVED_Q_ID:
        raise WrongRequest(f"qId {handle.q_id} is reserved")
    if writes and handle.sub_id_info is not None and handle.sub_id_info.app_id != DEFAULT_APP_ID:
        raise WrongRequest("an application id is for reading; open the queue for writing without ?id=")
