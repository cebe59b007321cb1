"""A group of a queue: its ready and unacknowledged messages, and its consumers.

Every sequence that the group has not settled is in exactly one place: `ready`, `delayed`, or held, by one
consumer or by the group's cursor.
"""

from bisect import bisect_right
from dataclasses import dataclass

from vibemq.engine.queue.consumer import Consumer, Rotation
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.ready import Levels, Ready
from vibemq.engine.queue.tail import Tail
from vibemq.model.instants import Instants
from vibemq.model.records import Attempts
from vibemq.model.runs import END, Run, RunSet, run_count, runs_of, smallest_of


@dataclass(slots=True)
class GroupCounters:
    """What became of the messages that entered a group since the start. The law:

    entered = settled + dead + expired + dropped + moved + (ready + later + in flight)
    """

    entered: int = 0
    settled: int = 0
    dead: int = 0
    expired_dead: int = 0
    """Of those in `dead`, the messages whose TTL had passed."""
    expired: int = 0
    """Without a DLQ; with one they count as dead."""
    dropped: int = 0
    """By overflow, retention, an operator, too many attempts without a DLQ, or lost by a full disk."""
    moved: int = 0
    """Taken out by a move of the group's cursor (those it puts in enter again), or into another queue."""
    delivered: int = 0
    """Hand-outs."""
    redelivered: int = 0
    """Hand-outs beyond the first."""

    def add(self, other: "GroupCounters") -> None:
        self.entered += other.entered
        self.settled += other.settled
        self.dead += other.dead
        self.expired_dead += other.expired_dead
        self.expired += other.expired
        self.dropped += other.dropped
        self.moved += other.moved
        self.delivered += other.delivered
        self.redelivered += other.redelivered

    def remainder(self) -> int:
        """How many messages must be in the group."""
        return self.entered - self.settled - self.dead - self.expired - self.dropped - self.moved


_LOOKUPS_MAX = 16
FORGOTTEN_PER_RUN = 20
"""To forget the history of so many messages costs as much as a run."""
_NO_DELAYED = Delayed()
_NO_ATTEMPTS: dict[int, Attempts] = {}
_NO_TAIL: "Tail[Group]" = Tail()
"""Of a queue's only group: it is told at once."""
_NO_CONSUMERS: dict[Consumer, None] = {}
_NO_LEVELS: dict[int, Rotation] = {}


