"""What one request costs does not depend on how many others have something open."""

import sys
from collections.abc import Callable
from itertools import count

from vibemq.engine import Engine, EngineSettings
from vibemq.model.commands import Command, Publish, PurgeDead, Settle, Settlement, Subscribe
from vibemq.model.effects import Outcome
from vibemq.model.options import QueueOptions
from vibemq.model.records import MessageExtra
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


def duplicates_among(open_outcomes: int) -> int:
    engine = make_engine()
    extras = {index: MessageExtra(dedup_id=b"%d" % index) for index in range(20)}
    do(engine, Publish(1, None, "q", ROWS, extras))
    for _ in range(open_outcomes):
        engine.handle([Publish(1, None, "other", ROWS)], 1)
    return lines_of(lambda: engine.handle([Publish(1, 1, "q", ROWS, extras)], 1))


def test_duplicates_of_what_is_long_confirmed_do_not_look_through_what_is_on_its_way() -> None:
    assert duplicates_among(400) - duplicates_among(10) < 50
