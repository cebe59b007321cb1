"""The queue engine: commands in, outcomes out. Pure and deterministic; its state depends only on its inputs.

    handle      what sessions ask, whole
    advance     the same in steps of a few milliseconds
    committed   an outcome's durability holds: its messages become visible
    failed      an outcome could not be written: its messages vanish
    tick        what has fallen due

Every one of these first changes the state through small handlers (one module per noun), then hands out what can be
handed out, and returns an `Outcome`. An outcome with records always has a ticket, about which the caller must report
with `committed` or `failed`.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import islice

from vibemq.engine import departure, lifetime, views
from vibemq.engine.command_handlers import HANDLERS
from vibemq.engine.dispatch import dispatch
from vibemq.engine.failures import answers, rollback
from vibemq.engine.handlers import (
    dead_lettering,
    publish,
    queues,
    timers,
)
from vibemq.engine.handlers.append import has_time_for, show
from vibemq.engine.handlers.expiry import expire
from vibemq.engine.handlers.jobs.deaths import note_gone
from vibemq.engine.handlers.transfer import moves
from vibemq.engine.jobs.job_table import JobTable
from vibemq.engine.pacing import STEP_UNITS, Batch, is_crowded, work_off
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Added, Queue
from vibemq.engine.range_views import Readers
from vibemq.engine.recovery import restore
from vibemq.engine.requests import asking, doubting
from vibemq.engine.settings import EngineSettings
from vibemq.engine.state import EngineState, Open, Totals
from vibemq.engine.step import Step, Wait
from vibemq.errors import StorageFull, VibeMQError, forget_frames
from vibemq.model import commands as ask
from vibemq.model.effects import NOTHING_FOLLOWS, Effect, Incomplete, Outcome, Payment, QueueDepth, Reply
from vibemq.model.jobs.job import Stretch
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.runs import END, Run
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.model.stored import StoredState

_OWED_RETRY_MS = 1_000


class Engine:
    """The whole queue semantics. Same commands and instants, same outcomes."""

    def __init__(self, settings: EngineSettings, *, jitter: Callable[[], float], new_id: Callable[[], str]) -> None:
        """`jitter` returns numbers in [0, 1), `new_id` fresh names; both are the caller's randomness."""
        self._state = EngineState(settings, jitter, new_id)
        self._readers = Readers(self._state)

    def configure(self, settings: EngineSettings) -> None:
        """Other settings, for everything that is asked from now on."""
        self._state.settings = settings

    # -- steps ----------------------------------------------------------------------------------------------------

    def restore(self, state: StoredState, now: int) -> Outcome:
        """Take over what storage kept. Once, before anything else.

        `now` counts, even when storage has seen later instants: those were of a clock that was wrong.
        """
        step = self._begin(now)
        restore(self._state, step, state)
        timers.run_due_timers(self._state, step)
        return self._finish(step)

    def handle(self, commands: Sequence[ask.Command], now: int) -> Outcome:
        """Carry out a batch whole, in order. Dispatch comes after the last one. Raises the fault of a handler."""
        batch = Batch(commands)
        outcome = self._carry_out(batch, now, END)
        if batch.fault is not None:
            raise batch.fault
        return outcome

    def advance(self, batch: Batch, now: int) -> Outcome:
        """Carry out the next step of a batch: all of it, unless there is long work in it.

        A fault of a handler ends the batch (`Batch.fault`). Its command is refused, and the outcome has what was noted
        before. Any other exception leaves a state here that nobody can keep: the broker must stop.
        """
        return self._carry_out(batch, now, STEP_UNITS)

    def _carry_out(self, batch: Batch, now: int, units: int) -> Outcome:
        step = self._begin(now)
        state, commands = self._state, batch.commands
        before = batch.place
        for place in range(before, len(commands)):
            command = commands[place]
            step.answering = place
            told, facts = len(step.effects), step.facts
            try:
                slices = batch.slices
                if slices is None:
                    slices = HANDLERS[type(command)](state, step, command)
                if slices is not None:
                    begun, batch.slices = batch.slices is not None, None
                    if not work_off(slices, step, units, begun=begun):
                        batch.slices = slices
            except VibeMQError as error:
                _refuse(step, command, error)
            except Exception as error:
                # What was noted before it is true here, so it has to be kept all the same; nothing comes behind it.
                batch.fail(error)
                _refuse(
                    step, command, VibeMQError("the broker could not carry out the request; its log has the reason")
                )
            if step.facts > facts and len(step.effects) > told:
                # Whatever a handler says while it changes what has to be kept, nobody hears it before it is kept.
                step.confirm_after_append(told)
            if batch.slices is not None or batch.fault is not None:
                break
            batch.place = place + 1
            if step.work >= units:
                break
        state.totals.commands += batch.place - before
        step.answering = -1
        return self._finish(step, units)

    def committed(self, ticket: int, now: int) -> Outcome:
        """The durability of that outcome holds, and its gated effects are told: they should be told when this says that
        it is complete, so that nobody who was answered misses what the answer speaks of. Until then it is to be called
        again: what was published with extras is shown in steps (`Incomplete`). `NOTHING_FOLLOWS` when that is so."""
        state = self._state
        outcome = state.open.pop(ticket)
        if outcome.moved:
            moves.stay_away(outcome.moved)
            outcome.moved = []
        if not (outcome.added or outcome.waits or state.carried or state.showing or state.called):
            return NOTHING_FOLLOWS
        state.count_published(outcome)
        step = self._begin(now)
        shown: dict[Queue, None] = {}
        for added in outcome.added:
            added.visible = True
            shown[added.queue] = None
        for queue in shown:
            if queue.deleted:
                continue
            if not step.work or has_time_for(step, queue):
                show(state, step, queue)
            else:
                state.unshown[queue] = None
        if state.unshown and not state.unshown.keys().isdisjoint(shown):
            state.open[ticket] = outcome
            part = self._finish(step)
            return Incomplete(part.records, part.effects, part.after_append, part.gated, part.durability, part.ticket)
        for wait in outcome.waits:
            self._settle_wait(step, wait, ticket)
        return self._finish(step)

    def shows_at_once(self, ticket: int) -> bool:
        """Whether `committed` will be complete with its first call and is little work, so that its gated effects may be
        told before. While groups of some queue wait to be shown something, each call does a step's work for them."""
        state = self._state
        if state.showing or state.carried is not None:
            return False
        for added in state.open[ticket].added:
            if added.extras or added.queue in state.unshown or is_crowded(added.queue):
                return False
        return True

    def failed(self, ticket: int, now: int, error: StorageFull) -> Outcome:
        """Nothing of that outcome was written (StorageFull), and what waited for it was not told.

        Its new messages vanish. Those of transient queues that were confirmed stay: their records are the answer's,
        need no disk, and are to be kept like those of any outcome. The other facts of the outcome stay true here; their
        records are owed, and go before those of the next outcome (or with a later tick). So a settlement is not
        forgotten because a publish beside it did not fit.

        The effects that waited for the outcome stay the caller's, and are answered in place: replies about what
        vanished are refused with the error, and the others are told with what is owed (`pay`).

        The caller must also fail, in order, every outcome that the engine made after that one and before this call
        (`failed_answers` for those without a ticket), and then call `pay`: their records may build on the missing ones.
        Only then are the holes in the sequences recorded soundly.
        """
        step = self._begin(now)
        state = self._state
        state.totals.failed_outcomes += 1
        outcome = state.open.pop(ticket)
        for taken in reversed(outcome.moved):
            taken.return_requests()
        promised: list[Added] = []
        for added in outcome.added:
            if added.promised:
                promised.append(added)
            else:
                rollback.vanish(step, state, added)
        for taken in outcome.moved:
            moves.put_back(state, step, taken)
        for undo in outcome.undo:
            undo()
        lifetime.forget_attended(state, outcome.records)
        holes = rollback.Holes(state)
        waiting = (*outcome.after_append, *outcome.gated)
        if outcome.pays:
            answers.give_up(state, step, waiting, error)
        else:
            answers.answer_failed(state, waiting, error, holes)
        for wait in outcome.waits:
            self._fail_wait(step, wait, ticket, holes, error)
        lifetime.attend_changed(state, step, outcome.records)
        step.close()
        records = rollback.without_moves(state, outcome.records, outcome.moved)
        state.owed += rollback.owed_of(state, records, holes, refused=outcome.pays)
        state.owed_behind += step.records
        state.note_refused(outcome.records)
        kept = rollback.keep_promised(state, outcome.records, promised)
        self._carry(step)
        if not kept:
            return Outcome(effects=step.effects)
        # What is owed is not paid with it: it may need the disk, and the series of failures may go on.
        ticket = state.next_ticket
        state.next_ticket += 1
        state.open[ticket] = Open(kept, [], [], promised, [], [], Durability.TRANSIENT)
        return Outcome(kept, step.effects, ticket=ticket)

    def failed_answers(self, waiting: Sequence[Effect], error: StorageFull) -> None:
        """The same of an outcome without a ticket, that waited for those before it: answer what waits in place."""
        answers.answer_failed(self._state, waiting, error, rollback.Holes(self._state))

    def pay(self, now: int) -> Payment | None:
        """After a series of failures: what is owed, by itself, if answers wait for it; None = the effects that waited
        may be told now.

        They are to be told when the outcome's durability holds, and are not among its effects. When it cannot be
        written either, `failed` refuses them.
        """
        state = self._state
        if not state.owed_answers:
            return None
        step = self._begin(now)
        step.gated, state.owed_answers = state.owed_answers, []
        step.durability = Durability.STRONG
        if state.owes:
            state.owed_at = step.now
        outcome = self._finish(step, 0)
        if outcome.ticket:
            state.open[outcome.ticket].pays = True
        return Payment(outcome.records, outcome.effects, outcome.after_append, [], outcome.durability, outcome.ticket)

    def tick(self, now: int) -> Outcome:
        """Do what is due at or before now."""
        step = self._begin(now)
        if self._state.dead_ids_due:
            return self._tell_dead_ids(step)
        timers.run_due_timers(self._state, step)
        asking.expire(self._state, step)
        doubting.look(self._state, step)
        if self._state.called:
            self._call_sharers(step)
        self._show_others(step)
        # Here alone: there is one tick in a turn of the loop, and any number of other steps.
        departure.reap(self._state, step, STEP_UNITS)
        return self._finish(step)

    def _tell_dead_ids(self, step: Step) -> Outcome:
        """By itself: nothing that could be taken back is with it. What else is due stays due."""
        dead_lettering.tell_ids(self._state, step)
        return self._finish(step, 0) if step.records else Outcome()

    def _show_others(self, step: Step) -> None:
        """What no outcome that is being committed shows."""
        for queue in list(self._state.unshown):
            if step.work >= STEP_UNITS:
                break
            show(self._state, step, queue)

    def next_deadline(self) -> int | None:
        """When to call tick() again; may be early, is never late. Changes with every other call."""
        state = self._state
        if state.unshown or state.doomed or state.departing or state.called or state.doubtful or state.requests.failed:
            return state.now
        if state.dead_ids_due:
            return state.now
        at = timers.next_alarm(state)
        due = state.requests.next_due()
        earliest = min(state.owed_at, END if at is None else at, END if due is None else due)
        return None if earliest == END else earliest

    # -- views ----------------------------------------------------------------------------------------------------

    def queue_info(self, name: str) -> QueueInfo | None:
        queue = self._state.queues.get(name)
        return None if queue is None else views.queue_info(queue)

    def describing(self, name: str) -> Generator[None, None, QueueInfo] | None:
        """The same without its groups, step by step; None for a missing queue."""
        queue = self._state.queues.get(name)
        return None if queue is None else views.describe(queue, 0)

    def options_of(self, name: str) -> tuple[str, QueueOptions] | None:
        """(incarnation, options); None for a missing queue."""
        queue = self._state.queues.get(name)
        return None if queue is None else (queue.incarnation, queue.options)

    def check_new_queue(self, name: str, options: QueueOptions) -> None:
        """Raises InvalidQueueName, InvalidOptions: the command that creates it would be refused."""
        queues.check_new_queue(self._state, name, options)

    def queue_infos(self) -> list[QueueInfo]:
        """By name."""
        return [views.queue_info(queue) for _, queue in sorted(self._state.queues.items())]

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        """The few figures of one queue that a scaler asks for, step by step; None for a missing queue."""
        queue = self._state.queues.get(name)
        return None if queue is None else views.depth_steps(queue)

    def survey(self) -> views.Survey:
        """The figures of all queues, step by step, for metrics."""
        return views.Survey(self._state)

    def waiting_runs(self, queue: str, limit: int, start: int = 0) -> list[Run]:
        """Up to `limit` waiting messages from `start` on, in the order of hand-out, delayed ones last; [] for a missing
        queue."""
        found = self._state.queues.get(queue)
        return [] if found is None else views.waiting_runs(found, limit, start)

    def subscriptions(self, session: int) -> list[tuple[int, str]]:
        """(consumer, queue) of each subscription of a session, those that only hold messages included."""
        known = self._state.sessions.get(session)
        return [] if known is None else [(number, c.queue.name) for number, c in known.consumers.items()]

    def any_parked(self) -> bool:
        """Whether anything that was published waits for room."""
        return bool(self._state.parking)

    @property
    def readers(self) -> Readers:
        """What readers by range, and transactions, may know."""
        return self._readers

    @property
    def jobs(self) -> JobTable:
        """To be read, not changed; but it is told which jobs have a file."""
        return self._state.jobs

    def unsettled(self, job_id: int) -> Generator[None, None, bool]:
        """Whether a message that the job has made is not settled yet, step by step."""
        return views.job_unsettled(self._state, job_id)

    def settled(self, job_id: int) -> Generator[None, None, list[Stretch]]:
        """Which stretches of messages that the job has made are settled, in the same way."""
        return views.job_settled(self._state, job_id)

    @property
    def in_flight_count(self) -> int:
        return sum(group.in_flight for queue in self._state.queues.values() for group in queue.groups.values())

    @property
    def dead_count(self) -> int:
        """Dead letters of all queues, deleted ones included."""
        return self._state.dead_total

    @property
    def totals(self) -> Totals:
        return self._state.totals

    @property
    def pressure(self) -> ask.Pressure:
        return self._state.pressure

    def violations(self) -> list[str]:
        """Where published = settled + ready + in flight + delayed + dead + expired + dropped does not hold."""
        return [line for queue in self._state.queues.values() for line in views.violations(queue)]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _begin(self, now: int) -> Step:
        state = self._state
        if now > state.now:
            state.now = now
        return Step(state.now, state.jobs.made)

    def _carry(self, step: Step) -> None:
        """Leave what follows from a failure to the next step: records made now could not build on what is owed."""
        state = self._state
        if state.carried is not None:
            step.dirty |= state.carried.dirty
            step.freed |= state.carried.freed
        state.carried = step if step.dirty or step.freed else None
        if state.carried is not None or state.showing:
            state.owed_at = step.now
        elif state.owes:
            state.owed_at = step.now + _OWED_RETRY_MS

    def _finish(self, step: Step, units: int = STEP_UNITS) -> Outcome:
        """Hand out what can be handed out now, within the units of one step; a tick that is due at once goes on."""
        state = self._state
        if state.carried is not None:
            step.dirty = state.carried.dirty | step.dirty
            step.freed |= state.carried.freed
            state.carried = None
        showing = state.showing
        while (step.dirty or step.freed or showing) and units > 0:
            if showing:
                units -= self._call_groups(step)
            while step.freed:
                queue, _ = step.freed.popitem()
                lifetime.note_consumer_left(state, queue)
                publish.unpark(state, step, queue)
            dirty, step.dirty = step.dirty, {}
            passed_over: dict[Group, Queue] = {}
            for group, queue in dirty.items():
                if units <= 0:
                    passed_over[group] = queue
                elif queue.deleted:
                    continue
                elif expire(state, step, queue):
                    units -= dispatch(state, step, queue, group, units) or 1
                else:
                    step.touch(queue, group)
                    units = 0
            # A group that got only a part of its turn comes behind those that have had none.
            if passed_over:
                step.dirty = passed_over | step.dirty
            if state.called:
                units -= self._call_sharers(step)
        if step.doubtful:
            doubting.begin(state, step)
        if state.requests.failed:
            asking.tell_failed(state.requests, step)
        if step.given_up:
            note_gone(state, step)
        step.close()
        if state.owed_at < END and (step.records or step.gated or step.after_append or state.owed_at <= step.now):
            self._pay(step)
        if units <= 0 and (step.dirty or step.freed or showing):
            self._carry(step)
        ticket = self._issue(step) if step.records else 0
        for wait in step.waits:
            for awaited in wait.tickets:
                state.open[awaited].waits.append(wait)
        return Outcome(step.records, step.effects, step.after_append, step.gated, step.durability, ticket)

    def _call_groups(self, step: Step) -> int:
        """Groups that share a tail which has moved get their turn with the others, first those that have waited for it
        longest; no more of them at once than a step deals with. Returns what it has cost beyond a unit for each."""
        showing = self._state.showing
        units = STEP_UNITS - len(step.dirty)
        extra = 0
        for _ in range(len(showing)):
            if units <= 0:
                break
            queue = next(iter(showing))
            tail = queue.tail
            assert tail is not None
            if not expire(self._state, step, queue):
                self._state.arm(queue, step.now)
            groups, cost = tail.call(units)
            for group in groups:
                step.touch(queue, group)
            units -= cost
            extra += cost - len(groups)
            if tail.is_ahead:
                showing.move_to_end(queue)
            else:
                del showing[queue]
        return extra

    def _call_sharers(self, step: Step) -> int:
        """Where consumers share a capacity, one that waits for room has its turn, when the one before has had it.
        Returns what it has cost."""
        called = self._state.called
        some = list(islice(called, STEP_UNITS))
        for share in some:
            if share.turn is not None and share.turn.group in step.dirty:
                continue
            consumer = share.next()
            if consumer is None:
                del called[share]
            else:
                consumer.group.offer(consumer)
                step.touch(consumer.queue, consumer.group)
                # Behind the other shares.
                del called[share]
                called[share] = None
        return len(some)

    def _pay(self, step: Step) -> None:
        """Put what is owed before the records of this outcome. Every outcome with records comes here, so that of two
        series of failures the first is paid before the second begins."""
        state = self._state
        if state.owed_behind or state.gaps or state.brought_back:
            rollback.owe_what_followed(state)
        if state.owed:
            state.note_paid()
            step.records = state.owed + step.records
            step.durability = max(step.durability, Durability.STRONG)
        state.owed, state.owed_at = [], END

    def _issue(self, step: Step) -> int:
        state = self._state
        ticket = state.next_ticket
        state.next_ticket += 1
        state.open[ticket] = Open(
            step.records, step.after_append, step.gated, step.added, step.moved, step.undo, step.durability
        )
        return ticket

    def _settle_wait(self, step: Step, wait: Wait, ticket: int) -> None:
        wait.tickets.discard(ticket)
        if not wait.tickets:
            step.effects.append(Reply(wait.session, wait.token, wait.result))

    def _fail_wait(self, step: Step, wait: Wait, ticket: int, holes: rollback.Holes, error: StorageFull) -> None:
        """Rows whose original vanished are refused like it; the others may still be waited for."""
        answers.refuse_vanished(self._state, wait.result, error, holes)
        self._settle_wait(step, wait, ticket)


_NEVER_ANSWERED = ask.SetFlow | ask.CloseSession | ask.EndConsumers | ask.SetPressure | ask.Classified | ask.ForgetJobs


def _refuse(step: Step, command: "ask.Command", error: VibeMQError) -> None:
    # The reply keeps it, and its frames would keep the step.
    forget_frames(error)
    if not isinstance(command, _NEVER_ANSWERED):
        step.refuse(command, error)
