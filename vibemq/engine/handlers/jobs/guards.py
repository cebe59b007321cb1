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
        first = "the first letter" if job.done == 1 else f"{died} of the first {job.done} letters"
        return f"{first} died again, so no others were replayed; look at their errors, then resume the job or cancel it"
    if job.in_canary and _is_untried(job):
        others = (
            "there are no others; resume the job, which ends it"
            if job.done == job.plan.selected
            else "nothing says how the others would do; resume the job, which then replays them, or cancel it"
        )
        return (
            f"nobody acknowledged any of the first {job.done} letters, and none of them waits any more: they were "
            "purged, removed, moved, dropped, filtered out, have expired, or their queue or its consumer group was "
            f"deleted; {others}"
        )
    stop = job.plan.stop_after_dead_again
    if stop and died >= stop:
        return f"{died} of its letters died again; look at their errors, then resume the job or cancel it"
    return ""


def _is_untried(job: StoredJob) -> bool:
    """Whether no message of a whole canary is left, and nobody has acknowledged one."""
    return not job.acknowledged and (job.untried or job.plan.canary <= job.done <= job.gone)
