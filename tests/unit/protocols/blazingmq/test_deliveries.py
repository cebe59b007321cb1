"""Pushes: how many rows are asked for at once, how large ones are written, and their ids."""

import pytest

from tests.unit.protocols.blazingmq.session_room import QUEUE, SessionRoom, Share
from vibemq.model.commands import (
    Settle,
)
from vibemq.model.effects import Deliver
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.blazingmq.codec.properties import parse_area
from vibemq.testing.session_conformance import NOW, SESSION


def test_of_rows_with_many_properties_few_are_asked_for_at_once(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    sequence = 1
    for headers, most in (([], 200), ([(f"p{number}", "x") for number in range(250)], 3), ([], 200)):
        for _ in range(8):
            rows = Rows.of([pack_row(b"%032X" % (sequence + index), b"x", headers) for index in range(3)])
            deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence + 2)])
            room.session.deliver(deliver, [Slice(sequence, NOW, rows)])
            sequence += 3
        assert room.session.rows_at_once == most


@pytest.mark.parametrize("size", range(3 << 20, (3 << 20) + 4))
def test_a_large_row_is_written_as_it_is(room: SessionRoom, size: int) -> None:
    room.open()
    consumer = room.configure()
    for sequence, headers in ((1, [("x", "y")]), (2, [])):
        data = pack_row(b"%032X" % sequence, bytes(size), headers)
        row = LargeRow(data, Share(len(data)), (1, sequence))
        deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence)])
        room.session.deliver(deliver, [Slice(sequence, NOW, row)])
    small = Rows.of([pack_row(b"%032X" % 3, b"behind them")])
    room.session.deliver(Deliver(SESSION, consumer, QUEUE, 1, 0, [(3, 3)]), [Slice(3, NOW, small)])
    sent = [room.session.data_to_send()]
    while (part := room.session.row_to_send()) is not None:
        assert isinstance(part, LargeRow)
        assert part.part is not None
        assert part.memory.size == len(part.data)
        assert part.origin == (1, len(sent) // 2 + 1)
        sent += [part.data[slice(*part.part)], room.session.data_to_send()]
    room.sdk.hear(b"".join(sent))
    first, second, third = room.sdk.got.pushes
    properties, at = parse_area(first.data, first.schema_id)
    assert [(one.name, one.value) for one in properties] == [("x", "y")]
    assert (first.data[at:], second.data, third.data) == (bytes(size), bytes(size), b"behind them")


def test_two_deliveries_with_one_id_can_be_told_apart(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    for sequence in (1, 2):
        rows = Rows.of([pack_row(b"native id", b"x")])
        deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence)])
        room.session.deliver(deliver, [Slice(sequence, NOW, rows)])
    room.take()
    first, second = room.sdk.got.pushes
    room.say(room.sdk.confirm(0, second.guid))
    assert room.next(Settle).runs == [(2, 2)]
    room.say(room.sdk.confirm(0, first.guid))
    assert room.next(Settle).runs == [(1, 1)]
