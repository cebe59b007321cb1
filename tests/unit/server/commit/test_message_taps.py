"""Who looks at new messages sees those of one queue, until it ends."""

import pytest

from vibemq.model.records import MessagesAdded, Record
from vibemq.model.rows import Rows, pack_row
from vibemq.server.commit.message_taps import MessageTaps


def added(queue_id: int, first: int) -> MessagesAdded:
    return MessagesAdded(queue_id, first, 0, Rows.of([pack_row("m", b"x")]))


def test_each_tap_sees_its_queue_until_it_ends() -> None:
    taps = MessageTaps()
    assert not taps
    one: list[int] = []
    two: list[int] = []
    end_one = taps.add(1, lambda record: one.append(record.first_sequence))
    end_two = taps.add(2, lambda record: two.append(record.first_sequence))
    records: list[Record] = [added(1, 5), added(2, 6), added(1, 7), added(3, 8)]
    taps.show(records)
    assert (one, two) == ([5, 7], [6])
    end_one()
    end_one()
    taps.show(records)
    assert (one, two) == ([5, 7], [6, 6])
    end_two()
    assert not taps


def test_a_tap_may_end_itself_while_it_is_shown() -> None:
    taps = MessageTaps()
    seen: list[int] = []

    def see(record: MessagesAdded) -> None:
        seen.append(record.first_sequence)
        end()

    end = taps.add(1, see)
    taps.show([added(1, 5)])
    assert seen == [5]
    assert not taps


def test_one_that_raises_is_logged_and_called_no_more(caplog: pytest.LogCaptureFixture) -> None:
    taps = MessageTaps()
    seen: list[int] = []

    def fails(record: MessagesAdded) -> None:
        raise ValueError("cannot be read")

    end = taps.add(1, fails)
    taps.add(2, lambda record: seen.append(record.first_sequence))
    taps.show([added(1, 5), added(2, 6), added(1, 7)])
    assert seen == [6]
    assert [record.getMessage() for record in caplog.records] == ["new messages of queue 1 could not be shown"]
    taps.add(1, lambda record: seen.append(record.first_sequence))
    end()
    taps.show([added(1, 8)])
    assert seen == [6, 8]
