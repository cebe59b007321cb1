"""Drives an engine as the server does, with the real reducer as its disk and an injected clock.

Records are applied in order; what is gated is told, and `committed` called, when an outcome is kept. Tests may hold
outcomes back (`hold = True`), keep them one by one, or refuse them as a full disk would.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from vibemq.engine import Engine, EngineSettings
from vibemq.errors import StorageFull
from vibemq.model.commands import (
    Classified,
    CloseSession,
    Command,
    CreateQueue,
    GiveUp,
    Pressure,
    Publish,
    Requester,
    Respond,
    SeekGroup,
    Settle,
    Settlement,
    StartAt,
    Subscribe,
)
from vibemq.model.effects import (
    Classify,
    ConsumerEnded,
    Deliver,
    Effect,
    Incomplete,
    Outcome,
    Published,
    Reply,
    Responded,
)
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import MessagesAdded, Record, StageMoved
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.model.stored import StoredGroup, StoredState
from vibemq.storage.state.dead_letter_facts import DeadTable
from vibemq.storage.state.liveness import gaps
from vibemq.storage.state.reducer import apply, in_group, restart_transient
from vibemq.testing.storage_workload import assert_whole


def rows_of(number: int, size: int = 10) -> Rows:
    return Rows.of([b"x" * size] * number)


def sequences(runs: Iterable[Run]) -> list[int]:
    return [sequence for first, last in runs for sequence in range(first, last + 1)]


class Driver:
    def __init__(self, settings: EngineSettings | None = None, *, jitter: Callable[[], float] = lambda: 0.0) -> None:
        self.settings = settings or EngineSettings()
        self.jitter = jitter
        self._ids = count(1)
        self._tokens = count(1)
        self.now = 1_000_000
        self.disk = StoredState()
        self.dead = DeadTable()
        self.hold = False
        self.writes = True
        """Everybody's socket takes what is handed out."""
        self._settled: dict[int, Deliver] = {}
        self.looks = True
        """Questions about messages are answered at once; else they are gathered."""
        self.questions: list[Classify] = []
        self.properties_of: Callable[[int], dict[str, Any]] = lambda sequence: {"n": sequence}
        """What selectors know of the message of that sequence."""
        self.waiting: list[Outcome] = []
        self.paying: Outcome | None = None
        """The last that paid what was owed, with the answers that wait for it."""
        self.submitting: list[Outcome] = []
        self.rows: dict[int, set[int]] = defaultdict(set)
        """Sequences whose rows reached the disk, by queue id."""
        self.promised: dict[int, set[int]] = defaultdict(set)
        """Sequences of transient queues that were confirmed at once, by queue id."""
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.watch: Callable[[list[Effect]], None] = lambda effects: None
        """Called with what is told, step by step."""
        self.engine = self._new_engine()

    def _new_engine(self) -> Engine:
        return Engine(self.settings, jitter=self.jitter, new_id=lambda: f"{next(self._ids):032x}")

    # -- steps ----------------------------------------------------------------------------------------------------

    def handle(self, *commands: Command) -> list[Effect]:
        """Give commands to the engine; return what could be told at once."""
        told = self.submit(self.engine.handle(commands, self.now))
        while self.engine._state.doomed:
            # The server's timers do not wait longer for it.
            told += self.tick()
        return told

    def submit(self, outcome: Outcome) -> list[Effect]:
        # The append follows at once, so its answers come with the hand-outs of the same step; `hold` keeps the flush.
        # What waits is answered in place when it is refused, so that what was told of it has to be a copy.
        told = [*map(copy.copy, outcome.after_append), *outcome.effects]
        self.effects += told
        self.submitting = [outcome]
        self._note_promises(outcome.effects)
        self.watch(told)
        self.submitting = []
        assert bool(outcome.ticket) == bool(outcome.records)
        if outcome.ticket or outcome.gated:
            self.waiting.append(outcome)
            if not self.hold:
                told += self.keep()
        if self.writes:
            told += self._settle_written(told)
        self.questions += [effect for effect in outcome.effects if isinstance(effect, Classify)]
        while self.looks and self.questions:
            told += self.look(self.questions.pop(0))
        return told

    def _note_promises(self, effects: list[Effect]) -> None:
        """What was confirmed before anything was heard of the disk."""
        for effect in effects:
            result = effect.result if isinstance(effect, Reply) else None
            if isinstance(result, Published) and result.first_sequence:
                queue = self.engine._state.queues.get(result.queue)
                if queue is not None and queue.transient:
                    count = result.count - len(result.refused or ()) - len(result.duplicates or ())
                    first = result.first_sequence
                    self.promised[queue.queue_id].update(range(first, first + count))

    def look(self, question: Classify) -> list[Effect]:
        """Answer a question."""
        return self.handle(self.answer_to(question))

    def answer_to(self, question: Classify) -> Classified:
        matched: list[tuple[int, int, int]] = []
        for first, last in question.runs:
            for sequence in range(first, last + 1):
                known = self.properties_of(sequence)
                bits = sum(selector.matches(known) << place for place, selector in enumerate(question.selectors))
                if matched and bits and matched[-1][1:] == (sequence - 1, bits):
                    matched[-1] = (matched[-1][0], sequence, bits)
                elif bits:
                    matched.append((sequence, sequence, bits))
        return Classified(0, None, question.number, matched)

    def _settle_written(self, told: list[Effect]) -> list[Effect]:
        """What nobody acknowledges is settled when it is written to its consumer."""
        found: list[Effect] = []
        for deliver in told:
            if isinstance(deliver, Deliver) and deliver.settled and id(deliver) not in self._settled:
                self._settled[id(deliver)] = deliver
                found += self.handle(Settle(deliver.session, None, deliver.consumer, Settlement.ACK, deliver.runs))
        return found

    def keep(self, number: int | None = None) -> list[Effect]:
        """The disk takes what waits (the first `number` outcomes); return what is told."""
        told: list[Effect] = []
        while self.waiting and number != 0:
            outcome = self.waiting.pop(0)
            number = None if number is None else number - 1
            for record in outcome.records:
                self.records.append(record)
                if isinstance(record, StageMoved):
                    assert_whole(self.disk, record)
                apply(self.disk, record, self.dead)
                if isinstance(record, MessagesAdded):
                    first = record.first_sequence
                    self.rows[record.queue_id].update(range(first, first + record.rows.count))
            told += outcome.gated
            self.effects += outcome.gated
            if outcome.gated:
                self.watch(outcome.gated)
            shown: Outcome | None = Incomplete() if outcome.ticket else None
            while isinstance(shown, Incomplete):
                shown = self.engine.committed(outcome.ticket, self.now)
                told += self.submit(shown)
        return told

    def refuse(self) -> list[Effect]:
        """The disk is full: all that waits is refused, in order."""
        outcomes, self.waiting = self.waiting, []
        told: list[Effect] = []
        waiting: list[Effect] = []
        error = StorageFull("disk is full")
        for outcome in outcomes:
            if outcome.ticket:
                told += self.submit(self.engine.failed(outcome.ticket, self.now, error))
            else:
                self.engine.failed_answers(outcome.gated, error)
            if outcome.ticket and outcome is self.paying:
                told += self._tell(outcome.gated)
            else:
                waiting += outcome.gated
        self.paying = self.engine.pay(self.now)
        if self.paying is None:
            return told + self._tell(waiting)
        self.paying.gated = waiting
        return told + self.submit(self.paying)

    def _tell(self, effects: list[Effect]) -> list[Effect]:
        self.effects += effects
        self.watch(effects)
        return effects

    def refuse_for_good(self) -> list[Effect]:
        """And what was owed does not fit either: the answers that waited for it are refused."""
        return self.refuse() + self.refuse()

    def advance(self, ms: int) -> list[Effect]:
        """Let time pass, as the server would: ticking at every deadline on the way."""
        end, told = self.now + ms, []
        while (at := self.engine.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            told += self.tick()
        self.now = end
        return told

    def tick(self) -> list[Effect]:
        return self.submit(self.engine.tick(self.now))

    def restart(self, *, down_ms: int = 0) -> None:
        """kill -9: what waits is lost; a new engine goes on from the disk."""
        self.waiting.clear()
        self.questions.clear()
        self.now += down_ms
        self._forget_transient()
        self.engine = self._new_engine()
        self.submit(self.engine.restore(copy.deepcopy(self.disk), self.now))

    def _forget_transient(self) -> None:
        self.promised.clear()
        restart_transient(self.disk, self.now)

    # -- shorthands -----------------------------------------------------------------------------------------------

    def ask(self, command: Any) -> Any:
        """Carry out one command and return its answer; None if it is still gated."""
        token = f"token-{next(self._tokens)}"
        command.token = token
        self.handle(command)
        return self.answer(token)

    def answer(self, token: Any) -> Any:
        found = [effect.result for effect in self.effects if isinstance(effect, Reply) and effect.token == token]
        assert len(found) <= 1, "answered twice"
        return found[0] if found else None

    def create(self, queue: str = "q", **options: Any) -> None:
        assert self.ask(CreateQueue(9, None, queue, QueueOptions(**options))) is None

    def create_crowd(self, groups: int, queue: str = "q", **options: Any) -> None:
        """A fan-out queue with the groups g0, g1 and so on."""
        self.create(queue, mode=DeliveryMode.FAN_OUT_WITH_ACK, **options)
        for number in range(groups):
            self.handle(SeekGroup(9, None, queue, f"g{number}", StartAt.NOW))

    def publish(
        self, number: int = 1, queue: str = "q", *, session: int = 9, size: int = 10, **extra: Any
    ) -> Published | Any:
        """`extra`: the fields of a MessageExtra, for every row."""
        extras = {index: MessageExtra(**extra) for index in range(number)} if extra else None
        return self.ask(Publish(session, None, queue, rows_of(number, size), extras))

    def subscribe(self, session: int, queue: str = "q", *, consumer: int = 1, **options: Any) -> Any:
        return self.ask(Subscribe(session, None, consumer, queue, **options))

    def request(
        self, address: str, queue: str = "q", *, session: int = 8, timeout_ms: int = 2_000, **extra: Any
    ) -> Any:
        """What the publish of a request is answered with."""
        extras = {0: MessageExtra(**extra)} if extra else None
        requester = Requester(address, f"request {address}", timeout_ms)
        return self.ask(Publish(session, None, queue, rows_of(1), extras, requester=requester))

    def respond(self, address: str, *, session: int = 1) -> Any:
        """None, or why the reply is not wanted."""
        return self.ask(Respond(session, None, address, rows_of(1)))

    def give_up(self, address: str, *, session: int = 8) -> None:
        self.handle(GiveUp(session, None, address))

    def outcomes(self) -> dict[str, list[Any]]:
        """What the requesters were told, by address: replies and errors."""
        found: dict[str, list[Any]] = {}
        for effect in self.effects:
            if isinstance(effect, Responded):
                found.setdefault(effect.token.removeprefix("request "), []).append(effect.result)
        return found

    def settle(
        self, session: int, *wanted: int, verb: Settlement = Settlement.ACK, consumer: int = 1, **more: Any
    ) -> list[Effect]:
        return self.handle(Settle(session, None, consumer, verb, [(s, s) for s in wanted], **more))

    def close(self, session: int, *, clean: bool = False) -> list[Effect]:
        return self.handle(CloseSession(session, clean))

    def take(self) -> dict[int, list[int]]:
        """Deliveries since the last look: session -> sequences in order."""
        found: dict[int, list[int]] = defaultdict(list)
        for effect in self.effects:
            if isinstance(effect, Deliver):
                found[effect.session] += sequences(effect.runs)
        self.effects = [effect for effect in self.effects if not isinstance(effect, Deliver)]
        return dict(found)

    def take_in_order(self) -> list[int]:
        """Sequences of the deliveries since the last look, in order, whoever got them."""
        found = [sequence for deliver in self.delivers() for sequence in sequences(deliver.runs)]
        self.take()
        return found

    def delivers(self) -> list[Deliver]:
        return [effect for effect in self.effects if isinstance(effect, Deliver)]

    def ended(self) -> list[ConsumerEnded]:
        return [effect for effect in self.effects if isinstance(effect, ConsumerEnded)]

    def info(self, queue: str = "q") -> QueueInfo:
        info = self.engine.queue_info(queue)
        assert info is not None
        return info

    def records_of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    # -- checks ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The law of conservation holds; and, with nothing on its way, disk and engine agree."""
        assert self.engine.violations() == []
        self._check_shares()
        self._check_parked()
        if self.waiting:
            return
        for queue_id, promised in self.promised.items():
            assert promised <= self.rows[queue_id], (
                f"{sorted(promised - self.rows[queue_id])} were confirmed and are gone"
            )
        if self.engine._state.owes:
            return
        assert self.disk.dead_count == self.engine.dead_count
        assert self.disk.jobs == self.engine.jobs.by_id
        for queue in self.engine._state.queues.values():
            stored = self.disk.queues[queue.queue_id]
            assert stored.options == queue.options
            assert {g.group_id for g in stored.groups.values()} == {g.group_id for g in queue.groups.values()}
            if queue.log is not None and not queue.transient:
                log = gaps(stored.dropped, 1, stored.next_sequence - 1)
                assert log == queue.log.runs(), "another log than on the disk"
            for group in queue.groups.values():
                kept = stored.groups[group.group_id]
                on_disk = unsettled_on_disk(stored.next_sequence, kept, stored.dropped)
                assert on_disk == group.unsettled_set(), group.name
                assert (kept.name, kept.durable, kept.epoch) == (group.name, group.durable, group.epoch)
                assert kept.where == (group.where.text if group.where else ""), "the filter is not the one that is kept"
                if not queue.options.consumers_settle:
                    # A crash hands out again what was handed out before it.
                    continue
                for run in (run for consumer in group.consumers for run in consumer.unacked.runs()):
                    assert sum(b - a + 1 for a, b in kept.pending.overlap(*run)) == run[1] - run[0] + 1

    def _check_parked(self) -> None:
        """Nobody waits for room that is there, unless somebody is about to look."""
        state, at = self.engine._state, self.engine.next_deadline()
        leaving = bool(state.departing)
        wait = [parked for queue in state.parking for parked in queue.parked]
        assert leaving or state.waiting_room.taken == sum(parked.size for parked in wait), "room for those that left"
        assert leaving or set(state.waiting_room.of_session) == {parked.session for parked in wait}
        if state.pressure >= Pressure.BLOCKING or (at is not None and at <= self.now):
            return
        for queue in state.parking:
            waiting = max((group.waiting for group in queue.groups.values()), default=0) + queue.unseen_count
            room = queue.options.max_messages - waiting
            fits = not queue.options.max_bytes and queue.parked[0].rows.count <= room
            assert not fits, f"a publisher waits with room for {room} messages"
            assert waiting, "a publisher waits, and nothing else does"

    def _check_shares(self) -> None:
        """A share counts what its members hold, and calls those that wait as soon as there is room."""
        state = self.engine._state
        for session in state.sessions.values():
            for name, share in session.shares.items():
                assert share.members, f"share {name} has no members and is kept"
                held = sum(consumer.unacked.count for consumer in share.members)
                assert share.count == held, f"share {name} counts {share.count}, its members hold {held}"
                weight = sum(consumer.unacked.size for consumer in share.members)
                assert share.size == weight, f"share {name} counts {share.size} bytes, its members {weight}"
                called = share in state.called
                assert called or share.turn is None, f"the turn of share {name} does not end"
                assert called or not (share.line and share.free), f"share {name} has room, and nobody is called"


class DriverSession:
    """The session of operations (`operations.contracts.CommandSession`), answered by a driver at once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        """
        Raises:
            VibeMQError: the answer is an error.
        """
        answer = self._driver.ask(make(1, 0))
        if isinstance(answer, Exception):
            raise answer
        return answer


def unsettled_on_disk(next_sequence: int, group: StoredGroup, dropped: RunSet) -> RunSet:
    """What the group has still to settle, sequence by sequence."""
    low = min(group.head, group.pending.first if group.pending else group.head)
    return RunSet((s, s) for s in range(low, next_sequence) if in_group(group, s) and s not in dropped)
