"""What the engine costs per message in processor time: publish, commit, hand out, settle; no storage, no sockets.

python bench/engine.py [messages] [batch]
"""

import sys
import time
from collections.abc import Callable
from itertools import count

from vibemq.engine import Engine, EngineSettings
from vibemq.model.commands import CreateQueue, Publish, Settle, Settlement, Subscribe
from vibemq.model.effects import Deliver, Outcome
from vibemq.model.options import DeliveryMode, Durability, QueueOptions
from vibemq.model.rows import Rows

NOW = 1_700_000_000_000


def engine_with(mode: DeliveryMode, durability: Durability, consumers: int, capacity: int) -> Engine:
    ids = count()
    engine = Engine(EngineSettings(), jitter=lambda: 0.5, new_id=lambda: f"{next(ids):032x}")
    outcome = engine.handle([CreateQueue(1, None, "q", QueueOptions(mode=mode, durability=durability))], NOW)
    engine.committed(outcome.ticket, NOW)
    for number in range(consumers):
        outcome = engine.handle([Subscribe(10 + number, None, 1, "q", capacity_messages=capacity)], NOW)
        if outcome.ticket:
            engine.committed(outcome.ticket, NOW)
    return engine


def flow(engine: Engine, messages: int, batch: int, *, settle_singly: bool) -> None:
    """Publish, and settle everything that is handed out."""
    rows = Rows.of([b"x" * 100] * batch)
    for done in range(0, messages, batch):
        _carry_through(engine, [Publish(1, done, "q", rows)], NOW + done // 1000, settle_singly=settle_singly)


def _carry_through(engine: Engine, commands: list[Publish], now: int, *, settle_singly: bool) -> None:
    """Keep what is decided, and settle what is handed out, until nothing follows."""
    todo: list[Outcome] = [engine.handle(commands, now)]
    while todo:
        outcome = todo.pop()
        delivers = [effect for effect in outcome.effects if type(effect) is Deliver]
        if outcome.ticket:
            todo.append(engine.committed(outcome.ticket, now))
        if delivers:
            todo.append(engine.handle(_settles(delivers, settle_singly), now))


def _settles(delivers: list[Deliver], singly: bool) -> list[Settle]:
    if not singly:
        return [Settle(d.session, None, d.consumer, Settlement.ACK, d.runs) for d in delivers]
    return [
        Settle(d.session, None, d.consumer, Settlement.ACK, [(sequence, sequence)])
        for d in delivers
        for first, last in d.runs
        for sequence in range(first, last + 1)
    ]


def singles(engine: Engine, messages: int, batch: int) -> None:
    """Publishes of one message each, as one socket read brings them; settled one by one as well."""
    row = Rows.of([b"x" * 100])
    for done in range(0, messages, batch):
        publishes = [Publish(1, done + index, "q", row) for index in range(batch)]
        _carry_through(engine, publishes, NOW + done // 1000, settle_singly=True)


def deep(engine: Engine, messages: int, batch: int) -> None:
    """A backlog that nobody takes."""
    rows = Rows.of([b"x" * 100] * batch)
    for done in range(0, messages, batch):
        engine.committed(engine.handle([Publish(1, done, "q", rows)], NOW).ticket, NOW)


def measure(name: str, messages: int, work: Callable[[], None]) -> None:
    begun = time.process_time()
    work()
    taken = time.process_time() - begun
    print(f"{name:<48} {taken / messages * 1e6:8.3f} us/message {messages / taken:12,.0f} messages/s")


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    plain, strong = DeliveryMode.ROUND_ROBIN, Durability.STRONG
    for label, mode, consumers in [
        ("round robin, 1 consumer", plain, 1),
        ("round robin, 10 consumers", plain, 10),
        ("priority queue, 1 consumer", DeliveryMode.PRIORITY_BASED, 1),
        ("fan-out, 10 groups", DeliveryMode.FAN_OUT_WITH_ACK, 10),
    ]:
        engine = engine_with(mode, strong, consumers, 1000)
        measure(
            f"{label}, batches of {batch}",
            messages,
            lambda engine=engine: flow(engine, messages, batch, settle_singly=False),  # type: ignore[misc]
        )
        assert engine.violations() == []
    engine = engine_with(plain, strong, 1, 1000)
    measure("the same, settled one command each", messages, lambda: flow(engine, messages, batch, settle_singly=True))
    engine = engine_with(plain, strong, 1, 1000)
    measure(f"{batch} publishes and settlements of one message", messages, lambda: singles(engine, messages, batch))
    single = engine_with(plain, Durability.ASYNC, 2, 1000)
    few = max(1, messages // 20)
    measure("one message per call, async, 2 consumers", few, lambda: flow(single, few, 1, settle_singly=False))
    backlog = engine_with(plain, strong, 0, 1)
    measure("backlog without consumers", messages, lambda: deep(backlog, messages, batch))


if __name__ == "__main__":
    main()
