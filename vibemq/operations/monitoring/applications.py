"""Applications that commit transactions, and what they have staged and not committed."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from vibemq.auth.matrix import TRANSACT
from vibemq.auth.policy import Policy
from vibemq.model.effects import ApplicationFigures
from vibemq.operations.arguments import TEXT_MAX, Arguments, Limit, page_size
from vibemq.operations.contracts import EngineQuestions, InstantSource
from vibemq.operations.monitoring.turns import in_slices
from vibemq.operations.registry import Caller, Operation

PAGE_APPLICATIONS = 50
STAGES_SHOWN = 100


class TransactionListArguments(Arguments):
    after: str | None = Field(
        None, max_length=TEXT_MAX, description="Go on behind this name: `next` of the page before."
    )
    limit: Limit = None


class Applications:
    def __init__(self, engine: EngineQuestions, policy: Policy, clock: InstantSource) -> None:
        self._readers = engine.readers
        self._policy = policy
        self._clock = clock

    async def page(self, caller: Caller, wanted: TransactionListArguments) -> dict[str, Any]:
        """By name; of users who are no superusers, the applications that they may commit for and that are theirs, or
        nobody's."""
        limit = page_size(wanted.limit, PAGE_APPLICATIONS)
        found: list[ApplicationFigures] = []

        def look() -> Iterator[None]:
            for application in self._readers.applications():
                if (wanted.after is None or application.app > wanted.after) and self._may_see(caller, application):
                    found.append(application)
                    if len(found) > limit:
                        return
                yield

        await in_slices(look())
        return {
            "applications": [self._shown(application) for application in found[:limit]],
            "next": found[limit - 1].app if len(found) > limit else None,
        }

    def _may_see(self, caller: Caller, application: ApplicationFigures) -> bool:
        if not self._policy.allows(caller.principal, TRANSACT, application.app):
            return False
        return not caller.actor.user or application.owner in ("", caller.actor.user)

    def _shown(self, application: ApplicationFigures) -> dict[str, Any]:
        now = self._clock.now()
        stages = sorted(application.stages, key=lambda stage: stage.created_at)
        return {
            "app": application.app,
            "user": application.owner or None,
            "version": application.version,
            "committed_at": application.decided_at or None,
            "stage_count": len(stages),
            "stage_bytes": sum(stage.size for stage in stages),
            "stages": [
                {
                    "stage": stage.stage,
                    "version": stage.version,
                    "age_ms": max(0, now - stage.created_at),
                    "bytes": stage.size,
                }
                for stage in stages[:STAGES_SHOWN]
            ],
        }


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "transaction.list",
        "Applications that commit transactions: the last version, and the stages that are open.",
        TransactionListArguments,
        Applications,
        task=Applications.page,
    ),
]
