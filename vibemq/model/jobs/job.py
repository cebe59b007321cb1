"""A job, as the engine and the store keep it: a value. What happens to it is a record (`job_records.py`)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class JobKind(StrEnum):
    REPLAY = "replay"
    """Letters go back into queues."""
    PURGE_DEAD = "purge_dead"
    """Letters are deleted."""
    EXPORT_DEAD = "export_dead"
    """Letters are copied into a file, and stay."""


class JobState(StrEnum):
    QUEUED = "queued"
    """It waits until fewer jobs run."""
    RUNNING = "running"
    PAUSED = "paused"
    """By somebody who may."""
    HELD = "held"
    """By one of its own guards, or because its maker has not the rights any more."""
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


KEPT_MS = 7 * 24 * 3_600_000
"""So long a job is kept when it has ended, and with it its file."""
ENDED = frozenset((JobState.DONE, JobState.CANCELLED, JobState.FAILED))
"""Nothing follows these."""


class JobEvent(NamedTuple):
    at: int
    event: str
    detail: str = ""


Stretch = tuple[int, int, int]
"""(queue_id, first, last): messages of one queue that a job has made."""

ACKNOWLEDGED = "acknowledged"
"""The event that makes a job `acknowledged`."""
CANARY_PASSED = "canary passed"
"""The event of a canary that was not waived."""
UNTRIED = "untried"
"""The event that makes a job `untried`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What was asked for; it stays as it is."""

    kind: JobKind
    filter: dict[str, Any]
    """As it was asked for. Ages are measured at the instant when the job was made."""
    to: str = ""
    """Queue that letters go to; "" = the one in which each died."""
    limit: int = 0
    """Most letters to do; 0 = all."""
    max_ready: int = -1
    """The job waits while its target has more messages ready; -1 = it never does."""
    canary: int = 0
    """So many letters are done first, and the others only if none of these dies again."""
    stop_after_dead_again: int = 0
    """The job is held when so many of its messages have died again; 0 = never."""
    note: str = ""
    first_id: int = 1
    last_id: int
    """Letters with other ids are not the job's: those that die later never join."""
    selected: int = -1
    """Letters that fitted when the job was made; -1 = they were not counted."""
    user: str = ""
    """Whose job it is."""
    user_since: int = -1
    """When that user was made, 0 = it stands in the settings: others may have the name before and later. -1 = of a job
    that was stored before this was noted."""
    token_id: str = ""
    """Of the access token that it was asked for with; "" = none."""
    key: str = ""
    """Whoever asks again with the same one is given this job."""
    digest: str = ""
    """Of the whole request, to compare those that have the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    job_id: int
    plan: JobPlan
    created_at: int
    state: JobState
    why: str = ""
    """A sentence that says why it is in this state."""
    rate: float = 0.0
    """Most letters in a second; 0 = as many as can be done."""
    started_at: int = 0
    changed_at: int = 0
    ended_at: int = 0
    cursor: int = 0
    """Every letter up to this id was dealt with; of those behind it, the ones that are done are gone. (Those of an
    export stay, and its cursor moves with each step.)"""
    examined: int = 0
    """Letters looked at, up to the cursor."""
    done: int = 0
    skipped: int = 0
    """Letters that somebody else had taken before the job came to them."""
    damaged: int = 0
    """Letters that could not be read and stay where they are."""
    dead_again: int = 0
    gone: int = 0
    """Messages of its canary that left their queue before anybody settled them: purged, removed, expired or moved. They
    have neither passed nor failed. Those of a queue that was deleted are not among them."""
    acknowledged: bool = False
    """A consumer has acknowledged a message of its canary. Only that lets a canary pass."""
    untried: bool = False
    """When its canary was looked at, no message of it was left, and nobody had acknowledged one."""
    forgiven: int = 0
    """How many had died again when somebody let the job go on nevertheless."""
    canary_passed: bool = False
    """Or it was waived: the job has none to wait for."""
    canary_waived: bool = False
    """Somebody who knew what had become of the canary let the job go on."""
    made: tuple[Stretch, ...] = ()
    """The messages that it has made; the stretch that it has added to last stands last."""
    made_forgotten: bool = False
    """There were more than are remembered, so more may have died again than are counted."""
    events: tuple[JobEvent, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def is_over(self, now: int) -> bool:
        """Whether it has ended so long ago that it is not kept."""
        return self.has_ended and self.ended_at < now - KEPT_MS

    def belongs_to(self, user: str, since: int) -> bool:
        """`since`: when the user was made. Somebody else may have had the name before, or may have been given it."""
        if user != self.plan.user:
            return False
        return since <= self.created_at if self.plan.user_since < 0 else since == self.plan.user_since

    def has_maker_of(self, other: "StoredJob") -> bool:
        return (self.plan.user, self.plan.user_since) == (other.plan.user, other.plan.user_since)

    @property
    def left(self) -> int | None:
        """Of its limit; None = it has none."""
        return max(0, self.plan.limit - self.done) if self.plan.limit else None

    @property
    def in_canary(self) -> bool:
        return self.plan.canary > 0 and not self.canary_passed

    @property
    def awaits_ack(self) -> bool:
        """The first acknowledgement of a message of its canary."""
        return self.in_canary and not self.acknowledged and not self.has_ended


class JobStep(NamedTuple):
    """What a command does for a job: see `JobAdvanced`. It counts with the letters of the command, or not at all."""

    job_id: int
    cursor: int = 0
    """Behind the last letter of the command; 0 = it stays, because more commands follow for the same letters."""
    examined: int = 0
    damaged: int = 0
    done: int = 0
    """Letters that were dealt with outside of the engine, before it is told."""
    passed: int = 0
    """Letters that the commands before have passed over, of those that the cursor comes behind now."""
