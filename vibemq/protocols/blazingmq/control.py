"""Requests of a client, one by one, and their answers.

Requests are asked of the engine as they come. An openQueue is answered as the engine answers it; a configure takes two
rounds (`configuring`), and is behind the configures of its stream that came before; what ends something waits for what
was asked of it before (`leaving`).
"""

from functools import partial
from typing import Any

from vibemq.errors import Blocked, NotAuthorized, VibeMQError
from vibemq.model.commands import CreateQueue, Publish
from vibemq.model.rows import Rows
from vibemq.protocols.blazingmq.codec.messages import (
    DEFAULT_APP_ID,
    AdminCommand,
    CloseQueue,
    ConfigureQueueStream,
    ConfigureStream,
    ControlMessage,
    Disconnect,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    RoutingConfiguration,
    StatusCategory,
    Unserved,
)
from vibemq.protocols.blazingmq.configuring import Configures
from vibemq.protocols.blazingmq.delivery_index import BlazingmqDeliveryIndex
from vibemq.protocols.blazingmq.errors import UnknownHere, WrongRequest
from vibemq.protocols.blazingmq.leaving import Departures
from vibemq.protocols.blazingmq.queue_names import QueueUri, parse_uri
from vibemq.protocols.blazingmq.settings import DomainMode
from vibemq.protocols.blazingmq.state import AwaitedAnswers, BlazingmqState
from vibemq.protocols.blazingmq.streams import OpenedQueue, Stream

ADMIN, READ, WRITE = 1, 2, 4
"""Flags of openQueue."""
Q_ID_MAX = 0x7FFF_FFFF
"""Headers of messages have 32 bits with a sign; numbers from 0xFFFFFFF6 are reserved besides."""
_ROUTING = {DomainMode.PRIORITY: 2, DomainMode.FANOUT: 10, DomainMode.BROADCAST: 7}
_NO_ROWS = Rows(0, b"", b"")


class ControlRequests:
    def __init__(self, state: BlazingmqState, delivery_index: BlazingmqDeliveryIndex) -> None:
        self._state = state
        self._delivery_index = delivery_index
        self._configures = Configures(state)
        self.departures = Departures(state, delivery_index)

    def hear(self, message: ControlMessage) -> None:
        state, r_id = self._state, message.r_id
        if r_id is None or r_id < 0:
            return
        try:
            match message.choice:
                case OpenQueue():
                    self._open(r_id, message.choice)
                case ConfigureStream():
                    self._configures.stream(r_id, message.choice)
                case ConfigureQueueStream():
                    self._configures.queue_stream(r_id, message.choice)
                case CloseQueue():
                    self.departures.close(r_id, message.choice)
                case Disconnect():
                    self.departures.disconnect(r_id)
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
        _check_handle(handle, uri)
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
        if state.handles + handle.read_count + handle.write_count > state.settings.queues_max:
            raise UnknownHere(
                f"a connection may open {state.settings.queues_max} readers and writers of queues; use another one"
            )
        state.use.check(queue, producers=handle.write_count, consumers=handle.read_count)
        stream = self._stream_for(queue, uri, handle) if handle.read_count else None
        if stream is not None:
            state.add_stream(queue, stream)
        state.add_writers(queue, handle.write_count)
        queue.closing = False
        state.queues[handle.q_id] = queue
        waiting = AwaitedAnswers(partial(self._opened, r_id, request, queue, stream))
        session = state.context.session
        groups = domain.app_ids if domain.mode is DomainMode.FANOUT else ()
        waiting.count += 1
        token = state.asked(partial(_created, waiting))
        options, filters = domain.queue_options(), domain.filters()
        create = CreateQueue(session, token, name, options, groups=groups, filters=filters, implied=True)
        # Posts may go to any queue; but an SDK reads it by the mode of the domain, and only a fan-out has applications.
        if handle.read_count or groups:
            create.mode = domain.delivery_mode
        state.ask(create)
        if handle.write_count:
            # Tells whether the client may publish, and whether a queue that it may not create is there.
            waiting.count += 1
            state.ask(Publish(session, state.asked(partial(_probed, waiting)), name, _NO_ROWS, create=False))
        waiting.done()

    def _stream_for(self, queue: OpenedQueue, uri: QueueUri, handle: QueueHandleParameters) -> Stream:
        """The new stream of a reader."""
        info, domain = handle.sub_id_info, queue.domain
        sub_id = 0 if info is None else info.sub_id
        app_id = uri.app_id or (DEFAULT_APP_ID if info is None else info.app_id)
        if sub_id in queue.streams:
            raise WrongRequest(f"subId {sub_id} of qId {handle.q_id} is open already")
        if queue.stream_of(app_id) is not None:
            raise WrongRequest(f"qId {handle.q_id} is read as {app_id!r} already")
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
            if stream is not None:
                state.drop_stream(queue, stream)
            state.add_writers(queue, -handle.write_count)
            state.forget_unused(queue)
            state.refuse(r_id, error)
            return
        queue.known = True
        routing = RoutingConfiguration(flags=_ROUTING[queue.domain.mode])
        dedup_ms = min(queue.domain.deduplication_ms, 0x7FFF_FFFF)
        state.respond(
            r_id,
            OpenQueueResponse(original_request=request, routing_configuration=routing, deduplication_time_ms=dedup_ms),
        )

    # -- for the session ----------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """A request is read in steps, and `read_on` has not come to its end."""
        return self._configures.reading

    def read_on(self, most: int) -> int:
        """Returns how much work it was."""
        return self._configures.read_on(most)

    def ended(self, number: int) -> bool:
        """The queue of this consumer is gone, or what allowed its reading; whether the client would wait for ever."""
        state, consumer = self._state, self._state.consumers.get(number)
        if consumer is None:
            return False
        missed = consumer.active
        consumer.active = consumer.writable = False
        consumer.held = 0
        self._delivery_index.forget((consumer.stream.q_id, consumer.stream.sub_id), number)
        state.forget_if_done(consumer)
        return missed


def _created(waiting: AwaitedAnswers, result: Any) -> None:
    """Who may not create a queue may use one that is there: what is asked next tells."""
    waiting.one(None if isinstance(result, NotAuthorized) else result)


def _probed(waiting: AwaitedAnswers, result: Any) -> None:
    """That the broker takes no messages at present is for the ACKs of messages: an SDK whose queue is not opened again
    does not try once more."""
    waiting.one(None if isinstance(result, Blocked) else result)


def _check_handle(handle: QueueHandleParameters, uri: QueueUri) -> None:
    """Raises WrongRequest."""
    reads, writes = bool(handle.flags & READ), bool(handle.flags & WRITE)
    if handle.admin_count or handle.flags & ADMIN:
        raise WrongRequest("a client cannot open a queue for administration")
    if (handle.read_count, handle.write_count) != (int(reads), int(writes)):
        raise WrongRequest("flags and counts of openQueue disagree")
    if not (reads or writes):
        raise WrongRequest("openQueue asks neither for reading nor for writing")
    if handle.q_id > Q_ID_MAX:
        raise WrongRequest(f"qId {handle.q_id} does not fit into the headers of messages; the largest is {Q_ID_MAX}")
    info = handle.sub_id_info
    if writes and (uri.app_id is not None or (info is not None and info.app_id != DEFAULT_APP_ID)):
        raise WrongRequest("an application id is for reading; open the queue for writing without ?id=")
    if uri.app_id is not None and info is not None and info.app_id not in (uri.app_id, DEFAULT_APP_ID):
        raise WrongRequest(f"the URI names the application {uri.app_id!r}, and subIdInfo {info.app_id[:64]!r}")
