"""What a step costs when the broker is big: counted in bytecode instructions, at n and at 4n of everything.

Every command, and every other step of the engine, is tried in every world: many queues, groups, consumers, and so on.
A command that is not in `ASKED` fails the test, so a new handler cannot escape. Its cost must not depend on n, unless
`LINEAR` says why it may grow with n; it must never grow faster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, get_args

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import rows_of
from vibemq.engine import Engine, EngineSettings
from vibemq.engine.command_handlers import HANDLERS
from vibemq.engine.stage_names import plain_stage
from vibemq.errors import QueueNotFound, StorageFull
from vibemq.model import commands as ask
from vibemq.model.commands import Settlement
from vibemq.model.effects import Deliver, Incomplete, Outcome, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, JobStep
from vibemq.model.options import DeliveryMode, Overflow, QueueOptions, Retention
from vibemq.model.records import UserRemoved, tag_of
from vibemq.model.selector import Selector

SUBSCRIBER, OPERATOR = 902, 9
N = 32
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

    def turn(self) -> None:
        """What a turn of the loop has behind its steps: a tick goes on with what they have carried."""
        if (due := self.engine.next_deadline()) is not None and due <= self.now:
            self.follow(self.engine.tick(self.now))

    def follow(self, outcome: Outcome, *, strict: bool = True) -> None:
        self.delivers += [effect for effect in outcome.effects if isinstance(effect, Deliver)]
        for effect in outcome.effects + outcome.gated:
            if strict and isinstance(effect, Reply) and isinstance(effect.result, Exception):
                raise effect.result
        shown: Outcome | None = Incomplete() if outcome.ticket else None
        while isinstance(shown, Incomplete):
            shown = self.engine.committed(outcome.ticket, self.now)
            self.follow(shown)

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
            self.turn()


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
    world.turn()
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
    world.turn()
    yield
    for session in range(n):
        world.do(ask.CloseSession(session, clean=False))
        world.turn()


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


def publishes_into_a_full_queue_with_holes(n: int) -> Iterator[None]:
    world = World()
    world.create(overflow=Overflow.DROP_OLDEST, max_messages=n)
    world.publish(2 * n)
    world.do(ask.RemoveMessages(9, "t", "q", [(s, s) for s in range(n + 1, 2 * n, 2)]))
    world.publish(n // 2)
    yield
    for _ in range(n):
        world.publish()


def publishes_into_a_full_queue_held_in_pieces(n: int) -> Iterator[None]:
    world = World()
    world.create(overflow=Overflow.DROP_OLDEST, max_messages=n)
    world.publish(2 * n)
    world.subscribe(1, capacity=2 * n)
    world.do(ask.Settle(1, "t", 1, Settlement.ACK, [(s, s) for s in range(1, 2 * n, 2)]))
    world.do(ask.SetCapacity(1, "t", 1, 0))
    world.publish(n)
    yield
    for _ in range(n):
        world.publish()


def publishes_into_a_full_log_with_holes(n: int) -> Iterator[None]:
    world = World()
    world.create(retention=Retention.LOG, retain_messages=n)
    world.publish(n)
    world.do(ask.RemoveMessages(9, "t", "q", [(s, s) for s in range(1, n, 2)]))
    world.publish(n // 2)
    yield
    for _ in range(n):
        world.publish()


def settlements_here_and_there(n: int) -> Iterator[None]:
    world = World()
    world.create()
    world.publish(2 * n)
    world.subscribe(1, capacity=2 * n)
    yield
    for first in (1, 2):
        for sequence in range(first, 2 * n + 1, 2):
            world.do(ask.Settle(1, "t", 1, Settlement.ACK, [(sequence, sequence)]))


REPEATED = [
    publishes_into_a_full_queue_with_holes,
    publishes_into_a_full_queue_held_in_pieces,
    publishes_into_a_full_log_with_holes,
    settlements_here_and_there,
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


# -- one step in a world that is big in one way ---------------------------------------------------------------------


def a_world() -> World:
    """One queue with a subscriber, a cursor, something ready, something held, and a dead letter; and a stage."""
    world = World()
    world.create()
    world.do(ask.JoinCursor(OPERATOR, "t", "q", "c"))
    world.publish(20)
    world.subscribe(SUBSCRIBER, capacity=4)
    world.do(ask.Settle(SUBSCRIBER, "t", 1, Settlement.REJECT, [(1, 1)]))
    world.create("other")
    stage(world, "app", 1)
    world.do(ask.Stage(OPERATOR, "t", "q", "plain", 1, "s", 0, rows_of(1)))
    return world


def stage(world: World, app: str, version: int) -> None:
    world.do(ask.Stage(OPERATOR, "t", "q", app, version, "s", 0, rows_of(1), {0: MessageExtra(2)}))


def many_queues(world: World, n: int) -> None:
    for index in range(n):
        world.create(f"q{index}")
        world.publish(2, f"q{index}")


def many_groups(world: World, n: int) -> None:
    for index in range(n):
        world.do(ask.SeekGroup(OPERATOR, "t", "q", f"g{index}", ask.StartAt.BEGINNING))


def many_cursors(world: World, n: int) -> None:
    for index in range(n):
        world.do(ask.JoinCursor(OPERATOR, "t", "q", f"c{index}"))
    world.follow(world.engine.tick(world.now))


def many_consumers(world: World, n: int) -> None:
    world.publish(2 * n)
    for index in range(n):
        world.subscribe(1_000 + index)


def many_unacked(world: World, n: int) -> None:
    first = next(reversed(world.delivers)).runs[-1][1] + 1
    world.publish(2 * n)
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 100 + 2 * n))
    world.do(ask.Settle(SUBSCRIBER, "t", 1, Settlement.ACK, [(s, s) for s in range(first + 20, first + 2 * n, 2)]))
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 4))
    world.publish(20)


def many_holes(world: World, n: int) -> None:
    world.publish(2 * n + 30)
    world.do(ask.RemoveMessages(OPERATOR, "t", "q", [(s, s) for s in range(30, 2 * n + 30, 2)]))


def many_delayed(world: World, n: int) -> None:
    # Staged before the cursor was made: a queue that has one takes delayed messages in no other way.
    stage = "~stage/1/s/later"
    world.do(ask.Stage(OPERATOR, "t", "q", "later", 1, "s", 0, rows_of(1), {0: MessageExtra(2)}))
    world.do(ask.DecideTransaction(OPERATOR, "t", "later", 1, ["s"]))
    extras = {index: MessageExtra(deliver_at=world.now + 3_600_000) for index in range(n)}
    world.do(ask.MoveStaged(OPERATOR, "t", stage, 1, "q", rows_of(n), extras))
    world.do(ask.DropStages(OPERATOR, "t", [stage]))


def many_expiring(world: World, n: int) -> None:
    world.publish(n, expires_at=world.now + 3_600_000)


def many_dead(world: World, n: int) -> None:
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 100 + n))
    world.publish(n)
    world.do(ask.Settle(SUBSCRIBER, "t", 1, Settlement.REJECT, [(25, 24 + n)]))
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 4))
    world.do(ask.PurgeDead(OPERATOR, "t", list(range(3, n, 2))))
    world.publish(20)


def many_retries(world: World, n: int) -> None:
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 100 + n))
    world.publish(n)
    world.do(ask.Settle(SUBSCRIBER, "t", 1, Settlement.RETRY, [(25, 24 + n)], delay_ms=3_600_000))
    world.do(ask.SetCapacity(SUBSCRIBER, "t", 1, 4))
    world.publish(20)


def many_dedup_ids(world: World, n: int) -> None:
    for index in range(n):
        world.publish(1, dedup_id=str(index).encode())


def many_stages(world: World, n: int) -> None:
    extra = {0: MessageExtra(2)}
    world.do(*(ask.Stage(OPERATOR, "t", "q", f"app{index}", 1, "s", 0, rows_of(1), extra) for index in range(n)))


def many_staged_messages(world: World, n: int) -> None:
    world.do(ask.Stage(OPERATOR, "t", "q", "plain", 1, "s", 1, rows_of(n)))


def many_delayed_pieces(world: World, n: int) -> None:
    """Of a stage, and of one that is committed, for a queue that has no cursor."""
    for app in ("app", "committed"):
        pieces = range(1, 2 * n)
        world.do(*(ask.Stage(OPERATOR, "t", "other", app, 1, "s", chunk, rows_of(1), delayed=True) for chunk in pieces))
    world.do(ask.DecideTransaction(OPERATOR, "t", "committed", 1, ["s"]))


def many_priorities(world: World, n: int) -> None:
    world.create("levels", mode=DeliveryMode.PRIORITY_BASED)
    for index in range(n):
        world.publish(1, "levels", priority=index % 3)


GROWN = [
    many_staged_messages,
    many_queues,
    many_groups,
    many_cursors,
    many_consumers,
    many_unacked,
    many_holes,
    many_delayed,
    many_expiring,
    many_dead,
    many_retries,
    many_dedup_ids,
    many_stages,
    many_delayed_pieces,
    many_priorities,
]
HELD = (2, 2)

ASKED: dict[type, list[Any]] = {
    ask.Publish: [
        ask.Publish(OPERATOR, "t", "q", rows_of(3)),
        ask.Publish(OPERATOR, "t", "q", rows_of(1), {0: MessageExtra(dedup_id=b"new", deliver_at=1 << 40)}),
        ask.Publish(OPERATOR, "t", "levels", rows_of(1), {0: MessageExtra(priority=2)}),
    ],
    ask.Subscribe: [
        ask.Subscribe(901, "t", 1, "q", capacity_messages=1),
        ask.Subscribe(901, "t", 1, "q", group="new", start=ask.StartAt.NOW, capacity_messages=1),
        ask.Subscribe(901, "t", 1, "levels", capacity_messages=1),
    ],
    ask.Unsubscribe: [ask.Unsubscribe(SUBSCRIBER, "t", 1)],
    ask.SetCapacity: [ask.SetCapacity(SUBSCRIBER, "t", 1, 5)],
    ask.Respond: [ask.Respond(OPERATOR, "t", "a" * 32, rows_of(1))],
    ask.GiveUp: [ask.GiveUp(OPERATOR, "t", "a" * 32)],
    ask.SetShare: [ask.SetShare(SUBSCRIBER, "t", "share", 5)],
    ask.SetFlow: [ask.SetFlow(SUBSCRIBER, open=False)],
    ask.CloseSession: [ask.CloseSession(SUBSCRIBER, clean=False), ask.CloseSession(SUBSCRIBER, clean=True)],
    ask.Classified: [ask.Classified(0, None, 1, [(1, 3, 1)])],
    ask.EndConsumers: [ask.EndConsumers(SUBSCRIBER, QueueNotFound)],
    ask.Settle: [ask.Settle(SUBSCRIBER, "t", 1, verb, [HELD]) for verb in Settlement],
    ask.Extend: [ask.Extend(SUBSCRIBER, "t", 1, [HELD])],
    ask.CreateQueue: [ask.CreateQueue(OPERATOR, "t", "new")],
    ask.ChangeQueue: [ask.ChangeQueue(OPERATOR, "t", "q", {"max_attempts": 7})],
    ask.DeleteQueue: [ask.DeleteQueue(OPERATOR, "t", "other"), ask.DeleteQueue(OPERATOR, "t", "q")],
    ask.PurgeQueue: [ask.PurgeQueue(OPERATOR, "t", "other"), ask.PurgeQueue(OPERATOR, "t", "q")],
    ask.RemoveMessages: [ask.RemoveMessages(OPERATOR, "t", "q", [(16, 17)])],
    ask.RemoveListed: [ask.RemoveListed(OPERATOR, "t", "q", [16, 17])],
    ask.DescribeQueue: [ask.DescribeQueue(OPERATOR, "t", "q")],
    ask.ListQueues: [ask.ListQueues(OPERATOR, "t")],
    ask.DeleteGroup: [ask.DeleteGroup(OPERATOR, "t", "q", "c")],
    ask.SeekGroup: [ask.SeekGroup(OPERATOR, "t", "q", "new", ask.StartAt.NOW)],
    ask.FilterGroup: [
        ask.FilterGroup(OPERATOR, "t", "q", "new", Selector.parse("n > 3"), ask.StartAt.NOW),
        ask.FilterGroup(OPERATOR, "t", "q", "new", None, ask.StartAt.NOW),
    ],
    ask.JoinCursor: [ask.JoinCursor(OPERATOR, "t", "q", "c"), ask.JoinCursor(OPERATOR, "t", "q", "new")],
    ask.CommitCursor: [ask.CommitCursor(OPERATOR, "t", "q", "c", 1, 5)],
    ask.PlanBatch: [ask.PlanBatch(OPERATOR, "t", "q", "c", 1, "tag", "end")],
    ask.EnterBatch: [
        ask.PlanBatch(OPERATOR, "t", "q", "c", 1, "tag", "end"),
        ask.EnterBatch(OPERATOR, "t", "q", "c", 1, "tag", tag_of("end"), "query", 0),
    ],
    ask.RejectAt: [ask.RejectAt(OPERATOR, "t", "q", "c", [(15, "bad")])],
    ask.Quarantine: [ask.Quarantine(OPERATOR, "t", "q", "c", [(15, 16)])],
    ask.Stage: [ask.Stage(OPERATOR, "t", "q", "app", 1, "s", 1, rows_of(1))],
    ask.DecideTransaction: [ask.DecideTransaction(OPERATOR, "t", "app", 1, ["s"])],
    ask.MoveStage: [
        ask.DecideTransaction(OPERATOR, "t", "plain", 1, ["s"]),
        ask.MoveStage(OPERATOR, "t", plain_stage("~stage/1/s/plain", "q"), "q"),
    ],
    ask.MoveStaged: [ask.MoveStaged(OPERATOR, "t", "~stage/1/s/app", 1, "q", rows_of(2))],
    ask.DropStages: [ask.DropStages(OPERATOR, "t", ["~stage/1/s/app"])],
    ask.ForgetApplication: [ask.ForgetApplication(OPERATOR, "t", "app")],
    ask.ChangeAccounts: [ask.ChangeAccounts(OPERATOR, "t", [UserRemoved("ann")])],
    ask.MoveMessages: [ask.MoveMessages(OPERATOR, "t", "q", f"{0:032x}", "other", [16, 17], [1, 1], rows_of(2))],
    ask.ImportMessages: [ask.ImportMessages(OPERATOR, "t", "q", "file", 0, rows_of(2))],
    ask.ReplayDead: [ask.ReplayDead(OPERATOR, "t", "q", [1], rows_of(1))],
    ask.PurgeDead: [ask.PurgeDead(OPERATOR, "t", [1])],
    ask.StartJob: [ask.StartJob(OPERATOR, "t", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=9))],
    ask.ChangeJob: [
        ask.StartJob(OPERATOR, "t", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=9)),
        ask.ChangeJob(OPERATOR, "t", 1, JobState.PAUSED, by="ann"),
    ],
    ask.AdvanceJob: [
        ask.StartJob(OPERATOR, "t", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=9)),
        ask.AdvanceJob(OPERATOR, "t", JobStep(1, 5, 5, 0)),
    ],
    ask.ForgetMade: [
        ask.StartJob(OPERATOR, "t", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=9)),
        ask.ForgetMade(OPERATOR, "t", 1, []),
    ],
    ask.ForgetJobs: [ask.ForgetJobs()],
    ask.SetPressure: [ask.SetPressure(ask.Pressure.BLOCKING)],
}


def _tick(world: World) -> None:
    world.follow(world.engine.tick(world.now))


def _first_timeout(world: World) -> None:
    at = world.engine.next_deadline()
    assert at is not None
    world.now = at
    _tick(world)


def _refused_publish(world: World) -> None:
    outcome = world.engine.handle([ask.Publish(OPERATOR, "t", "q", rows_of(3))], world.now)
    world.engine.failed(outcome.ticket, world.now, StorageFull("full"))
    _tick(world)


def _asking(command: Any) -> Callable[[World], None]:
    return lambda world: world.follow(world.engine.handle([command], world.now), strict=False)


STEPS: dict[str, Callable[[World], None]] = {
    "tick": _tick,
    "first timeout": _first_timeout,
    "refused publish": _refused_publish,
    **{
        f"{kind.__name__} {index}": _asking(command)
        for kind, commands in ASKED.items()
        for index, command in enumerate(commands)
    },
}

_EACH_GROUP = "every group gets, loses or shows something"
_EACH_RUN = "every run is dropped, given back or given to a new group"
_SHOWN = "an answer shows all of it"
_ENDED = "every subscription ends"

LINEAR: dict[tuple[str, str], str] = {
    **{
        (step, world): _EACH_GROUP
        for step in ("PurgeQueue 1", "RemoveMessages 0", "RemoveListed 0")
        for world in ("many_groups", "many_cursors")
    },
    ("refused publish", "many_groups"): _EACH_GROUP,
    ("refused publish", "many_cursors"): _EACH_GROUP,
    ("DeleteQueue 1", "many_groups"): _EACH_GROUP,
    ("DeleteQueue 1", "many_cursors"): _EACH_GROUP,
    ("DescribeQueue 0", "many_groups"): _SHOWN,
    ("DescribeQueue 0", "many_cursors"): _SHOWN,
    ("DescribeQueue 0", "many_consumers"): _SHOWN,
    ("DescribeQueue 0", "many_unacked"): _SHOWN,
    **{
        ("ListQueues 0", f"many_{world}"): _SHOWN
        for world in ("queues", "groups", "cursors", "consumers", "unacked", "priorities")
    },
    ("DeleteQueue 1", "many_consumers"): _ENDED,
    ("RemoveMessages 0", "many_consumers"): "whoever holds some of it keeps it",
    ("RemoveListed 0", "many_consumers"): "whoever holds some of it keeps it",
    ("PurgeQueue 1", "many_consumers"): "whoever holds some of it keeps it",
    **{
        ("PurgeQueue 1", f"many_{world}"): _EACH_RUN
        for world in ("unacked", "holes", "delayed", "retries", "expiring", "dead")
    },
    ("EndConsumers 0", "many_unacked"): _EACH_RUN,
    ("CloseSession 0", "many_unacked"): _EACH_RUN,
    ("CloseSession 1", "many_unacked"): _EACH_RUN,
    ("JoinCursor 1", "many_holes"): _EACH_RUN,
    ("JoinCursor 1", "many_delayed"): _EACH_RUN,
}
"""(step, world) -> why the step may cost in proportion to the world. Nothing else may, and nothing may cost more."""


def test_every_command_is_tried() -> None:
    assert set(ASKED) == set(get_args(ask.Command)) == set(HANDLERS)


@pytest.mark.parametrize("grow", GROWN)
def test_a_step_costs_the_same_in_a_bigger_world(grow: Callable[[World, int], None]) -> None:
    wrong: list[str] = []
    for name, step in STEPS.items():
        small, big = (_cost_in(grow, n, step) for n in (N, 4 * N))
        limit = NEAR_LINEAR if (name, grow.__name__) in LINEAR else CONSTANT
        if big > limit * small + 60:
            wrong.append(f"{name}: {small} instructions with {N}, {big} with {4 * N}")
    assert not wrong, "\n".join(wrong)


def _cost_in(grow: Callable[[World, int], None], n: int, step: Callable[[World], None]) -> int:
    world = a_world()
    grow(world, n)
    return cost(lambda: step(world))


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.DROP_OLDEST])
@pytest.mark.parametrize("limits", [{"max_messages": 1_000_000}, {"max_bytes": 1_000_000_000}])
def test_a_publish_far_from_the_limits_looks_at_no_group(overflow: Overflow, limits: dict[str, Any]) -> None:
    def cost_with(groups: int) -> int:
        world = World()
        world.create(overflow=overflow, **limits)
        many_groups(world, groups)
        world.publish(3)
        world.publish(3)

        def publish() -> None:
            outcome = world.engine.handle([ask.Publish(OPERATOR, "t", "q", rows_of(3))], world.now)
            world.engine.committed(outcome.ticket, world.now)

        return cost(publish)

    # So many that showing them the messages is the work of several steps.
    small, big = cost_with(8 * N), cost_with(32 * N)
    assert big <= CONSTANT * small, f"{small} instructions with {8 * N} groups, {big} with {32 * N}"


@pytest.mark.parametrize("retention", Retention)
def test_a_subscriber_far_behind_the_end_that_has_gone_costs_publishes_nothing(retention: Retention) -> None:
    def spent(groups: int) -> int:
        world = World()
        world.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=retention)
        for session in range(1, 1 + groups):
            world.subscribe(session, start=ask.StartAt.NOW)
        world.subscribe(SUBSCRIBER, start=ask.StartAt.SEQUENCE, start_sequence=1 << 40)
        world.do(ask.CloseSession(SUBSCRIBER, True))
        world.publish()
        return cost(lambda: world.engine.handle([ask.Publish(9, "t", "q", rows_of(1))], world.now))

    assert spent(16 * N) < CONSTANT * spent(N)


def test_publishes_up_to_a_limit_and_over_again_look_at_some_groups_each() -> None:
    """Consumers follow: with each publish what is furthest behind is some messages behind."""

    def dearest(groups: int) -> int:
        world = World()
        world.create(overflow=Overflow.DROP_NEWEST, max_messages=300)
        many_groups(world, groups)
        costs = []
        for number in range(900):
            command = ask.Publish(OPERATOR, "t", "q", rows_of(1))
            costs.append(cost(lambda command=command: world.follow(world.engine.handle([command], world.now))))
            if number % 50 == 49:
                world.do(ask.PurgeQueue(OPERATOR, "t", "q"))
        return max(costs[1:])

    small, big = dearest(8 * N), dearest(32 * N)
    assert big <= CONSTANT * small, f"{small} instructions with {8 * N} groups, {big} with {32 * N}"


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.BLOCK_PUBLISHER])
def test_a_publish_to_a_full_queue_looks_at_no_group(overflow: Overflow) -> None:
    def dearest(groups: int) -> int:
        world = World()
        world.create(overflow=overflow, max_messages=20)
        many_groups(world, groups)
        for _ in range(21):
            world.publish(1)
        costs = []
        for _ in range(20):
            command = ask.Publish(OPERATOR, "t", "q", rows_of(1))
            costs.append(cost(lambda command=command: world.engine.handle([command], world.now)))
        queue = world.engine._state.queues["q"]
        assert max(group.waiting for group in queue.groups.values()) == 20
        return max(costs)

    small, big = dearest(8 * N), dearest(32 * N)
    assert big <= CONSTANT * small, f"{small} instructions with {8 * N} groups, {big} with {32 * N}"


@pytest.mark.parametrize("ttl", ["of each message", "of the queue"])
@pytest.mark.parametrize("dead_letter", [False, True])
def test_what_expires_leaves_very_many_groups_in_steps(ttl: str, dead_letter: bool) -> None:
    def dearest(groups: int) -> int:
        world = World()
        ttl_ms = 60_000 if ttl == "of the queue" else None
        world.create(message_ttl_ms=ttl_ms, dead_letter=dead_letter)
        many_groups(world, groups)
        world.publish(3, **({} if ttl_ms else {"expires_at": world.now + 60_000}))
        while world.engine.next_deadline() == world.now:
            _tick(world)
        world.now += 100_000
        costs = []
        while (at := world.engine.next_deadline()) is not None and at <= world.now:
            costs.append(cost(lambda: _tick(world)))
            assert len(costs) < groups
        queue = world.engine._state.queues["q"]
        assert [group.unsettled for group in queue.groups.values()] == [0] * (groups + 1)
        assert (
            sum(group.counters.expired + group.counters.expired_dead for group in queue.groups.values()) >= 3 * groups
        )
        return max(costs)

    small, big = dearest(8 * N), dearest(32 * N)
    assert big <= CONSTANT * small, f"{small} instructions with {8 * N} groups, {big} with {32 * N}"
