"""The hot path without sockets, loops and flushes: client, session, engine and storage, driven by one thread.

Each scenario moves MESSAGES messages through one stretch of the path and checks that they have arrived, so that what
is counted is the real work. Everything in it is deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from vibemq.client.address import ClientSettings
from vibemq.client.message import Delivery, MessageBatch
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import RowPacker
from vibemq.client.publishing.packing import packed_batches
from vibemq.client.settlements import BACKOFF, SettlementBuffer
from vibemq.engine import Batch, Engine, EngineSettings
from vibemq.model.commands import Command, CreateQueue, Settlement
from vibemq.model.effects import Deliver, Effect, Outcome
from vibemq.model.options import QueueOptions
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.extensions import DeliverMany
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.session import Authenticate, Principal
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.reading import read_piece
from vibemq.testing.session_conformance import NOW, context

MESSAGES = 500
QUEUE = "orders"
BODY = b'"' + b"x" * 126 + b'"'
READ_BYTES = 1 << 20
SMALL = LmdbSettings(segment_bytes=4 << 20, ballast_bytes=0)


class BrokerSide:
    """One session, the engine and the store, wired as the server wires them, with every write at once durable."""

    def __init__(self, folder: Path, *, batches: bool) -> None:
        numbers = count()
        self._engine = Engine(EngineSettings(), jitter=lambda: 0.5, new_id=lambda: f"{next(numbers):032x}")
        self._provider = LmdbProvider(folder, SMALL)
        self._engine.restore(self._provider.open(), NOW)
        self.session = NativeSession(context(), NativeSettings(prefetch=MESSAGES))
        self._waiting: list[Deliver] = []
        self._connect("batch/1" if batches else "")
        self._decide([CreateQueue(7, None, QUEUE, QueueOptions())])

    def close(self) -> None:
        self._provider.abandon()

    def receive(self, data: bytes) -> bytes:
        """Everything that follows from these bytes, but for the hand-outs: see `hand_out`."""
        self.session.receive_data(data)
        while commands := self.session.commands():
            self._decide(commands)
        return self.session.data_to_send()

    def hand_out(self) -> bytes:
        """Read and encode the deliveries that the engine has decided."""
        waiting, self._waiting = self._waiting, []
        for deliver in waiting:
            piece = read_piece(self._provider, deliver.queue_id, deliver.runs, READ_BYTES)
            self.session.deliver(deliver, piece.slices)
        return self.session.data_to_send()

    @property
    def in_flight(self) -> int:
        return self._engine.in_flight_count

    @property
    def published(self) -> int:
        info = self._engine.queue_info(QUEUE)
        return info.next_sequence - 1 if info is not None else 0

    def _connect(self, extensions: str) -> None:
        headers = {"supported-extensions": extensions} if extensions else {}
        self.session.receive_data(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers)))
        [request] = self.session.commands()
        assert isinstance(request, Authenticate)
        self.session.authenticated(request.token, Principal("anonymous", superuser=True))
        self.session.data_to_send()

    def _decide(self, commands: Sequence[Any]) -> None:
        decided: Sequence[Command] = commands
        self._follow(self._engine.advance(Batch(decided), NOW))

    def _follow(self, outcome: Outcome) -> None:
        if outcome.records:
            self._provider.append(outcome.records)
        self._tell(outcome.effects)
        self._tell(outcome.gated)
        if outcome.ticket:
            self._follow(self._engine.committed(outcome.ticket, NOW))

    def _tell(self, effects: Sequence[Effect]) -> None:
        self._waiting += [effect for effect in effects if isinstance(effect, Deliver)]
        self.session.apply([effect for effect in effects if not isinstance(effect, Deliver)])


@dataclass(slots=True)
class Scenario:
    """`work` is run once; then `check` asserts that it did what the scenario is named after."""

    work: Callable[[], object]
    check: Callable[[], None]
    close: Callable[[], None] = field(default=lambda: None)


Maker = Callable[[Path], Scenario]
"""Makes a fresh scenario, in a folder that does not exist yet."""


def scenarios() -> dict[str, Maker]:
    return {
        "broker takes a batch": partial(_broker_takes, batches=True),
        "broker hands out a batch": partial(_broker_hands_out, batches=True),
        "broker settles a batch": partial(_broker_settles, batches=True),
        "broker takes plain publishes": partial(_broker_takes, batches=False),
        "broker hands out plain deliveries": partial(_broker_hands_out, batches=False),
        "broker settles plain acks": partial(_broker_settles, batches=False),
        "client packs a batch": _client_packs,
        "client packs many bodies": _client_packs_many,
        "client takes a batch": _client_takes,
        "client looks at every message": _client_looks,
    }


# -- broker -----------------------------------------------------------------------------------------------------------


def _broker_takes(folder: Path, *, batches: bool) -> Scenario:
    broker = BrokerSide(folder, batches=batches)
    data = published_bytes(batches=batches)

    def check() -> None:
        assert broker.published == MESSAGES

    return Scenario(lambda: broker.receive(data), check, broker.close)


def _broker_hands_out(folder: Path, *, batches: bool) -> Scenario:
    broker = _with_consumer(folder, batches=batches)
    broker.receive(published_bytes(batches=batches))
    sent: list[bytes] = []

    def check() -> None:
        assert sent[0].count(BODY) == MESSAGES

    return Scenario(lambda: sent.append(broker.hand_out()), check, broker.close)


def _broker_settles(folder: Path, *, batches: bool) -> Scenario:
    broker = _with_consumer(folder, batches=batches)
    broker.receive(published_bytes(batches=batches))
    broker.hand_out()
    assert broker.in_flight == MESSAGES
    data = _settle_bytes() if batches else _ack_bytes()

    def check() -> None:
        assert broker.in_flight == 0

    return Scenario(lambda: broker.receive(data), check, broker.close)


def _with_consumer(folder: Path, *, batches: bool) -> BrokerSide:
    broker = BrokerSide(folder, batches=batches)
    headers = {"prefetch": str(MESSAGES)} if batches else {}
    broker.receive(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", QUEUE, headers=headers)))
    return broker


def published_bytes(*, batches: bool) -> bytes:
    """What a client sends for MESSAGES messages: one frame, or a frame for each."""
    if batches:
        return ClientProtocol(ClientSettings()).publish(_packed())
    frames = (encode_body(CommandType.PUBLISH, message_id, QUEUE, BODY) for message_id in _ids())
    return b"".join(map(encode_frame, frames))


def _settle_bytes() -> bytes:
    buffer = SettlementBuffer()
    buffer.add(Settlement.ACK, 1, MESSAGES, BACKOFF, "")
    return b"".join(ClientProtocol(ClientSettings()).settle("s", settled) for settled in buffer.take())


def _ack_bytes() -> bytes:
    return b"".join(encode_frame(encode_body(CommandType.ACK, message_id)) for message_id in _ids())


def _ids() -> list[str]:
    return [f"{number:032x}" for number in range(MESSAGES)]


# -- client -----------------------------------------------------------------------------------------------------------


def _packed() -> PublishBatch:
    packer, batch = RowPacker(), PublishBatch(QUEUE)
    batch.id = "p"
    for _ in range(MESSAGES):
        batch.offer(packer.plain_row(BODY))
    return batch


def packed_rows() -> list[bytes]:
    return _packed().rows


def _client_packs(_: Path) -> Scenario:
    sent: list[bytes] = []

    def check() -> None:
        assert sent[0].count(BODY) == MESSAGES

    return Scenario(lambda: sent.append(ClientProtocol(ClientSettings()).publish(_packed())), check)


def _client_packs_many(_: Path) -> Scenario:
    """As `publish_many` of bytes that are no JSON."""
    body = b"\xff" + BODY
    bodies = [body] * MESSAGES
    packed: list[PublishBatch] = []

    def check() -> None:
        assert sum(batch.count for batch in packed) == MESSAGES
        assert all(body in row for batch in packed for row in batch.rows)

    return Scenario(lambda: packed.extend(packed_batches(RowPacker(), QUEUE, bodies, None, dedup=False)), check)


class _Settled:
    """Where messages bring their settlements; counts them."""

    def __init__(self) -> None:
        self.count = 0

    def settle(self, delivery: Delivery, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        self.count += sum(last - first + 1 for first, last in runs)

    def extend(self, delivery: Delivery, runs: Sequence[Run], ack_timeout_ms: int) -> None:
        raise NotImplementedError

    def is_stale(self, delivery: Delivery) -> bool:
        return False


def _client_takes(_: Path) -> Scenario:
    return _client_receives(lambda batch: (batch.payloads(), batch.ack_all()))


def _client_looks(_: Path) -> Scenario:
    def look(batch: "MessageBatch[Any]") -> None:
        for message in batch:
            assert message.payload
            message.ack()

    return _client_receives(look)


def _client_receives(look: "Callable[[MessageBatch[Any]], object]") -> Scenario:
    data, settled, protocol = _delivered_bytes(), _Settled(), ClientProtocol(ClientSettings())

    def work() -> None:
        for frame in protocol.receive_data(data):
            assert isinstance(frame, DeliverMany)
            delivery = Delivery(settled, 1, QUEUE, frame.published_at, frame.acquired, None)
            look(
                MessageBatch(delivery, range(frame.first_sequence, frame.first_sequence + frame.rows.count), frame.rows)
            )

    def check() -> None:
        assert settled.count == MESSAGES

    return Scenario(work, check)


def _delivered_bytes() -> bytes:
    return encode_frame(extensions.deliver_many("s", QUEUE, 1, NOW, Rows.of(_packed().rows)))
