"""Long commands in steps: every one is cut, whatever it walks, and the steps come to the same as the whole."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import Batch
from vibemq.engine.handlers.cursors.requests import EPOCHS_OF_A_GROUP
from vibemq.engine.pacing import STEP_UNITS, pieces
from vibemq.engine.queue.unacked import Unacked
from vibemq.engine.stage_names import stage_name
from vibemq.errors import NotAuthorized, QueueNotFound, StageNotFound
from vibemq.model import commands as ask
from vibemq.model.commands import Command, Publish, Settle, Settlement
from vibemq.model.effects import Outcome, Reply
from vibemq.model.options import DeliveryMode, Overflow, Retention
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet, run_count

runs = st.lists(st.tuples(st.integers(1, 9_000), st.integers(0, 900)).map(lambda p: (p[0], p[0] + p[1])), max_size=900)
MANY = 1_200
EPOCH = EPOCHS_OF_A_GROUP + 1
"""Of the second group's first owner."""
SCATTERED = [(sequence, sequence) for sequence in range(1, MANY, 2)]
STAGES = [f"s{number}" for number in range(MANY // 2)]


@given(st.lists(st.integers(1, 300), max_size=200), runs, st.booleans())
def test_pieces_are_short_and_hold_everything_in_order(gaps: list[int], wanted: list[Run], members: bool) -> None:
    held, at = Unacked(), 0
    for gap in gaps:
        held.add(at + gap, at + 2 * gap, 5, 0)
        at += 2 * gap + 1
    found = [piece for piece, _ in pieces(wanted, held.cut_members if members else held.cut_runs)]
    for piece in found:
        parts = [part for run in piece for part in held.overlap(*run)]
        assert (run_count(parts) if members else len(parts)) <= STEP_UNITS
        assert len(piece) <= STEP_UNITS
    assert [run for run in wanted if run not in _joined(found, wanted)] == []
    assert sum(run_count(piece) for piece in found) == run_count(wanted)


def _joined(found: list[list[Run]], wanted: list[Run]) -> list[Run]:
    """The pieces put together again, given what they were cut from."""
    joined: list[Run] = []
    parts = (run for piece in found for run in piece)
    for first, last in wanted:
        start, stop = next(parts)
        assert start == first
        while stop < last:
            after, end = next(parts)
            assert after == stop + 1
            stop = end
        assert stop == last
        joined.append((first, last))
    return joined


def test_a_cut_in_parts_is_that_of_the_whole() -> None:
    parts = RunSet((s, s) for s in range(1, 20_000, 2))
    for first, most in ((1, 3), (4_001, 2_500), (4_095, 1), (19_000, 900)):
        known = parts.overlap(first, 20_000)
        stop, number = parts.cut_runs(first, 20_000, most)
        assert parts.overlap(first, stop) == known[:most]
        assert [parts.meets(at, at) for at in range(first, first + 9)] == [
            at in parts for at in range(first, first + 9)
        ]
        assert parts.meets(first + 1, first + 6_000) == bool(parts.overlap(first + 1, first + 6_000))
        assert number == len(known[:most])
        assert stop == 20_000 or len(known) > most


def test_a_short_batch_is_one_step() -> None:
    driver = Driver()
    driver.create()
    driver.publish(5_000)
    driver.subscribe(1, capacity_messages=5_000)
    batch = Batch([Publish(1, "a", "q", Rows.of([b"x"])), Settle(1, "b", 1, Settlement.ACK, [(1, 10_000_000)])])
    driver.submit(driver.engine.advance(batch, driver.now))
    assert batch.done


@pytest.mark.parametrize("verb", [Settlement.RETRY, Settlement.RELEASE, Settlement.REJECT])
def test_a_range_that_nobody_holds_is_no_work(verb: Settlement) -> None:
    driver = Driver()
    driver.create()
    driver.publish(5_000)
    driver.subscribe(1, capacity_messages=300)
    steps = advance(driver, [Settle(1, "t", 1, verb, [(1, 1 << 62)]), Settle(2, "u", 1, verb, [(1, 1 << 62)])])
    assert steps <= 5
    # Nothing that was handed out after the command is settled by it.
    assert driver.info().dead == (300 if verb is Settlement.REJECT else 0)


# -- every command ------------------------------------------------------------------------------------------------


def ready(**options: Any) -> Driver:
    """Every other message waits, the others are gone."""
    driver = Driver()
    driver.create(**options)
    driver.publish(MANY)
    driver.handle(ask.RemoveMessages(9, None, "q", [(s, s) for s in range(2, MANY + 1, 2)]))
    return driver


def delayed() -> Driver:
    driver = Driver()
    driver.create()
    driver.publish(MANY, deliver_at=1 << 40)
    return driver


def with_history() -> Driver:
    """All messages have come back once."""
    count = 8 * MANY
    driver = Driver()
    driver.create()
    driver.publish(count)
    driver.subscribe(1, capacity_messages=count)
    driver.settle(1, *range(1, count + 1), verb=Settlement.RETRY, delay_ms=0)
    driver.handle(ask.CloseSession(1, clean=True))
    return driver


def held_with_history() -> Driver:
    """In one stretch."""
    driver = with_history()
    driver.subscribe(1, capacity_messages=8 * MANY, ack_timeout_ms=0)
    return driver


def held(**options: Any) -> Driver:
    driver = Driver()
    driver.create(**options)
    driver.publish(MANY)
    driver.subscribe(1, capacity_messages=MANY)
    return driver


def held_in_part() -> Driver:
    driver = held()
    driver.handle(Settle(1, None, 1, Settlement.ACK, [(s, s) for s in range(2, MANY, 2)]))
    return driver


def scattered_groups(**options: Any) -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, **options)
    for number in range(10):
        driver.handle(ask.Subscribe(100 + number, None, 1, "q", group=f"g{number}", capacity_messages=1))
    driver.publish(MANY)
    driver.handle(ask.RemoveMessages(9, None, "q", SCATTERED))
    return driver


def groups(**options: Any) -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, **options)
    driver.publish(10)
    for number in range(MANY // 4):
        start = ask.StartAt.BEGINNING
        driver.handle(ask.Subscribe(100 + number, None, 1, "q", group=f"g{number}", start=start, capacity_messages=1))
    return driver


def consumers() -> Driver:
    driver = Driver()
    driver.create()
    for number in range(MANY):
        driver.handle(ask.Subscribe(1, None, number, "q", capacity_messages=1))
    return driver


def crowd() -> Driver:
    """One group of very many consumers, most of which hold something."""
    driver = Driver()
    driver.create()
    for number in range(MANY):
        start = ask.StartAt.BEGINNING
        driver.handle(ask.Subscribe(100 + number, None, 1, "q", group="g", start=start, capacity_messages=1))
    driver.publish(MANY - 100)
    return driver


def parked() -> Driver:
    driver = Driver()
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    for _ in range(MANY + 1):
        driver.publish(session=1)
    return driver


def letters() -> Driver:
    driver = held()
    driver.handle(Settle(1, None, 1, Settlement.REJECT, [(1, MANY)]))
    assert driver.info().dead == MANY
    return driver


def stages() -> Driver:
    driver = Driver()
    driver.create()
    for stage in STAGES:
        driver.handle(ask.Stage(9, None, "q", "app", 1, stage, 1, rows_of(1)))
    return driver


def log() -> Driver:
    driver = ready(retention=Retention.LOG)
    driver.handle(ask.SeekGroup(9, None, "q", "second", ask.StartAt.BEGINNING))
    return driver


def cursor(**options: int) -> Driver:
    """Every other message waits for a cursor."""
    driver = Driver()
    driver.create()
    driver.handle(ask.JoinCursor(1, "join", "q", "c", take_over=True, create=True, **options))
    driver.publish(MANY)
    driver.handle(ask.RemoveMessages(9, None, "q", [(s, s) for s in range(2, MANY + 1, 2)]))
    return driver


def whole_cursor() -> Driver:
    driver = Driver()
    driver.create()
    driver.publish(MANY)
    driver.handle(ask.JoinCursor(1, "join", "q", "c", take_over=True, create=True, start=ask.StartAt.BEGINNING))
    return driver


LONG: dict[str, tuple[Callable[[], Driver], Command]] = {
    **{
        f"settle {verb.name} {name}": (world, Settle(1, "t", 1, verb, list(wanted)))
        for verb in Settlement
        for name, world, wanted in (
            ("many runs", held, SCATTERED),
            ("one run", held, [(1, MANY)]),
            ("one run over many stretches", held_in_part, [(1, MANY)]),
        )
        if (verb, name) != (Settlement.ACK, "one run")
    },
    "extend many runs": (held, ask.Extend(1, "t", 1, SCATTERED, 60_000)),
    "extend one run": (held_in_part, ask.Extend(1, "t", 1, [(1, MANY)], 60_000)),
    "purge scattered": (ready, ask.PurgeQueue(9, "t", "q")),
    "purge delayed": (delayed, ask.PurgeQueue(9, "t", "q")),
    "acks with history": (held_with_history, Settle(1, "t", 1, Settlement.ACK, [(1, 1 << 62)])),
    "purge with history": (with_history, ask.PurgeQueue(9, "t", "q")),
    "purge groups": (scattered_groups, ask.PurgeQueue(9, "t", "q")),
    "purge log": (log, ask.PurgeQueue(9, "t", "q")),
    "remove scattered": (held_in_part, ask.RemoveMessages(9, "t", "q", SCATTERED)),
    "remove many runs": (ready, ask.RemoveMessages(9, "t", "q", SCATTERED)),
    "delete with consumers": (consumers, ask.DeleteQueue(9, "t", "q")),
    "delete with groups": (groups, ask.DeleteQueue(9, "t", "q")),
    "delete a group with consumers": (crowd, ask.DeleteGroup(9, "t", "q", "g")),
    "seek a group with consumers": (crowd, ask.SeekGroup(9, "t", "q", "g", ask.StartAt.BEGINNING)),
    "commit with other stages": (stages, ask.DecideTransaction(9, "t", "app", 1, ["s0"])),
    "commit of very many stages": (stages, ask.DecideTransaction(9, "t", "app", 1, STAGES)),
    "drop stages": (stages, ask.DropStages(9, "t", [stage_name("app", 1, stage) for stage in STAGES])),
    "commit of a cursor": (cursor, ask.CommitCursor(1, "t", "q", "c", EPOCH, MANY + 1)),
    "commit of a cursor that holds": (
        lambda: cursor(hold_ms=1_000),
        ask.CommitCursor(1, "t", "q", "c", EPOCH, MANY + 1),
    ),
    "reject at": (whole_cursor, ask.RejectAt(1, "t", "q", "c", [(s, "bad") for s in range(1, MANY + 1)])),
    "quarantine of one run": (whole_cursor, ask.Quarantine(1, "t", "q", "c", [(1, MANY)])),
    "quarantine of many runs": (whole_cursor, ask.Quarantine(1, "t", "q", "c", SCATTERED)),
    "close with messages": (held, ask.CloseSession(1, clean=False)),
    "close cleanly with messages": (held, ask.CloseSession(1, clean=True)),
    "close with consumers": (consumers, ask.CloseSession(1, clean=False)),
    "end consumers": (consumers, ask.EndConsumers(1, QueueNotFound)),
    "end a consumer with messages": (held, ask.EndConsumers(1, QueueNotFound)),
    "refuse what waits for room": (parked, ask.EndConsumers(1, lambda queue: None, lambda queue: NotAuthorized("no"))),
}
INSTRUCTIONS_MAX = 160_000
"""Of bytecode in one step: about 2 ms. In one piece these take from ten to fifty times as many."""


def advance(driver: Driver, commands: list[Command]) -> int:
    batch, steps = Batch(commands), 0
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        steps += 1
    return steps


def test_a_list_takes_more_steps_the_more_patterns_a_name_is_compared_to() -> None:
    driver = Driver()
    for number in range(600):
        driver.create(f"q{number:03}")
    listing = partial(ask.ListQueues, 9, "t", limit=100, visible=lambda name: False)
    assert [advance(driver, [listing(patterns=patterns)]) for patterns in (0, 30, 960)] == [1, 5, 121]


@pytest.mark.parametrize("name", LONG)
def test_a_long_command_takes_steps_that_come_to_the_same_as_the_whole(name: str) -> None:
    world, command = LONG[name]
    whole, cut = world(), world()
    whole.handle(command)
    outcomes: list[Outcome] = []
    batch, steps = Batch([command, Publish(8, "behind", "other", rows_of(1), create=True)]), []
    while not batch.done:
        assert batch.place or cut.answer("t") is None, "answered before the end"
        steps.append(sum(instructions(lambda: outcomes.append(cut.engine.advance(batch, cut.now))).values()))
        cut.submit(outcomes.pop())
    assert len(steps) > 1
    assert max(steps) <= INSTRUCTIONS_MAX, sorted(steps)[-5:]
    for driver in (whole, cut):
        driver.check()
    if getattr(command, "token", None) is not None:
        assert cut.answer("t") == whole.answer("t")
        told = [effect.token for effect in cut.effects if isinstance(effect, Reply)][-2:]
        assert told == ["t", "behind"]
    if cut.engine.queue_info("q") is not None:
        assert cut.info() == whole.info()
    assert cut.engine.queue_info("q") == whole.engine.queue_info("q")
    assert cut.engine.dead_count == whole.engine.dead_count


@pytest.mark.parametrize("verb", ["commit", "drop"])
def test_very_many_stages_that_nobody_has_written_are_looked_for_in_steps(verb: str) -> None:
    driver = stages()
    names = [f"none-{number}" for number in range(10 * MANY)]
    commit = ask.DecideTransaction(9, "t", "app", 1, names)
    drop = ask.DropStages(9, "t", [stage_name("app", 1, name) for name in names])
    batch, outcomes = Batch([commit if verb == "commit" else drop]), list[Outcome]()
    while not batch.done:
        step = instructions(lambda: outcomes.append(driver.engine.advance(batch, driver.now)))
        assert sum(step.values()) <= INSTRUCTIONS_MAX
        driver.submit(outcomes.pop())
    if verb == "commit":
        assert isinstance(refusal := driver.answer("t"), StageNotFound)
        assert f"{10 * MANY} of {10 * MANY} stages" in str(refusal)
    driver.check()


@pytest.mark.parametrize("hold_ms", [0, 1_000])
def test_a_commit_that_a_crash_interrupts_holds_whole(hold_ms: int) -> None:
    driver = cursor(hold_ms=hold_ms)
    batch = Batch([ask.CommitCursor(1, "t", "q", "c", EPOCH, MANY + 1)])
    driver.submit(driver.engine.advance(batch, driver.now))
    assert not batch.done
    driver.restart()
    driver.advance(1_001)
    group = next(group for group in driver.info().groups if group.cursor)
    assert (group.head, group.waiting) == (MANY + 1, 0)
    driver.check()


def test_a_seek_ends_a_commit_that_is_carried_out() -> None:
    driver = cursor()
    batch = Batch([ask.CommitCursor(1, "t", "q", "c", EPOCH, MANY + 1)])
    driver.submit(driver.engine.advance(batch, driver.now))
    driver.handle(ask.SeekGroup(2, None, "q", "c", ask.StartAt.BEGINNING))
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    group = next(group for group in driver.info().groups if group.cursor)
    assert (group.head, group.waiting) == (1, MANY // 2)
    driver.check()


@pytest.mark.parametrize("times", [1, 2])
def test_a_group_that_is_put_before_very_many_scattered_messages_costs_little_for_each(times: int) -> None:
    driver = ready()
    command = ask.SeekGroup(9, None, "q", "second", ask.StartAt.BEGINNING)
    for _ in range(times - 1):
        driver.handle(command)
    outcomes: list[Outcome] = []
    taken = sum(instructions(lambda: outcomes.append(driver.engine.handle([command], driver.now))).values())
    assert taken <= 250 * MANY // 2
    driver.submit(outcomes.pop())
    group = next(group for group in driver.info().groups if group.name == "second")
    assert group.waiting == MANY // 2
    driver.check()


def test_what_is_acknowledged_in_time_does_not_time_out_between_two_steps() -> None:
    driver = with_history()
    driver.subscribe(1, capacity_messages=8 * MANY, ack_timeout_ms=5_000)
    driver.take()
    batch = Batch([Settle(1, "t", 1, Settlement.ACK, [(1, 8 * MANY)])])
    driver.submit(driver.engine.advance(batch, driver.now))
    assert not batch.done
    driver.advance(5_100)
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    info = driver.info()
    assert (info.ready, info.delayed, info.in_flight) == (0, 0, 0)
    driver.check()
