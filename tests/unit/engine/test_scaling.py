"""What a step costs when the broker is big: counted in bytecode instructions, at n and at 4n of everything.

Every command, and every other step of the engine, is tried in every world: many queues, groups, consumers, and so on.
A command that is not in `ASKED` fails the test, so a new handler cannot escape. Its cost must not depend on n, unless
`LINEAR` says why it may grow with n; it must never grow faster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import rows_of
from vibemq.engine import Engine, EngineSettings
from vibemq.model import commands as ask
from vibemq.model.commands import Settlement
from vibemq.model.effects import Deliver, Outcome, Reply
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import MessageExtra

N = 64
NEAR_LINEAR = 4.8
"""Four times as much may cost so much more, logarithms and doubled tables included."""
CONSTANT = 1.6
"""A world four times as big may cost so much more where n must not matter."""


@dataclass
class World:
    """An engine whose every write is durable at once."""

    now: int = 1_000_000
    delivers: list[Deliver] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = count()
        self.engine = Engine(EngineSettings(), jitter=lambda: 0.5, new_id=lambda: f"{next(ids):032x}")

    def do(self, *commands: ask.Command) -> None:
        self.follow(self.engine.handle(commands, self.now))

    def follow(self, outcome: Outcome) -> None:
        self.delivers += [effect for effect in outcome.effects if isinstance(effect, Deliver)]
        for effect in outcome.effects + outcome.gated:
            if isinstance(effect, Reply) and isinstance(effect.result, Exception):
                raise effect.result
        if outcome.ticket:
            self.follow(self.engine.committed(outcome.ticket, self.now))

    def create(self, queue: str = "q", **options: Any) -> None:
        self.do(ask.CreateQueue(9, "t", queue, QueueOptions(**options)))

    def publish(self, number: int = 1, queue: str = "q", **extra: Any) -> None:
        extras = {index: MessageExtra(**extra) for index in range(number)} if extra else None
        self.do(ask.Publish(9, "t", queue, rows_of(number), extras))

    def subscribe(self, session: int, queue: str = "q", capacity: int = 1, **options: Any) -> None:
        self.do(ask.Subscribe(session, "t", 1, queue, capacity_messages=capacity, **options))

    def settle(self, verb: Settlement = Settlement.ACK) -> None:
        """Everything that was handed out, one command for each hand-out."""
        delivers, self.delivers = self.delivers, []
        for deliver in delivers:
            self.do(ask.Settle(deliver.session, "t", deliver.consumer, verb, deliver.runs))


def cost(work: Callable[[], object]) -> int:
    return sum(instructions(work).values())


# -- n steps of one kind ------------------------------------------------------------------------------------------


def fan_out_subscribers(n: int) -> Iterator[None]:
    world = World()
    world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    yield
    for session in range(n):
        world.subscribe(session)


def fan_out_deliveries(n: int) -> Iterator[None]:
    world = World()
    world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for session in range(n):
        world.subscribe(session)
    yield
    world.publish(3)
    for _ in range(3):
        world.settle()
    assert not world.engine.in_flight_count


def fan_out_timeouts(n: int) -> Iterator[None]:
    """Each subscriber's deadline is an instant of its own."""
    world = World()
    world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, max_attempts=9)
    world.publish()
    for session in range(n):
        world.now += 7
        world.subscribe(session, group=f"g{session}", start=ask.StartAt.BEGINNING)
    assert world.engine.in_flight_count == n
    world.now += 29_000
    yield
    for _ in range(n):
        at = world.engine.next_deadline()
        assert at is not None
        world.now = at
        world.follow(world.engine.tick(world.now))


def fan_out_leavers(n: int) -> Iterator[None]:
    world = World()
    world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for session in range(n):
        world.subscribe(session)
    world.publish(3)
    yield
    for session in range(n):
        world.do(ask.CloseSession(session, clean=False))


def readers_from_the_beginning(n: int) -> Iterator[None]:
    world = World()
    world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    world.publish(10)
    yield
    for session in range(n):
        world.subscribe(session, group=f"g{session}", start=ask.StartAt.BEGINNING)


def cursors(n: int) -> Iterator[None]:
    world = World()
    world.create()
    world.publish(10)
    yield
    for index in range(n):
        world.do(ask.JoinCursor(1, "t", "q", f"g{index}"))
        world.follow(world.engine.tick(world.now))


def sharers(n: int) -> Iterator[None]:
    world = World()
    world.create()
    yield
    for session in range(n):
        world.subscribe(session)


def sharers_of_a_backlog(n: int) -> Iterator[None]:
    """All of them are full all the time but for the one that has just settled."""
    world = World()
    world.create()
    world.publish(1_000)
    for session in range(n):
        world.subscribe(session)
    yield
    world.settle()


def sharers_that_leave(n: int) -> Iterator[None]:
    world = World()
    world.create()
    world.publish(1_000)
    for session in range(n):
        world.subscribe(session)
    yield
    for session in range(n):
        world.do(ask.CloseSession(session, clean=False))


REPEATED = [
    fan_out_subscribers,
    fan_out_deliveries,
    fan_out_timeouts,
    fan_out_leavers,
    readers_from_the_beginning,
    cursors,
    sharers,
    sharers_of_a_backlog,
    sharers_that_leave,
]


@pytest.mark.parametrize("steps", REPEATED)
def test_many_steps_cost_in_proportion_to_their_number(steps: Callable[[int], Iterator[None]]) -> None:
    small, big = (_cost_of(steps(n)) for n in (N, 4 * N))
    assert big <= NEAR_LINEAR * small, f"{small} instructions for {N}, {big} for {4 * N}"


def _cost_of(steps: Iterator[None]) -> int:
    next(steps)
    return cost(lambda: next(steps, None))
