"""One word for each queue."""

import pytest

from tests.unit.operations.monitoring.pictures import Cursor, Picture, picture, reading
from vibemq.operations.monitoring.states import TOGETHER, QueueState, state_of, states_of_all

WORKED_ON = {"ready": 5, "consumers": 1}


def word(now: dict[str, int], before: dict[str, int] | None = None, *, still_ms: int = 0) -> QueueState:
    early = picture({"jobs": now if before is None else before})
    return state_of(reading(picture({"jobs": now}), early, still_ms={0: still_ms}), 0)


@pytest.mark.parametrize(
    ("now", "before", "state"),
    [
        ({}, {}, QueueState.IDLE),
        ({"dead": 9, "published": 9}, {"dead": 9, "published": 9}, QueueState.IDLE),
        ({"published": 10}, {}, QueueState.FLOWING),
        ({"delayed": 1}, {"delayed": 1}, QueueState.DELAYED),
        ({"delayed": 1, "published": 1}, {"delayed": 1}, QueueState.FLOWING),
        ({"in_flight": 1}, {"in_flight": 1}, QueueState.AWAITING_ACKS),
        ({"in_flight": 1, "delivered": 1}, {}, QueueState.FLOWING),
        ({"in_flight": 1, "settled": 1}, {"in_flight": 2}, QueueState.FLOWING),
        # What comes in meanwhile goes to nobody.
        ({"in_flight": 1, "published": 1}, {"in_flight": 1}, QueueState.AWAITING_ACKS),
        (WORKED_ON, WORKED_ON, QueueState.FLOWING),
        ({"ready": 1}, {"ready": 1}, QueueState.NO_CONSUMER),
        # Consumers hold as many as they may.
        (WORKED_ON | {"in_flight": 9}, WORKED_ON | {"in_flight": 9}, QueueState.AWAITING_ACKS),
        (WORKED_ON | {"in_flight": 9, "settled": 1}, WORKED_ON | {"in_flight": 9}, QueueState.FLOWING),
        # Whoever fetches holds some, or has taken some lately.
        ({"ready": 1, "in_flight": 1}, {"ready": 1, "in_flight": 1}, QueueState.AWAITING_ACKS),
        ({"ready": 1, "delivered": 9, "settled": 9}, {"ready": 5, "delivered": 5, "settled": 5}, QueueState.FLOWING),
        ({"ready": 1, "delivered": 9}, {"ready": 1, "delivered": 9}, QueueState.NO_CONSUMER),
        ({"filled": 100}, {}, QueueState.FULL),
        ({"filled": 99}, {}, QueueState.IDLE),
        ({"refused": 1}, {}, QueueState.FULL),
        ({"refused": 1}, {"refused": 1}, QueueState.IDLE),
        ({"ready": 15, "consumers": 1, "published": 10}, WORKED_ON, QueueState.FALLING_BEHIND),
        # Less than one more each second.
        ({"ready": 14, "consumers": 1, "published": 10}, WORKED_ON, QueueState.FLOWING),
        # Less than a twentieth of what comes in.
        ({"ready": 54, "consumers": 1, "published": 1_000}, WORKED_ON, QueueState.FLOWING),
        # What came back to the queue, while nothing comes in.
        ({"ready": 500, "consumers": 1}, WORKED_ON, QueueState.FLOWING),
    ],
)
def test_the_state_follows_from_two_pictures(now: dict[str, int], before: dict[str, int], state: QueueState) -> None:
    assert word(now, before) == state


def test_what_the_broker_refuses_for_want_of_disk_makes_no_queue_full() -> None:
    now, before = picture({"jobs": {"refused": 5, "ready": 1}}), picture({"jobs": {"ready": 1}})
    assert state_of(reading(now, before, refused_all=True), 0) == QueueState.NO_CONSUMER
    full = picture({"jobs": {"refused": 5, "filled": 100}})
    assert state_of(reading(full, before, refused_all=True), 0) == QueueState.FULL


def test_a_queue_is_stuck_when_nothing_has_moved_for_a_minute() -> None:
    assert word(WORKED_ON, still_ms=60_000) == QueueState.STUCK
    assert word(WORKED_ON, still_ms=59_999) == QueueState.FLOWING
    assert word({"ready": 5}, still_ms=60_000) == QueueState.NO_CONSUMER
    assert word({"ready": 5, "in_flight": 1}, still_ms=60_000) == QueueState.STUCK
    assert word({"ready": 5, "in_flight": 1}, still_ms=59_999) == QueueState.AWAITING_ACKS


def test_a_group_that_reads_by_ranges_is_a_consumer() -> None:
    waiting = {"jobs": {"ready": 1}}
    now = picture(waiting, Cursor("jobs", "spark", 1))
    assert state_of(reading(now, picture(waiting)), 0) == QueueState.FLOWING


def test_without_an_earlier_picture_all_has_happened_since_the_start() -> None:
    assert state_of(reading(picture({"jobs": {"published": 1}})), 0) == QueueState.FLOWING


def test_a_queue_made_anew_begins_at_nothing() -> None:
    now: Picture = picture({"jobs": {"queue_id": 2, "published": 5}})
    found = reading(now, picture({"jobs": {"queue_id": 1, "published": 100}}))
    assert found.rate("published", 0) == 0.5


IDLE_QUEUES = 2 * TOGETHER + 10


@pytest.mark.anyio
@pytest.mark.parametrize("first_picture", [True, False])
@pytest.mark.parametrize(
    "figures",
    [
        {"ready": 1},
        {"in_flight": 1},
        {"delayed": 1},
        {"filled": 100},
        {"published": 1},
        {"delivered": 1},
        {"settled": 1},
        {"refused": 1},
    ],
)
async def test_one_queue_among_many_idle_ones_is_not_overlooked(
    figures: dict[str, int], *, first_picture: bool
) -> None:
    idle: dict[str, dict[str, int]] = {f"q{number}": {"dead": 3} for number in range(IDLE_QUEUES)}
    for place in (0, TOGETHER - 1, TOGETHER, IDLE_QUEUES - 1):
        now = reading(picture(idle | {f"q{place}": figures}), None if first_picture else picture(idle))
        found = await states_of_all(now)
        assert list(found) == [state_of(now, row) for row in range(IDLE_QUEUES)]
        assert [row for row, state in enumerate(found) if state is not QueueState.IDLE] == [place]


@pytest.mark.anyio
async def test_rows_of_other_queues_in_the_earlier_picture_are_not_taken_for_the_same() -> None:
    """The first queue has gone; every other one has another row than before, with what the queue there had counted."""
    early = {f"q{number}": {"queue_id": number, "published": IDLE_QUEUES - number} for number in range(IDLE_QUEUES)}
    late = {name: of | {"published": of["published"] + 1} for name, of in early.items() if name != "q0"}
    assert set(await states_of_all(reading(picture(late), picture(early)))) == {QueueState.FLOWING}
