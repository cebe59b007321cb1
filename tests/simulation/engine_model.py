"""A naive broker: one dict entry per message, no runs, no batches. It predicts what the engine must do.

It knows the rules, not how consumers take turns: who gets a message is read from the engine's deliveries and checked
against the rules (in order, to one consumer only, never beyond its capacity, never leaving both work and room).
"""

from dataclasses import dataclass, field

from vibemq.model.effects import Deliver
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, QueueOptions


@dataclass
class ModelConsumer:
    session: int
    number: int
    group: "ModelGroup"
    capacity: int
    priority: int
    timeout: int
    held: dict[int, int] = field(default_factory=dict)
    """Sequence -> deadline."""
    active: bool = True


@dataclass
class ModelGroup:
    name: str
    waiting: dict[int, int] = field(default_factory=dict)
    """Sequence -> due instant."""
    scheduled: dict[int, int] = field(default_factory=dict)
    """Sequence -> the instant that a message which was never handed out was published to wait for, over or not."""
    acquired: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    dead: dict[int, str] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)


class ModelQueue:
    def __init__(self, options: QueueOptions) -> None:
        self.options = options
        self.groups: dict[str, ModelGroup] = {}
        self.extras: dict[int, MessageExtra] = {}
        self.published_at: dict[int, int] = {}
        self.consumers: dict[tuple[int, int], ModelConsumer] = {}

    # -- what happens ---------------------------------------------------------------------------------------------

    def show(
        self, first: int, extras: list[MessageExtra], groups: list[str], now: int, published_at: int | None = None
    ) -> None:
        published_at = now if published_at is None else published_at
        for sequence, extra in enumerate(extras, first):
            self.extras[sequence] = extra
            self.published_at[sequence] = published_at
            for name in groups:
                self.groups[name].waiting[sequence] = extra.deliver_at if extra.deliver_at > now else 0
                if extra.deliver_at > published_at:
                    self.groups[name].scheduled[sequence] = extra.deliver_at

    def time_passes(self, now: int) -> None:
        for consumer in self.consumers.values():
            for sequence in sorted(s for s, deadline in consumer.held.items() if deadline <= now):
                del consumer.held[sequence]
                self.fail(consumer.group, sequence, now, backoff=True)
        for group in self.groups.values():
            for sequence in sorted(group.waiting):
                if group.waiting[sequence] <= now:
                    group.waiting[sequence] = 0
                self.expire(group, sequence, now)

    def expire(self, group: ModelGroup, sequence: int, now: int) -> None:
        expires_at = self.extras[sequence].expires_at
        if expires_at and expires_at <= now and sequence in group.waiting:
            del group.waiting[sequence]
            self.give_up(group, sequence, "EXPIRED")

    def give_up(self, group: ModelGroup, sequence: int, why: str) -> None:
        if self.options.dead_letter:
            group.dead[sequence] = why
        else:
            group.gone.add(sequence)

    def fail(self, group: ModelGroup, sequence: int, now: int, *, backoff: bool, delay: int | None = None) -> None:
        failed = group.failed[sequence] = group.failed.get(sequence, 0) + 1
        if failed >= self.options.max_attempts:
            self.give_up(group, sequence, "MAX_ATTEMPTS")
            return
        if delay is None:
            full = min(self.options.retry_base_ms * 2 ** (failed - 1), self.options.retry_max_ms) if backoff else 0
            delay = full - full // 2
        group.waiting[sequence] = now + delay if delay else 0
        self.expire(group, sequence, now)

    def release(self, group: ModelGroup, sequence: int, now: int) -> None:
        group.waiting[sequence] = 0
        self.expire(group, sequence, now)

    def restart(self) -> None:
        for consumer in self.consumers.values():
            for sequence in consumer.held:
                consumer.group.waiting[sequence] = 0
        self.consumers.clear()

    # -- what must hold -------------------------------------------------------------------------------------------

    def order(self, group: ModelGroup, now: int) -> list[int]:
        levels = self.options.mode is DeliveryMode.PRIORITY_BASED
        ready = [s for s, due in group.waiting.items() if not due]
        return sorted(ready, key=lambda s: (-self.extras[s].priority if levels else 0, *self._place(group, s)))

    def _place(self, group: ModelGroup, sequence: int) -> tuple[int, bool, int]:
        """One that fell due comes behind all that was published until then; one that came back is where it was."""
        due = group.scheduled.get(sequence, 0)
        return due or self.published_at[sequence], bool(due), sequence

    def check_deliveries(self, delivers: list[Deliver], now: int) -> None:
        """The deliveries of one step."""
        for group in self.groups.values():
            order = self.order(group, now)
            place = {sequence: index for index, sequence in enumerate(order)}
            given: list[int] = []
            for deliver in delivers:
                consumer = self.consumers.get((deliver.session, deliver.consumer))
                if consumer is None or consumer.group is not group:
                    continue
                assert consumer.active
                got = [s for first, last in deliver.runs for s in range(first, last + 1)]
                assert [place[s] for s in got] == sorted(place[s] for s in got), "out of order"
                given += got
                self._hand_out(consumer, deliver, got, now)
            assert sorted(given, key=lambda s: place[s]) == order[: len(given)], "others were due before"

    def check_work_is_done(self) -> None:
        """After a step, ready messages and a consumer with room are never left together."""
        for group in self.groups.values():
            room = sum(max(0, c.capacity - len(c.held)) for c in self.top(group))
            assert not room or all(group.waiting.values()), "work and room were left together"

    def _settles_itself(self) -> bool:
        return self.options.mode is DeliveryMode.FAN_OUT_WITHOUT_ACK

    def _hand_out(self, consumer: ModelConsumer, deliver: Deliver, got: list[int], now: int) -> None:
        group = consumer.group
        assert consumer in self.top(group)
        acquired, failed = deliver.acquired or {}, deliver.failed or {}
        for sequence in got:
            assert sequence not in group.settled | group.gone | group.dead.keys()
            del group.waiting[sequence]
            group.scheduled.pop(sequence, None)
            count = group.acquired[sequence] = group.acquired.get(sequence, 0) + 1
            assert acquired.get(sequence, 1) == count
            assert failed.get(sequence, 0) == group.failed.get(sequence, 0)
            if self._settles_itself():
                group.settled.add(sequence)
            else:
                consumer.held[sequence] = now + consumer.timeout
        if not self._settles_itself():
            assert len(consumer.held) <= consumer.capacity

    def top(self, group: ModelGroup) -> list[ModelConsumer]:
        active = [c for c in self.consumers.values() if c.group is group and c.active]
        best = max((c.priority for c in active), default=0)
        return [c for c in active if c.priority == best]

    def held(self, group: ModelGroup) -> int:
        return sum(len(c.held) for c in self.consumers.values() if c.group is group)
