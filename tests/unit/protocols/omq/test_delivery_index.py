"""What an Ack settles."""

import pytest

from vibemq.protocols.omq import delivery_index
from vibemq.protocols.omq.delivery_index import OmqDeliveryIndex


def test_an_ack_settles_what_was_written_before_its_ping() -> None:
    held = OmqDeliveryIndex()
    held.written(1, (1, 3))
    held.pinged(100)
    held.written(1, (4, 4))
    assert held.acked(100) == {1: [(1, 3)]}
    assert held.acked(100) == {}
    assert held
    held.pinged(101)
    assert held.acked(101) == {1: [(4, 4)]}
    assert not held


def test_a_later_ack_settles_for_the_earlier_pings_too() -> None:
    held = OmqDeliveryIndex()
    for second in range(100, 105):
        held.written(1, (second, second))
        held.written(2, (2 * second, 2 * second))
        held.pinged(second)
    assert held.acked(103) == {1: [(100, 103)], 2: [(200, 200), (202, 202), (204, 204), (206, 206)]}
    assert held.acked(102) == {}
    assert held.acked(104) == {1: [(104, 104)], 2: [(208, 208)]}


@pytest.mark.parametrize("second", [99, 101, 0, -1, 2**40])
def test_an_ack_that_echoes_no_ping_settles_nothing(second: int) -> None:
    held = OmqDeliveryIndex()
    held.written(1, (1, 1))
    held.pinged(100)
    assert held.acked(second) == {}
    assert held.acked(100) == {1: [(1, 1)]}


def test_a_ping_repeated_without_new_messages_settles_as_well() -> None:
    held = OmqDeliveryIndex()
    held.written(1, (1, 1))
    held.pinged(100)
    held.pinged(101)
    assert held.acked(101) == {1: [(1, 1)]}


def test_unanswered_pings_are_bounded_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_index, "_PINGS_MAX", 4)
    held = OmqDeliveryIndex()
    for second in range(100, 120):
        held.written(second % 2, (second, second))
        held.pinged(second)
    assert len(held._pings) == 4
    assert held.acked(105) == {}, "told apart no longer"
    settled = held.acked(117)
    assert sum(last - first + 1 for runs in settled.values() for first, last in runs) == 18
    assert held.acked(119) == {0: [(118, 118)], 1: [(119, 119)]}


def test_while_nothing_is_held_pings_leave_no_trace() -> None:
    held = OmqDeliveryIndex()
    for second in range(1000):
        held.pinged(second)
    assert not held._pings


def test_a_deleted_queues_messages_are_forgotten() -> None:
    held = OmqDeliveryIndex()
    for consumer in (1, 2):
        held.written(consumer, (1, 1))
    held.pinged(100)
    held.written(1, (2, 2))
    held.forget(1)
    held.pinged(101)
    assert held.acked(101) == {2: [(1, 1)]}
    assert not held
