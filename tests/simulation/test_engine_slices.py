"""As `test_engine_chaos`, with steps so short that every long command takes many, and those of all sessions mixed:
whatever one command finds in its next slice, others have been at it in between.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import sequences
from tests.simulation.test_engine_chaos import Chaos
from vibemq.engine import Batch
from vibemq.errors import VibeMQError
from vibemq.model.commands import (
    CloseSession,
    Command,
    CreateQueue,
    Publish,
    RemoveMessages,
    SeekGroup,
    Settle,
    StartAt,
    Subscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.model.options import DeliveryMode, Overflow, QueueOptions


@pytest.fixture(params=[2, 7], ids=lambda units: f"{units} units")
def short_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    with steps_of(request.param):
        yield


class Interleaved(Chaos):
    """Each session's batches are carried out in order, and steps of different sessions in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.running: dict[int, list[Batch]] = {}
        self.closed: set[int] = set()
        self.consumer_number = 0

    def live(self, steps: int) -> None:
        for step in range(steps):
            self.driver.now += self.random.choice([0, 0, 0, 1, 50, 700])
            self.driver.hold = self.random.random() < 0.6
            if self.random.random() < 0.3:
                self.driver.tick()
            chance = self.random.random()
            if chance < 0.10:
                self.driver.keep(self.random.choice([1, None]))
            elif chance < 0.12:
                self.driver.refuse()
            elif chance < 0.125 and step > 50:
                self.running.clear()
                self.crash()
            elif chance < 0.45:
                self.line_up(self.batch())
            else:
                self.go_on()
            self.driver.check()
        self.driver.hold = False
        while any(self.running.values()):
            self.go_on()
            self.driver.check()
        self.driver.keep()
        self.driver.advance(20_000)
        self.driver.keep()
        self.driver.check()
        assert not [c for c in self.open.values() if not (isinstance(c, Publish) and c.session in self.closed)]

    def line_up(self, commands: list[Command]) -> None:
        by_session: dict[int, list[Command]] = {}
        for command in commands:
            by_session.setdefault(getattr(command, "session", 3), []).append(command)
        for session, some in by_session.items():
            self.running.setdefault(session, []).append(Batch(some))

    def go_on(self) -> None:
        live = [session for session, batches in self.running.items() if batches]
        if not live:
            return
        session = self.random.choice(live)
        batch = self.running[session][0]
        self.driver.submit(self.driver.engine.advance(batch, self.driver.now))
        assert batch.fault is None, batch.fault
        if batch.done:
            self.running[session].pop(0)

    def watch(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    command = self.open.pop(effect.token)
                    self.check_reply(command, effect.result)
                    if isinstance(command, Subscribe) and isinstance(effect.result, VibeMQError):
                        self.consumers.pop((command.session, command.consumer), None)
                case ConsumerEnded():
                    self.held.pop((effect.session, effect.consumer), None)
                    self.consumers.pop((effect.session, effect.consumer), None)
                case Deliver():
                    self.check_readable(effect)
                    if not effect.settled:
                        key = (effect.session, effect.consumer)
                        self.held.setdefault(key, []).extend(sequences(effect.runs))

    def subscribe(self) -> Command:
        """A number is given once, as every protocol does it."""
        command: Any = super().subscribe()
        self.consumers.pop((command.session, command.consumer), None)
        self.consumer_number += 1
        command.consumer = self.consumer_number
        self.consumers[command.session, command.consumer] = command.queue
        return command

    def settle(self) -> Command:
        command = super().settle()
        assert isinstance(command, Settle)
        if self.random.random() < 0.3:
            command.runs = [(1, self.random.randint(1, 200))]
        return command

    def remove(self) -> Command:
        command = super().remove()
        assert isinstance(command, RemoveMessages)
        command.runs = [(sequence, sequence) for sequence in range(1, 80, 2)]
        return command

    def close(self) -> Command:
        session = self.random.choice([1, 2, *range(10, 17)])
        self.closed.add(session)
        for key in [key for key in self.consumers if key[0] == session]:
            del self.consumers[key]
            self.held.pop(key, None)
        return CloseSession(session, self.random.random() < 0.5)


class Parking(Interleaved):
    """Publishers that wait for room in a queue with more groups than a step looks at."""

    GROUPS = tuple(f"g{number}" for number in range(14))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        options = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK, max_messages=8, overflow=Overflow.BLOCK_PUBLISHER)
        self.driver.handle(
            CreateQueue(9, None, "q1", options),
            *(SeekGroup(9, None, "q1", group, StartAt.NOW) for group in self.GROUPS),
        )

    def queue(self) -> str:
        return "q1"

    def command(self) -> Command:
        makers = [self.publish, self.publish, self.seek, self.subscribe, self.settle, self.unsubscribe, self.capacity]
        return self.random.choice(makers)()

    def publish(self) -> Command:
        command = super().publish()
        assert isinstance(command, Publish)
        command.extras = None
        return command

    def seek(self) -> Command:
        group = self.random.choice(self.GROUPS)
        return self.token(SeekGroup(3, None, "q1", group, StartAt.NOW))

    def subscribe(self) -> Command:
        command: Any = super().subscribe()
        command.group = self.random.choice(self.GROUPS)
        return command


@pytest.mark.parametrize("seed", [*range(8), 13, 28, 63, 81, 90, 96, 178, 212])
def test_publishers_go_on_as_soon_as_there_is_room_in_very_many_groups(seed: int) -> None:
    with steps_of(2):
        Parking(seed).live(300)


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("seed", [*range(10), 95, 250, 450, 856])
def test_the_promises_hold_whatever_comes_between_two_slices(seed: int) -> None:
    Interleaved(seed).live(300)
