"""A group of a queue: its ready and unacknowledged messages, and its consumers.

Every sequence that the group has not settled is in exactly one place: `ready`, `delayed` (it came back and is to be
tried again later), `scheduled` (it was published with a delay and is yet to be handed out), or held, by one consumer or
by the group's cursor.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from vibemq.engine.queue.consumer import Consumer, Rotation
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.ready import Levels, Ready
from vibemq.engine.queue.routing.routes import Routes
from vibemq.engine.queue.routing.sifted import Sifted
from vibemq.engine.queue.scheduled import Scheduled, in_turn
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.queue.tail import Tail
from vibemq.engine.queue.timing.alarms import Behind
from vibemq.model.instants import Instants, Values
from vibemq.model.records import Attempts
from vibemq.model.runs import END, Run, RunSet, run_count, runs_of, runs_of_ascending, smallest_of
from vibemq.model.selector import Selector


@dataclass(slots=True)
class GroupCounters:
    """What became of the messages that entered a group since the start. The law:

    entered = settled + dead + expired + dropped + moved + (ready + delayed + scheduled + in flight)
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
    ahead: int = 0
    """Acknowledged by a cursor that holds it, and not in `settled`: to the law it is in flight. What was held before a
    restart and is settled since is taken off, and what falls to retention or a seek meanwhile stays."""

    @property
    def acknowledged(self) -> int:
        """For whoever asks. It never falls; after a restart what was held before it does not count."""
        return self.settled + self.ahead

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
        self.ahead += other.ahead

    def remainder(self) -> int:
        """How many messages must be in the group."""
        return self.entered - self.settled - self.dead - self.expired - self.dropped - self.moved


class _NothingCounted(GroupCounters):
    """Of all groups that no message has entered: whatever is counted comes behind that."""

    __slots__ = ()

    def __setattr__(self, name: str, value: int) -> None:
        if value:
            raise RuntimeError(f"{name} is counted in a group that has had no message; use enter or count_in before")
        super().__setattr__(name, value)


_NOTHING_COUNTED = _NothingCounted()
_LOOKUPS_MAX = 16
FORGOTTEN_PER_RUN = 20
"""To forget the history of so many messages costs as much as a run."""


def cut_history(start: int, last: int, most: int) -> tuple[int, int]:
    """(stop, cost): how far up to `last` it costs about `most` to forget histories. `start`: the first message. The
    sequences before it cost nothing, however many they are."""
    if start > last:
        return last, 0
    last = min(last, start + FORGOTTEN_PER_RUN * most)
    return last, (last - start) // FORGOTTEN_PER_RUN


_NO_DELAYED = Delayed()
_NO_SCHEDULED = Scheduled(Instants())
_NO_ATTEMPTS: dict[int, Attempts] = {}
_NO_TAIL: "Tail[Group]" = Tail()
"""Of a queue's only group: it is told at once."""
_NO_CONSUMERS: dict[Consumer, None] = {}
_NO_LEVELS: dict[int, Rotation] = {}
_NOBODY_HELD_UP: dict[int, tuple[tuple[int, int], int]] = {}
_SOMEBODY = Rotation()
"""The top consumers of a group whose routes know them."""
_SOMEBODY.open.append(0)


