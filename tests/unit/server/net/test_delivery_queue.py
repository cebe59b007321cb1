"""Deliveries are encoded in turns of bounded work, whatever was published how, in every protocol."""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from bench.guard.counting import instructions
from tests.conformance.test_sessions import DIALECTS
from vibemq.model.commands import Subscribe
from vibemq.model.effects import Deliver, Subscribed
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.delivery_queue import DeliveryQueue
from vibemq.storage.memory.provider import MemoryStorage
from vibemq.storage.reading import Piece, read_piece
from vibemq.testing.session_conformance import NOW, QUEUE, SESSION, Dialect, talk

MANY = 1_600
INSTRUCTIONS_MAX = 300_000
ROOM = 1 << 20


def stored(batch: int) -> MemoryStorage:
    storage = MemoryStorage()
    storage.open()
    storage.append([QueueCreated(1, QUEUE, QueueOptions(), NOW, "1" * 32), GroupCreated(1, 0, "", True, 1)])
    for first in range(1, MANY + 1, batch):
        rows = [pack_row(f"m{first + index}", b'"x"') for index in range(batch)]
        storage.append([MessagesAdded(1, first, NOW + first, Rows.of(rows))])
    return storage


def nothing_large(queue_id: int, runs: Sequence[Run]) -> None:
    return None


class Reader:
    """A session of one consumer, whose socket takes everything."""

    def __init__(self, dialect: Dialect, storage: MemoryStorage, scattered: "Scattered | None" = None) -> None:
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
                    blocking=False,
                    provider=storage,
                    memory=None,
                    first_large=lambda queue_id, runs: None,
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

    def hand_out(self, runs: Sequence[Run]) -> None:
        self.queue.add(Deliver(SESSION, self.consumer, QUEUE, 1, 0, list(runs)))

    def turn(self) -> None:
        self.queue.pump(ROOM)
        self.session.data_to_send()


class Scattered:
    """Reads far apart from each other, each of which ends when it is let go."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.begun: list[tuple[Future[Piece], list[Run]]] = []

    def __call__(self, queue_id: int, runs: list[Run], rows: int, max_bytes: int) -> "Future[Piece]":
        assert len(runs) <= rows
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
}


@pytest.mark.parametrize("name", HAND_OUTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_turn_encodes_no_more_than_fits_into_it_and_the_turns_encode_everything(dialect: Dialect, name: str) -> None:
    batch, hand_outs = HAND_OUTS[name]
    reader = Reader(dialect, stored(batch))
    for runs in hand_outs:
        reader.hand_out(runs)
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
    [bulk] = (dialect for dialect in DIALECTS if "batch/1" in dialect.name)
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
