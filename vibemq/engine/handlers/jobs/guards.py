"""What a job's own guards say of the letters that have died again."""

from vibemq.model.jobs.job import StoredJob


def why_held(job: StoredJob) -> str:
    """Why the job may not go on before somebody has looked; "" = it may. Whatever its state is."""
    died = job.dead_again - job.forgiven
    if job.in_canary and died:
        if job.done == job.plan.selected:
            return (
                f"{died} of its {job.done} letters died again, and none is left; look at their errors, then resume the "
                "job, which ends it"
            )
        return (
            f"{died} of the first {job.done} letters died again, so no others were replayed; look at their errors, "
            "then resume the job or cancel it"
        )
    if job.in_canary and job.untried:
        return (
            f"nobody acknowledged any of the first {job.done} letters, and none is left: they were purged, removed, "
            "moved, have expired, or their queue or its consumer group was deleted. Nothing says how the others would "
            "do; resume the job, which then replays them, or cancel it"
        )
    stop = job.plan.stop_after_dead_again
    if stop and died >= stop:
        return f"{died} of its letters died again; look at their errors, then resume the job or cancel it"
    return ""
