"""What one request costs does not depend on how many others have something open."""

import sys
from collections.abc import Callable
from itertools import count

import pytest

from vibemq.engine import Batch, Engine, EngineSettings
from vibemq.engine.pacing import STEP_UNITS
from vibemq.errors import StorageFull
from vibemq.model.commands import (
    CloseSession,
    Command,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    JoinCursor,
    Publish,
    PurgeDead,
    RemoveMessages,
    Settle,
    Settlement,
    Subscribe,
)
from vibemq.model.effects import Deliver, Outcome, Published, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.rows import Rows, pack_row

ROWS = Rows.of([pack_row("m", b"x")] * 20)


def make_engine() -> Engine:
    names = count()
    settings = EngineSettings(queue_defaults=QueueOptions())
    return Engine(settings, jitter=lambda: 0.5, new_id=lambda: str(next(names)))


def do(engine: Engine, *commands: Command) -> Outcome:
    outcome = engine.handle(commands, 1)
    if outcome.ticket:
        engine.committed(outcome.ticket, 1)
    return outcome


def lines_of(work: Callable[[], object]) -> int:
    lines = 0

    def note(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return note

    sys.settrace(note)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


def purge_among(queues: int) -> int:
    engine = make_engine()
    for number in range(queues):
        do(engine, Subscribe(1, None, number, f"q{number}"))
        do(engine, Publish(1, None, f"q{number}", ROWS))
        do(engine, Settle(1, None, number, Settlement.REJECT, [(1, 20)]))
    assert engine.dead_count == 20 * queues
    last = 20 * queues
    lines = lines_of(lambda: do(engine, PurgeDead(1, 1, list(range(last - 19, last + 1)))))
    assert engine.dead_count == last - 20
    return lines


def test_purging_letters_of_one_queue_does_not_look_through_all_queues_for_each() -> None:
    # One walk finds the first letter's queue; the others are looked for there.
    assert purge_among(400) - purge_among(10) < 10 * 400


def refusal_among(queues: int, *, refused_before: bool) -> int:
    engine = make_engine()
    for number in range(queues):
        do(engine, CreateQueue(1, None, f"q{number}", QueueOptions(), False))
    error = StorageFull("disk is full")
    for number in range(queues if refused_before else 0):
        engine.failed(engine.handle([Publish(1, None, f"q{number}", ROWS)], 1).ticket, 1, error)
        engine.pay(1)
    outcome = engine.handle([Publish(1, 1, "q0", ROWS)], 1)
    waiting = [Reply(1, 2, Published("q1", 0, 1, duplicates={0: 1}))]

    def refuse() -> None:
        engine.failed(outcome.ticket, 1, error)
        engine.failed_answers(waiting, error)
        engine.pay(1)

    return lines_of(refuse)


@pytest.mark.parametrize("refused_before", [False, True])
def test_an_outcome_that_could_not_be_written_looks_at_no_other_queues(refused_before: bool) -> None:
    few, many = (refusal_among(queues, refused_before=refused_before) for queues in (10, 400))
    assert many - few < 20


def duplicates_among(open_outcomes: int) -> int:
    engine = make_engine()
    extras = {index: MessageExtra(dedup_id=b"%d" % index) for index in range(20)}
    do(engine, Publish(1, None, "q", ROWS, extras))
    for _ in range(open_outcomes):
        engine.handle([Publish(1, None, "other", ROWS)], 1)
    return lines_of(lambda: engine.handle([Publish(1, 1, "q", ROWS, extras)], 1))


def test_duplicates_of_what_is_long_confirmed_do_not_look_through_what_is_on_its_way() -> None:
    assert duplicates_among(400) - duplicates_among(10) < 50


def publish_to(engine: Engine, queue: str) -> int:
    return engine.advance(Batch([Publish(1, None, queue, ROWS)]), 1).ticket


def test_what_takes_long_to_show_is_not_put_behind_many_answers() -> None:
    """A turn of the loop that answers many publishes has to do for each of them what showing it takes."""
    engine = make_engine()
    for number in range(2 * STEP_UNITS):
        queue = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK)
        do(engine, CreateQueue(1, None, "crowded", queue, False))
        do(engine, Subscribe(number + 2, None, 1, "crowded", capacity_messages=100))
    do(engine, CreateQueue(1, None, "other", QueueOptions(), False))
    other = publish_to(engine, "other")
    crowded = publish_to(engine, "crowded")
    assert engine.shows_at_once(other)
    assert not engine.shows_at_once(crowded)
    engine.committed(crowded, 1)
    assert not engine.shows_at_once(other), "each call hands out to some of the groups that are left"
    while engine.next_deadline() == 1:
        engine.tick(1)
    assert engine.shows_at_once(other)


