"""Jobs as operators see them."""

from dataclasses import dataclass
from typing import Any

from vibemq.model.jobs.job import JobEvent, JobState, StoredJob

WAITING = "waiting"
"""What a job is called that runs and waits for something outside of it."""


@dataclass(slots=True)
class LiveJob:
    """What is known of a job while it runs, and not kept."""

    waits_for: str = ""
    """A sentence; "" = it does not wait."""
    rate_now: float = 0.0
    """Letters in a second, of late."""


def job_json(job: StoredJob, live: LiveJob | None) -> dict[str, Any]:
    plan = job.plan
    runs = job.state is JobState.RUNNING
    waits = live.waits_for if runs and live is not None else ""
    rate_now = live.rate_now if runs and live is not None and not waits else 0.0
    return {
        "job": str(job.job_id),
        "kind": plan.kind.value,
        "state": state_of(job, live),
        "why": waits or job.why,
        "filter": plan.filter,
        "to": plan.to or None,
        "rate": _number(job.rate) or None,
        "limit": plan.limit or None,
        "max_ready": plan.max_ready if plan.max_ready >= 0 else None,
        "canary": plan.canary or None,
        "canary_passed": job.canary_passed and not job.canary_waived,
        "canary_waived": job.canary_waived,
        "canary_gone": job.gone,
        "stop_after_dead_again": plan.stop_after_dead_again or None,
        "note": plan.note,
        "key": plan.key or None,
        "user": plan.user,
        "created_at": job.created_at,
        "started_at": job.started_at or None,
        "changed_at": job.changed_at,
        "ended_at": job.ended_at or None,
        "selected": plan.selected if plan.selected >= 0 else None,
        "examined": job.examined,
        "done": job.done,
        "skipped": _skipped(job),
        "damaged": job.damaged,
        "dead_again": job.dead_again,
        "dead_again_exact": not job.made_forgotten,
        "next_id": job.cursor + 1,
        "last_id": plan.last_id,
        "rate_now": round(rate_now, 1),
        "left_ms": _left_ms(job, rate_now),
        "events": [_event_json(event) for event in job.events],
    }


def state_of(job: StoredJob, live: LiveJob | None) -> str:
    waits = job.state is JobState.RUNNING and live is not None and live.waits_for
    return WAITING if waits else job.state.value


def in_list(shown: dict[str, Any]) -> dict[str, Any]:
    """Of a list of ids only their number: thousands of them would leave no room for other jobs."""
    rest = {name: value for name, value in shown["filter"].items() if name != "ids"}
    ids = shown["filter"].get("ids")
    return shown if ids is None else {**shown, "filter": {**rest, "id_count": len(ids)}}


def _skipped(job: StoredJob) -> int:
    """Letters that others have taken. One that goes before the job has read it is noticed at the end: it was chosen,
    and the job has not met it."""
    plan = job.plan
    if job.state is not JobState.DONE or plan.limit or plan.selected < 0:
        return job.skipped
    return max(job.skipped, plan.selected - job.done - job.damaged)


def _number(rate: float) -> float | int:
    return int(rate) if rate == int(rate) else rate


def _left_ms(job: StoredJob, rate_now: float) -> int | None:
    selected = job.plan.selected
    if selected < 0 or rate_now <= 0:
        return None
    left = selected - job.done - job.skipped - job.damaged
    return max(0, round(left * 1000 / rate_now))


def _event_json(event: JobEvent) -> dict[str, Any]:
    return {"at": event.at, "event": event.event, "detail": event.detail}
