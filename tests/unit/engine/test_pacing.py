import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver
from vibemq.engine.pacing import STEP_UNITS, paced
from vibemq.model.commands import Command, Extend, Publish, Settle, Settlement
from vibemq.model.effects import Reply
from vibemq.model.rows import Rows

runs = st.lists(st.tuples(st.integers(1, 9_000), st.integers(0, 900)).map(lambda p: (p[0], p[0] + p[1])), max_size=900)


@given(st.lists(st.tuples(st.sampled_from(Settlement), runs), max_size=4))
def test_steps_are_short_and_hold_everything_in_order(asked: list[tuple[Settlement, list[tuple[int, int]]]]) -> None:
    commands: list[Command] = [Settle(1, token, 1, verb, wanted) for token, (verb, wanted) in enumerate(asked)]
    steps = list(paced(commands))
    found: list[tuple[Settlement, int]] = []
    for step in steps:
        settles = [command for command in step if isinstance(command, Settle)]
        if len(steps) > 1:
            assert sum(map(_units, settles)) <= STEP_UNITS
        found += [(c.verb, s) for c in settles for first, last in c.runs for s in range(first, last + 1)]
    assert found == [(verb, s) for verb, wanted in asked for first, last in wanted for s in range(first, last + 1)]
    answered = [command.token for step in steps for command in step if isinstance(command, Settle)]
    assert [token for token in answered if token is not None] == list(range(len(asked)))


def _units(command: Settle) -> int:
    return sum(1 if command.verb is Settlement.ACK else last - first + 1 for first, last in command.runs)


def test_a_short_batch_is_left_as_it_is() -> None:
    batch: list[Command] = [Publish(1, "a", "q", Rows.of([b"x"])), Settle(1, "b", 1, Settlement.ACK, [(1, 10_000_000)])]
    [step] = paced(batch)
    assert step is batch


@pytest.mark.parametrize("verb", Settlement)
def test_pieces_come_to_the_same_as_the_whole(verb: Settlement) -> None:
    whole, pieces = Driver(), Driver()
    for driver in (whole, pieces):
        driver.create(max_attempts=2)
        driver.publish(4_000)
        driver.subscribe(1, capacity_messages=4_000)
    wanted = [(first, first + 1) for first in range(1, 3_999, 3)]
    batch: list[Command] = [
        Settle(1, "settled", 1, verb, wanted),
        Extend(1, "extended", 1, [(s, s) for s in range(3, 4_000, 3)], 60_000),
    ]
    whole.handle(*batch)
    steps = list(paced(batch))
    assert len(steps) > 2
    for step in steps:
        pieces.handle(*step)
    for driver in (whole, pieces):
        driver.check()
    told = [[e.token for e in driver.effects if isinstance(e, Reply)][-2:] for driver in (whole, pieces)]
    assert told == [["settled", "extended"]] * 2
    assert whole.info() == pieces.info()


@pytest.mark.parametrize("verb", [Settlement.RETRY, Settlement.RELEASE, Settlement.REJECT])
def test_a_range_that_nobody_holds_is_no_work(verb: Settlement) -> None:
    command = Settle(1, "t", 1, verb, [(1, 1 << 62)])
    assert list(paced([command], lambda session, consumer: 0)) == [[command]]
    assert len(list(paced([command], lambda session, consumer: 10 * STEP_UNITS))) <= 11
