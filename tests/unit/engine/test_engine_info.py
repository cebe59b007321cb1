"""What is told of queues: the figures of metrics agree with those of answers, whatever happens between the steps."""

from collections import Counter

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.stage_names import plain_stage, stage_name
from vibemq.model.commands import (
    CommitCursor,
    DecideTransaction,
    DeleteQueue,
    DropStages,
    JoinCursor,
    MoveStage,
    MoveStaged,
    SeekGroup,
    Settlement,
    Stage,
    StartAt,
)
from vibemq.model.effects import COUNTERS, Counted, QueueDepth, QueueFigures
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, Overflow
from vibemq.model.steps import at_once


@pytest.fixture
def driver() -> Driver:
    return Driver()


def figures(driver: Driver) -> dict[str, QueueFigures]:
    return {found.name: found for found in driver.engine.survey() if found is not None}


def depth_of(driver: Driver, name: str) -> QueueDepth:
    steps = driver.engine.depth(name)
    assert steps is not None
    return at_once(steps)


def agrees(driver: Driver, name: str) -> QueueFigures:
    told, found = driver.info(name), figures(driver)[name]
    for field in ("queue_id", "ready", "size", "in_flight", "delayed", "dead", "consumers", "oldest_at"):
        assert getattr(found, field) == getattr(told, field), field
    assert {counter: getattr(found, counter) for counter in COUNTERS} == told.counters
    depth = depth_of(driver, name)
    assert depth == tuple(getattr(told, field) for field in QueueDepth._fields)
    return found


def test_figures_agree_with_what_a_description_tells(driver: Driver) -> None:
    driver.create("a")
    driver.publish(5, "a")
    driver.publish(2, "a", deliver_at=driver.now + 1_000)
    driver.publish(1, "a", expires_at=driver.now + 10)
    driver.subscribe(1, "a", capacity_messages=2)
    driver.settle(1, 1, verb=Settlement.ACK)
    driver.settle(1, 2, verb=Settlement.REJECT)
    driver.advance(20)
    found = agrees(driver, "a")
    assert found.settled == 1
    assert found.dead_lettered == 2
    assert found.in_flight == 2
    assert found.delayed == 2


def test_an_expiry_that_goes_to_the_dlq_counts_as_an_expiry_too(driver: Driver) -> None:
    driver.create("a")
    driver.publish(3, "a", expires_at=driver.now + 10)
    driver.advance(20)
    counters = driver.info("a").counters
    assert counters["expired"] == 3
    assert counters["dead_lettered"] == 3
    driver.check()


def test_heads_and_ages_follow_the_lowest_sequence_wherever_it_is(driver: Driver) -> None:
    driver.create("a", mode=DeliveryMode.PRIORITY_BASED)
    driver.publish(1, "a", deliver_at=driver.now + 5_000)
    driver.publish(1, "a", priority=3)
    driver.publish(1, "a")
    assert driver.info("a").first_sequence == 1
    driver.subscribe(1, "a", capacity_messages=1)
    assert driver.take() == {1: [2]}
    driver.advance(5_000)
    driver.settle(1, 2)
    assert driver.take() == {1: [3]}
    driver.settle(1, 3)
    assert driver.take() == {1: [1]}
    assert driver.info("a").first_sequence == 1
    driver.settle(1, 1)
    assert driver.info("a").first_sequence == 4
    agrees(driver, "a")


