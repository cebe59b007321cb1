"""Operations on jobs."""

import asyncio
from hashlib import sha256
from typing import Annotated, Any, Literal, Protocol

import orjson
from pydantic import Field

from vibemq.auth.policy import Policy
from vibemq.errors import InvalidOptions, PreconditionFailed, QueueNotFound
from vibemq.model.commands import ChangeJob, StartJob
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.operations.arguments import Arguments, CanBeTried, Limit, QueueName, Whole, page_size
from vibemq.operations.contracts import CommandSession, EngineQuestions, InstantSource
from vibemq.operations.dead_letters import DeadLetterReader, GivenFilters, LetterFilter
from vibemq.operations.dead_letters.rates import Rate
from vibemq.operations.dead_letters.reader import ANSWER_BYTES_MAX, known_queue_ids
from vibemq.operations.jobs.counting import count_letters
from vibemq.operations.jobs.numbers import JobNumber, OfJob
from vibemq.operations.jobs.results import ExportedFiles, check_export, result_json
from vibemq.operations.jobs.rights import check_change, check_seen, check_work, may_see
from vibemq.operations.jobs.shown import LiveJob, in_list, job_json, state_of
from vibemq.operations.registry import Caller, Operation

PAGE_JOBS = 50
SHOWN_AT_ONCE = 20
CANARY_MAX = 1_000
IDS_MAX = 10_000
NOTE_MAX = 1_000


class StartJobArguments(Arguments):
    preview = "dlq.preview"

    kind: Literal["replay", "purge_dead", "export_dead"] = Field(
        description="replay puts letters back into queues, purge_dead deletes them, export_dead copies them into a "
        "file in the broker's data directory: job.result reads it."
    )
    filter: GivenFilters = Field(
        default_factory=lambda: GivenFilters.model_validate({}),
        description="Which letters, with the names of the arguments of dlq.list; ages count from now. Letters that die "
        "later are not meant.",
    )
    to: QueueName | None = Field(None, description="Queue that letters are replayed to; left out: where each died.")
    rate: Rate | None = Field(
        None, description="Most letters in a second, 0.1 or more; left out or 0: as many as possible."
    )
    limit: Annotated[int, Field(ge=1, le=10**15)] | None = Field(None, description="Most letters; left out: all.")
    max_ready: Whole | None = Field(None, description="Wait while the target queue has more messages ready than this.")
    canary: Annotated[int, Field(ge=0, le=CANARY_MAX)] | None = Field(
        None, description="Replay so many first, and the others only when all of these are settled and none died again."
    )
    stop_after_dead_again: Whole | None = Field(
        None, description="Hold the job when so many of its messages have died again."
    )
    at_most: Whole | None = Field(
        None, description="Refuse with PRECONDITION_FAILED, and start nothing, when more letters than this fit."
    )
    note: Annotated[str, Field(max_length=NOTE_MAX)] = Field("", description="Why; kept with the job.")
    key: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None,
        description="A second request of the same user with this key starts nothing: it is answered with the first "
        "one's job, and `repeated`, as long as that is kept: 7 days after its end, and as one of at most 200 ended "
        "jobs without a file: where there are more, the oldest of the user who has the most is forgotten.",
    )


class JobListArguments(Arguments):
    state: Literal["queued", "running", "waiting", "paused", "held", "done", "cancelled", "failed"] | None = Field(
        None, description="Only jobs in this state."
    )
    after: JobNumber | None = Field(None, description="Go on behind this job: `next` of the page before.")
    limit: Limit = None


class ChangeJobArguments(CanBeTried, OfJob):
    state: Literal["paused", "running", "cancelled"] | None = Field(None, description="What the job shall be.")
    rate: Rate | None = Field(
        None, description="Most letters in a second from now on, 0.1 or more; 0: as many as possible."
    )


class JobsAtWork(Protocol):
    """Who carries jobs out."""

    def live(self, job_id: int) -> LiveJob | None: ...

    def wake(self) -> None:
        """Some job is new or has changed."""


