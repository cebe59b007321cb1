"""A broker without loop, sockets or clock: real sessions, engine, lanes, outboxes and memory store, driven by hand."""

from collections import deque
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from vibemq.engine import Engine, EngineSettings
from vibemq.errors import AuthFailed, RemoteProtocolError, VibeMQError
from vibemq.model.commands import CloseSession, Command, CreateQueue, Publish, SetFlow, Settle, Settlement, Unsubscribe
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Outcome, Reply
from vibemq.model.options import DeliveryMode, QueueOptions, Retention
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run
from vibemq.protocols.omq import OmqSession, OmqSettings
from vibemq.protocols.omq.frames import (
    ACCEPTED,
    Error,
    Frame,
    MessageFrame,
    OmqFrameReader,
    Ping,
    SubscribedFrame,
    Topic,
    UnsubscribedFrame,
)
from vibemq.protocols.session import Authenticate, Goodbye, Principal, SessionContext, SessionLimits
from vibemq.server.commit.release_order import EffectRouter, Hold
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.delivery_queue import DeliveryQueue
from vibemq.storage.memory.provider import MemoryStorage
from vibemq.storage.reading import Piece

NOW = 1_700_000_000_000
SECOND = NOW // 1000
VERSION_ONE = b"\0\0\0\0\0\0\0\1"
BROADCAST = QueueOptions(mode=DeliveryMode.FAN_OUT_WITHOUT_ACK, retention=Retention.LOG)
BROADCAST_WITH_ACK = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
ROUND_ROBIN = QueueOptions()


def context(session: int = 1, *, authentication: bool = False, now: int = NOW, **limits: int) -> SessionContext:
    ids = count(1)
    return SessionContext(
        session=session,
        connection_id="c" * 32,
        server_version="9.9.9",
        authentication=authentication,
        limits=SessionLimits(**limits),
        queue_defaults=QueueOptions(),
        now=now,
        new_id=lambda: f"{next(ids):032x}",
    )


def start(data: bytes, *, authentication: bool = False) -> OmqSession:
    """A session of no world, which has read this."""
    talk = OmqSession(context(authentication=authentication), OmqSettings())
    talk.receive_data(data)
    return talk


def subscribed(number: int, topic: str) -> SubscribedFrame:
    return SubscribedFrame(Topic(number, topic.encode()))


def unsubscribed(number: int, topic: str) -> UnsubscribedFrame:
    return UnsubscribedFrame(Topic(number, topic.encode()))


def rows(*payloads: bytes) -> Rows:
    return Rows.of([pack_row(f"id-{number}", payload) for number, payload in enumerate(payloads)])


def nothing_large(queue_id: int, runs: object) -> None:
    return None


