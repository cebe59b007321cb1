"""A small broker in memory that speaks the native protocol with batch/1 and admin/1, and misbehaves on demand.

For what a real broker cannot be asked to do in a test: fall silent, hang up in the middle, forget an answer. Its
queues survive `stop` and `start`, as those of a durable broker do.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import anyio
import orjson
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskGroup
from anyio.streams.tls import TLSStream

import vibemq
from tests.ports import held_port
from tests.waiting import until
from vibemq.client import ReconnectPolicy
from vibemq.errors import RemoteProtocolError
from vibemq.model.options import QueueOptions, options_from_dict, options_to_dict
from vibemq.model.rows import Rows, RowView
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.extra_columns import EXTRAS_EXTENSION, WireColumns
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, body_type, decode_body, encode_body

LATER_EXTENSIONS = {extensions.FAILURES_EXTENSION, EXTRAS_EXTENSION, extensions.WHERE_EXTENSION}
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.05)


@dataclass
class FakeQueue:
    options: QueueOptions = field(default_factory=QueueOptions)
    rows: dict[int, bytes] = field(default_factory=dict)
    ready: deque[int] = field(default_factory=deque)
    hand_outs: dict[int, int] = field(default_factory=dict)
    dedup: dict[str, int] = field(default_factory=dict)
    next_sequence: int = 1
    rejected: dict[int, str] = field(default_factory=dict)


@dataclass
class FakeConsumer:
    session: "FakeSession"
    id: str
    queue: FakeQueue
    queue_name: str
    prefetch: int
    credit: int | None
    held: set[int] = field(default_factory=set)
    active: bool = True


class FakeBroker:
    def __init__(self) -> None:
        self.queues: dict[str, FakeQueue] = {}
        self.sessions: list[FakeSession] = []
        self.port = held_port(self)
        self.accepted = 0
        self.silent = False
        """Read nothing, say nothing, keep the connection: a black hole."""
        self.deaf: list[FakeSession] = []
        """The same, of these alone."""
        self.swallow_acks = 0
        """So many PublishManyAck are lost, with the connection, after the messages were kept."""
        self.mute = False
        """Answer pings, and nothing else."""
        self.tls: ssl.SSLContext | None = None
        self.refuse: dict[str, tuple[str, str]] = {}
        """Queue -> (code, sentence) for every publish."""
        self.refuse_creations: deque[tuple[str, str]] = deque()
        """(code, sentence) for each of the next creations of a queue."""
        self.refuse_bodies: bytes = b""
        """Rows that contain this are refused one by one."""
        self.frames: list[int] = []
        """Types of all frames received."""
        self.extended: list[Any] = []
        self.extras: list[dict[int, Any] | None] = []
        """Of every PublishMany."""
        self.connects: list[dict[str, str]] = []
        self._listener: SocketListener | None = None
        self._scope: anyio.CancelScope | None = None
        self._dying = False

    async def start(self, tasks: TaskGroup) -> None:
        listeners = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port)
        self._listener = listeners.listeners[0]
        self.port = self._listener.extra(SocketAttribute.local_port)
        self._scope = anyio.CancelScope()
        tasks.start_soon(self._serve, self._listener, self._scope)

    async def _serve(self, listener: SocketListener, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await listener.serve(self._accept)
        finally:
            await anyio.aclose_forcefully(listener)
            self._listener = None

    async def goodbye(self, reason: str) -> None:
        for session in self.sessions:
            await session.send(encode_body(CommandType.DISCONNECT, "bye", headers={"reason": reason}))

    async def _accept(self, socket: SocketStream) -> None:
        self.accepted += 1
        stream: ByteStream = socket
        if self.tls is not None:
            stream = await TLSStream.wrap(socket, server_side=True, ssl_context=self.tls, standard_compatible=False)
        session = FakeSession(self, stream)
        self.sessions.append(session)
        try:
            await session.run()
        finally:
            self.sessions.remove(session)
            session.drop()
            await anyio.aclose_forcefully(stream)
            if not self._dying:
                await self.dispatch()

    async def stop(self) -> None:
        """As kill -9: no goodbye; what consumers held is ready again."""
        assert self._scope is not None
        self._dying = True
        self._scope.cancel()
        await until(lambda: not self.sessions and self._listener is None)
        self._dying = False

    def queue(self, name: str) -> FakeQueue:
        return self.queues.setdefault(name, FakeQueue())

    def unsettled(self, name: str) -> int:
        return len(self.queue(name).rows)

    async def dispatch(self) -> None:
        for session in list(self.sessions):
            for consumer in list(session.consumers.values()):
                await session.hand_out(consumer)


class FakeSession:
    def __init__(self, broker: FakeBroker, stream: ByteStream) -> None:
        self.broker = broker
        self.stream = stream
        self.consumers: dict[str, FakeConsumer] = {}
        self._lock = anyio.Lock()

    async def run(self) -> None:
        reader = NativeFrameReader()
        try:
            while True:
                reader.receive_data(await self.stream.receive(262_144))
                if self.broker.silent or self in self.broker.deaf:
                    await until(lambda: not (self.broker.silent or self in self.broker.deaf))
                for body in reader.bodies():
                    if await self._handle(body):
                        return
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError, RemoteProtocolError):
            return

    def drop(self) -> None:
        for consumer in self.consumers.values():
            consumer.queue.ready.extendleft(sorted(consumer.held, reverse=True))
            consumer.held.clear()
        self.consumers.clear()

    async def send(self, body: bytes) -> None:
        try:
            async with self._lock:
                await self.stream.send(encode_frame(body))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # Its own reader finds out, and gives back what it holds.

    async def _handle(self, body: bytes) -> bool:
        kind = body_type(body)
        self.broker.frames.append(kind)
        if self.broker.mute and kind != CommandType.PING:
            await self._error("nobody-knows", "RATE_LIMITED", "not so fast")
            return False
        if kind == CommandType.PUBLISH_MANY:
            return await self._publish(extensions.parse_publish_many(body))
        if kind == CommandType.SETTLE:
            await self._settle(extensions.parse_settle(body))
        elif kind == CommandType.EXTEND_MANY:
            self.broker.extended.append(extensions.parse_extend_many(body))
        else:
            return await self._plain(body)
        return False

    async def _plain(self, body: bytes) -> bool:
        frame = decode_body(body)
        if frame.type == CommandType.CONNECT:
            self.broker.connects.append(frame.headers)
            if frame.headers.get("authPassword") == "wrong":
                await self._error(frame.id, "AUTH_FAILED", "wrong user or password")
                return False
            # As a broker of an earlier version: no failed attempts are told, extras are JSON, no selectors are known.
            names = (name for name in extensions.EXTENSIONS if name not in LATER_EXTENSIONS)
            granted = {"negotiated-extensions": ",".join(names), "serverVersion": "fake"}
            await self.send(encode_body(CommandType.CONNECT_ACK, frame.id, headers=granted))
        elif frame.type == CommandType.PING:
            await self.send(encode_body(CommandType.PONG, frame.id))
        elif frame.type == CommandType.SUBSCRIBE:
            await self._subscribe(frame)
        elif frame.type == CommandType.UNSUBSCRIBE:
            consumer = self.consumers.get(frame.headers["subscription-id"])
            if consumer is not None:
                consumer.active = False
            await self.send(encode_body(CommandType.UNSUBSCRIBE_ACK, frame.id, frame.queue))
        elif frame.type == CommandType.ADMIN:
            await self._admin(frame)
        return frame.type == CommandType.DISCONNECT

    async def _subscribe(self, frame: Any) -> None:
        if frame.queue == "missing":
            await self._error(frame.id, "QUEUE_NOT_FOUND", "there is no such queue", frame.queue)
            return
        headers = frame.headers
        credit = int(headers["credit"]) if "credit" in headers else None
        queue = self.broker.queue(frame.queue)
        consumer = FakeConsumer(self, frame.id, queue, frame.queue, int(headers["prefetch"]), credit)
        self.consumers[frame.id] = consumer
        await self.send(encode_body(CommandType.SUBSCRIBE_ACK, frame.id, frame.queue))
        await self.hand_out(consumer)

    async def _publish(self, publish: extensions.PublishMany) -> bool:
        assert not isinstance(publish.extras, WireColumns)
        self.broker.extras.append(publish.extras)
        if publish.queue in self.broker.refuse:
            await self._error(publish.id, *self.broker.refuse[publish.queue], publish.queue)
            return False
        queue = self.broker.queue(publish.queue)
        first, refused, duplicates = 0, {}, {}
        for index, row in enumerate(publish.rows):
            dedup_id = (publish.extras or {}).get(index, {}).get("dedup_id")
            if self.broker.refuse_bodies and self.broker.refuse_bodies in RowView(row).payload:
                refused[index] = ("QUEUE_FULL", "no room for this one")
            elif dedup_id is not None and dedup_id in queue.dedup:
                duplicates[index] = queue.dedup[dedup_id]
            else:
                first = first or queue.next_sequence
                if dedup_id is not None:
                    queue.dedup[dedup_id] = queue.next_sequence
                queue.rows[queue.next_sequence] = row
                queue.ready.append(queue.next_sequence)
                queue.next_sequence += 1
        if self.broker.swallow_acks:
            self.broker.swallow_acks -= 1
            return True
        count = publish.rows.count
        await self.send(extensions.publish_many_ack(publish.id, publish.queue, first, count, refused, duplicates))
        await self.broker.dispatch()
        return False

    async def _settle(self, settle: extensions.SettleMany) -> None:
        consumer = self.consumers[settle.id]
        for first, last in settle.runs:
            for sequence in range(first, last + 1):
                if sequence not in consumer.held:
                    continue
                consumer.held.remove(sequence)
                if settle.verb in (1, 2):
                    consumer.queue.ready = deque(sorted([*consumer.queue.ready, sequence]))
                else:
                    del consumer.queue.rows[sequence]
                if settle.verb == 3:
                    consumer.queue.rejected[sequence] = settle.reason
        await self.broker.dispatch()

    async def hand_out(self, consumer: FakeConsumer) -> None:
        queue = consumer.queue
        taken = []
        while consumer.active and queue.ready and len(consumer.held) < consumer.prefetch and consumer.credit != 0:
            sequence = queue.ready.popleft()
            queue.hand_outs[sequence] = queue.hand_outs.get(sequence, 0) + 1
            consumer.held.add(sequence)
            taken.append(sequence)
            if consumer.credit is not None:
                consumer.credit -= 1
        starts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(taken)) if b != a + 1), len(taken)]
        for start, stop in pairwise(starts):
            await self._deliver(consumer, taken[start:stop])

    async def _deliver(self, consumer: FakeConsumer, sequences: list[int]) -> None:
        queue = consumer.queue
        acquired = {s: queue.hand_outs[s] for s in sequences if queue.hand_outs[s] > 1}
        for start in range(0, len(sequences), 200):
            part = sequences[start : start + 200]
            rows = Rows.of([queue.rows[s] for s in part])
            await self.send(extensions.deliver_many(consumer.id, consumer.queue_name, part[0], 1_000, rows, acquired))

    async def _admin(self, frame: Any) -> None:
        request = orjson.loads(frame.payload)
        verb, arguments = request["verb"], request["arguments"]
        name = arguments.get("queue", "")
        result: Any = {}
        if verb == "queue.create":
            if self.broker.refuse_creations:
                await self._error(frame.id, *self.broker.refuse_creations.popleft(), name)
                return
            if arguments.get("must_match") and name in self.broker.queues:
                await self._error(frame.id, "QUEUE_EXISTS", "it has other options", name)
                return
            if name not in self.broker.queues:
                self.broker.queues[name] = FakeQueue(options_from_dict(arguments["options"]))
        elif verb == "queue.change":
            queue = self.broker.queues[name]
            queue.options = options_from_dict(arguments["changes"], queue.options)
        elif verb == "queue.info":
            result = self._info(name) if name in self.broker.queues else None
        elif verb == "queue.list":
            result = [self._info(name) for name in sorted(self.broker.queues)]
        elif verb == "queue.purge":
            queue = self.broker.queue(name)
            result = {"count": len(queue.ready)}
            queue.ready.clear()
        elif verb == "queue.delete":
            self.broker.queues.pop(name, None)
            for consumer in [c for c in self.consumers.values() if c.queue_name == name]:
                del self.consumers[consumer.id]
                ended = extensions.subscription_ended(consumer.id, name, "QUEUE_NOT_FOUND", "it was deleted")
                await self.send(ended)
        elif verb.startswith("user."):
            # As brokers from before there were any answer.
            await self._error(frame.id, "UNKNOWN_COMMAND", f"unknown operation {verb!r}; known are queue.create, …")
            return
        await self.send(encode_body(CommandType.ADMIN, frame.id, payload=orjson.dumps(result)))

    def _info(self, name: str) -> dict[str, Any]:
        queue = self.broker.queues[name]
        numbers = dict.fromkeys(("queue_id", "created_at", "in_flight", "delayed", "dead", "consumers", "size"), 0)
        return {
            **numbers,
            "name": name,
            "incarnation": "x",
            "options": options_to_dict(queue.options),
            "ready": len(queue.ready),
            "first_sequence": 1,
            "next_sequence": queue.next_sequence,
            "oldest_at": 0,
            "groups": [],
            "counters": {},
            "of_a_later_version": 1,
        }

    async def _error(self, request_id: str, code: str, sentence: str, queue: str = "") -> None:
        await self.send(encode_body(CommandType.ERROR, request_id, queue, error_code=code, error_message=sentence))


def give_little_time(mq: vibemq.Client, seconds: float) -> None:
    """From now on the client waits no longer for an answer. A slow machine has connected by then."""
    mq._link.settings = replace(mq._link.settings, command_timeout=seconds)


@asynccontextmanager
async def broker_and_client(**options: Any) -> AsyncIterator[tuple[FakeBroker, vibemq.Client]]:
    """A broker, and a client that is connected to it; the whole within 60 seconds."""
    broker = FakeBroker()
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        options = {"reconnect": QUICK, **options}
        try:
            with anyio.fail_after(60):
                async with vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", **options) as mq:
                    yield broker, mq
        except Exception as exc:
            # Raised below, as it is: a task group would wrap it.
            error = exc
        tasks.cancel_scope.cancel()
    if error is not None:
        raise error
