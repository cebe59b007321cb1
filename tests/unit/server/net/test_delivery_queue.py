"""Deliveries are encoded in turns of bounded work, whatever was published how, in every protocol."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.guard.counting import instructions
from tests.conformance.test_sessions import DIALECTS
from tests.unit.protocols.native.native_peer import ValuesRead
from vibemq.model.commands import Subscribe
from vibemq.model.effects import Deliver, Subscribed
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run
from vibemq.model.stored import Slice
from vibemq.protocols.native.codec import json_check
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import decode_body
from vibemq.protocols.native.session import NativeSession
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.delivery_queue import DeliveryQueue
from vibemq.storage.memory.provider import MemoryStorage
from vibemq.storage.reading import Piece, read_piece
from vibemq.testing.session_conformance import NOW, QUEUE, SESSION, Dialect, talk

MANY = 1_600
INSTRUCTIONS_MAX = 320_000
ROOM = 1 << 20


def stored(batch: int, payload: bytes = b'"x"') -> MemoryStorage:
    storage = MemoryStorage()
    storage.open()
    storage.append([QueueCreated(1, QUEUE, QueueOptions(), NOW, "1" * 32), GroupCreated(1, 0, "", True, 1)])
    for first in range(1, MANY + 1, batch):
        rows = [pack_row(f"m{first + index}", payload) for index in range(batch)]
        storage.append([MessagesAdded(1, first, NOW + first, Rows.of(rows))])
    return storage


class Large:
    """Rows that are to be treated as large; found as a provider finds them, in the order of the runs."""

    def __init__(self, *sequences: int) -> None:
        self.sequences = frozenset(sequences)

    def __call__(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        return next(((sequence, 1) for sequence in _sequences(runs) if sequence in self.sequences), None)


def at_once(work: Callable[[], Piece]) -> "Future[Piece]":
    future: Future[Piece] = Future()
    future.set_result(work())
    return future


class Reader:
    """A session of one consumer, whose socket takes everything."""

    def __init__(
        self,
        dialect: Dialect,
        storage: MemoryStorage,
        scattered: "Scattered | None" = None,
        *,
        large: Large = Large(),  # noqa: B008  # nothing is
        blocking: bool = False,
    ) -> None:
        talking = talk(dialect)
        [asked] = (request for request in talking.hear(dialect.subscribe()) if isinstance(request, Subscribe))
        talking.tell(asked, Subscribed(QUEUE, "", asked.consumer, 1))
        self.session, self.consumer = talking.session, asked.consumer
        self.done: list[Run] = []
        self.sent = 0
        self.queue = DeliveryQueue(
            self.session,
            cast(
                Store,
                SimpleNamespace(
                    blocking=blocking,
                    provider=storage,
                    memory=None,
                    first_large=large,
                    begin=at_once,
                    begin_large=at_once,
                    large_rows=storage,
                    picks=lambda queue_id: scattered is not None,
                    begin_scattered=scattered,
                ),
            ),
            delivered=self._delivered,
            damaged=lambda deliver, piece: pytest.fail("nothing is damaged"),
            wake=lambda: None,
            failed=lambda error: pytest.fail(f"read: {error}"),
        )

    def _delivered(self, deliver: Deliver, piece: Piece, runs: list[Run]) -> None:
        self.done += runs
        self.sent += piece.count

    def hand_out(self, runs: Sequence[Run], *, failed_before: bool = False) -> None:
        history = dict.fromkeys(_sequences(runs), 2) if failed_before else None
        failed = dict.fromkeys(history, 1) if history else None
        self.queue.add(Deliver(SESSION, self.consumer, QUEUE, 1, 0, list(runs), history, failed=failed))

    def turn(self) -> None:
        self.queue.pump(ROOM)
        self.session.data_to_send()


class Scattered:
    """Reads far apart from each other, each of which ends when it is let go."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.begun: list[tuple[Future[Piece], list[Run]]] = []
        self.bytes_asked: list[int] = []

    def __call__(self, queue_id: int, runs: list[Run], rows: int, max_bytes: int) -> "Future[Piece]":
        assert len(runs) <= rows
        self.bytes_asked.append(max_bytes)
        future: Future[Piece] = Future()
        self.begun.append((future, list(runs)))
        return future

    def end(self) -> None:
        future, runs = self.begun.pop(0)
        future.set_result(read_piece(self.storage, 1, runs, 1 << 20))


ALL = [(1, MANY)]
ODD = [(sequence, sequence) for sequence in range(1, MANY, 2)]
FAR = [(sequence, sequence) for sequence in range(1, MANY, 17)]
HAND_OUTS: dict[str, tuple[int, list[list[Run]]]] = {
    "one batch": (MANY, [ALL]),
    "one by one": (1, [ALL]),
    "of every second": (MANY, [ODD]),
    "far apart": (MANY, [FAR]),
    "many hand-outs": (MANY, [[run] for run in ODD]),
    "one by one, failed before": (1, [ALL]),
    "far apart, failed before": (MANY, [FAR]),
}

