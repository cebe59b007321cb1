"""Longer and nastier lives for the engine than the tests' own, on the same driver and the same naive model.

`HardLife` adds clients that settle what is not theirs, settle late, and take groups over, under a wall clock that jumps
by a year. `CleanLife` has none of that: every consumer acknowledges in time, so every message comes exactly once.
"""

from collections import Counter

from tests.simulation.engine_model import ModelConsumer
from tests.simulation.test_engine_model import Life
from vibemq.model.commands import SeekGroup, Settle, Settlement, StartAt
from vibemq.model.effects import ConsumerEnded, Deliver, Effect
from vibemq.model.options import DeliveryMode
from vibemq.server.clock import DRIFT_MS_MAX, Clock

YEAR_MS = 365 * 24 * 3_600_000
FOLLOW_EVERY_MS = 1_000
AVOID_EXPIRED_IN_FLIGHT = True
"""The engine hands out again what expired while in flight when its group is taken over; False shows it."""


class JumpingClock:
    """The server's clock between a monotonic one that only flows and a wall that anybody may set."""

    def __init__(self, now_ms: int) -> None:
        self._flowed_ms = 0
        self._wall_ms = now_ms
        self._followed_ms = 0
        self._last_ms = now_ms
        self.jumps = 0
        self._clock = self._new(now_ms)

    def _new(self, not_before_ms: int) -> Clock:
        return Clock(
            not_before=not_before_ms, wall=lambda: self._wall_ms / 1000, monotonic=lambda: self._flowed_ms / 1000
        )

    def flow(self, ms: int) -> int:
        """Let time pass and return the instant. Raises AssertionError when it ran faster than the drift allows."""
        self._flowed_ms += ms
        self._wall_ms += ms
        follows = (self._flowed_ms - self._followed_ms) // FOLLOW_EVERY_MS
        for _ in range(min(follows, 100)):
            self._clock.follow_wall()
        self._followed_ms += follows * FOLLOW_EVERY_MS
        now_ms = self._clock.now()
        assert self._last_ms <= now_ms <= self._last_ms + ms + follows * DRIFT_MS_MAX + 2, "the clock jumped"
        self._last_ms = now_ms
        return now_ms

    def jump(self, ms: int) -> None:
        self._wall_ms += ms
        self.jumps += 1

    def restart(self, now_ms: int) -> None:
        """A new process, started at this instant by the wall, which was put right before; it believes what it sees."""
        self._flowed_ms = self._followed_ms = 0
        self._wall_ms = now_ms
        self._clock = self._new(self._last_ms)
        self._last_ms = self._clock.now()


