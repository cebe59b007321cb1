"""Jobs in a simulated broker: somebody starts and changes them, and their steps move letters."""

import random

from tests.proof.sim_world import World
from vibemq.model.commands import ChangeJob, StartJob
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, JobStep

FOREMAN = 7
"""The session that asks for jobs and changes them."""
CHANGE_SHARE = 0.08
"""Of the steps of a life."""


class JobOperator:
    """Starts jobs, and says for which one letters are moved. Dead with its world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def step(self, rng: random.Random) -> None:
        if rng.random() >= CHANGE_SHARE:
            return
        token, jobs = f"t{next(self._world.tokens)}", self._world.engine.jobs.by_id
        if not jobs or rng.random() < 0.3:
            limit, canary, stop = rng.choice((0, 9)), rng.choice((0, 0, 2)), rng.choice((0, 0, 2))
            plan = JobPlan(
                kind=JobKind.REPLAY,
                filter={"queue": "q"},
                last_id=self._world.engine.readers.last_dead_id(),
                limit=limit,
                canary=canary,
                stop_after_dead_again=stop,
                note=rng.randbytes(rng.choice((0, 40))).hex(),
            )
            self._world.ask(StartJob(FOREMAN, token, plan))
            return
        wanted = rng.choice((JobState.RUNNING, JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED))
        self._world.ask(ChangeJob(FOREMAN, token, rng.choice(list(jobs)), wanted, by="ann"))

    def step_of(self, rng: random.Random, letters: list[int]) -> JobStep | None:
        """Of a job that runs: the letters are moved for it."""
        running = self._world.engine.jobs.running()
        if not running or rng.random() < 0.2:
            return None
        return JobStep(rng.choice(running).job_id, rng.choice((0, max(letters))), len(letters), 0)
