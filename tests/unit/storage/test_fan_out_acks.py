"""Acks of very many groups cost the reducer the same each, whichever group comes when."""

import sys
from collections.abc import Sequence
from random import Random

import pytest

from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import GroupCreated, HandedOut, MessageExtra, MessagesAdded, QueueCreated, Record, Settled
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import StoredState
from vibemq.storage.state.reducer import DeadTable, Dirty, apply

BATCHES = 4
MESSAGES = 10
FEW, MANY = 40, 320


def lines_of(groups: Sequence[int], *, batch_first: bool) -> int:
    """Lines of the reducer's code that run while the groups, in that order, settle everything."""
    state, dead, dirty = StoredState(), DeadTable(), Dirty()
    before: list[Record] = [QueueCreated(1, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), 1, "i")]
    before += [GroupCreated(1, group, f"g{group}", durable=True, head=1) for group in sorted(groups)]
    rows = Rows.of([pack_row("m", b"x" * 9_000)] * MESSAGES)
    extras = {0: MessageExtra(priority=2), 1: MessageExtra(expires_at=1 << 50)}
    before += [MessagesAdded(1, 1 + MESSAGES * batch, 100_000 * batch, rows, extras) for batch in range(BATCHES)]
    runs = [(1 + MESSAGES * batch, MESSAGES * (batch + 1)) for batch in range(BATCHES)]
    before += [HandedOut(1, group, [(1, MESSAGES * BATCHES)]) for group in groups]
    order = [(group, run) for run in runs for group in groups]
    if not batch_first:
        order = [(group, run) for group in groups for run in runs]
    for record in before:
        apply(state, record, dead, dirty)
    assert len(state.queues[1].chunks) == BATCHES
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)  # type: ignore[arg-type]
    try:
        for group, run in order:
            apply(state, Settled(1, group, [run]), dead, dirty)
    finally:
        sys.settrace(None)
    queue = state.queues[1]
    assert (list(queue.chunks), len(queue.expires), len(queue.priorities)) == ([], 0, 0)
    return lines


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_the_work_of_an_ack_does_not_grow_with_the_number_of_groups(order: str, batch_first: bool) -> None:
    few, many = list(range(1, FEW + 1)), list(range(1, MANY + 1))
    for groups in (few, many):
        if order == "descending":
            groups.reverse()
        elif order == "mixed":
            Random(1).shuffle(groups)
    grown = lines_of(many, batch_first=batch_first) / lines_of(few, batch_first=batch_first)
    assert grown < 2 * MANY / FEW