class World:
    """Publishes and ticks; `hold` keeps gated answers back as a slow disk would."""

    def __init__(self, *, auto_create: bool = True, settings: OmqSettings | None = None) -> None:
        ids = count(1)
        self.now = NOW
        self.settings = settings or OmqSettings()
        self.storage = MemoryStorage()
        self.storage.open()
        self.engine = Engine(
            EngineSettings(auto_create=auto_create), jitter=lambda: 0.0, new_id=lambda: f"{next(ids):032x}"
        )
        self.effect_router = EffectRouter()
        self.hold = False
        self.held: deque[tuple[Outcome, list[Hold]]] = deque()
        self.clients: list[Client] = []
        self._pumping = False
        self._moved = False
        self._sessions = count(1)

    def queue(self, name: str, options: QueueOptions) -> None:
        self.decide([CreateQueue(0, None, name, options)])

    def publish(self, name: str, *payloads: bytes) -> None:
        self.publish_rows(name, rows(*payloads))

    def publish_rows(self, name: str, published: Rows) -> None:
        self.decide([Publish(0, None, name, published)])

    def decide(self, commands: Sequence[Command]) -> None:
        self._submit(self.engine.handle(commands, self.now))
        if not self.hold:
            self.keep()
        self.pump()

    def _submit(self, outcome: Outcome) -> None:
        # As the committer, with a disk that is done at once: appended first, then told.
        self.storage.append(outcome.records)
        held = self.effect_router.accept(outcome)
        self.effect_router.release(held.after_append)
        self.held.append((outcome, list(held.gated)))

    def keep(self) -> None:
        """The disk has everything."""
        while self.held:
            outcome, holds = self.held.popleft()
            self.effect_router.release(holds)
            if outcome.ticket:
                self._submit(self.engine.committed(outcome.ticket, self.now))
        self.pump()

    def connect(self, *, hello: bytes = VERSION_ONE + b"(Connect 1 tester)") -> "Client":
        client = Client(self, next(self._sessions))
        self.clients.append(client)
        if hello:
            client.say(hello)
        return client

    def pump(self) -> None:
        """Write to everybody, as at the end of a turn of the loop, until nothing moves."""
        self._moved = True
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._moved:
                self._moved = False
                for client in self.clients:
                    client.pump()
        finally:
            self._pumping = False

    def advance(self, ms: int) -> None:
        """Let time pass as the server does: a tick at every deadline on the way."""
        end = self.now + ms
        while True:
            deadlines = [d for c in self.clients if not c.gone and (d := c.session.next_deadline()) is not None]
            at = self.engine.next_deadline()
            due = min([*deadlines, *([at] if at is not None else [])], default=end + 1)
            if due > end:
                break
            self.now = max(self.now, due)
            if at is not None and at <= self.now:
                self._submit(self.engine.tick(self.now))
                if not self.hold:
                    self.keep()
            for client in self.clients:
                client.tick()
            if due <= self.now == end:
                break
            self.now += 1
        self.now = end

    def in_flight(self, name: str) -> int:
        info = self.engine.queue_info(name)
        assert info is not None
        return info.in_flight

    def dead(self, name: str) -> int:
        info = self.engine.queue_info(name)
        assert info is not None
        return info.dead


