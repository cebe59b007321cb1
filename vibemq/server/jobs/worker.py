"""One job at work: page after page of dead letters, each in steps that the engine carries out and counts.

Whatever the job knows stands in the engine's records. The worker may be stopped anywhere, also by `kill -9`: the next
one begins behind the cursor, and finds of the letters there those that are not done yet.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from vibemq.auth.users import Accounts
from vibemq.errors import (
    Blocked,
    JobNotFound,
    JobStateConflict,
    NotAuthorized,
    QueueExclusive,
    QueueNotFound,
    StorageFailed,
    StorageFull,
    VibeMQError,
)
from vibemq.model.commands import AdvanceJob, ChangeJob, Command, ForgetMade
from vibemq.model.effects import JobStepped
from vibemq.model.jobs.job import KEPT_MS, JobKind, JobState, JobStep, StoredJob
from vibemq.model.jobs.job_records import MADE_RUNS_MAX
from vibemq.operations.contracts import CommandSession, EngineQuestions, InstantSource, StoreAccess
from vibemq.operations.dead_letters import DeadLetterReader
from vibemq.operations.jobs.rights import check_work, queue_of
from vibemq.operations.jobs.shown import LiveJob
from vibemq.operations.steps import in_turns
from vibemq.server.jobs.blocked_queues import RETRY_MS, BlockedQueues
from vibemq.server.jobs.export_files import ExportFiles
from vibemq.server.jobs.exporting import LetterExport, MustWait
from vibemq.server.jobs.letters import PAGE_LETTERS, LetterPage, LetterPages, PageStep
from vibemq.server.jobs.makers import maker_of
from vibemq.server.jobs.pace import Pace

log = logging.getLogger("vibemq.jobs")

CANARY_LOOK_MS = 500
READY_LOOK_MS = 200


@dataclass(frozen=True, slots=True)
class JobServices:
    """What all jobs share."""

    engine: EngineQuestions
    local: CommandSession
    store: StoreAccess
    reader: DeadLetterReader
    accounts: Accounts
    clock: InstantSource
    exports: ExportFiles


class Runs(Protocol):
    """Whose workers these are."""

    @property
    def stopping(self) -> bool: ...

    def due_changed(self) -> None: ...

    def others_may_run(self) -> None: ...


class _Wait(Exception):
    """The job cannot go on now; the sentence says what it waits for."""

    def __init__(self, why: str, look_ms: int = RETRY_MS) -> None:
        super().__init__(why)
        self.look_ms = look_ms


class _Stuck(_Wait):
    """One queue takes no letters now."""


class _NoTurn(_Wait):
    """Others go on. Once it was told what the job had to wait for, this is not told every second."""


class _Held(Exception):
    """Somebody has to do something before the job goes on, such as to give its maker a right back, as it says."""


class JobWorker:
    def __init__(self, services: JobServices, job_id: int, runs: Runs) -> None:
        self.job_id = job_id
        self.due: int | None = None
        """When to look again; None = it does not sleep."""
        self._services = services
        self._runs = runs
        self._nudge = asyncio.Event()
        self._pace = Pace()
        self._waits_for = ""
        self._told = ""
        """What the log was told last of what it waits for."""
        self._page: LetterPage | None = None
        self._pages: LetterPages | None = None
        self._export = LetterExport(services.store, services.exports)
        self._blocked = BlockedQueues()
        self._file_waits_since: int | None = None
        """Since when the export has found no room; None = it has."""
        self._looked_at = 0
        """For messages of the job that are settled."""
        self._is_stored = False
        """What the engine has decided before has reached the store, as far as this worker knows."""

    def live(self) -> LiveJob:
        return LiveJob(self._waits_for, self._pace.rate_now(self._services.clock.now()))

    def nudge(self) -> None:
        self._nudge.set()

    async def run(self) -> None:
        """Until the job does not run any more, or the broker stops."""
        while (job := self._look()) is not None:
            try:
                await self._go_on(job)
                self._waits_for = ""
                self._told = self._told if self._blocked else ""
            except _Wait as wait:
                await self._wait(wait)
            except _Held as lost:
                await self._end(JobState.HELD, str(lost))
            except (JobStateConflict, JobNotFound):
                # Somebody has changed it meanwhile: look again.
                self._page = None
            except StorageFailed:
                raise
            except StorageFull as error:
                # What was asked for may hold already, and is stored as soon as there is room: look again.
                self._page, self._is_stored = None, False
                await self._wait(_Wait(f"the disk is full: {error.reason}"))
            except VibeMQError as error:
                await self._end(JobState.FAILED, str(error))

    async def fail(self) -> None:
        """After a fault that nobody has foreseen. While there is another one in its way, others have the job's turn."""
        why = "a fault of the broker; its log has the reason"
        while self._look() is not None:
            if await self._can(self._end(JobState.FAILED, why)):
                return
            self._waits_for = why
            await self._can(self._yield_turn())
            await self._sleep_until(self._services.clock.now() + RETRY_MS)

    async def _can(self, work: Coroutine[Any, Any, None]) -> bool:
        try:
            await work
        except StorageFailed:
            raise
        except Exception:
            log.exception("job %s, which has failed, cannot be ended yet", self.job_id)
            return False
        return True

    def _look(self) -> StoredJob | None:
        # Before the look: who changes the job from here on wakes the worker, also when it is about to sleep.
        self._nudge.clear()
        job = self._services.engine.jobs.get(self.job_id)
        runs = job is not None and job.state is JobState.RUNNING and not self._runs.stopping
        return job if runs else None

    # -- one step -----------------------------------------------------------------------------------------------------

    async def _go_on(self, job: StoredJob) -> None:
        """Do the next step. Raises _Wait, _Held, or what ends the job."""
        self._check_rights(job)
        await self._take_turn()
        if not self._is_stored:
            # The store still has letters whose end is owed, and whoever reads them finds them gone again and again.
            await self._ask(job, partial(_advance, JobStep(job.job_id)))
            self._is_stored = True
            return
        if job.left == 0:
            await self._finish(job, "its limit is reached")
            return
        if job.in_canary and job.done >= job.plan.canary:
            await self._look_at_canary(job)
            return
        now = self._services.clock.now()
        free_at = self._pace.wait_until(job.rate, now)
        if free_at > now:
            if free_at - now >= READY_LOOK_MS:
                # A slow one would keep the turn of others for as long as it lasts.
                await self._yield_turn()
            await self._sleep_until(free_at)
            return
        if self._page is not None and self._page.is_done and self._page.is_complete:
            self._blocked.clear()
            if self._page.is_last:
                await self._finish(job)
                return
        await self._forget_settled(job)
        if self._page is None or self._page.is_done:
            self._page = await self._read(job)
            if self._page.is_done:
                self._pass_page(job, self._page)
                return
        if job.plan.kind is JobKind.EXPORT_DEAD:
            await self._write_out(job, self._page)
        else:
            await self._carry_out(job, self._page)

    async def _take_turn(self) -> None:
        jobs = self._services.engine.jobs
        if self.job_id in jobs.waiting:
            if not jobs.has_room():
                raise _NoTurn("it waits for its turn, because others go on")
            await self._services.local.ask(partial(ChangeJob, job_id=self.job_id, turn=True))

    async def _yield_turn(self) -> None:
        """If somebody else might take it."""
        jobs = self._services.engine.jobs
        if self.job_id in jobs.waiting or jobs.has_room():
            return
        # What it has read is read again: many may wait.
        self._page = None
        try:
            await self._services.local.ask(partial(ChangeJob, job_id=self.job_id, turn=False))
        except (JobStateConflict, JobNotFound, StorageFull):
            log.debug("job %s keeps its turn", self.job_id)
        self._runs.others_may_run()

    async def _read(self, job: StoredJob) -> LetterPage:
        if self._pages is None:
            self._pages = LetterPages(self._services.reader, job)
        # A page goes queue by queue: what is beyond the limit is not read, so that the oldest of all queues go.
        most = PAGE_LETTERS if job.left is None else min(PAGE_LETTERS, job.left)
        if job.in_canary:
            most = min(most, job.plan.canary - job.done)
        if job.plan.kind is JobKind.EXPORT_DEAD and job.rate:
            most = min(most, self._pace.letters(job.rate))
        if not self._blocked.reached:
            self._blocked.try_again()
            return await self._pages.read(job.cursor, most)
        page = await self._pages.read(self._blocked.reached, most, self._blocked.reasons)
        page.pass_over()
        return page

    async def _write_out(self, job: StoredJob, page: LetterPage) -> None:
        """A page of an export: first into the file, then into the count."""
        step = page.take_whole()
        of = JobStep(job.job_id, step.cursor, step.examined, step.damaged, len(step.letters))
        try:
            await self._export.add(job, step.letters)
            await self._ask(job, partial(_advance, of))
        except MustWait as why:
            self._page = None
            await self._wait_for_room(why)
            return
        except BaseException:
            self._page = None
            raise
        self._file_waits_since = None
        self._export.counted(job)
        self._pace.went(len(step.letters), job.rate, self._services.clock.now())
        await asyncio.sleep(0)

    async def _carry_out(self, job: StoredJob, page: LetterPage) -> None:
        queue = page.next_queue
        try:
            await self._do_step(job, page)
        except _Stuck as stuck:
            if page.is_complete and not page.has_others(queue) and not self._may_pass(job, page):
                raise
            # What the step has taken of the page is for that queue, too.
            self._page = page
            self._blocked.note(queue, str(stuck), stuck.look_ms)
            page.set_aside(queue)
        if page.is_done and not page.is_complete:
            self._pass_page(job, page)

    def _may_pass(self, job: StoredJob, page: LetterPage) -> bool:
        """Whether letters behind the page may go before some of it."""
        plan = job.plan
        if plan.to or queue_of(job) or plan.limit or job.in_canary or page.is_last:
            return False
        return self._blocked.may_pass(self._services.clock.now())

    def _pass_page(self, job: StoredJob, page: LetterPage) -> None:
        """Go on behind a page of which letters stay, or from the cursor again. Raises _Wait."""
        self._page, now = None, self._services.clock.now()
        if not self._may_pass(job, page):
            raise _Stuck(*self._blocked.end_pass(now))
        self._blocked.pass_page(page.last, now)

    async def _do_step(self, job: StoredJob, page: LetterPage) -> None:
        most = self._pace.letters(job.rate)
        if job.left is not None:
            most = min(most, job.left)
        if job.in_canary:
            most = min(most, job.plan.canary - job.done)
        queue = page.next_queue
        if queue and job.plan.max_ready >= 0:
            most = min(most, await self._room(queue, job.plan.max_ready))
        step = page.take(most)
        try:
            stepped = await self._ask(job, await self._command(job, step))
        except BaseException:
            # Nothing of it is done, as far as anybody knows: what is gone is not found again.
            self._page = None
            raise
        self._pace.went(stepped.count, job.rate, self._services.clock.now())
        page.note_passed(stepped.passed)
        if stepped.too_large:
            raise _Held(
                f"dead letter {stepped.too_large} has more bytes than queue {step.queue!r} takes (max_bytes); change "
                "the queue, replay or purge the letter by itself, then resume the job"
            )
        if stepped.left:
            self._page = None
            if stepped.job.left != 0:
                raise _Stuck(f"queue {step.queue!r} has no room, and would drop its oldest messages")
        await asyncio.sleep(0)

    async def _command(self, job: StoredJob, step: PageStep) -> Callable[[int, Any], Command]:
        of = step.of(job.job_id)
        if job.plan.kind is JobKind.REPLAY and step.letters:
            return await step.replay(self._services.store, of)
        if job.plan.kind is JobKind.PURGE_DEAD and step.origins:
            return step.purge(of)
        return partial(_advance, of)

    async def _ask(self, job: StoredJob, make: Callable[[int, Any], Command]) -> JobStepped:
        """Raises _Wait, _Held, StorageFull."""
        # Nothing is awaited between this and the engine's turn: no step begins after a revocation was answered.
        self._check_rights(job)
        try:
            stepped: JobStepped = await self._services.local.ask(make)
        except QueueNotFound as error:
            raise _Stuck(
                f"queue {error.queue!r} does not exist; create it, or cancel the job and say with `to` where letters "
                "shall go"
            ) from None
        except QueueExclusive as error:
            raise _Stuck(str(error)) from None
        except Blocked as error:
            raise _Wait(str(error)) from None
        return stepped

    # -- guards -------------------------------------------------------------------------------------------------------

    def _check_rights(self, job: StoredJob) -> None:
        """Whether the maker of the job could have it done now. Raises _Held."""
        accounts, plan = self._services.accounts, job.plan
        principal = maker_of(accounts, job, self._services.clock.now())
        if principal is None:
            login = "the access token that it was started with" if plan.token_id else f"user {plan.user!r}"
            raise _Held(f"{login} does not exist any more; have the job made again by somebody who may")
        try:
            check_work(accounts.policy, principal, plan.kind, queue_of(job), plan.to, "this job")
        except NotAuthorized as error:
            raise _Held(str(error)) from None

    async def _look_at_canary(self, job: StoredJob) -> None:
        if await in_turns(self._services.engine.unsettled(job.job_id)):
            which = (
                "the letter of its canary is not" if job.done == 1 else f"not all {job.done} letters of its canary are"
            )
            raise _Wait(f"{which} settled yet", CANARY_LOOK_MS)
        why = f"none of the first {job.done} letters died again"
        now = self._services.engine.jobs.get(job.job_id)
        if now is not None and now.gone:
            why += f"; {now.gone} of them are gone without a verdict: purged, removed, moved or expired"
        await self._services.local.ask(
            lambda session, token: ChangeJob(session, token, job.job_id, why=why, canary_passed=True)
        )

    async def _forget_settled(self, job: StoredJob) -> None:
        """When the job remembers as many stretches of its messages as it may. Raises _Wait."""
        if len(job.made) < MADE_RUNS_MAX or job.in_canary:
            return
        counts, now = bool(job.plan.stop_after_dead_again), self._services.clock.now()
        if not counts and now < self._looked_at + RETRY_MS:
            return
        self._looked_at = now
        settled = await in_turns(self._services.engine.settled(job.job_id))
        if settled:
            await self._services.local.ask(partial(ForgetMade, job_id=job.job_id, stretches=settled))
        elif counts:
            raise _Wait(
                f"it is to be held when {job.plan.stop_after_dead_again} of its messages have died again, and too many "
                f"of them are not settled yet: they lie in {len(job.made)} places between those of others",
                CANARY_LOOK_MS,
            )

    async def _room(self, queue: str, max_ready: int) -> int:
        """How many letters may go to the queue. Raises _Wait."""
        steps = self._services.engine.depth(queue)
        if steps is None:
            return 1
        ready = (await in_turns(steps)).ready
        if ready > max_ready:
            raise _Stuck(f"queue {queue!r} has {ready} messages ready, more than {max_ready}", READY_LOOK_MS)
        return max(1, max_ready - ready)

    # -- states -------------------------------------------------------------------------------------------------------

    async def _finish(self, job: StoredJob, why: str = "") -> None:
        """All is done. Raises _Wait."""
        if job.plan.kind is JobKind.EXPORT_DEAD:
            try:
                await self._export.finish(job)
            except MustWait as wait:
                await self._wait_for_room(wait)
                return
        await self._end(JobState.DONE, why)

    async def _wait_for_room(self, why: MustWait) -> None:
        """What an export has written takes room of others: it does not wait for ever. Raises _Wait."""
        now = self._services.clock.now()
        if self._file_waits_since is None:
            self._file_waits_since = now
        if now - self._file_waits_since <= KEPT_MS:
            raise _Wait(str(why))
        await self._end(JobState.CANCELLED, f"it has waited for seven days, and its file takes room: {why}")

    async def _end(self, state: JobState, why: str = "") -> None:
        self._page = None
        change = partial(ChangeJob, job_id=self.job_id, state=state, why=why)
        try:
            await self._services.local.ask(lambda session, token: change(session, token))
        except StorageFull:
            # It is true all the same, and stored as soon as there is room.
            await self._sleep_until(self._services.clock.now() + RETRY_MS)
            return
        except (JobStateConflict, JobNotFound):
            log.debug("job %s: somebody else has changed it", self.job_id)
            return
        log.info("job %s: %s%s", self.job_id, state, f" ({why})" if why else "", extra={"event": "job.ended"})

    async def _wait(self, wait: _Wait) -> None:
        self._waits_for = str(wait)
        if str(wait) != self._told:
            self._told = str(wait)
            if not isinstance(wait, _NoTurn):
                log.info("job %s waits: %s", self.job_id, wait, extra={"event": "job.waits"})
        self._pace.paused(self._services.clock.now())
        await self._yield_turn()
        await self._sleep_until(self._services.clock.now() + wait.look_ms)

    async def _sleep_until(self, instant: int) -> None:
        """Or until somebody wakes it."""
        self.due = instant
        self._runs.due_changed()
        await self._nudge.wait()
        self.due = None


def _advance(of: JobStep, session: int, token: Any) -> Command:
    return AdvanceJob(session, token, of)
