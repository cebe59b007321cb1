"""Jobs as JSON: an object, so that later versions may add to it. Its fields are those of `StoredJob` and `JobPlan`."""

from dataclasses import fields
from typing import Any

from vibemq.model.jobs.job import JobEvent, JobKind, JobPlan, JobState, StoredJob

_PLAN_FIELDS = frozenset(each.name for each in fields(JobPlan))
_JOB_FIELDS = frozenset(each.name for each in fields(StoredJob)) - {"plan"}


def dump_job(job: StoredJob) -> dict[str, Any]:
    plan = {name: getattr(job.plan, name) for name in _PLAN_FIELDS}
    events = [list(event) for event in job.events]
    return {name: getattr(job, name) for name in _JOB_FIELDS} | {"plan": plan, "events": events}


def load_job(values: Any) -> StoredJob:
    """Raises one of `encoding.GARBAGE`."""
    own = {name: values[name] for name in _JOB_FIELDS if name in values}
    plan = {name: values["plan"][name] for name in _PLAN_FIELDS if name in values["plan"]}
    own["made"] = tuple((int(queue_id), int(first), int(last)) for queue_id, first, last in own.get("made", ()))
    own["events"] = tuple(load_event(event) for event in own.get("events", ()))
    own["rate"] = float(own.get("rate", 0))
    own["state"] = JobState(own["state"])
    plan["kind"] = JobKind(plan["kind"])
    job = StoredJob(plan=JobPlan(**plan), **own)
    if not all(
        isinstance(number, int) for number in (job.job_id, job.created_at, job.cursor, job.done, plan["last_id"])
    ):
        raise ValueError("a job's numbers are none")
    return job


def load_event(values: Any) -> JobEvent:
    at, event, detail = values
    return JobEvent(int(at), str(event), str(detail))