class Group:
    __slots__ = (
        "_delayed",
        "_levels",
        "_places",
        "_ready",
        "_seen",
        "_tail",
        "armed_at",
        "attempts",
        "consumers",
        "counters",
        "cursor",
        "durable",
        "epoch",
        "group_id",
        "in_flight",
        "name",
        "owner",
        "start",
        "top",
        "turn",
    )

    def __init__(self, group_id: int, name: str, *, durable: bool, start: int, levels: Levels | None = None) -> None:
        self.group_id = group_id
        self.name = name
        self.durable = durable
        self.owner = ""
        """The user to whom it belongs; "" = nobody."""
        self.epoch = 0
        self.start = start
        """New messages below it are none of this group's."""
        # What most groups never need is shared by all of them, never put into, and replaced where it is.
        self._ready = Ready(levels)
        self._delayed = _NO_DELAYED
        self._tail = _NO_TAIL
        self._seen = 0
        """What the tail has shown up to here is in the group."""
        self.attempts: dict[int, Attempts] = _NO_ATTEMPTS
        """History of messages that came back at least once; those held with history are here too."""
        self.in_flight = 0
        self.cursor: Cursor | None = None
        """Reads by ranges instead of being handed messages; such a group has no consumers."""
        self.consumers: dict[Consumer, None] = _NO_CONSUMERS
        """Those that receive and those that only hold, in the order of joining."""
        self._levels: dict[int, Rotation] = _NO_LEVELS
        """The active ones by priority."""
        self._places = 0
        self.top: Rotation | None = None
        """The active consumers of the highest priority; only they receive, even when all of them are full."""
        self.turn = 0
        """The place from which on the next hand-out looks for a consumer with room."""
        self.armed_at = END
        """When it wants to be seen to: see `EngineState.arm_part`."""
        self.counters = GroupCounters()

    @property
    def ready(self) -> Ready:
        if self._seen != self._tail.last:
            self.catch_up()
        return self._ready

    @property
    def delayed(self) -> Delayed:
        if self._seen != self._tail.last:
            self.catch_up()
        return self._delayed

    def follow(self, tail: "Tail[Group]") -> None:
        """Take from now on what it shows."""
        self._tail, self._seen = tail, tail.last
        tail.add(self, attended=self.top is not None)

    def catch_up(self) -> None:
        tail, seen = self._tail, self._seen
        self._seen = tail.last
        for first, last in tail.since(seen):
            if last >= self.start:
                self.enter(max(first, self.start), last)

    def enter(self, first: int, last: int) -> None:
        """Messages have become visible to it: they are ready, or wait for their instant."""
        self.counters.entered += last - first + 1
        self._ready.add(first, last)
        if self._tail.put_off is not None:
            self._tail.put_off(self, first, last)

    @property
    def waiting(self) -> int:
        """Not settled and with nobody."""
        return self.ready.count + len(self.delayed)

    @property
    def unsettled(self) -> int:
        return self.ready.count + len(self.delayed) + self.in_flight

    def join(self, consumer: Consumer) -> None:
        """It receives from now on; one that only held comes back to its old place."""
        if consumer.place < 0:
            consumer.place = self._places
            self._places += 1
            if self.consumers is _NO_CONSUMERS:
                self.consumers, self._levels = {}, {}
            self.consumers[consumer] = None
            consumer.queue.consumer_count += 1
        consumer.active = True
        level = self._levels.get(consumer.priority)
        if level is None:
            level = self._levels[consumer.priority] = Rotation()
            if self.top is None:
                self._tail.move(self, attended=True)
            self.top = self._levels[max(self._levels)]
        level.members[consumer.place] = consumer
        level.offer(consumer)

    def retire(self, consumer: Consumer) -> None:
        """It receives nothing more; what it holds stays its own."""
        if not consumer.active:
            return
        consumer.active = False
        if consumer.share is not None:
            consumer.share.leave(consumer)
        level = self._levels[consumer.priority]
        level.remove(consumer)
        if not level.members:
            del self._levels[consumer.priority]
            self.top = self._levels[max(self._levels)] if self._levels else None
            if self.top is None:
                self._tail.move(self, attended=False)

    def leave(self, consumer: Consumer) -> bool:
        """Take it out; whether it was there."""
        self.retire(consumer)
        if consumer not in self.consumers:
            return False
        del self.consumers[consumer]
        consumer.queue.consumer_count -= 1
        consumer.queue.attendant_count -= consumer.attends
        return True

    def offer(self, consumer: Consumer) -> None:
        """The consumer may have room again."""
        if consumer.active and not consumer.offered:
            self._levels[consumer.priority].offer(consumer)

    @property
    def active(self) -> int:
        """How many consumers receive."""
        return sum(len(level.members) for level in self._levels.values())

    @property
    def held_back(self) -> int:
        """Acknowledged, and kept for a while; counted in `in_flight`."""
        return self.cursor.held.count if self.cursor is not None else 0

    def lowest_waiting(self) -> int:
        """The smallest sequence that waits; END when none does."""
        ready, delayed = self.ready.lowest(), self.delayed.lowest()
        return min(END if ready is None else ready, END if delayed is None else delayed)

    def lowest_held(self) -> int:
        """The smallest sequence that a consumer or the cursor holds; END when none does."""
        found = [sequence for consumer in self.consumers if (sequence := consumer.unacked.lowest()) is not None]
        if self.cursor is not None and self.cursor.held:
            found.append(self.cursor.held.first)
        return min(found, default=END)

    def held_runs(self) -> list[Run]:
        held = [run for consumer in self.consumers for run in consumer.unacked.runs()]
        return held + self.cursor.held.runs() if self.cursor is not None else held

    def take_held(self, first: int, last: int) -> list[Run]:
        """Take out what is held within [first, last], whoever holds it."""
        taken: list[Run] = []
        for consumer in self.consumers:
            runs = consumer.unacked.take(first, last)
            if runs:
                taken += runs
                self.offer(consumer)
        if self.cursor is not None:
            taken += self.cursor.take_held(first, last)
        self.in_flight -= run_count(taken)
        return taken

    def waiting_set(self) -> RunSet:
        waiting = RunSet(self.ready.runs())
        for run in self.delayed.runs():
            waiting.add(*run)
        return waiting

    def oldest_waiting(self, count: int, start: int = 0) -> list[Run]:
        """Up to `count` of the smallest sequences from `start` on that wait; they stay."""
        return smallest_of((self.ready.smallest(count, start), runs_of(self.delayed.smallest(count, start))), count)

    def held_within(self, runs: list[Run]) -> list[Run]:
        """What of the runs, which ascend, is held, whoever holds it; of many runs, everything between their ends."""
        if not self.in_flight:
            return []
        if len(runs) > _LOOKUPS_MAX:
            runs = [(runs[0][0], runs[-1][1])]
        held = [part for consumer in self.consumers for run in runs for part in consumer.unacked.overlap(*run)]
        if self.cursor is not None:
            held += [part for run in runs for part in self.cursor.held.overlap(*run)]
        return held

    def unsettled_within(self, first: int, last: int) -> RunSet:
        """The part of `unsettled_set` in [first, last]. Costs what is there, however much the group has."""
        found = RunSet(sorted(self.ready.overlap(first, last)))
        found.add_all(runs_of(self.delayed.within(first, last)))
        found.add_all(self.held_within([(first, last)]))
        return found

    def unsettled_set(self) -> RunSet:
        unsettled = RunSet()
        self.gather(unsettled)
        return unsettled

    def gather(self, union: RunSet) -> None:
        """Add everything unsettled to the union. Cheap when it is there already: many groups have much in common."""
        if not union:
            union.replace(self.ready.members())
        else:
            runs = self.ready.runs()
            if len(runs) != union.run_count or runs != union.runs():
                for run in runs:
                    if not union.covers(*run):
                        union.add(*run)
        if self.delayed:
            for run in self.delayed.runs():
                union.add(*run)
        if self.in_flight:
            for run in self.held_runs():
                union.add(*run)

    @property
    def untouched(self) -> bool:
        """Whether everything that has ever entered is still here."""
        return self.unsettled == self.counters.entered

    def take_waiting(self, first: int, last: int) -> list[Run]:
        """Take out what waits within [first, last]; the caller says what becomes of it."""
        taken = self.ready.remove(first, last)
        delayed = self.delayed.remove(first, last) if self.delayed else []
        if not delayed:
            return taken
        merged = RunSet((s, s) for s in delayed)
        for run in taken:
            merged.add(*run)
        return merged.runs()

    def drop_waiting(self) -> None:
        """As `take_waiting` of everything, of which nobody wants to know what it was."""
        self.ready.clear()
        self._delayed = _NO_DELAYED

    def cut_waiting(self, first: int, last: int, most: int, *, by_message: bool = False) -> tuple[int, int]:
        """(stop, cost): how far of [first, last] about `most` runs of what waits reach, or messages, and how many these
        are."""
        last, cost = self.ready.cut(first, last, most, by_message=by_message)
        if self.attempts and (start := self.ready.first_at(first)) is not None and start <= last:
            # From the first message that waits: sequences without messages cost nothing, however many they are.
            last = min(last, start + FORGOTTEN_PER_RUN * most)
            cost += (last - start) // FORGOTTEN_PER_RUN
        if self.delayed:
            delayed = self.delayed.smallest(most, first)
            if len(delayed) == most:
                last = min(last, delayed[-1])
            cost += bisect_right(delayed, last)
        return last, cost

    def cut_held(self, first: int, last: int, most: int) -> tuple[int, int]:
        """The same of what is held, whoever holds it."""
        cost = 0
        for consumer in self.consumers:
            last, number = consumer.unacked.cut_runs(first, last, most)
            cost += number
        if self.cursor is not None:
            last, number = self.cursor.held.cut_runs(first, last, most)
            cost += number
        return last, cost

    def remember(self, sequence: int, history: Attempts) -> None:
        """What is known about the message's attempts now."""
        if self.attempts is _NO_ATTEMPTS:
            self.attempts = {}
        self.attempts[sequence] = history

    def postpone(self, sequence: int, due: int) -> None:
        """The message waits for that instant."""
        if self.delayed is _NO_DELAYED:
            self._delayed = Delayed()
        self._delayed.add(sequence, due)

    def postpone_all(self, due: Instants) -> None:
        if due:
            if self.delayed is _NO_DELAYED:
                self._delayed = Delayed()
            self._delayed.fill(due)

    def forget_history(self, runs: list[Run]) -> None:
        """The runs are settled: drop what was known about their attempts."""
        attempts = self.attempts
        if not attempts:
            return
        for first, last in runs:
            if last - first < len(attempts):
                for sequence in range(first, last + 1):
                    attempts.pop(sequence, None)
            else:
                for sequence in [s for s in attempts if first <= s <= last]:
                    del attempts[sequence]
