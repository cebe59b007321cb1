"""Who acts for the user of a job that nobody is connected for."""

from vibemq.auth.users import Accounts
from vibemq.model.access import Principal
from vibemq.model.jobs.job import StoredJob


def maker_of(accounts: Accounts, job: StoredJob, now: int) -> Principal | None:
    """None: the user or the access token that it was started with does not exist any more."""
    principal = accounts.acting(job.plan.user, job.plan.token_id, now)
    if principal is not None and accounts.enabled and not job.belongs_to(principal.name, principal.since):
        return None
    return principal
