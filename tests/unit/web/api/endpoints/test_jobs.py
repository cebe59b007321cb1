"""The shape of a job names every field that a job is shown with."""

from typing import Any

import pytest

from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.operations.jobs.shown import job_json
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.endpoints.jobs import JOB

PLAN = JobPlan(kind=JobKind.REPLAY, filter={}, last_id=9)
ALL_OF_PLAN = JobPlan(
    kind=JobKind.REPLAY,
    filter={"queue": "q"},
    last_id=9,
    to="other",
    limit=5,
    max_ready=3,
    canary=2,
    stop_after_dead_again=1,
    note="why",
    selected=5,
    key="nightly",
)
JSON_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "number" in kinds and isinstance(value, int | float):
        return not isinstance(value, bool)
    return type(value) in [JSON_TYPES[kind] for kind in kinds if kind != "number"]


@pytest.mark.parametrize("plan", [PLAN, ALL_OF_PLAN])
@pytest.mark.parametrize("rate", [0.0, 0.5, 20.0])
def test_every_field_of_a_job_has_its_type(plan: JobPlan, rate: float) -> None:
    job = StoredJob(job_id=1, plan=plan, created_at=1, changed_at=1, state=JobState.RUNNING, rate=rate)
    shown = with_instants(job_json(job, None))
    fields = JOB["properties"]
    assert {name: value for name, value in shown.items() if name not in fields or not fits(value, fields[name])} == {}
