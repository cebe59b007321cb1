"""Queues that go away by themselves, at random, against a naive model: who is there after each step, and why not."""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.engine_driver import Driver
from vibemq.errors import QueueExclusive
from vibemq.model.commands import ChangeQueue, CreateQueue, DeleteQueue, Settle, Settlement, Subscribe, Unsubscribe
from vibemq.model.effects import QueueGone
from vibemq.model.options import Durability, QueueOptions

QUEUES = ["a", "b", "c", "d", "e"]
SESSIONS = [1, 2, 3, 4]
EXPIRES_MS = (0, 0, 500, 3_000)


@dataclass
class ModelQueue:
    options: QueueOptions
    owner: int
    used_at: int
    attended: bool = False
    consumers: dict[int, bool] = field(default_factory=dict)
    """Session -> whether it is a subscription, and no fetch."""


class Lifetimes:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = Driver()
        self.queues: dict[str, ModelQueue] = {}
        self.gone: list[tuple[str, str]] = []

    def live(self, steps: int) -> None:
        actions = [self.create] * 4 + [self.subscribe] * 4 + [self.unsubscribe] * 3 + [self.close] * 2
        actions += [self.publish] * 3 + [self.wait] * 5 + [self.change, self.delete]
        for _ in range(steps):
            if self.random.random() < 0.03:
                self.crash()
            else:
                self.random.choice(actions)()
            self.compare()
            self.driver.check()

    # -- what happens ---------------------------------------------------------------------------------------------

    def create(self) -> None:
        name, session = self.random.choice(QUEUES), self.random.choice(SESSIONS)
        options = QueueOptions(
            durability=self.random.choice(list(Durability)),
            expires_ms=self.random.choice(EXPIRES_MS),
            auto_delete=self.random.random() < 0.4,
            exclusive=self.random.random() < 0.3,
        )
        answer = self.driver.ask(CreateQueue(session, None, name, options))
        queue = self.queues.get(name)
        if self.is_refused(queue, session, answer):
            return
        if queue is None:
            self.queues[name] = ModelQueue(options, session if options.exclusive else 0, self.driver.now)
        else:
            queue.used_at = self.driver.now

    def subscribe(self) -> None:
        name, session = self.random.choice(QUEUES), self.random.choice(SESSIONS)
        queue = self.queues.get(name)
        if queue is not None and session in queue.consumers:
            return
        fetch = self.random.random() < 0.3
        command = Subscribe(session, None, self.number(name), name, credit=1 if fetch else None, create=False)
        answer = self.driver.ask(command)
        if queue is None or self.is_refused(queue, session, answer):
            return
        queue.consumers[session] = not fetch
        queue.attended |= not fetch

    def unsubscribe(self) -> None:
        name, session = self.random.choice(QUEUES), self.random.choice(SESSIONS)
        self.driver.ask(Unsubscribe(session, None, self.number(name)))
        # Who holds messages has not left.
        self.driver.handle(Settle(session, None, self.number(name), Settlement.ACK, [(1, 1 << 60)]))
        self.leave(name, session)

    def close(self) -> None:
        session = self.random.choice(SESSIONS)
        self.driver.close(session)
        # A queue that the connection owns goes with it, whether or not its consumers were the last ones.
        for name, queue in list(self.queues.items()):
            if queue.owner == session:
                self.remove(name, "exclusive")
        for name in QUEUES:
            self.leave(name, session)

    def publish(self) -> None:
        name = self.random.choice(QUEUES)
        queue = self.queues.get(name)
        if queue is not None and not queue.consumers:
            self.driver.publish(1, name, session=9)

    def change(self) -> None:
        name = self.random.choice(QUEUES)
        queue = self.queues.get(name)
        changes: dict[str, Any] = {"expires_ms": self.random.choice(EXPIRES_MS)}
        if self.random.random() < 0.3:
            changes["auto_delete"] = self.random.random() < 0.5
        answer = self.driver.ask(ChangeQueue(9, None, name, changes))
        if queue is not None and not self.is_refused(queue, 9, answer):
            was_on = queue.options.auto_delete
            queue.options = queue.options.with_changes(**changes)
            if not queue.options.auto_delete or not was_on:
                # The option counts whoever is there, and forgets whoever was there without it.
                queue.attended = any(queue.consumers.values())
            queue.used_at = self.driver.now

    def delete(self) -> None:
        name = self.random.choice(QUEUES)
        queue = self.queues.get(name)
        answer = self.driver.ask(DeleteQueue(9, None, name))
        if queue is not None and not self.is_refused(queue, 9, answer):
            del self.queues[name]

    def wait(self) -> None:
        self.driver.advance(self.random.choice([1, 499, 500, 2_999, 3_000]))
        for name, queue in list(self.queues.items()):
            expires_ms = queue.options.expires_ms
            if expires_ms and not queue.consumers and queue.used_at + expires_ms <= self.driver.now:
                self.remove(name, "expired")

    def crash(self) -> None:
        self.driver.restart()
        self.driver.advance(0)
        for name, queue in list(self.queues.items()):
            queue.used_at = self.driver.now
            queue.consumers.clear()
            if queue.options.exclusive:
                self.remove(name, "exclusive")
            elif queue.options.auto_delete and queue.attended:
                self.remove(name, "auto_delete")

    # -- the model ------------------------------------------------------------------------------------------------

    def number(self, name: str) -> int:
        return QUEUES.index(name) + 1

    def leave(self, name: str, session: int) -> None:
        queue = self.queues.get(name)
        if queue is None or session not in queue.consumers:
            return
        del queue.consumers[session]
        if not queue.consumers:
            queue.used_at = self.driver.now
            if queue.options.auto_delete and queue.attended:
                self.remove(name, "auto_delete")

    def remove(self, name: str, why: str) -> None:
        del self.queues[name]
        self.gone.append((name, why))

    def is_refused(self, queue: ModelQueue | None, session: int, answer: Any) -> bool:
        foreign = queue is not None and queue.owner not in (0, session)
        assert isinstance(answer, QueueExclusive) == foreign, f"lifetimes: {answer!r} to a queue of session {queue}"
        return foreign

    def compare(self) -> None:
        there = {info.name for info in self.driver.engine.queue_infos()}
        assert there == self.queues.keys(), f"lifetimes: {sorted(there)} instead of {sorted(self.queues)}"
        told = [(effect.queue, str(effect.why)) for effect in self.driver.effects if isinstance(effect, QueueGone)]
        assert sorted(told) == sorted(self.gone), f"lifetimes: told {told[-3:]} instead of {self.gone[-3:]}"
        self.driver.effects.clear()
        self.gone.clear()
