"""A dry run answers as the change does in a twin of the broker, whatever was done before, and leaves nothing behind."""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.handlers.jobs.jobs_driver import JobsDriver
from tests.unit.engine.handlers.test_dry_runs import comparable, tried
from vibemq.errors import VibeMQError
from vibemq.model.commands import (
    Begin,
    ChangeQueue,
    CommitCursor,
    DeleteGroup,
    DeleteQueue,
    FilterGroup,
    JoinCursor,
    PurgeQueue,
    Quarantine,
    RemoveMessages,
    SeekGroup,
    Settlement,
    StartAt,
)
from vibemq.model.options import DeliveryMode, Retention
from vibemq.model.runs import Run
from vibemq.model.selector import Selector

EVEN = Selector.parse("n % 2 == 0")
PLACES = st.sampled_from([StartAt.BEGINNING, StartAt.NOW, StartAt.SEQUENCE])
SEQUENCES = st.integers(0, 30)
RUNS = st.lists(st.tuples(st.integers(1, 15), st.integers(15, 30)), min_size=1, max_size=3)
PEOPLE, READERS = st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"])
BEGINS = st.sampled_from([None, *Begin])
HOLDS = st.sampled_from([None, 5_000])

Change = Callable[[], Any]
Move = Callable[[JobsDriver], object]


def asked(change: Change) -> Move:
    return lambda driver: driver.ask(change())


def seek(group: str, place: StartAt, sequence: int) -> Change:
    return lambda: SeekGroup(1, None, "q", group, place, sequence, user="ann")


def join(group: str, place: StartAt, sequence: int, begin: Begin | None, hold_ms: int | None, create: bool) -> Change:
    return lambda: JoinCursor(
        1, None, "q", group, place, sequence, "me", hold_ms, begin=begin, create=create, user="ann"
    )


def sift(group: str, place: StartAt, sequence: int, where: Selector | None) -> Change:
    return lambda: FilterGroup(1, None, "q", group, where, place, sequence, user="ann")


def set_apart(group: str, runs: list[Run]) -> Change:
    return lambda: Quarantine(1, None, "q", group, runs)


def remove(runs: list[Run]) -> Change:
    return lambda: RemoveMessages(1, None, "q", runs)


def commit(group: str, sequence: int) -> Move:
    def move(driver: JobsDriver) -> None:
        epoch = driver.engine.readers.cursor("q", group).epoch
        driver.ask(CommitCursor(1, None, "q", group, epoch, sequence))

    return move


def consume(group: str, session: int, capacity: int, settled: int, verb: Settlement, leaves: bool) -> Move:
    def move(driver: JobsDriver) -> None:
        driver.subscribe(session, "q", group=group, capacity_messages=capacity)
        for own, sequences in driver.take().items():
            driver.settle(own, *sequences[:settled], verb=verb)
        if leaves:
            driver.close(session)

    return move


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(seek, PEOPLE | READERS, PLACES, SEQUENCES),
    st.builds(join, READERS | st.just("z"), PLACES, SEQUENCES, BEGINS, HOLDS, st.booleans()),
    st.builds(sift, PEOPLE | st.just("z"), PLACES | st.just(StartAt.DEFAULT), SEQUENCES, st.sampled_from([EVEN, None])),
    st.builds(set_apart, READERS, RUNS),
    st.builds(remove, RUNS),
    st.sampled_from(
        [
            lambda: PurgeQueue(1, None, "q"),
            lambda: DeleteGroup(1, None, "q", "a"),
            lambda: DeleteGroup(1, None, "q", "x"),
            lambda: DeleteQueue(1, None, "q"),
            lambda: ChangeQueue(1, None, "q", {"max_attempts": 3}),
        ]
    ),
)
VERBS = st.sampled_from([Settlement.ACK, Settlement.REJECT])
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda count: lambda driver: driver.publish(count), st.integers(1, 8)),
    st.builds(asked, st.builds(seek, PEOPLE, PLACES, SEQUENCES)),
    st.builds(asked, st.builds(join, READERS, PLACES, SEQUENCES, BEGINS, HOLDS, st.just(True))),
    st.builds(asked, st.builds(sift, PEOPLE, PLACES, SEQUENCES, st.sampled_from([EVEN, None]))),
    st.builds(asked, st.builds(set_apart, READERS, RUNS)),
    st.builds(asked, st.builds(remove, RUNS)),
    st.builds(commit, READERS, SEQUENCES),
    st.builds(consume, PEOPLE, st.integers(3, 6), st.integers(1, 6), st.integers(0, 4), VERBS, st.booleans()),
    st.builds(lambda ms: lambda driver: driver.advance(ms), st.integers(1, 6_000)),
    st.just(lambda driver: driver.restart()),
)
OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.just(DeliveryMode.FAN_OUT_WITH_ACK),
        "retention": st.just(Retention.LOG),
        "dead_letter": st.booleans(),
    },
)


def made(options: dict[str, Any], moves: list[Move]) -> JobsDriver:
    driver = JobsDriver()
    driver.create(**options)
    for move in moves:
        with suppress(VibeMQError):
            move(driver)
    return driver


@given(OPTIONS, st.lists(MOVES, min_size=2, max_size=12), CHANGES)
@settings(max_examples=200, deadline=None)
def test_a_dry_run_agrees_with_its_twin(options: dict[str, Any], moves: list[Move], change: Change) -> None:
    driver, twin = made(options, moves), made(options, moves)
    records = copy(driver.records)
    answer = tried(driver, change())
    assert driver.records == records
    done = twin.ask(change())
    if isinstance(done, VibeMQError):
        assert (type(answer), str(answer)) == (type(done), str(done))
    else:
        assert comparable(answer) == comparable(done)
    assert comparable(driver.ask(change())) == comparable(done) or isinstance(done, VibeMQError)
    assert driver.records == twin.records
