"""Dead letters, and the jobs that deal with many of them."""

from dataclasses import dataclass
from typing import Any

from vibemq.model.commands.queues import QueueName
from vibemq.model.extras.message_extra import Extras
from vibemq.model.jobs.job import JobPlan, JobState, JobStep, Stretch
from vibemq.model.rows import Rows


@dataclass(slots=True)
class ReplayDead:
    """Put dead letters back. The server has read them from storage and prepared their rows.

    One batch: those of `dead_ids` that are still there leave the DLQ and their rows enter `queue`, from the first on as
    far as a queue that drops its oldest messages has room. Reply: `Replayed`. The server gives a few dozen at a time.
    """

    session: int
    token: Any
    queue: QueueName
    dead_ids: list[int]
    rows: Rows
    extras: Extras | None = None
    origins: dict[int, int] | None = None
    """dead_id -> queue_id that it died in (0 = unknown), as the store has it. Letters made since the start are known
    without; of older ones this is the only evidence that they are there, and those that are not named count as gone."""
    asked_by: int = 0
    """As in `RemoveListed`."""
    step: JobStep | None = None
    """Of the job that they go back for. A job that does not run any more moves nothing, and none more than its limit.
    Letters of another connection's queue are passed over. The reply is `JobStepped`."""
    dry_run: bool = False
    """Only count them."""


@dataclass(slots=True)
class PurgeDead:
    """Reply: `Counted`."""

    session: int
    token: Any
    dead_ids: list[int]
    origins: dict[int, int] | None = None
    """As in `ReplayDead`."""
    asked_by: int = 0
    """As in `RemoveListed`."""
    step: JobStep | None = None
    """As in `ReplayDead`."""


@dataclass(slots=True)
class StartJob:
    """Reply: the `StoredJob`, durable; that of an earlier request when both have the same key and are the same."""

    session: int
    token: Any
    plan: JobPlan
    rate: float = 0.0
    asked_at: int = 0
    """The instant from which the filter's ages are measured."""
    since: int = 0
    """When the user was made: an older job with the same key is somebody else's."""


@dataclass(slots=True)
class ChangeJob:
    """Reply: the `StoredJob` as it is now, durable."""

    session: int
    token: Any
    job_id: int
    state: JobState | None = None
    why: str = ""
    rate: float | None = None
    """None = it stays; 0 = no limit."""
    by: str = ""
    """Who wants it; "" = the broker."""
    canary_passed: bool = False
    turn: bool | None = None
    """False: the job waits, and another one may go on in its place; True: it would go on. Nothing is recorded."""
    dry_run: bool = False
    """Only say how the job would be."""


@dataclass(slots=True)
class ForgetMade:
    """Stretches of messages of a job that are settled (`Engine.settled`). Reply: None."""

    session: int
    token: Any
    job_id: int
    stretches: list[Stretch]


@dataclass(slots=True)
class ForgetJobs:
    """Those that have ended long ago. Nobody is answered."""


@dataclass(slots=True)
class AdvanceJob:
    """A step that moves no letter: none fitted, or they were copied. Reply: `JobStepped`."""

    session: int
    token: Any
    step: JobStep