def hand_out_to(groups: int, messages: int) -> tuple[list[int], dict[int, list[int]]]:
    """(deliveries of each outcome, sequences of each session) of messages in a queue with so many groups."""
    engine = make_engine()
    do(engine, CreateQueue(1, None, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), False))
    for number in range(groups):
        do(engine, Subscribe(number + 2, None, 1, "q", capacity_messages=100))
    given: list[int] = []
    received: dict[int, list[int]] = {}

    def take(outcome: Outcome) -> None:
        delivers = [effect for effect in (*outcome.effects, *outcome.after_append) if isinstance(effect, Deliver)]
        given.append(len(delivers))
        for deliver in delivers:
            for first, last in deliver.runs:
                received.setdefault(deliver.session, []).extend(range(first, last + 1))

    for _ in range(messages):
        outcome = engine.advance(Batch([Publish(1, None, "q", Rows.of([pack_row("m", b"x")]))]), 1)
        take(outcome)
        take(engine.committed(outcome.ticket, 1))
    while (at := engine.next_deadline()) is not None and at <= 1:
        outcome = engine.tick(1)
        take(outcome)
        if outcome.ticket:
            take(engine.committed(outcome.ticket, 1))
    return given, received


def test_a_message_for_a_thousand_groups_is_handed_out_over_many_steps() -> None:
    given, received = hand_out_to(1_000, messages=3)
    assert max(given) <= 200
    assert received == {session: [1, 2, 3] for session in range(2, 1_002)}


def asks_what_kind_of_queue_it_is(groups: int) -> int:
    engine = make_engine()
    do(engine, CreateQueue(1, None, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), False))
    for number in range(groups):
        do(engine, Subscribe(number + 2, None, 1, "q", capacity_messages=100))
    answers: list[Outcome] = []
    do(engine, DescribeQueue(1, "t", "q", figures=False))
    lines = lines_of(lambda: answers.append(do(engine, DescribeQueue(1, "t", "q", figures=False))))
    (reply,) = answers[0].effects
    assert isinstance(reply, Reply)
    assert (reply.result.options.mode, reply.result.restricted) == (DeliveryMode.FAN_OUT_WITH_ACK, True)
    return lines


def test_what_kind_of_queue_it_is_takes_no_look_at_its_groups() -> None:
    assert asks_what_kind_of_queue_it_is(1_000) < asks_what_kind_of_queue_it_is(10) + 100


def test_a_session_that_leaves_before_its_turn_is_handed_nothing() -> None:
    engine = make_engine()
    do(engine, CreateQueue(1, None, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), False))
    for number in range(400):
        do(engine, Subscribe(number + 2, None, 1, "q", capacity_messages=100))
    do(engine, Publish(1, None, "q", ROWS))
    do(engine, CloseSession(401, True))
    do(engine, DeleteQueue(1, None, "q"))
    assert not [effect for effect in engine.tick(1).effects if isinstance(effect, Deliver)]
    assert engine.next_deadline() is None


def looks_at_a_scattered_cursor(messages: int) -> int:
    engine = make_engine()
    do(engine, CreateQueue(1, None, "q", QueueOptions(), False))
    do(engine, JoinCursor(1, None, "q", "c", take_over=True, create=True))
    do(engine, Publish(1, None, "q", Rows.of([pack_row("m", b"x")] * messages)))
    do(engine, RemoveMessages(1, None, "q", [(s, s) for s in range(2, messages + 1, 2)]))

    def look() -> None:
        reach, _ = engine.readers.reach("q", "c", 101, 20, 0, None)
        assert (reach.end, reach.messages) == (140, 20)
        span = engine.readers.span("q", "c", 101, 140, None)
        assert len(span.wanted) == 20
        engine.readers.cuts("q", "c", 101, 140, 2, None)

    return lines_of(look)


def test_a_small_read_of_a_cursor_does_not_look_through_its_whole_backlog() -> None:
    assert looks_at_a_scattered_cursor(20_000) - looks_at_a_scattered_cursor(400) < 200
