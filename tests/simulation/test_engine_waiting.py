"""Subscribers without a group come and go at random, and begin anywhere: what is published while nobody is there waits
for the next one who does not say where to begin."""

from random import Random

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.model.commands import StartAt
from vibemq.model.options import DeliveryMode, Retention

STEPS = 60


class ComingAndGoing:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = Driver()
        mode = self.random.choice((DeliveryMode.FAN_OUT_WITH_ACK, DeliveryMode.FAN_OUT_WITHOUT_ACK))
        self.driver.create(mode=mode, retention=self.random.choice(list(Retention)))
        self.published = 0
        self.there: set[int] = set()
        self.met = 0
        self.waiting: list[int] = []
        """Published since the last one left."""

    def step(self) -> None:
        self.random.choice((self.publish, self.publish, self.come, self.go, self.restart))()
        self.driver.check()

    def publish(self) -> None:
        count = self.random.randint(1, 3)
        self.driver.publish(count)
        if not self.there:
            self.waiting += range(self.published + 1, self.published + count + 1)
        self.published += count

    def come(self) -> None:
        self.met += 1
        start = self.random.choice(list(StartAt))
        self.driver.take()
        self.driver.subscribe(
            self.met, start=start, start_sequence=self.random.randint(1, self.published + 20), capacity_messages=1_000
        )
        if start is StartAt.DEFAULT and not self.there:
            got = self.driver.take().get(self.met, [])
            assert set(self.waiting) <= set(got)
        self.waiting.clear()
        self.there.add(self.met)

    def go(self) -> None:
        if self.there:
            leaving = self.random.choice(sorted(self.there))
            self.there.remove(leaving)
            self.driver.close(leaving, clean=self.random.random() < 0.5)

    def restart(self) -> None:
        self.driver.restart()
        self.there.clear()


@pytest.mark.parametrize("seed", range(30))
def test_what_nobody_was_there_for_waits_for_the_next(seed: int) -> None:
    run = ComingAndGoing(seed)
    for _ in range(STEPS):
        run.step()