def test_many_groups_are_found_in_several_steps(driver: Driver) -> None:
    driver.create("fan", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for session in range(1, 101):
        driver.subscribe(session, "fan", capacity_messages=1)
    driver.publish(4, "fan")
    steps = list(driver.engine.survey())
    assert steps.count(None) >= 3
    agrees(driver, "fan")


def total(driver: Driver, retired: Counter[str], found: list[QueueFigures]) -> int:
    return retired["published"] + sum(figures.published for figures in found)


def test_what_is_deleted_and_created_between_the_steps_leaves_the_totals_whole(driver: Driver) -> None:
    for name in "abcd":
        driver.create(name)
        driver.publish(10, name)
    driver.ask(DeleteQueue(9, None, "a"))
    survey = driver.engine.survey()
    steps = iter(survey)
    found = [next(steps)]
    driver.ask(DeleteQueue(9, None, found[0].name if found[0] is not None else ""))
    driver.ask(DeleteQueue(9, None, "d"))
    driver.create("e")
    driver.publish(1, "e")
    found += list(steps)
    whole = [figures for figures in found if figures is not None]
    assert [figures.name for figures in whole] == ["b", "c"]
    assert total(driver, survey.retired, whole) == 40


def totals(driver: Driver) -> Counter[str]:
    survey = driver.engine.survey()
    found = [dict.fromkeys(COUNTERS, 0) if figures is None else figures._asdict() for figures in survey]
    return survey.retired + Counter({name: sum(figures[name] for figures in found) for name in COUNTERS})


@pytest.mark.parametrize("extras", [None, {0: MessageExtra(2)}], ids=["plain", "with an extra"])
def test_what_a_transaction_has_staged_is_counted_once_and_what_it_gives_up_never(
    driver: Driver, extras: dict[int, MessageExtra] | None
) -> None:
    driver.create("target")
    for version, name in enumerate(("kept", "given up")):
        driver.ask(Stage(1, None, "target", "job", version, name, 0, rows_of(1), extras))
    driver.ask(DecideTransaction(1, None, "job", 0, ["kept"]))
    if extras is None:
        part = plain_stage(stage_name("job", 0, "kept"), "target")
        assert driver.ask(MoveStage(1, None, part, "target")) == Counted(1)
    else:
        part = stage_name("job", 0, "kept")
        assert driver.ask(MoveStaged(1, None, part, 1, "target", rows_of(1), extras)) == Counted(1)
    driver.ask(DropStages(1, None, [stage_name("job", 0, "kept"), stage_name("job", 1, "given up")]))
    assert driver.info("target").counters["published"] == 1
    assert totals(driver) == Counter(published=1)
    driver.ask(DeleteQueue(9, None, "target"))
    assert totals(driver) == Counter(published=1)


@pytest.mark.parametrize("durability", [Durability.ASYNC, Durability.STRONG])
@pytest.mark.parametrize("extras", [{}, {"priority": 2}], ids=["plain", "with extras"])
def test_no_counter_falls_when_a_full_disk_refuses(
    driver: Driver, durability: Durability, extras: dict[str, int]
) -> None:
    driver.create("q", durability=durability, max_messages=300, overflow=Overflow.REDIRECT_TO_DLQ)
    driver.publish(100, **extras)
    before = totals(driver)
    driver.hold = True
    driver.publish(400, **extras)
    on_its_way = totals(driver)
    driver.refuse()
    refused = totals(driver)
    assert all(before[name] <= on_its_way[name] <= refused[name] for name in COUNTERS)
    assert (refused["published"], refused["dead_lettered"], refused["refused"]) == (100, 0, 400)
    driver.hold = False
    driver.publish(400, **extras)
    stored = totals(driver)
    assert (stored["published"], stored["dead_lettered"]) == (500, 200)
    assert driver.info().counters["published"] == 500
    driver.check()


@pytest.mark.parametrize("end", ["released", "sought", "too far behind", "its queue is deleted", "restarted"])
def test_what_a_cursor_has_acknowledged_and_holds_is_settled_once(driver: Driver, end: str) -> None:
    driver.create("q", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(5)
    joined = driver.ask(JoinCursor(1, None, "q", "etl", hold_ms=60_000, max_lag_ms=90_000))
    driver.ask(CommitCursor(1, None, "q", "etl", joined.epoch, 4))
    assert (totals(driver)["settled"], driver.info().counters["settled"]) == (3, 3)
    match end:
        case "released":
            driver.advance(60_000)
        case "sought":
            driver.ask(SeekGroup(1, None, "q", "etl", StartAt.BEGINNING))
        case "too far behind":
            driver.publish(1)
            driver.advance(100_000)
        case "its queue is deleted":
            driver.ask(DeleteQueue(9, None, "q"))
        case "restarted":
            driver.restart()
            assert totals(driver)["settled"] == 0
            driver.advance(60_000)
    assert totals(driver)["settled"] == (0 if end == "restarted" else 3)
    driver.check()


def test_what_is_stored_behind_the_deletion_of_its_queue_is_counted(driver: Driver) -> None:
    driver.create("q")
    driver.hold = True
    driver.publish(3)
    driver.handle(DeleteQueue(9, None, "q"))
    driver.keep()
    assert totals(driver)["published"] == 3


def test_a_queue_that_is_deleted_while_its_groups_are_looked_at_is_left_out(driver: Driver) -> None:
    driver.create("fan", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for session in range(1, 101):
        driver.subscribe(session, "fan", capacity_messages=1)
    driver.publish(4, "fan")
    survey = driver.engine.survey()
    steps = iter(survey)
    assert next(steps) is None
    driver.ask(DeleteQueue(9, None, "fan"))
    assert [figures for figures in steps if figures is not None] == []
    assert survey.retired["published"] == 4
    assert survey.retired["delivered"] == 100


def test_the_age_of_the_oldest_message_is_exact_to_within_a_second(driver: Driver) -> None:
    driver.create("a")
    for _ in range(40):
        driver.publish(1, "a")
        driver.now += 1_500
    driver.subscribe(1, "a", capacity_messages=30)
    driver.settle(1, *range(1, 31))
    begun = driver.now - 40 * 1_500
    driver.close(1)
    oldest = driver.info("a").first_sequence
    assert oldest > 30
    assert driver.info("a").oldest_at == begun + (oldest - 1) * 1_500
    agrees(driver, "a")


def test_the_notes_about_ages_of_messages_that_are_gone_are_forgotten(driver: Driver) -> None:
    driver.create("a")
    driver.subscribe(1, "a")
    for index in range(10_000):
        driver.now += 1_000
        driver.publish(1, "a")
        driver.settle(1, index + 1)
        driver.effects.clear()
    sizes = driver.engine._state.queues["a"].sizes
    assert len(sizes) <= 512
    assert sizes.mark_count <= 8 * 512


@pytest.mark.parametrize(("options", "filled"), [({}, 0), ({"max_messages": 1_000}, 96), ({"max_messages": 961}, 99)])
def test_how_full_a_queue_is(driver: Driver, options: dict[str, int], filled: int) -> None:
    driver.create("a", **options)
    driver.publish(950, "a")
    driver.publish(10, "a", deliver_at=driver.now + 5_000)
    assert agrees(driver, "a").filled == filled


def test_the_nearer_of_two_limits_says_how_full_it_is(driver: Driver) -> None:
    driver.create("a", max_messages=10)
    driver.publish(9, "a")
    size = agrees(driver, "a").size
    for most, filled in ((size * 2, 90), (size + 1, 98), (size, 100)):
        driver.create(f"b{most}", max_messages=10, max_bytes=most)
        driver.publish(9, f"b{most}")
        assert agrees(driver, f"b{most}").filled == filled


def test_letters_of_a_deleted_queue_are_counted_in_the_survey(driver: Driver) -> None:
    driver.create("q")
    driver.publish(2, "q")
    driver.subscribe(1, "q", capacity_messages=2)
    driver.settle(1, 1, 2, verb=Settlement.REJECT)
    driver.ask(DeleteQueue(9, None, "q"))
    survey = driver.engine.survey()
    assert (list(survey), survey.dead_count) == ([], 2)