class Client:
    """A session with a connection's manners, and the peer that reads it."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session = OmqSession(context(number, now=world.now), world.settings)
        store = cast(
            Store, SimpleNamespace(blocking=False, provider=world.storage, memory=None, first_large=nothing_large)
        )
        self.delivery_queue = DeliveryQueue(
            self.session,
            store,
            delivered=self._delivered,
            damaged=lambda deliver, piece: None,
            wake=lambda: None,
            failed=lambda error: None,
        )
        world.effect_router.connect(number, self._take)
        self.sent = b""
        self.broken: RemoteProtocolError | None = None
        self.gone = False
        self.clean = False
        self.room: int | None = None
        """Bytes that the socket still takes; None: any number."""
        self.flow_open = True
        self.buffered_most = 0
        self._reader = OmqFrameReader()
        self._greeted = False
        self._unsubscribing: list[Any] = []
        self.written: list[Command] = []
        """Settlements of what nobody acknowledges and was written."""

    # -- the server's part --------------------------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        self.session.receive_data(data)
        self.session.tick(self.world.now)
        self.process()

    def end(self) -> None:
        """The peer's end of stream."""
        self.say(b"")

    def process(self) -> None:
        self._carry_out()
        self.world.pump()

    def _carry_out(self) -> None:
        """Have everything decided that the session asks for."""
        try:
            while not self.gone and ((requests := self.session.commands()) or self.session.unread):
                batch: list[Command] = []
                for request in requests:
                    if isinstance(request, Authenticate):
                        self.session.authenticated(request.token, Principal("anonymous", superuser=True))
                    elif isinstance(request, Goodbye):
                        self.gone = self.clean = True
                    else:
                        assert not isinstance(request, SetFlow | CloseSession)
                        if isinstance(request, Unsubscribe):
                            self._unsubscribing.append(request.token)
                        batch.append(cast(Command, request))
                if batch:
                    self.world.decide(batch)
        except RemoteProtocolError as error:
            self.broken = error
        if self.session.closing or self.broken or self.gone:
            self._leave()

    def _leave(self) -> None:
        self._flush()
        if self.number >= 0:
            self.world.effect_router.disconnect(self.number)
            number, self.number, self.gone = self.number, -1, True
            self.world.decide([CloseSession(number, self.clean)])

    def drop(self) -> None:
        """The connection is lost."""
        self._leave()

    def tick(self) -> None:
        if not self.gone:
            self.session.tick(self.world.now)
            self.process()

    def _delivered(self, deliver: Deliver, piece: Piece, runs: list[Run]) -> None:
        if deliver.settled:
            self.written.append(Settle(self.number, None, deliver.consumer, Settlement.ACK, runs))

    def _take(self, effects: Sequence[Effect]) -> None:
        now: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Deliver) or (self.delivery_queue and self._ends_deliveries(effect)):
                self.delivery_queue.add(effect)
            else:
                now.append(effect)
        if now:
            self.session.tick(self.world.now)
            self.session.apply(now)

    def _ends_deliveries(self, effect: Effect) -> bool:
        return isinstance(effect, ConsumerEnded) or (
            isinstance(effect, Reply) and any(effect.token is token for token in self._unsubscribing)
        )

    def pump(self) -> None:
        while not self.gone and self.delivery_queue and (self.room is None or self.room > 0):
            self.delivery_queue.pump(1 << 20 if self.room is None else self.room)
            before = len(self.sent)
            self._flush()
            written, self.written = self.written, []
            if written:
                self.world.decide(written)
            self.buffered_most = max(self.buffered_most, len(self.sent) - before)
            self._carry_out()
        full = self.room is not None and self.room <= 0
        if not self.gone and full == self.flow_open and (full or not self.delivery_queue):
            self.flow_open = not full
            self.world.decide([SetFlow(self.number, self.flow_open)])

    def _flush(self) -> None:
        data = self.session.data_to_send()
        self.sent += data
        if self.room is not None:
            self.room -= len(data)

    # -- the peer's part ----------------------------------------------------------------------------------------------

    def frames(self) -> list[Frame]:
        """What has come since the last call, pings left out."""
        return [frame for frame in self.all_frames() if not isinstance(frame, Ping)]

    def all_frames(self) -> list[Frame]:
        self.world.pump()
        self._flush()
        if not self._greeted:
            assert self.sent[:8] == ACCEPTED
            self._greeted = True
            self.sent = self.sent[8:]
        self._reader.receive_data(self.sent)
        self.sent = b""
        return list(self._reader.frames())

    def bodies(self) -> list[bytes]:
        return [frame.body for frame in self.frames() if isinstance(frame, MessageFrame)]

    def ids(self) -> list[int]:
        return [frame.id for frame in self.frames() if isinstance(frame, MessageFrame)]

    def pings(self) -> list[int]:
        return [frame.second for frame in self.all_frames() if isinstance(frame, Ping)]

    def error(self) -> str:
        """The only answer, which is an error."""
        [frame] = self.frames()
        assert isinstance(frame, Error)
        return frame.text


class Refuser:
    """Answers Authenticate by a table of (user, password) and an optional shared token, as the accounts do: a secret
    offered as both may be either."""

    def __init__(self, users: dict[str, str], token: str | None = None) -> None:
        self.users = users
        self.token = token
        self.asked = 0

    def answer(self, session: OmqSession, request: Authenticate) -> None:
        self.asked += 1
        outcome: VibeMQError | Principal
        if self.token is not None and request.auth_token == self.token:
            outcome = Principal("token", superuser=True)
        elif request.username and self.users.get(request.username) == request.password:
            outcome = Principal(request.username)
        else:
            outcome = AuthFailed("user name or password is wrong")
        if isinstance(outcome, Principal):
            session.authenticated(request.token, outcome)
        else:
            session.refused(request.token, outcome)
