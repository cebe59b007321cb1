"""The engine against a naive broker, over random lives with crashes; each life is one seed, printed on failure."""

import random

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from tests.simulation.engine_model import ModelConsumer, ModelGroup, ModelQueue
from vibemq.engine import EngineSettings
from vibemq.engine.queue import delayed
from vibemq.model import instants
from vibemq.model.commands import (
    CloseSession,
    Extend,
    Publish,
    SetCapacity,
    Settle,
    Settlement,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import Deliver, Effect, Published, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, LostConnection, QueueOptions

STEPS = 120


class Life:
    """One queue with a few durable groups (and the default group), lived through at random."""

    def __init__(self, seed: int, mode: DeliveryMode) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.options = QueueOptions(
            mode=mode,
            durability=pick([Durability.ASYNC, Durability.WEAK, Durability.STRONG]),
            dead_letter=pick([True, False]),
            max_attempts=pick([1, 2, 4]),
            ack_timeout_ms=5_000,
            retry_base_ms=pick([0, 100]),
            retry_max_ms=1_000,
            lost_connection=pick(list(LostConnection)),
        )
        self.delayed = pick([0.1, 0.1, 0.5])
        self.together = False
        """Batches are published with few delays."""
        self.driver = Driver(EngineSettings())
        self.driver.create("q", **{name: getattr(self.options, name) for name in self.options.__slots__})
        self.model = ModelQueue(self.options)
        self.names = ["a", "b"] if self.options.is_fan_out else ["", "a"]
        for name in self.names:
            self.model.groups[name] = ModelGroup(name)
        self.sessions = 0
        self._make_groups()
        self.driver.watch = self.observe
        self.unseen: dict[str, tuple[int, list[MessageExtra]]] = {}
        self.first_seen = 1

    def _make_groups(self) -> None:
        for name in self.names:
            if name:
                self.driver.subscribe(1_000, group=name, consumer=1)
                self.driver.close(1_000, clean=True)

    def live(self) -> None:
        actions = [self.publish] * 4 + [self.subscribe] * 2 + [self.settle] * 8 + [self.keep] * 3
        actions += [self.close, self.unsubscribe, self.capacity, self.extend, self.wait, self.wait]
        for step in range(STEPS):
            self.driver.now += self.random.randrange(300)
            self.model.time_passes(self.driver.now)
            self.driver.tick()
            if step == 60 or self.random.random() < 0.02:
                self.crash()
            else:
                self.random.choice(actions)()
            self.driver.check()
            self.compare()
            self.model.check_work_is_done()

    # -- actions --------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        count = self.random.randint(1, 12)
        extras = [self._extra() for _ in range(count)]
        if self.together:
            dues = [self.driver.now + self.random.randint(1, 3_000) for _ in range(3)]
            extras = [extra._replace(deliver_at=dues[index * 3 // count]) for index, extra in enumerate(extras)]
        given = {index: extra for index, extra in enumerate(extras) if extra != MessageExtra()}
        token = f"publish-{self.random.random()}"
        self.unseen[token] = (self.driver.now, extras)
        self.driver.hold = True
        self.driver.handle(Publish(1, token, "q", rows_of(count), given or None))

    def _extra(self) -> MessageExtra:
        now, chance = self.driver.now, self.random.random
        return MessageExtra(
            priority=self.random.randrange(4) if chance() < 0.4 else 1,
            expires_at=now + self.random.randint(1, 8_000) if chance() < 0.1 else 0,
            deliver_at=now + self.random.randint(1, 3_000) if chance() < self.delayed else 0,
        )

    def keep(self) -> None:
        self.driver.keep(self.random.choice([1, 2, None]))

    def wait(self) -> None:
        self.wait_until(self.driver.now + self.random.randint(0, 4_000))

    def wait_until(self, instant: int) -> None:
        self.driver.now = instant
        self.model.time_passes(instant)
        self.driver.tick()

    def subscribe(self) -> None:
        if len(self.model.consumers) >= 5:
            return
        self.sessions += 1
        name = self.random.choice(self.names)
        capacity, priority = self.random.randint(1, 15), self.random.choice([0, 0, 0, 1])
        group = self.model.groups[name]
        timeout = self.random.choice([3_000, 5_000])
        consumer = ModelConsumer(self.sessions + 10, 1, group, capacity, priority, timeout)
        self.model.consumers[consumer.session, 1] = consumer
        self.driver.handle(
            Subscribe(
                consumer.session,
                None,
                1,
                "q",
                group=name or None,
                capacity_messages=capacity,
                priority=priority,
                ack_timeout_ms=timeout,
            )
        )

    def _consumer(self) -> ModelConsumer | None:
        return self.random.choice(list(self.model.consumers.values())) if self.model.consumers else None

    def settle(self) -> None:
        consumer = self._consumer()
        if consumer is None or not consumer.held:
            return
        held = sorted(consumer.held)
        start = self.random.randrange(len(held))
        chosen = held[start : start + self.random.randint(1, 8)]
        verb = self.random.choice([Settlement.ACK] * 6 + list(Settlement))
        delay = self.random.choice([None, 0, 700])
        group, now = consumer.group, self.driver.now
        for sequence in chosen:
            del consumer.held[sequence]
            match verb:
                case Settlement.ACK:
                    group.settled.add(sequence)
                case Settlement.RETRY:
                    self.model.fail(group, sequence, now, backoff=True, delay=delay)
                case Settlement.RELEASE:
                    self.model.release(group, sequence, now)
                case Settlement.REJECT:
                    self.model.give_up(group, sequence, "REJECTED")
        runs = [(s, s) for s in chosen] + [(10_000, 10_005)]
        self.driver.handle(Settle(consumer.session, None, 1, verb, runs, delay_ms=delay))
        self._forget_drained(consumer)

    def _forget_drained(self, consumer: ModelConsumer) -> None:
        if not consumer.active and not consumer.held:
            self.model.consumers.pop((consumer.session, 1), None)

    def extend(self) -> None:
        consumer = self._consumer()
        if consumer is None or not consumer.held:
            return
        low = self.random.choice(sorted(consumer.held))
        for sequence in consumer.held:
            if low <= sequence <= low + 5:
                consumer.held[sequence] = self.driver.now + 9_000
        self.driver.handle(Extend(consumer.session, None, 1, [(low, low + 5)], 9_000))

    def capacity(self) -> None:
        consumer = self._consumer()
        if consumer is not None and consumer.active:
            consumer.capacity = max(len(consumer.held), self.random.randint(0, 20))
            self.driver.handle(SetCapacity(consumer.session, None, 1, consumer.capacity))

    def unsubscribe(self) -> None:
        consumer = self._consumer()
        if consumer is not None:
            consumer.active = False
            self._forget_drained(consumer)
            self.driver.handle(Unsubscribe(consumer.session, None, 1))

    def close(self) -> None:
        consumer = self._consumer()
        if consumer is None:
            return
        clean = self.random.random() < 0.5
        consumer.active = False
        del self.model.consumers[consumer.session, 1]
        for sequence in sorted(consumer.held):
            if clean or self.options.lost_connection is LostConnection.RELEASE:
                self.model.release(consumer.group, sequence, self.driver.now)
            else:
                self.model.fail(consumer.group, sequence, self.driver.now, backoff=False)
        self.driver.handle(CloseSession(consumer.session, clean))

    def crash(self) -> None:
        """kill -9 with everything written so far; async outcomes were appended as well."""
        self.driver.keep()
        self.driver.hold = False
        down_ms = self.random.choice([0, 2_000])
        self.model.restart()
        self.driver.restart(down_ms=down_ms)
        self.model.time_passes(self.driver.now)

    # -- checks ---------------------------------------------------------------------------------------------------

    def observe(self, effects: list[Effect]) -> None:
        """Take over what the engine told in one step: publishes that are safe by now, and deliveries."""
        for effect in effects:
            if isinstance(effect, Reply) and effect.token in self.unseen:
                published_at, extras = self.unseen.pop(effect.token)
                assert isinstance(effect.result, Published)
                assert not effect.result.refused
                assert effect.result.first_sequence == self.first_seen
                self.first_seen += len(extras)
                self.model.show(effect.result.first_sequence, extras, self.names, self.driver.now, published_at)
        self.model.time_passes(self.driver.now)
        self.model.check_deliveries([e for e in effects if isinstance(e, Deliver)], self.driver.now)

    def compare(self) -> None:
        """Where every message is, by the model and by the engine."""
        queue = self.driver.engine._state.queues["q"]
        for name, model in self.model.groups.items():
            group = queue.groups[name]
            assert set(group.unsettled_set()) == set(model.waiting) | {
                s for c in self.model.consumers.values() if c.group is model for s in c.held
            }
            assert group.in_flight == self.model.held(model)
            assert group.delayed_count == sum(1 for due in model.waiting.values() if due)
        letters = sum(len(model.dead) for model in self.model.groups.values())
        assert self.driver.engine.dead_count == letters or not self.options.dead_letter


@pytest.mark.parametrize("mode", list(DeliveryMode))
@pytest.mark.parametrize("seed", range(8))
def test_the_engine_does_what_a_naive_broker_does(seed: int, mode: DeliveryMode) -> None:
    Life(seed, mode).live()


@pytest.mark.parametrize("mode", list(DeliveryMode))
@pytest.mark.parametrize("seed", range(300, 308))
def test_messages_that_fall_due_together_come_as_from_a_naive_broker(
    seed: int, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few are a run, or a page, in which all have one instant."""
    monkeypatch.setattr(delayed, "RUN_LEAST", 1 + seed % 3)
    monkeypatch.setattr(delayed, "TOGETHER_MAX", 4)
    monkeypatch.setattr(instants, "_ROW_LEAST", 2)
    monkeypatch.setattr(instants, "_DENSE", 3)
    life = Life(seed, mode)
    life.together = True
    life.live()