class Group:
    __slots__ = (
        "_delayed",
        "_levels",
        "_places",
        "_ready",
        "_scheduled",
        "_seen",
        "_tail",
        "armed_at",
        "armed_behind",
        "attempts",
        "consumers",
        "counters",
        "cursor",
        "durable",
        "epoch",
        "group_id",
        "held_up",
        "in_flight",
        "name",
        "owner",
        "routes",
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
        self._scheduled = _NO_SCHEDULED
        self._tail = _NO_TAIL
        self._seen = 0
        """What the tail has shown up to here is in the group."""
        self.attempts: dict[int, Attempts] = _NO_ATTEMPTS
        """History of messages that came back at least once; those held with history are here too."""
        self.in_flight = 0
        self.held_up: dict[int, tuple[tuple[int, int], int]] = _NOBODY_HELD_UP
        """For each source of messages: the next one, with its number of failures, and until when it waits; END when
        that is over.
        See `QueueOptions.hold_behind_failed`."""
        self.cursor: Cursor | None = None
        """Reads by ranges instead of being handed messages; such a group has no consumers."""
        self.consumers: dict[Consumer, None] = _NO_CONSUMERS
        """Those that receive and those that only hold, in the order of joining."""
        self._levels: dict[int, Rotation] = _NO_LEVELS
        """The active ones by priority."""
        self._places = 0
        self.top: Rotation | None = None
        """The active consumers of the highest priority; only they receive, even when all of them are full."""
        self.routes: Routes | None = None
        """Only while one of the active consumers has a selector, or the group a filter. All consumers are known there,
        and `top` has nobody."""
        self.turn = 0
        """The place from which on the next hand-out looks for a consumer with room."""
        self.armed_at = END
        """When it wants to be seen to: see `EngineState.arm_part`."""
        self.armed_behind: Behind = None
        self.counters: GroupCounters = _NOTHING_COUNTED

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

    @property
    def scheduled(self) -> Scheduled:
        if self._seen != self._tail.last:
            self.catch_up()
        return self._scheduled

    def follow(self, tail: "Tail[Group]") -> None:
        """Take from now on what it shows."""
        self._tail, self._seen = tail, tail.last
        tail.add(self, attended=self.attended)

    def catch_up(self) -> None:
        tail, seen = self._tail, self._seen
        self._seen = tail.last
        for first, last in tail.since(seen):
            if last >= self.start:
                self.enter(max(first, self.start), last)

    def enter(self, first: int, last: int) -> None:
        """Messages have become visible to it: they are ready, or wait for their instant."""
        if self.counters is _NOTHING_COUNTED:
            self.counters = GroupCounters()
        self.counters.entered += last - first + 1
        self._ready.add(first, last)
        if self._tail.put_off is not None:
            self._tail.put_off(self, first, last)

    def count_in(self, count: int) -> None:
        """So many messages have entered, by another way than `enter`."""
        if self.counters is _NOTHING_COUNTED:
            self.counters = GroupCounters()
        self.counters.entered += count

    @property
    def waiting(self) -> int:
        """Not settled and with nobody."""
        scheduled = self.scheduled
        return self._ready.count + len(self._delayed) + (len(scheduled) if scheduled.levels else 0)

    @property
    def unsettled(self) -> int:
        return self.waiting + self.in_flight

    @property
    def ready_count(self) -> int:
        """What may be handed out, as far as it is known to have fallen due."""
        scheduled = self.scheduled
        return self._ready.count + (scheduled.fallen if scheduled.levels else 0)

    @property
    def delayed_count(self) -> int:
        """What waits for an instant."""
        scheduled = self.scheduled
        return len(self._delayed) + (scheduled.later if scheduled else 0)

    def next_due(self) -> int:
        """When the next of those that wait for an instant may be handed out; END when none waits."""
        due = self.delayed.next_due()
        scheduled = self._scheduled
        return min(
            END if due is None else due,
            scheduled.next_later() if scheduled else END,
            min(until for _, until in self.held_up.values()) if self.held_up else END,
        )

    def rest(self) -> None:
        """Give back the containers of messages: it has none."""
        self._ready.clear()
        self._delayed, self._scheduled, self.attempts = _NO_DELAYED, _NO_SCHEDULED, _NO_ATTEMPTS
        if not self.consumers:
            self.consumers, self._levels = _NO_CONSUMERS, _NO_LEVELS

    def hold_up(self, key: int, failure: tuple[int, int], until: int) -> None:
        """Nothing of that source is handed out until then, because of that message and its number of failures."""
        if self.held_up is _NOBODY_HELD_UP:
            self.held_up = {}
        self.held_up[key] = failure, until

    def let_go(self, now: int) -> bool:
        """Whether some source has waited long enough."""
        over = [key for key, (_, until) in self.held_up.items() if until <= now]
        for key in over:
            self.held_up[key] = self.held_up[key][0], END
        return bool(over)

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
        if not self.durable:
            consumer.queue.rank(consumer, 1)
        if not self.attended:
            self._tail.move(self, attended=True)
        if consumer.selector is not None and self.routes is None:
            self._begin_routes()
        if self.routes is not None:
            self.routes.join(consumer)
        else:
            self._stand_in_line(consumer)

    def _stand_in_line(self, consumer: Consumer) -> None:
        level = self._levels.get(consumer.priority)
        if level is None:
            level = self._levels[consumer.priority] = Rotation()
            self.top = self._levels[max(self._levels)]
        level.join(consumer)

    @property
    def where(self) -> Selector | None:
        """Its filter: what does not match is settled by itself, whether or not there are consumers."""
        return self.routes.where if self.routes is not None else None

    def filter_by(self, where: Selector | None) -> None:
        """All that waits is looked at anew."""
        if self.routes is None:
            if where is None:
                return
            self._begin_routes()
        assert self.routes is not None
        self.routes.filter_by(where)
        if not self.routes.needed:
            self._end_routes(self.routes)
        self._tail.move(self, attended=self.attended)

    def _begin_routes(self) -> None:
        # Nothing is copied, so that a selector that comes and goes costs the same whatever the group has.
        self._ready = sifted = Sifted.of(self.ready)
        self.routes = Routes(sifted)
        self.routes.take_over(self._levels, self.turn)
        self._levels, self.top = {}, _SOMEBODY

    def _end_routes(self, routes: Routes) -> None:
        """Nobody has a selector any more, and there is no filter."""
        self._ready = routes.sifted.unsifted()
        self.routes = None
        self._levels, self.turn = routes.give_back()
        self.top = self._levels[max(self._levels)] if self._levels else None

    def retire(self, consumer: Consumer) -> None:
        """It receives nothing more; what it holds stays its own."""
        if not consumer.active:
            return
        consumer.active = False
        if not self.durable:
            consumer.queue.rank(consumer, -1)
        if consumer.share is not None:
            consumer.share.leave(consumer)
        consumer.turn_left = 0
        if self.routes is not None:
            self.routes.retire(consumer)
            if not self.routes.needed:
                self._end_routes(self.routes)
            elif not self.durable:
                # What it alone wanted is for nobody any more: in a passing group nobody else will ask for it.
                self.routes.look_anew()
        else:
            level = self._levels[consumer.priority]
            level.remove(consumer)
            if not level.members:
                del self._levels[consumer.priority]
                self.top = self._levels[max(self._levels)] if self._levels else None
        if not self.attended:
            self._tail.move(self, attended=False)

    def leave(self, consumer: Consumer) -> bool:
        """Take it out; whether it was there."""
        self.retire(consumer)
        if consumer not in self.consumers:
            return False
        del self.consumers[consumer]
        consumer.queue.consumer_count -= 1
        consumer.queue.attendant_count -= consumer.attends
        consumer.queue.alarms.disarm(consumer)
        return True

    def offer(self, consumer: Consumer) -> None:
        """The consumer may have room again."""
        if consumer.active and not consumer.offered:
            if self.routes is not None:
                self.routes.offer(consumer)
            else:
                self._levels[consumer.priority].offer(consumer)

    @property
    def attended(self) -> bool:
        """Whether new messages mean something to do: some consumer receives, or there is a filter."""
        return self.top is not None

    @property
    def active(self) -> int:
        """How many consumers receive."""
        if self.routes is not None:
            return self.routes.active
        return sum(len(level.members) for level in self._levels.values())

    @property
    def held_back(self) -> int:
        """Acknowledged, and kept for a while; counted in `in_flight`."""
        return self.cursor.held.count if self.cursor is not None else 0

    def lowest_waiting(self) -> int:
        """The smallest sequence that waits; END when none does."""
        found = (self.ready.lowest(), self.delayed.lowest(), self.scheduled.lowest())
        return min((sequence for sequence in found if sequence is not None), default=END)

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

    def oldest_waiting(self, count: int, start: int = 0) -> list[Run]:
        """Up to `count` of the smallest sequences from `start` on that wait; they stay."""
        later = [runs_of_ascending(some.smallest(count, start)) for some in (self.delayed, self.scheduled) if some]
        return smallest_of((self.ready.smallest(count, start), *later), count)

    def waiting_within(self, first: int, last: int) -> list[Run]:
        """What waits within [first, last]; ascending, some runs may adjoin."""
        found = self.ready.overlap(first, last)
        for later in (self.delayed, self.scheduled):
            found += later.runs_within(first, last) if later else ()
        return sorted(found)

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
        found = RunSet(self.waiting_within(first, last))
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
        for later in (self.delayed, self.scheduled):
            for run in later.runs() if later else ():
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
        later = self.delayed.remove(first, last) if self.delayed else []
        if self.scheduled:
            later += self.scheduled.remove(first, last)
        if not later:
            return taken
        merged = RunSet(runs_of(later))
        for run in taken:
            merged.add(*run)
        return merged.runs()

    def drop_waiting(self) -> None:
        """As `take_waiting` of everything, of which nobody wants to know what it was."""
        self.ready.clear()
        self._delayed = _NO_DELAYED
        self._scheduled = _NO_SCHEDULED

    def cut_waiting(self, first: int, last: int, most: int, *, by_message: bool = False) -> tuple[int, int]:
        """(stop, cost): how far of [first, last] about `most` runs of what waits reach, or messages, and how many these
        are."""
        last, cost = self.ready.cut(first, last, most, by_message=by_message)
        if self.attempts and (start := self.ready.first_at(first)) is not None:
            last, forgotten = cut_history(start, last, most)
            cost += forgotten
        for later in (self.delayed, self.scheduled):
            if later:
                some = later.smallest(most, first)
                if len(some) == most:
                    last = min(last, some[-1])
                cost += bisect_right(some, last)
        return last, cost

    def cut_held(self, first: int, last: int, most: int) -> tuple[int, int]:
        """The same of what is held, whoever holds it."""
        cost = 0
        for consumer in self.consumers:
            last, number = self.cut_held_by(consumer, first, last, most)
            cost += number
        if self.cursor is not None:
            last, number = self.cursor.held.cut_runs(first, last, most)
            cost += number
        return last, cost

    def cut_held_by(self, consumer: Consumer, first: int, last: int, most: int) -> tuple[int, int]:
        """The same of what one consumer holds."""
        last, cost = consumer.unacked.cut_runs(first, last, most)
        if self.attempts and (held := consumer.unacked.front(1, first)):
            last, forgotten = cut_history(held[0][0], last, most)
            cost += forgotten
        return last, cost

    def remember(self, sequence: int, history: Attempts) -> None:
        """What is known about the message's attempts now."""
        if self.attempts is _NO_ATTEMPTS:
            self.attempts = {}
        self.attempts[sequence] = history

    def postpone(self, sequence: int, due: int) -> None:
        """The message, which has come back, waits for that instant; then it is at its place by sequence."""
        if self.delayed is _NO_DELAYED:
            self._delayed = Delayed()
        self._delayed.add(sequence, due)

    def postpone_some(self, sequences: list[int], dues: list[int]) -> None:
        """As `postpone` of each, none of which waits for an instant."""
        if self.delayed is _NO_DELAYED:
            self._delayed = Delayed()
        self._delayed.add_all(sequences, dues)

    def postpone_all(self, due: Instants) -> None:
        if due:
            if self.delayed is _NO_DELAYED:
                self._delayed = Delayed()
            self._delayed.fill(due)

    def schedule(self, sequence: int, known: Instants) -> None:
        """The message, which nobody in the group has had, waits for its instant, which may have passed; it is then at
        its place by instant. `known`: the queue's, of all such messages."""
        if self.scheduled is _NO_SCHEDULED:
            self._scheduled = Scheduled(known, self._ready.queue_levels)
        self._scheduled.add(sequence)

    def schedule_some(self, sequences: Sequence[int], dues: Values, known: Instants) -> None:
        """As `schedule` of each, of which none is here."""
        if self.scheduled is _NO_SCHEDULED:
            self._scheduled = Scheduled(known, self._ready.queue_levels)
        self._scheduled.add_all(sequences, dues)

    def schedule_all(self, due: Instants, known: Instants) -> None:
        """As `schedule` of each, of which none is here. `due` is used up."""
        if due:
            if self.scheduled is _NO_SCHEDULED:
                self._scheduled = Scheduled(known, self._ready.queue_levels)
            self._scheduled.fill(due)

    # -- the order of hand-out ----------------------------------------------------------------------------------------

    def pop(self, sizes: Sizes, count: int) -> list[Run]:
        """Remove and return up to `count` of what is ready, in the order of hand-out."""
        ready, scheduled = self.ready, self._scheduled
        if not (scheduled.levels and scheduled.fallen):
            return ready.pop(count)
        taken: list[Run] = []
        for level in self._levels_in_turn():
            runs, due = self._turn_of(level, sizes, count)
            given = run_count(runs)
            ready.pop_level(level, given - due)
            if due:
                scheduled.pop_front(level, due)
            taken += runs
            count -= given
            if not count:
                break
        return taken

    def peek(self, sizes: Sizes, count: int, start: int = 0) -> list[Run]:
        """As `pop`, of those from `start` on; they stay."""
        if not self.scheduled.fallen:
            return self.ready.next(count, start)
        found: list[Run] = []
        for level in self._levels_in_turn():
            runs, _ = self._turn_of(level, sizes, count, start)
            found += runs
            count -= run_count(runs)
        return found

    def _levels_in_turn(self) -> list[int]:
        return sorted({*self.ready.levels(), *self._scheduled.fallen_levels()}, reverse=True)

    def _turn_of(self, number: int, sizes: Sizes, count: int, start: int = 0) -> tuple[list[Run], int]:
        level = self._scheduled.level(number)
        if level is None:
            fallen = []
        elif start:
            # Looked at in pages by sequence: of each page the order is right.
            fallen = level.fallen_of(level.smallest(count, start))
        elif not self._ready.count:
            return level.front_runs(count), min(count, level.fallen)
        else:
            fallen = level.front(count)
        return in_turn(self.ready.front(number, count, start), fallen, sizes, count)

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
