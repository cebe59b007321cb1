"""What empty queues give back, and what the others keep."""

import threading

import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, HandedOut, MessagesAdded, QueueCreated, Record, Settled
from vibemq.model.rows import Rows
from vibemq.model.stored import StoredState
from vibemq.storage.state import shedding
from vibemq.storage.state.reducer import DeadTable, apply
from vibemq.storage.state.shedding import Shedder, shed_all


def state_of(queues: int, *, settled: bool) -> StoredState:
    state, dead = StoredState(), DeadTable()
    for number in range(1, queues + 1):
        records: list[Record] = [
            QueueCreated(number, f"q{number}", QueueOptions(), 1, f"{number:032x}"),
            GroupCreated(number, 1, "", True, 1),
            MessagesAdded(number, 1, 5, Rows.of([b"m"])),
            HandedOut(number, 1, [(1, 1)]),
        ]
        for record in [*records, Settled(number, 1, [(1, 1)])] if settled else records:
            apply(state, record, dead)
    return state


def bare(state: StoredState) -> int:
    return sum(queue.is_bare and queue.groups[1].is_bare for queue in state.queues.values())


def test_queues_that_are_empty_again_are_bare() -> None:
    state = state_of(3, settled=True)
    assert bare(state) == 0
    Shedder(threading.Lock(), lambda: state).shed()
    assert bare(state) == 3
    assert state == state_of(3, settled=True)


def test_a_queue_that_has_a_message_keeps_everything() -> None:
    state = state_of(2, settled=False)
    Shedder(threading.Lock(), lambda: state).shed()
    assert bare(state) == 0
    assert state == state_of(2, settled=False)


def test_messages_that_come_after_that_are_noted_as_before() -> None:
    state, other = state_of(1, settled=True), state_of(1, settled=True)
    Shedder(threading.Lock(), lambda: state).shed()
    later: list[Record] = [MessagesAdded(1, 2, 9, Rows.of([b"m", b"n"])), HandedOut(1, 1, [(2, 2)])]
    for record in later:
        apply(state, record, DeadTable())
        apply(other, record, DeadTable())
    assert state == other
    assert state.queues[1].chunks[0].last == 3
    assert state.queues[1].groups[1].pending.runs() == [(2, 2)]


def test_rounds_go_over_all_queues_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shedding, "QUEUES_TOGETHER", 2)
    monkeypatch.setattr(shedding, "QUEUES_PER_ROUND", 4)
    state = state_of(9, settled=True)
    shedder = Shedder(threading.Lock(), lambda: state)
    found = []
    for _ in range(3):
        shedder.shed()
        found.append(bare(state))
    assert found == [4, 8, 9]
    # And then from the beginning, whatever has changed meanwhile.
    del state.queues[2]
    apply(state, MessagesAdded(1, 2, 9, Rows.of([b"m"])), DeadTable())
    apply(state, Settled(1, 1, [(2, 2)]), DeadTable())
    assert bare(state) == 7
    shedder.shed()
    assert bare(state) == 8


@pytest.mark.parametrize("settled", [True, False])
def test_after_a_replay_all_that_are_empty_are_bare(settled: bool) -> None:
    state = state_of(5, settled=settled)
    shed_all(state)
    assert bare(state) == (5 if settled else 0)
    assert state == state_of(5, settled=settled)


def test_a_look_without_the_lock_makes_no_container() -> None:
    """A writer may be making its own at that moment."""
    state = state_of(1, settled=True)
    shed_all(state)
    queue = state.queues[1]
    assert queue.peek("chunks") is None
    assert queue.is_bare
    apply(state, MessagesAdded(1, 2, 5, Rows.of([b"m"])), DeadTable())
    assert queue.peek("chunks") is queue.chunks