FAILED_BEFORE = [name for name in HAND_OUTS if name.endswith("failed before")]
"""Only the native protocol says so with the message; the others do the same work as for the first attempt."""
TWINS = ("EventMesh over TCP, EM8", "EventMesh over TCP, EM13", "BlazingMQ, E_JAVA")
"""They differ in what they can read, and take to the instruction as much work as WEMQ and E_CPP."""


def is_native(dialect: Dialect) -> bool:
    return dialect.name.startswith("native")


@pytest.mark.long_where(name=["many hand-outs", "far apart"])
@pytest.mark.long_where(name=FAILED_BEFORE, dialect=[dialect for dialect in DIALECTS if not is_native(dialect)])
@pytest.mark.long_where(name=["one by one", "of every second"], dialect=[d for d in DIALECTS if d.name in TWINS])
@pytest.mark.parametrize("name", HAND_OUTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_turn_encodes_no_more_than_fits_into_it_and_the_turns_encode_everything(dialect: Dialect, name: str) -> None:
    batch, hand_outs = HAND_OUTS[name]
    reader = Reader(dialect, stored(batch))
    for runs in hand_outs:
        reader.hand_out(runs, failed_before=name.endswith("failed before"))
    turns: list[int] = []
    while reader.queue:
        turns.append(sum(instructions(reader.turn).values()))
    assert max(turns) <= INSTRUCTIONS_MAX, sorted(turns)[-5:]
    assert (len(turns) == 1) == (name == "one batch" and b"batch/1" in dialect.hello), "travels as it is stored"
    wanted = [run for runs in hand_outs for run in runs]
    assert reader.sent == sum(last - first + 1 for first, last in wanted)
    assert _sequences(reader.done) == _sequences(wanted)


def _sequences(runs: Sequence[Run]) -> list[int]:
    return [sequence for first, last in runs for sequence in range(first, last + 1)]


def test_what_falls_due_is_read_together_and_gathered_meanwhile() -> None:
    storage = stored(MANY)
    scattered = Scattered(storage)
    [bulk] = (dialect for dialect in DIALECTS if dialect.name.endswith("with batch/1"))
    reader = Reader(bulk, storage, scattered)
    due = [(sequence * 17 % MANY + 1,) * 2 for sequence in range(1, 161)]
    for at in range(0, 160, 40):
        reader.hand_out(due[at : at + 40])
        reader.turn()
    assert [runs for _, runs in scattered.begun] == [due[:40]]
    scattered.end()
    reader.turn()
    assert [runs for _, runs in scattered.begun] == [due[40:]]
    reader.hand_out([(1, 1)])
    reader.turn()
    assert _sequences(reader.done) == _sequences(due[:40]), "one by one behind the others"
    scattered.end()
    reader.turn()
    assert _sequences(reader.done) == [*_sequences(due), 1]


@pytest.mark.parametrize(
    ("compression", "room", "most"),
    [
        (Compression.NONE, 4 << 20, 1 << 19),
        (Compression.NONE, 300_000, 300_000),
        (Compression.NONE, 1, 1 << 16),
        (Compression.GZIP, 4 << 20, 1 << 16),
    ],
)
def test_rows_far_apart_are_read_as_far_as_there_is_room_and_time_to_encode_them(
    compression: Compression, room: int, most: int
) -> None:
    storage = stored(MANY)
    scattered = Scattered(storage)
    reader = Reader(DIALECTS[0], storage, scattered)
    cast(NativeSession, reader.session)._state.outbox.compression = compression
    reader.hand_out(ODD[:40])
    reader.queue.pump(room)
    assert scattered.bytes_asked == [most]


@pytest.mark.parametrize(("compression", "most"), [(Compression.NONE, 1 << 19), (Compression.GZIP, 1 << 16)])
def test_a_turn_encodes_no_more_bytes_than_there_is_time_for(compression: Compression, most: int) -> None:
    """To compress a megabyte of messages one by one takes 20 to 30 milliseconds."""
    reader = Reader(DIALECTS[0], stored(MANY, b'"' + b"x" * 2_000 + b'"'))
    cast(NativeSession, reader.session)._state.outbox.compression = compression
    reader.hand_out([(1, 400)])
    reader.turn()
    assert most // 2 < reader.sent * 2_010 < most + 2 * 2_020, "a row more in each read"
    while reader.queue:
        reader.turn()
    assert reader.sent == 400


def test_what_was_taken_back_while_it_was_read_comes_too_late() -> None:
    storage = stored(MANY)
    scattered = Scattered(storage)
    reader = Reader(DIALECTS[0], storage, scattered)
    reader.hand_out(ODD[:40])
    reader.turn()
    reader.hand_out(ODD[40:80])
    deliveries, _ = reader.queue.take_back()
    assert [run for deliver in deliveries for run in deliver.runs] == ODD[:80]
    scattered.end()
    assert not reader.done


@st.composite
def hand_outs(draw: st.DrawFn) -> tuple[list[list[Run]], Large]:
    """Disjoint runs in any order, as priorities and delays put them, in some deliveries; any of their rows large."""
    stretches = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=7))
    runs: list[Run] = []
    end = 0
    for gap, count in stretches:
        runs.append((end + gap, end + gap + count - 1))
        end += gap + count
    runs = draw(st.permutations(runs))
    cuts = sorted(draw(st.sets(st.integers(1, len(runs)), max_size=3)) | {len(runs)})
    large = draw(st.sets(st.sampled_from(_sequences(runs)), max_size=6))
    return [runs[start:stop] for start, stop in zip([0, *cuts], cuts, strict=False)], Large(*large)