class Jobs:
    def __init__(
        self,
        engine: EngineQuestions,
        local: CommandSession,
        reader: DeadLetterReader,
        policy: Policy,
        clock: InstantSource,
        work: JobsAtWork,
        files: ExportedFiles,
    ) -> None:
        self._engine = engine
        self._local = local
        self._reader = reader
        self._policy = policy
        self._clock = clock
        self._work = work
        self._files = files

    async def start(self, caller: Caller, wanted: StartJobArguments) -> dict[str, Any]:
        """Raises NotAuthorized, QueueNotFound, PreconditionFailed, IdempotencyConflict, and InvalidOptions for
        arguments that do not fit together."""
        kind, principal = JobKind(wanted.kind), caller.principal
        queue = wanted.filter.queue or ""
        check_work(self._policy, principal, kind, queue, wanted.to or "", "job.start")
        _check_fitting(wanted, kind)
        if wanted.to is not None and self._engine.readers.tail(wanted.to) is None:
            raise QueueNotFound(wanted.to)
        given = wanted.model_dump(mode="json", exclude_none=True, exclude={"key"})
        digest = sha256(orjson.dumps(given, option=orjson.OPT_SORT_KEYS)).hexdigest()
        user = principal.name if principal is not None else ""
        now, last_id = self._clock.now(), self._engine.readers.last_dead_id()
        since = principal.since if principal is not None else 0
        selected = -1
        if wanted.key is None or self._engine.jobs.with_key(user, wanted.key, since, now) is None:
            if kind is JobKind.EXPORT_DEAD:
                check_export(self._files)
            selected = await self._count(wanted, now, last_id)
            if queue and selected <= 0:
                await known_queue_ids(self._engine, self._reader, queue, None)
        plan = JobPlan(
            kind=kind,
            filter=wanted.filter.absolute(now).model_dump(mode="json", exclude_defaults=True),
            to=wanted.to or "",
            limit=wanted.limit or 0,
            max_ready=-1 if wanted.max_ready is None else wanted.max_ready,
            canary=wanted.canary or 0,
            stop_after_dead_again=wanted.stop_after_dead_again or 0,
            note=wanted.note,
            last_id=last_id,
            selected=min(selected, wanted.limit) if wanted.limit else selected,
            user=user,
            user_since=since,
            token_id=principal.token_id if principal is not None else "",
            key=wanted.key or "",
            digest=digest,
        )
        caller.check_again()
        try:
            reply = await self._local.ask_whole(
                lambda session, token: StartJob(session, token, plan, wanted.rate or 0.0, now, since)
            )
        finally:
            # What could not be stored may hold all the same, such as the turn of another job.
            self._work.wake()
        return {**self._shown(reply.result), **({"repeated": True} if reply.unchanged else {})}

    async def _count(self, wanted: StartJobArguments, now: int, last_id: int) -> int:
        """Raises PreconditionFailed."""
        most = wanted.at_most
        filters = wanted.filter.absolute(now)
        selected = await count_letters(self._reader, filters, last_id=last_id, exact=most is not None)
        if most is not None and selected > most:
            raise PreconditionFailed(
                f"{selected} dead letters fit by now, more than the {most} that were expected; nothing was started: "
                "look at them again"
            )
        return selected

    async def page(self, caller: Caller, wanted: JobListArguments) -> dict[str, Any]:
        """The latest first; those that the caller may see."""
        limit = page_size(wanted.limit, PAGE_JOBS)

        def fits(job: StoredJob) -> bool:
            return may_see(self._policy, caller.principal, job) and (
                wanted.state is None or state_of(job, self._work.live(job.job_id)) == wanted.state
            )

        found = self._engine.jobs.page(int(wanted.after or 0), limit + 1, fits)
        shown: list[dict[str, Any]] = []
        size = 0
        for job in found[:limit]:
            one = in_list(self._shown(job))
            size += len(orjson.dumps(one))
            if shown and size > ANSWER_BYTES_MAX:
                break
            shown.append(one)
            if not len(shown) % SHOWN_AT_ONCE:
                await asyncio.sleep(0)
        return {"jobs": shown, "next": shown[-1]["job"] if len(found) > len(shown) else None}

    async def show(self, caller: Caller, wanted: OfJob) -> dict[str, Any]:
        return self._shown(self._seen(caller, wanted))

    async def change(self, caller: Caller, wanted: ChangeJobArguments) -> dict[str, Any]:
        """Raises JobNotFound, NotAuthorized, JobStateConflict."""
        job = self._seen(caller, wanted)
        check_change(self._policy, caller.principal, job)
        if wanted.state is None and wanted.rate is None:
            raise InvalidOptions("job.change takes a state or a rate; give at least one of them")
        state = None if wanted.state is None else JobState(wanted.state)
        by = caller.principal.name if caller.principal is not None else "nobody"
        try:
            changed = await caller.step(
                self._local,
                lambda session, token: ChangeJob(
                    session, token, job.job_id, state, rate=wanted.rate, by=by, dry_run=wanted.dry_run
                ),
            )
        finally:
            self._work.wake()
        return self._shown(changed)

    def _seen(self, caller: Caller, wanted: OfJob) -> StoredJob:
        return check_seen(self._policy, caller.principal, self._engine.jobs.get(int(wanted.job)), wanted.job)

    def _shown(self, job: StoredJob) -> dict[str, Any]:
        return {**job_json(job, self._work.live(job.job_id)), **result_json(job, self._files)}


def _check_fitting(wanted: StartJobArguments, kind: JobKind) -> None:
    """Raises InvalidOptions."""
    if len(wanted.filter.ids or ()) > IDS_MAX:
        raise InvalidOptions(f"a job takes at most {IDS_MAX:,} ids; start several jobs, or use other filters")
    LetterFilter(wanted.filter, 0)
    if kind is JobKind.REPLAY:
        return
    for name in ("to", "max_ready", "canary", "stop_after_dead_again"):
        if getattr(wanted, name):
            raise InvalidOptions(f"argument {name} of job.start is for jobs of the kind replay, not {kind}")


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "job.start",
        "Have the broker replay, delete or export dead letters by itself, whoever stays connected. What the kind of "
        "work needs is needed: as dlq.replay, dlq.purge or dlq.show.",
        StartJobArguments,
        Jobs,
        task=Jobs.start,
        scans=True,
        logged=True,
        audited=True,
        nothing_done=("repeated", True),
    ),
    Operation(
        "job.list",
        "Jobs that are kept, the latest first, in pages: one's own, and those on queues that one may inspect. Of a "
        "filter by `ids` a list has only `id_count`; job.show has all.",
        JobListArguments,
        Jobs,
        task=Jobs.page,
        logged=True,
    ),
    Operation("job.show", "One job.", OfJob, Jobs, task=Jobs.show, logged=True),
    Operation(
        "job.change",
        "Pause, resume or cancel a job, or change its rate. Its maker may, and whoever may have the same done.",
        ChangeJobArguments,
        Jobs,
        task=Jobs.change,
        logged=True,
        audited=True,
    ),
]
