"""As `test_engine_chaos`, where most consumers have selectors, and some queues hold up what is behind a failed message.

- nobody is given what its selector does not match
- nobody is given what a selector of a higher priority matches
- when everything is told, nobody with room waits for a message that is there for it, however little the group keeps
- where a group has a filter, nobody is given what it does not match, nothing of that waits in the end, and the looks at
  messages settle nothing else
- a message that has failed in a queue that holds up others is not handed out before its backoff is over
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.engine_driver import sequences
from tests.simulation.test_engine_chaos import Chaos
from vibemq.engine.backoff import retry_delay_ms
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.routing import routes
from vibemq.engine.queue.routing.line import Line
from vibemq.model.commands import Command, CreateQueue, FilterGroup, Settle, StartAt, Subscribe
from vibemq.model.effects import Classify, Deliver, Effect, Outcome, Responded
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import Settled
from vibemq.model.selector import Selector

SELECTORS = [None, *map(Selector.parse, ("n % 2 == 0", "n % 2 == 1", "n % 3 == 0", "n > 20", "n < 0", "missing"))]

LIMITS = {"ASKED_MESSAGES": (1, 5), "ASKED_RUNS": (1, 3), "KNOWN_RUNS_MAX": (1, 3), "BEHIND_RUNS_MAX": (1, 2)}
"""So small that every group meets them."""
HOLDING = {"hold_behind_failed": True, "retry_base_ms": 300, "retry_max_ms": 900, "max_attempts": 5}


class SelectiveChaos(Chaos):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.with_own_delay: set[int] = set()
        """Sequences that some consumer has given back with a delay of its own, in whichever queue."""
        # Outside of what is checked: the answers of the others are counted.
        self.driver.watch = lambda effects: None
        self.driver.create("q1", **HOLDING)
        fan_out = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK)
        filters = {"g": self.random.choice(SELECTORS), "h": self.random.choice(SELECTORS)}
        self.driver.ask(CreateQueue(9, None, "q2", fan_out, groups=list(filters), filters=filters))
        self.driver.watch = self.watch
        self.looked_at: Group | None = None
        """Whose messages the question is about that is being answered."""
        self.looked_at_queue = 0
        self.before: set[int] = set()
        """What it had not settled before, and what has not expired by now."""
        self.given: set[int] = set()
        """What has been handed out meanwhile."""
        self._look, self._submit = self.driver.look, self.driver.submit
        self.driver.look = self.look  # type: ignore[method-assign]
        self.driver.submit = self.submit  # type: ignore[method-assign]

    def look(self, question: Classify) -> list[Effect]:
        queue, self.looked_at = self.driver.engine._state.questioned.get(question.number, (None, None))
        self.before = set()
        if queue is not None and self.looked_at is not None:
            self.looked_at_queue = queue.queue_id
            now = self.driver.now
            ttl_ms = queue.options.message_ttl_ms
            overdue = queue.sizes.last_at(now - ttl_ms) if ttl_ms else 0
            self.before = {
                sequence
                for sequence in self.looked_at.unsettled_set()
                if sequence > overdue and not queue.is_expired(sequence, now)
            }
        self.given.clear()
        told = self._look(question)
        self.looked_at = None
        return told

    def submit(self, outcome: Outcome) -> list[Effect]:
        """What a look settles the filter does not match; unless it has been handed out meanwhile to somebody who does
        not settle."""
        # A request that has expired meanwhile is settled with it.
        group = None if any(isinstance(effect, Responded) for effect in outcome.effects) else self.looked_at
        for effect in outcome.effects:
            if isinstance(effect, Deliver):
                self.given.update(sequences(effect.runs))
        for record in outcome.records:
            if group is None or group.where is None or not isinstance(record, Settled):
                continue
            if (record.queue_id, record.group_id) == (self.looked_at_queue, group.group_id):
                # What a full disk did not take was settled earlier, perhaps by another filter.
                for sequence in ({*sequences(record.runs)} & self.before) - self.given:
                    fits = group.where.matches({"n": sequence})
                    assert not fits, f"{sequence} is settled although it matches the filter {group.where}"
        return self._submit(outcome)

    def live(self, steps: int) -> None:
        with self.limits():
            super().live(steps)
            self.let_all_be_told()

    @contextmanager
    def limits(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self.random.random() < 0.8:
                for name, some in LIMITS.items():
                    stack.enter_context(patch.object(routes, name, self.random.randint(*some)))
            yield

    def let_all_be_told(self) -> None:
        self.driver.looks = True
        while self.driver.questions:
            self.driver.look(self.driver.questions.pop(0))
        self.driver.advance(10_000)
        self.driver.check()
        for queue in self.driver.engine._state.queues.values():
            for group in queue.groups.values():
                if group.routes is not None and not group.held_up:
                    self.check_nobody_waits(queue, group)
                if group.where is not None:
                    waiting = sequences(group.ready.runs())
                    unfit = [sequence for sequence in waiting if not group.where.matches({"n": sequence})]
                    assert not unfit, f"{unfit} wait in vain in a group whose filter is {group.where}"

    def command(self) -> Command:
        if self.random.random() < 0.1:
            # Answers come late, and together.
            self.driver.looks = not self.driver.looks
        if self.random.random() < 0.08:
            start = self.random.choice(list(StartAt))
            group, where = self.random.choice(["g", "h"]), self.random.choice(SELECTORS)
            return self.token(FilterGroup(3, None, self.queue(), group, where, start, self.random.randint(0, 60)))
        command = super().command()
        if isinstance(command, Settle) and command.delay_ms is not None:
            self.with_own_delay.update(sequence for first, last in command.runs for sequence in range(first, last + 1))
        return command

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
        if command.options.is_fan_out and self.random.random() < 0.5:
            command.groups = ["g", "i"]
            command.filters = {"g": self.random.choice(SELECTORS)}
        return command

    def watch(self, effects: list[Effect]) -> None:
        super().watch(effects)
        for effect in effects:
            if isinstance(effect, Deliver):
                self.check_wanted(effect)

    def check_wanted(self, deliver: Deliver) -> None:
        state = self.driver.engine._state
        queue = state.queues_by_id[deliver.queue_id]
        group = next(group for group in queue.groups.values() if group.group_id == deliver.group_id)
        consumer = state.consumer(deliver.session, deliver.consumer)
        selector = consumer.selector if consumer is not None else None
        for first, last in deliver.runs:
            for sequence in range(first, last + 1):
                wanted = selector is None or selector.matches({"n": sequence})
                assert wanted, f"{sequence} is not what {selector} wants"
                fits = group.where is None or group.where.matches({"n": sequence})
                assert fits, f"{sequence} is not what the filter {group.where} matches"
        if consumer is not None and consumer.active and consumer.group.routes is not None:
            self.check_no_spill_over(deliver, consumer.group.routes.lines, consumer.selector)
        if not queue.options.hold_behind_failed:
            return
        for sequence, failed in (deliver.failed or {}).items():
            if sequence in self.with_own_delay:
                continue
            wait_ms = retry_delay_ms(failed, base_ms=300, max_ms=900, jitter=1)
            since = self.driver.now - group.attempts[sequence].last_failed_at
            assert since >= wait_ms, f"{sequence} has failed {failed} times and comes back after {since} ms"

    def check_no_spill_over(self, deliver: Deliver, lines: dict[str, Line], selector: Selector | None) -> None:
        own = lines["" if selector is None else selector.text]
        above = [line for line in lines.values() if line.priority > own.priority]
        for first, last in deliver.runs:
            for sequence in range(first, last + 1):
                for line in above:
                    spilt = line.selector is None or line.selector.matches({"n": sequence})
                    assert not spilt, f"{sequence} is given to {selector}, and {line.selector} is above it"

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
