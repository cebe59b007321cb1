"""What is noted of messages that are gone is forgotten in small steps, and of no others."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.test_scaling import World, cost, rows_of
from vibemq.engine.queue import collecting as collecting_module
from vibemq.engine.queue import queue as queue_module
from vibemq.engine.queue.queue import Queue
from vibemq.model import commands as ask
from vibemq.model.commands import Settlement, StartAt
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Retention

FAR = 1 << 40
N = 600


def queue_of(world: World) -> Queue:
    return world.engine._state.queues["q"]


def publish(world: World, count: int, **extra: Any) -> None:
    world.do(ask.Publish(9, "t", "q", rows_of(count), {i: MessageExtra(**extra) for i in range(count)} or None))


# -- what a step costs ------------------------------------------------------------------------------------------------


def expiring(world: World, count: int) -> None:
    publish(world, count, expires_at=FAR)


def delayed(world: World, count: int) -> None:
    publish(world, count, deliver_at=FAR)


def prior(world: World, count: int) -> None:
    publish(world, count, priority=2)


def plain(world: World, count: int) -> None:
    """Of sizes that share no chunk."""
    for _ in range(count):
        world.now += 100_000
        world.publish(1)


@pytest.mark.parametrize("noted", [expiring, delayed, prior, plain])
@pytest.mark.parametrize("kept", ["none", "every other"])
def test_no_publish_pays_for_all_that_is_noted(noted: Callable[[World, int], None], kept: str) -> None:
    """The most expensive of the publishes, the first of which finds that it is time to look at the notes."""

    def dearest(count: int) -> int:
        world = World()
        world.create(mode=DeliveryMode.PRIORITY_BASED)
        for _ in range(8):
            noted(world, count // 8)
        gone = [(1, count)] if kept == "none" else [(s, s) for s in range(1, count, 2)]
        world.do(ask.RemoveMessages(9, "t", "q", gone))
        queue_of(world).collect_at = 1
        costs = []
        while queue_of(world).collect_at == 1:
            costs.append(cost(lambda: noted(world, 1)))
            assert len(costs) < count, "it is not over before the notes have doubled"
        return max(costs)

    small, big = dearest(2 * N), dearest(8 * N)
    assert big <= 1.5 * small, f"{small} instructions with {2 * N}, {big} with {8 * N}"


# -- what is kept -----------------------------------------------------------------------------------------------------

ACTIONS = ["plain", "prior", "expiring", "delayed", "subscribe", "settle", "retry", "seek", "remove", "wait", "leave"]
options = st.sampled_from([{}, {"mode": DeliveryMode.PRIORITY_BASED}, {"retention": Retention.LOG}])


@settings(max_examples=150, deadline=None)
@given(options, st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(1, 6)), max_size=40))
def test_what_a_group_can_still_get_is_noted(created: dict[str, Any], actions: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_AT_LEAST": 1, "_UNITS": 1, "_UNITS_PER_NOTE": 0.5}.items():
            patch.setattr(collecting_module, name, value)
        for name, value in {"_COLLECT_AT_LEAST": 1, "_NOTES_TOGETHER": 2, "_CHUNKS_TOGETHER": 1}.items():
            patch.setattr(queue_module, name, value)
        patch.setattr(queue_module, "_MESSAGES_TOGETHER", 3)
        world = World()
        world.create(**created)
        noted: dict[int, MessageExtra] = {}
        for action in actions:
            play(world, noted, *action)
            assert_noted(world, noted)


def play(world: World, noted: dict[int, MessageExtra], action: str, which: int, count: int) -> None:
    queue = queue_of(world)
    extra = {
        "prior": {"priority": 2},
        "expiring": {"expires_at": world.now + count * 10_000},
        "delayed": {"deliver_at": world.now + count * 10_000},
    }.get(action)
    commands: list[ask.Command] = []
    match action:
        case "plain" | "prior" | "expiring" | "delayed":
            world.now += 70_000 * (which == 3)
            first = queue.next_sequence
            publish(world, count, **(extra or {}))
            noted |= {first + index: MessageExtra(**(extra or {})) for index in range(count)}
        case "subscribe":
            commands = [ask.Subscribe(which, "t", 1, "q", group=f"g{which % 2}", capacity_messages=count)]
        case "settle" | "retry":
            world.settle(Settlement.ACK if action == "settle" else Settlement.RETRY)
        case "seek":
            start = StartAt.NOW if count == 1 else StartAt.BEGINNING
            commands = [ask.SeekGroup(9, "t", "q", f"g{which}", start)]
        case "remove":
            commands = [ask.RemoveMessages(9, "t", "q", [(which * 5 + 1, which * 5 + count)])]
        case "wait":
            world.now += count * 10_000
            world.follow(world.engine.tick(world.now), strict=False)
        case "leave":
            commands = [ask.CloseSession(which, clean=False)]
    for command in commands:
        world.follow(world.engine.handle([command], world.now), strict=False)
    if action == "leave":
        world.delivers = [deliver for deliver in world.delivers if deliver.session != which]


def assert_noted(world: World, noted: dict[int, MessageExtra]) -> None:
    queue = queue_of(world)
    wanted = queue._unsettled()
    for run in queue.log.runs() if queue.log is not None else ():
        wanted.add(*run)
    sizes = queue.sizes
    for sequence in wanted:
        extra = noted[sequence]
        assert sizes.between(sequence, sequence) > 0
        assert sizes.published_at(sequence) > 0
        if queue.levels is not None and extra.priority == 2:
            assert sequence in queue.levels[2]
        if extra.expires_at:
            assert queue.expires[sequence] == extra.expires_at
        if extra.deliver_at > world.now:
            assert queue.delayed[sequence] == extra.deliver_at
    assert sizes.between(1, queue.next_sequence) == sizes.total


def test_of_messages_that_are_gone_nothing_stays() -> None:
    world = World()
    world.create(mode=DeliveryMode.PRIORITY_BASED)
    for noted in (expiring, delayed, prior, plain):
        noted(world, N)
    world.do(ask.RemoveMessages(9, "t", "q", [(1, 4 * N)]))
    queue = queue_of(world)
    queue.collect_at = 1
    while queue.collect_at == 1:
        world.publish(1)
    assert queue.published < 6 * N
    assert (len(queue.expires), len(queue.delayed), queue.levels) == (0, 0, {})
    assert queue.weight() < N


def test_a_walk_asks_very_many_groups_a_few_at_a_time() -> None:
    def dearest(groups: int) -> int:
        world = World()
        world.create()
        expiring(world, N)
        for number in range(groups):
            world.do(ask.SeekGroup(9, "t", "q", f"g{number}", StartAt.BEGINNING))
        world.do(ask.RemoveMessages(9, "t", "q", [(s, s) for s in range(1, N, 2)]))
        queue_of(world).collect_at = 1
        costs = []
        while queue_of(world).walk is not None or not costs:
            costs.append(cost(lambda: collecting_module.collect(queue_of(world))))
        return max(costs)

    small, big = dearest(32), dearest(128)
    assert big <= 1.6 * small, f"{small} instructions with 32 groups, {big} with 128"
