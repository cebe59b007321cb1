"""Who may have a job done, see it, and change it.

A job does what an operation could do, and needs what that one needs: its maker when it is made and at each of its
steps, and whoever changes it.
"""

from collections.abc import Mapping
from typing import Any

from vibemq.auth.matrix import INSPECT, JOB_KINDS
from vibemq.auth.policy import Policy
from vibemq.errors import JobNotFound, NotAuthorized
from vibemq.model.access import Principal
from vibemq.model.jobs.job import JobKind, StoredJob


def check_work(policy: Policy, principal: Principal | None, kind: JobKind, queue: str, to: str, operation: str) -> None:
    """Raises NotAuthenticated, NotAuthorized. `queue`: the only one whose letters are meant; "" = every queue."""
    names: Mapping[str, Any] = {"queue": queue, "to": to}
    policy.admit(principal, JOB_KINDS[kind], names.get, operation=operation)


def queue_of(job: StoredJob) -> str:
    return str(job.plan.filter.get("queue") or "")


def may_see(policy: Policy, principal: Principal | None, job: StoredJob) -> bool:
    """Whoever made it, and whoever may look into every queue that it names."""
    if principal is None:
        return False
    plan = job.plan
    if is_maker(principal, job):
        return True
    places = [queue_of(job), *([plan.to] if plan.to else [])]
    return all(policy.allows(principal, INSPECT, place) for place in places)


def check_seen(policy: Policy, principal: Principal | None, job: StoredJob | None, name: str) -> StoredJob:
    """Raises JobNotFound: there is none that the principal may see."""
    if job is None or not may_see(policy, principal, job):
        raise JobNotFound(name)
    return job


def check_change(policy: Policy, principal: Principal | None, job: StoredJob) -> None:
    """Raises NotAuthorized. The maker may stop a job, whatever rights are left."""
    try:
        check_work(policy, principal, job.plan.kind, queue_of(job), job.plan.to, "job.change")
    except NotAuthorized:
        if not is_maker(principal, job):
            raise


def check_discard(policy: Policy, principal: Principal | None, job: StoredJob) -> None:
    """Whoever may only look at the letters deletes no copy of somebody else's. Raises NotAuthorized."""
    if not is_maker(principal, job) and (principal is None or not policy.is_superuser(principal)):
        raise NotAuthorized(f"the file of job {job.job_id} is deleted by whoever made the job, or by a superuser")


def is_maker(principal: Principal | None, job: StoredJob) -> bool:
    """A narrower token is not its user; nor is whoever had the name before or was given it later."""
    return (
        principal is not None
        and job.belongs_to(principal.name, principal.since)
        and (principal.rules is None or principal.token_id == job.plan.token_id)
    )
