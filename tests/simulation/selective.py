"""As `test_engine_chaos`, where most consumers have selectors, and some queues hold up what is behind a failed message.

- nobody is given what its selector does not match
- when everything is told, nobody with room waits for a message that is there for it
- a message that has failed in a queue that holds up others is not handed out before its backoff is over
"""

from typing import Any

from tests.simulation.test_engine_chaos import Chaos
from vibemq.engine.backoff import retry_delay_ms
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.model.commands import Command, CreateQueue, Settle, Subscribe
from vibemq.model.effects import Deliver, Effect
from vibemq.model.options import QueueOptions
from vibemq.model.selector import Selector

SELECTORS = [None, *map(Selector.parse, ("n % 2 == 0", "n % 2 == 1", "n % 3 == 0", "n > 20", "n < 0", "missing"))]


HOLDING = {"hold_behind_failed": True, "retry_base_ms": 300, "retry_max_ms": 900, "max_attempts": 5}


class SelectiveChaos(Chaos):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.with_own_delay: set[int] = set()
        """Sequences that some consumer has given back with a delay of its own, in whichever queue."""
        # Outside of what is checked: the answers of the others are counted.
        self.driver.watch = lambda effects: None
        self.driver.create("q1", **HOLDING)
        self.driver.watch = self.watch

    def live(self, steps: int) -> None:
        super().live(steps)
        self.driver.looks = True
        while self.driver.questions:
            self.driver.look(self.driver.questions.pop(0))
        self.driver.advance(10_000)
        self.driver.check()
        for queue in self.driver.engine._state.queues.values():
            for group in queue.groups.values():
                if group.routes is not None and not group.held_up:
                    self.check_nobody_waits(queue, group)

    def command(self) -> Command:
        if self.random.random() < 0.1:
            # Answers come late, and together.
            self.driver.looks = not self.driver.looks
        command = super().command()
        if isinstance(command, Settle) and command.delay_ms is not None:
            self.with_own_delay.update(sequence for first, last in command.runs for sequence in range(first, last + 1))
        return command

    def crash(self) -> None:
        self.driver.questions.clear()
        super().crash()

    def subscribe(self) -> Command:
        command: Any = super().subscribe()
        assert isinstance(command, Subscribe)
        command.where, command.weight = self.random.choice(SELECTORS), self.random.choice([1, 1, 3])
        return command

    def create(self) -> Command:
        command: Any = super().create()
        assert isinstance(command, CreateQueue)
        assert isinstance(command.options, QueueOptions)
        only = command.options.is_fan_out and self.random.random() < 0.5
        command.options = command.options.with_changes(**HOLDING, highest_priority_only=only)
        return command

    def watch(self, effects: list[Effect]) -> None:
        super().watch(effects)
        for effect in effects:
            if isinstance(effect, Deliver):
                self.check_wanted(effect)

    def check_wanted(self, deliver: Deliver) -> None:
        state = self.driver.engine._state
        consumer = state.consumer(deliver.session, deliver.consumer)
        selector = consumer.selector if consumer is not None else None
        for first, last in deliver.runs:
            for sequence in range(first, last + 1):
                wanted = selector is None or selector.matches({"n": sequence})
                assert wanted, f"{sequence} is not what {selector} wants"
        queue = state.queues_by_id[deliver.queue_id]
        if not queue.options.hold_behind_failed:
            return
        for sequence, failed in (deliver.failed or {}).items():
            group = next(group for group in queue.groups.values() if group.group_id == deliver.group_id)
            if sequence in self.with_own_delay:
                continue
            wait_ms = retry_delay_ms(failed, base_ms=300, max_ms=900, jitter=1)
            since = self.driver.now - group.attempts[sequence].last_failed_at
            assert since >= wait_ms, f"{sequence} has failed {failed} times and comes back after {since} ms"

    def check_nobody_waits(self, queue: Queue, group: Group) -> None:
        routes = group.routes
        assert routes is not None
        waiting = [sequence for first, last in group.ready.runs() for sequence in range(first, last + 1)]
        lines = sorted(routes.lines.values(), key=lambda line: -line.priority)
        for sequence in waiting:
            meant = [line for line in lines if line.selector is None or line.selector.matches({"n": sequence})]
            for line in meant:
                if line.priority == meant[0].priority and line.has_room():
                    raise AssertionError(f"{sequence} of {queue.name!r} waits in vain for {line.selector}")
