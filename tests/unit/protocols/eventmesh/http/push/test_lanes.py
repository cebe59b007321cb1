"""The URLs of a group: whose turn it is, who rests, and that it costs the same with very many of them."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.guard.counting import instructions
from vibemq.protocols.eventmesh.http.push.lanes import REST_MAX_MS, REST_MS, UrlLane, UrlLanes
from vibemq.protocols.eventmesh.http.push.slots import PushSlot, UrlStanding

NOW = 1_000_000


def lanes_of(count: int, concurrency: int = 1) -> UrlLanes:
    lanes = UrlLanes(concurrency)
    for number in range(count):
        lanes.add(f"http://host/{number}")
    return lanes


def begin(lanes: UrlLanes, lane: UrlLane) -> UrlLane:
    lane.busy += 1
    lanes.changed(lane)
    return lane


def end(lanes: UrlLanes, lane: UrlLane) -> None:
    lane.busy -= 1
    lanes.changed(lane)


def taken(lanes: UrlLanes, now: int = NOW, failed_at: str | None = None) -> UrlLane:
    lane = lanes.next_free(now, failed_at)
    assert lane is not None
    return lane


def test_urls_take_turns_and_one_that_is_busy_is_passed_over() -> None:
    lanes = lanes_of(3)
    first = begin(lanes, taken(lanes))
    others = [taken(lanes).url for _ in range(4)]
    assert first.url not in others
    assert others == others[:2] * 2
    end(lanes, first)
    assert first.url in [taken(lanes).url for _ in range(3)]


def test_a_url_has_as_many_pushes_as_it_may_and_one_after_a_failure() -> None:
    lanes = lanes_of(1, concurrency=3)
    (lane,) = lanes
    for _ in range(3):
        begin(lanes, taken(lanes))
    assert lanes.next_free(NOW, None) is None
    for _ in range(3):
        end(lanes, lane)
    lanes.failed(lane, NOW)
    after = NOW + REST_MS
    begin(lanes, taken(lanes, after))
    assert lanes.next_free(after, None) is None
    lanes.worked(lane, after)
    begin(lanes, taken(lanes, after))


def test_where_a_message_has_failed_is_passed_over_while_there_is_another() -> None:
    lanes = lanes_of(2)
    first, other = lanes
    assert taken(lanes, failed_at=first.url) is other
    begin(lanes, other)
    assert lanes.next_free(NOW, first.url) is None, "the other one is free soon"
    lanes.failed(other, NOW)
    end(lanes, other)
    assert taken(lanes, failed_at=first.url) is first


def test_a_url_that_fails_rests_longer_each_time() -> None:
    lanes = lanes_of(2)
    lane, other = lanes
    now, rests = NOW, []
    for _ in range(6):
        rests.append(lanes.failed(lane, now))
        assert lanes.next_awake_at() == now + rests[-1]
        assert taken(lanes, now + rests[-1] - 1) is other
        assert lanes.has_awake(now)
        now += rests[-1]
        assert {taken(lanes, now).url for _ in range(2)} == {lane.url, other.url}
    assert rests == [REST_MS << number for number in range(4)] + [REST_MAX_MS] * 2
    lanes.failed(lane, now)
    lanes.failed(other, now)
    assert not lanes.has_awake(now)
    lanes.worked(lane, now)
    assert lanes.has_awake(now)
    lanes.remove(lane.url)
    assert not lanes.has_awake(now)
    assert lanes.next_awake_at() == now + REST_MS


def test_a_url_that_waits_for_a_slot_or_was_removed_gets_nothing() -> None:
    lanes = lanes_of(2)
    waits, gone = lanes
    waits.wish = PushSlot("ann", waits.host, UrlStanding.NEW, lambda: None)
    lanes.changed(waits)
    assert lanes.remove(gone.url) is gone
    assert lanes.remove(gone.url) is None
    begin(lanes, gone)
    end(lanes, gone)
    lanes.failed(gone, NOW)
    assert gone not in lanes
    assert lanes.next_free(NOW + REST_MAX_MS, None) is None
    waits.wish = None
    lanes.changed(waits)
    assert taken(lanes, NOW + REST_MAX_MS) is waits


@pytest.mark.parametrize("resting", [False, True])
def test_what_is_asked_of_very_many_urls_costs_as_of_a_few(*, resting: bool) -> None:
    def cost(count: int) -> int:
        lanes = lanes_of(count)
        if resting:
            for lane in list(lanes)[1:]:
                lanes.failed(lane, NOW)

        def work() -> None:
            for _ in range(10):
                lanes.has_awake(NOW)
                lane = taken(lanes, failed_at="http://host/1")
                end(lanes, begin(lanes, lane))

        return total(work)

    assert cost(3_000) < 1.5 * cost(30)


def total(work: Callable[[], Any]) -> int:
    return sum(instructions(work).values())