class HardLife(Life):
    """`steps` counts what was done, whatever the outcome."""

    def __init__(self, seed: int, mode: DeliveryMode) -> None:
        super().__init__(seed, mode)
        self.clock = JumpingClock(self.driver.now)
        self.steps = 0
        self.foreign_acks = 0
        self.takeovers = 0
        self._epochs: Counter[str] = Counter()

    def live_through(self, steps: int) -> None:
        """Like `live`, for as long as wanted; every step is checked."""
        usual = [self.publish] * 4 + [self.subscribe] * 2 + [self.settle] * 8 + [self.keep] * 3
        usual += [self.close, self.unsubscribe, self.capacity, self.extend, self.wait, self.wait]
        actions = usual * 2 + [self.settle_foreign] * 4 + [self.take_over]
        for _ in range(steps):
            self.steps += 1
            self.pass_time(self.random.randrange(300))
            if self.random.random() < 0.01:
                self.clock.jump(self.random.choice((-YEAR_MS, YEAR_MS)))
            if self.random.random() < 0.02:
                self.crash()
                self.clock.restart(self.driver.now)
            else:
                self.random.choice(actions)()
            self.driver.check()
            self.compare()
            self.model.check_work_is_done()

    def pass_time(self, ms: int) -> None:
        self.wait_until(self.clock.flow(ms))

    def wait(self) -> None:
        self.pass_time(self.random.randint(0, 4_000))

    def wait_until(self, instant: int) -> None:
        super().wait_until(max(instant, self.driver.now))

    def settle_foreign(self) -> None:
        """Late, repeated, or of somebody else's delivery: it must change nothing."""
        consumer = self._consumer()
        if consumer is None or self.first_seen == 1:
            return
        others = {s for c in self.model.consumers.values() if c is not consumer for s in c.held}
        known = sorted(others | {self.random.randrange(1, self.first_seen) for _ in range(4)})
        foreign = [sequence for sequence in known if sequence not in consumer.held]
        if not foreign:
            return
        chosen = self.random.sample(foreign, self.random.randint(1, len(foreign)))
        self.foreign_acks += len(chosen)
        verb = self.random.choice(list(Settlement))
        self.driver.handle(Settle(consumer.session, None, 1, verb, [(s, s) for s in chosen]))

    def take_over(self) -> None:
        """A new owner seeks the group: everybody else's consumers are fenced, what they held comes back."""
        name = self.names[-1]
        model = self.model.groups[name]
        fenced = [consumer for consumer in self.model.consumers.values() if consumer.group is model]
        if AVOID_EXPIRED_IN_FLIGHT and any(self._has_expired(s) for consumer in fenced for s in consumer.held):
            return
        self.takeovers += 1
        active = {consumer.session for consumer in fenced if consumer.active}
        for consumer in fenced:
            del self.model.consumers[consumer.session, 1]
        for sequence in [*model.waiting, *(s for consumer in fenced for s in consumer.held)]:
            deliver_at = self.model.extras[sequence].deliver_at
            untouched = sequence not in model.acquired
            model.waiting[sequence] = deliver_at if untouched and deliver_at > self.driver.now else 0
            if deliver_at > self.model.published_at[sequence]:
                model.scheduled[sequence] = deliver_at
            self.model.expire(model, sequence, self.driver.now)
        model.acquired.clear()
        model.failed.clear()
        told: list[Effect] = self.driver.handle(SeekGroup(2_000, None, "q", name, StartAt.DEFAULT))
        ended = {effect.session for effect in told if isinstance(effect, ConsumerEnded)}
        self._epochs[name] += 1
        epoch = self.driver.engine._state.queues["q"].groups[name].epoch
        assert epoch == self._epochs[name], f"epoch {epoch} after {self._epochs[name]} owners"
        assert ended == active, f"{active - ended} were not fenced"

    def _has_expired(self, sequence: int) -> bool:
        return 0 < self.model.extras[sequence].expires_at <= self.driver.now


class CleanLife(HardLife):
    """Nobody fails: no message may come twice."""

    def __init__(self, seed: int, mode: DeliveryMode) -> None:
        super().__init__(seed, mode)
        self._times: Counter[tuple[int, int]] = Counter()
        self.delivered = 0
        self.driver.watch = self.observe_once

    def live_through(self, steps: int) -> None:
        actions = [self.publish] * 4 + [self.subscribe] * 2 + [self.acknowledge] * 8 + [self.keep] * 3
        for _ in range(steps):
            self.steps += 1
            self.pass_time(self.random.randrange(100))
            self.random.choice(actions)()
            for consumer in list(self.model.consumers.values()):
                self._acknowledge(consumer)
            self.driver.check()
            self.compare()
            self.model.check_work_is_done()

    def observe_once(self, effects: list[Effect]) -> None:
        self.observe(effects)
        for effect in effects:
            if isinstance(effect, Deliver):
                for first, last in effect.runs:
                    self._times.update((effect.group_id, sequence) for sequence in range(first, last + 1))
        twice = [key for key, times in self._times.items() if times > 1]
        assert not twice, f"{twice} came twice in a clean run"

    def acknowledge(self) -> None:
        consumer = self._consumer()
        if consumer is not None:
            self._acknowledge(consumer)

    def _acknowledge(self, consumer: ModelConsumer) -> None:
        if not consumer.held:
            return
        chosen = sorted(consumer.held)
        consumer.held.clear()
        consumer.group.settled.update(chosen)
        self.driver.handle(Settle(consumer.session, None, 1, Settlement.ACK, [(s, s) for s in chosen]))