SMALL = stored(1)


@settings(max_examples=150, deadline=None)
@given(handed_out=hand_outs(), blocking=st.booleans(), room=st.sampled_from([1, 700, ROOM]))
def test_large_rows_keep_their_place_among_runs_in_any_order(
    handed_out: tuple[list[list[Run]], Large], blocking: bool, room: int
) -> None:
    deliveries, large = handed_out
    reader = Reader(DIALECTS[0], SMALL, large=large, blocking=blocking)
    wanted = _sequences([run for runs in deliveries for run in runs])
    told: list[int] = []
    deliver = reader.session.deliver

    def told_of(item: Deliver, slices: Sequence[Slice]) -> None:
        told.extend(sequence for part in slices for sequence in _of(part))
        assert told == wanted[: len(told)], "each once, in the order of the hand-out"
        deliver(item, slices)

    reader.session.deliver = told_of  # type: ignore[method-assign]
    for runs in deliveries:
        reader.hand_out(runs)
    for _ in range(10 * len(wanted)):
        reader.queue.pump(room)
    assert told == wanted, "all of them"
    assert _sequences(reader.done) == wanted
    assert not reader.queue


MANY_VALUES = b"[" + b"[]," * 60_000 + b"[]]"
VALUES_OF_A_TURN = 24_000


def stored_values(*payloads: bytes) -> MemoryStorage:
    storage = stored(1)
    for index, payload in enumerate(payloads):
        rows = Rows.of([pack_row(f"v{index}", payload)])
        storage.append([MessagesAdded(1, MANY + 1 + index, NOW + MANY + 1 + index, rows)])
    return storage


@pytest.mark.parametrize("blocking", [False, True])
def test_json_of_many_values_is_looked_at_in_turns_for_who_reads_nothing_else(
    blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = [MANY_VALUES, b"1", MANY_VALUES + b"]", MANY_VALUES]
    reader = Reader(DIALECTS[0], stored_values(*payloads), blocking=blocking)
    read = ValuesRead()
    monkeypatch.setattr(json_check, "orjson", read)
    reader.hand_out([(MANY, MANY + len(payloads))])
    frames = NativeFrameReader()
    while reader.queue:
        reader.queue.pump(ROOM)
        frames.receive_data(reader.session.data_to_send())
        read.turn()
    told = [decode_body(body).payload for body in frames.bodies()]
    assert told == [b'"x"', payloads[0], b"1", b'"' + payloads[2] + b'"', payloads[3]]
    assert _sequences(reader.done) == list(range(MANY, MANY + 5))
    assert max(read.of_turns) <= VALUES_OF_A_TURN, read.of_turns


@pytest.mark.parametrize("blocking", [False, True])
def test_what_is_taken_back_while_it_is_looked_at_is_sent_to_nobody(blocking: bool) -> None:
    for turns in range(20):
        reader = Reader(DIALECTS[0], stored_values(MANY_VALUES, MANY_VALUES), blocking=blocking)
        reader.hand_out([(MANY, MANY + 2)])
        frames = NativeFrameReader()
        for _ in range(turns):
            reader.queue.pump(ROOM)
            frames.receive_data(reader.session.data_to_send())
        deliveries, _ = reader.queue.take_back()
        reader.queue.pump(ROOM)
        frames.receive_data(reader.session.data_to_send())
        rest = [run for deliver in deliveries for run in deliver.runs]
        assert len(frames.bodies()) == len(_sequences(reader.done))
        assert _sequences([*reader.done, *rest]) == list(range(MANY, MANY + 3))


def _of(part: Slice) -> range:
    return range(part.first_sequence, part.first_sequence + part.rows.count)


@pytest.mark.parametrize("blocking", [False, True])
def test_what_is_taken_back_around_a_large_row_is_what_was_not_sent(blocking: bool) -> None:
    order = [(40, 42), (7, 9), (20, 20), (3, 5)]
    source = random.Random(3)
    for large in _sequences(order):
        reader = Reader(DIALECTS[0], SMALL, large=Large(large), blocking=blocking)
        reader.hand_out(order)
        for _ in range(source.randrange(4)):
            reader.queue.pump(1)
        deliveries, _ = reader.queue.take_back()
        rest = [run for deliver in deliveries for run in deliver.runs]
        assert _sequences([*reader.done, *rest]) == _sequences(order)
