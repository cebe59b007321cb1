"""One connection of an EventMesh client over TCP, without a socket or a clock.

Contract: `vibemq.protocols.session.Session`.

reading      frames (bytes) -> package (headers) -> publishing, subscriptions, pushes (what is asked of the engine)
answering    publishing, subscriptions -> package -> frames
delivering   subscriptions -> pushes
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vibemq.errors import AuthRequired, InvalidMessage, NotAuthenticated, RemoteProtocolError, VibeMQError
from vibemq.model.commands import Settle
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply, Responded
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import BaseSession, LargeProgress
from vibemq.protocols.eventmesh.messages.large_json import JsonSplitter
from vibemq.protocols.eventmesh.settings import EventMeshSettings
from vibemq.protocols.eventmesh.tcp import package as wire
from vibemq.protocols.eventmesh.tcp.bodies import UserAgent, read_agent, read_subscription, redirect_body
from vibemq.protocols.eventmesh.tcp.errors import text_of
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect, EventMeshFrameReader, FrameLimits
from vibemq.protocols.eventmesh.tcp.package import Cmd, OPStatus, Package, check_seq, read_package
from vibemq.protocols.eventmesh.tcp.publishing import EventMeshBatch, EventMeshPublishing, EventMeshRequested
from vibemq.protocols.eventmesh.tcp.pushes import EventMeshPushes
from vibemq.protocols.eventmesh.tcp.state import EventMeshState
from vibemq.protocols.eventmesh.tcp.subscriptions import (
    EventMeshSubscribeAsked,
    EventMeshSubscriptions,
    EventMeshUnsubscribeAsked,
    TopicAsked,
)
from vibemq.protocols.session import Authenticate, Goodbye, Principal, Request, SessionContext

PIPELINED_BYTES_MAX = 262_144
"""What a peer may send ahead while its credentials are checked."""
WORK_AT_ONCE = 96
"""Frames that are read in about a millisecond; the body of each 8 KiB costs as much as a frame."""
_COST_BYTES = 8_192
TOPIC_WORK = 2
"""What a topic costs besides, for which something is published: a command of its own, and its answer."""
FRAMES_BEFORE_HELLO_MAX = 16
"""A client says HELLO first; what comes before is answered, or passed over, so often."""
_LEAVE_MS = 30_000
"""How long a client that has said goodbye, or was sent elsewhere, may take to close."""


@dataclass(slots=True)
class HelloAsked:
    """Token of an Authenticate."""

    package: Package
    agent: UserAgent


class EventMeshSession(BaseSession[EventMeshState]):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(self, context: SessionContext, settings: EventMeshSettings) -> None:
        self._state = state = EventMeshState(context, settings, context.now)
        first = min(context.limits.handshake_bytes_max, settings.frame_bytes_max)
        limits = FrameLimits(first, min(first, settings.header_bytes_max))
        self._reader = EventMeshFrameReader(limits, context.reserve_memory)
        self._large_progress = LargeProgress(context.limits.message_timeout_ms)
        self._subscriptions = EventMeshSubscriptions(state, self._subscription_ended)
        self._pushes = EventMeshPushes(state, self._subscriptions)
        self._publishing = EventMeshPublishing(state, self._pushes.oldest_request)
        self._large: tuple[Package, JsonSplitter] | None = None
        """A large message that is being taken apart, which takes several steps."""
        self._authenticating = False
        self._frames_before_hello = 0
        self._ended = False
        """The client has ended its side."""
        self._unread = False
        """Bytes have come that `commands` has not looked at: the client is not silent, whatever the time."""
        self._heard_at = context.now
        self._leave_at: int | None = None
        """When a client is closed that has said goodbye."""

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if self._state.failed:
            return
        self._unread = True
        if not data:
            self._ended = True
            return
        self._reader.receive_data(data)
        if self._authenticating and self._reader.size > PIPELINED_BYTES_MAX:
            self._break(RemoteProtocolError("more was sent ahead than is kept while credentials are checked"))

    def commands(self) -> Sequence[Request]:
        state = self._state
        if self._unread:
            self._unread = False
            self._heard_at = state.now
        if not (self._authenticating or state.failed):
            self._read()
        self._large_progress.note(self._reader.large_left, state.now)
        waits = self._authenticating or self.unread or self._subscriptions.asking or self._publishing.keeps_back
        if self._ended and not (state.failed or waits):
            self._end()
        return self._take_requests()

    @property
    def unread(self) -> bool:
        return self._has_more and not (self._authenticating or self._state.failed or self._subscriptions.asking)

    @property
    def _has_more(self) -> bool:
        return self._large is not None or self._subscriptions.is_under_way() or self._reader.ready

    @property
    def reads_nothing_more(self) -> bool:
        """Until the engine has said what the topics are."""
        return self._subscriptions.asking

    @property
    def large_left(self) -> int:
        """Bytes of a large frame of the client that have not come; 0: none is under way."""
        return self._reader.large_left

    def _read(self) -> None:
        work = WORK_AT_ONCE
        try:
            while work > 0 and not (self._authenticating or self._state.failed or self._subscriptions.asking):
                if self._subscriptions.is_under_way():
                    self._subscriptions.go_on()
                    work = 0
                    continue
                if self._large is not None:
                    self._take_apart(*self._large)
                    work = 0
                    continue
                frame = self._reader.next_frame()
                if frame is None:
                    break
                topics = self._publishing.topics
                self._state.dialect = self._reader.dialect or EventMeshDialect.EM13
                self._hear(read_package(frame))
                size = len(frame.header) + len(frame.body)
                work -= 1 + size // _COST_BYTES + TOPIC_WORK * max(0, self._publishing.topics - topics)
                if self._subscriptions.is_under_way():
                    break
        except RemoteProtocolError as error:
            self._gathered()
            self._break(error)
        self._gathered()

    def _break(self, error: RemoteProtocolError) -> None:
        self._broken = error
        self._state.dialect = self._reader.dialect or self._state.dialect
        self._reader.end()
        self._state.give_up(error)

    def _gathered(self) -> None:
        """Have done what was gathered of the frames so far, before anything else is asked."""
        self._publishing.flush()
        self._pushes.flush()

    def _take_apart(self, package: Package, large: JsonSplitter) -> None:
        if large.step():
            self._large = None
            self._hear(package, large)

    def _hear(self, package: Package, large: JsonSplitter | None = None) -> None:
        cmd = package.cmd
        try:
            check_seq(package)
            if self._state.agent is None:
                self._before_hello(package)
            elif large is None and (splitter := self._publishing.splitter(package)) is not None:
                self._large = package, splitter
                self._take_apart(package, splitter)
            elif cmd is Cmd.ASYNC_MESSAGE_TO_SERVER or cmd is Cmd.BROADCAST_MESSAGE_TO_SERVER:
                self._publishing.publish(package, large)
            elif cmd in wire.PUSH_ACKS:
                self._pushes.acked(package)
            else:
                self._gathered()
                self._obey(package, large)
        except RemoteProtocolError:
            raise
        except VibeMQError as error:
            if self._state.agent is None and cmd is Cmd.HELLO_REQUEST:
                self._turn_away(package, OPStatus.FAIL, text_of(error))
            elif cmd is Cmd.REQUEST_TO_SERVER and self._state.agent is not None:
                self._publishing.refuse_request(package, error)
            else:
                self._state.refuse(package, error)

    def _before_hello(self, package: Package) -> None:
        if package.cmd is Cmd.HELLO_REQUEST:
            self._hello(package)
            return
        self._frames_before_hello += 1
        if self._frames_before_hello > FRAMES_BEFORE_HELLO_MAX:
            raise RemoteProtocolError(f"{self._frames_before_hello} frames have come before a HELLO_REQUEST")
        if package.cmd is Cmd.RECOMMEND_REQUEST or package.cmd in wire.UNANSWERED:
            return
        else:
            raise NotAuthenticated("no session is found; HELLO_REQUEST comes first")

    def _hello(self, package: Package) -> None:
        state, context = self._state, self._state.context
        agent = read_agent(package.body)
        state.before_1_3 = package.old
        secret = agent.password or agent.token
        if not secret and context.certified:
            state.ask(Authenticate(HelloAsked(package, agent)))
        elif not secret and context.authentication:
            why = AuthRequired("this broker needs a login; give the client `username` and `password`, or a `token`")
            self._turn_away(package, OPStatus.ACL_FAIL, text_of(why))
            return
        else:
            token = agent.token or agent.password
            state.ask(Authenticate(HelloAsked(package, agent), agent.username, agent.password, token))
        self._authenticating = True

    def _turn_away(self, package: Package, code: int, text: str) -> None:
        state = self._state
        state.answer(Cmd.HELLO_RESPONSE, package.seq, code, text)
        state.failed = state.closing = True

    def _obey(self, package: Package, large: JsonSplitter | None) -> None:
        state, cmd = self._state, package.cmd
        if cmd is Cmd.REQUEST_TO_SERVER:
            self._publishing.request(package, large)
        elif cmd is Cmd.RESPONSE_TO_SERVER:
            self._publishing.respond(package, large)
        elif cmd is Cmd.SUBSCRIBE_REQUEST:
            self._check_purpose()
            self._subscriptions.subscribe(package, read_subscription(package.body))
        elif cmd is Cmd.UNSUBSCRIBE_REQUEST:
            self._check_purpose()
            self._subscriptions.unsubscribe(package)
        elif cmd is Cmd.LISTEN_REQUEST:
            self._check_purpose()
            self._subscriptions.listen(package)
        elif cmd is Cmd.HEARTBEAT_REQUEST or cmd is Cmd.HELLO_REQUEST:
            state.answer(wire.ANSWERS[cmd], package.seq)
        elif cmd is Cmd.CLIENT_GOODBYE_REQUEST:
            self._leave(package)
        elif cmd not in wire.UNANSWERED:
            raise InvalidMessage(f"{cmd} is not a command that this server carries out")

    def _check_purpose(self) -> None:
        agent = self._state.agent
        if self._state.leaving:
            raise InvalidMessage("the client has said goodbye")
        if agent is None or not agent.subscribes:
            raise InvalidMessage("client purpose config is not sub")

    def _leave(self, package: Package) -> None:
        """The client said goodbye: it gets nothing more, and may still acknowledge what it has."""
        state = self._state
        if not state.leaving:
            state.leaving = True
            self._subscriptions.stop()
            self._leave_at = state.now + _LEAVE_MS
        state.answer(Cmd.CLIENT_GOODBYE_RESPONSE, package.seq)

    def _end(self) -> None:
        """The client has ended its side: what it holds goes to others. Without a goodbye, the connection is lost."""
        state = self._state
        state.failed = True
        if state.leaving:
            state.ask(Goodbye())
        else:
            state.closing = True

    # -- out --------------------------------------------------------------------------------------------------------

    def authenticated(self, token: Any, principal: Principal) -> None:
        state, settings = self._state, self._state.settings
        self._authenticating = False
        self._heard_at = state.now
        state.principal = principal
        state.agent = token.agent
        self._reader.limits = FrameLimits(settings.frame_bytes_max, settings.header_bytes_max)
        state.answer(Cmd.HELLO_RESPONSE, token.package.seq)

    def refused(self, token: Any, error: VibeMQError) -> None:
        state = self._state
        if isinstance(token, HelloAsked):
            self._authenticating = False
            self._turn_away(token.package, OPStatus.ACL_FAIL, text_of(error))
        elif token is not None:
            self._answered(token, error)
        elif state.agent is None:
            # The connection itself is turned away, before it has shown its dialect.
            state.failed = state.closing = True

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._answered(effect.token, effect.result)
            elif isinstance(effect, Responded):
                self._publishing.responded(effect.token, effect.result)
            elif isinstance(effect, ConsumerEnded) and not self._state.failed:
                # The first one ends the session, with all that it knows.
                self._pushes.forget(effect.consumer)
                self._subscriptions.ended(effect.consumer, effect.error)

    def _answered(self, token: Any, result: Any) -> None:
        match token:
            case EventMeshBatch():
                self._publishing.published(token, result)
            case EventMeshRequested():
                self._publishing.requested(token, result)
            case TopicAsked():
                self._subscriptions.described(token, result)
                if not self._subscriptions.asking and (self._has_more or self._ended):
                    self._state.context.wake()
            case EventMeshSubscribeAsked():
                self._subscriptions.subscribed(token, result)
            case EventMeshUnsubscribeAsked():
                self._subscriptions.unsubscribed(token)

    def _subscription_ended(self, error: VibeMQError) -> None:
        """There is no frame for it; a client that is sent away comes back and subscribes again, or is told why not.
        What it holds of other topics goes back unharmed, and what it has published is answered before it goes."""
        state = self._state
        if not state.failed:
            state.failed = True
            state.say_goodbye(OPStatus.FAIL, text_of(error))
            state.ask(Goodbye())

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        self._pushes.deliver(deliver, slices)

    @property
    def rows_at_once(self) -> int:
        return 100

    @property
    def bytes_at_once(self) -> int:
        return 262_144

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        state = self._state
        state.now = max(state.now, now)
        if state.closing:
            return
        if self._reader.waits_for_memory:
            # It is not read, so it cannot be heard.
            self._heard_at = state.now
        self._large_progress.note(self._reader.large_left, state.now)
        if not (self._unread or self.unread) and self._large_progress.has_stalled(state.now, state.context.is_read):
            self.fail(self._large_progress.error())
            return
        deadline = self._deadline()
        if deadline is None or state.now < deadline or (self._unread and state.agent is not None):
            return
        if self._leave_at is not None and state.now >= self._leave_at:
            state.failed = True
            self._leave_at = None
            state.ask(Goodbye())
        elif state.agent is None:
            # It may not be one of ours at all.
            state.failed = state.closing = True
        elif not state.context.is_read():
            self._heard_at = state.now
        elif not state.failed:
            wait_ms = state.settings.idle_timeout_ms
            state.give_up(InvalidMessage(f"nothing was heard from this client for {wait_ms:,} ms"))

    def _deadline(self) -> int | None:
        state = self._state
        if self._authenticating:
            return None
        if state.agent is None:
            return state.context.now + state.context.limits.handshake_timeout_ms
        silence = self._heard_at + state.settings.idle_timeout_ms
        return silence if self._leave_at is None else min(silence, self._leave_at)

    def next_deadline(self) -> int | None:
        state = self._state
        if state.closing:
            return None
        if state.requests:
            return state.now
        deadlines = (self._deadline(), self._large_progress.deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # -- end --------------------------------------------------------------------------------------------------------

    def redirect(self, host: str, port: int) -> bool:
        """Send the client to another server. It is closed after 30 s if it does not go. False: it has not begun."""
        state = self._state
        if state.agent is None or state.closing or state.failed:
            return False
        state.send(wire.plain_frame(state.dialect, Cmd.REDIRECT_TO_CLIENT, redirect_body(host, port)))
        if not state.leaving:
            state.leaving = True
            self._subscriptions.stop()
        self._leave_at = state.now + _LEAVE_MS
        return True

    def shutdown(self, reason: str) -> None:
        state = self._state
        if state.agent is not None and not state.failed:
            text = "graceful normal quit from eventmesh" if reason == "server_shutdown" else reason
            state.say_goodbye(OPStatus.SUCCESS if reason == "server_shutdown" else OPStatus.FAIL, text)

    def fail(self, error: VibeMQError) -> None:
        if not self._state.closing:
            self._reader.end()
            self._state.give_up(error)

    @property
    def has_left(self) -> bool:
        """Some close with a reset, where something that was pushed before has not been read."""
        return self._state.leaving

    def unbegun(self) -> list[Settle]:
        return self._pushes.unbegun()

    def let_go(self) -> Iterator[None]:
        # A client with very many topics, or unacknowledged messages, is not freed in one turn of the loop.
        yield from self._subscriptions.let_go()
        yield from self._pushes.let_go()

    @property
    def client_name(self) -> str:
        agent = self._state.agent
        return f"{agent.group_name} ({agent.purpose})" if agent is not None else ""
