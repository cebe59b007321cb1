"""Queues with their options, as GET /definitions lists them: made where they are missing, on this broker or another."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from vibemq.errors import InvalidOptions, InvalidPayload, InvalidQueueName, QueueExists
from vibemq.model.commands import CreateQueue
from vibemq.model.options import QueueOptions, check_new_queue_name, options_from_dict, options_to_dict
from vibemq.operations.arguments import Arguments, QueueName
from vibemq.operations.contracts import CommandSession, EngineQuestions
from vibemq.operations.registry import Caller, Operation

QUEUES_MAX = 1_000


class QueueDefinition(Arguments):
    queue: QueueName = Field(description="Name of the queue.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Its options by name; those that are left out have the broker's defaults."
    )


class DefinitionsArguments(Arguments):
    queues: Annotated[list[QueueDefinition], Field(max_length=QUEUES_MAX)] = Field(
        description="Queues, each with `queue` and `options`, at most 1,000."
    )
    dry_run: bool = Field(False, description="Say what would be done, and create nothing.")


class Definitions:
    def __init__(self, engine: EngineQuestions, local: CommandSession, defaults: QueueOptions) -> None:
        self._engine = engine
        self._local = local
        self._defaults = defaults

    async def apply(self, caller: Caller, wanted: DefinitionsArguments) -> dict[str, Any]:
        """All are read before the first is made. A queue that is there with other options is left as it is.

        Raises:
            InvalidPayload: one of them cannot be read; nothing was created.
            StorageFull: those before it were created; the same request goes on behind them.
        """
        read = list(self._read(wanted.queues))
        created: list[str] = []
        unchanged: list[str] = []
        different: list[dict[str, Any]] = []
        for queue, options in read:
            known = self._engine.options_of(queue)
            if known is None and not wanted.dry_run:
                try:
                    await self._local.ask(partial(CreateQueue, queue=queue, options=options, must_match=True))
                except QueueExists:
                    # Somebody else was faster.
                    known = self._engine.options_of(queue)
            if known is None:
                created.append(queue)
            elif names := _different(known[1], options):
                different.append({"queue": queue, "options": names})
            else:
                unchanged.append(queue)
        return {"created": created, "unchanged": unchanged, "different": different, "dry_run": wanted.dry_run}

    def _read(self, queues: list[QueueDefinition]) -> Iterator[tuple[str, QueueOptions]]:
        """Raises InvalidPayload."""
        seen: set[str] = set()
        for number, one in enumerate(queues):
            try:
                if one.queue in seen:
                    raise InvalidOptions("it stands there twice")
                seen.add(one.queue)
                check_new_queue_name(one.queue)
                options = options_from_dict(one.options, self._defaults)
                options.check_together()
                if options.exclusive:
                    raise InvalidOptions("an exclusive queue belongs to the connection that creates it; leave it out")
            except (InvalidOptions, InvalidQueueName) as error:
                raise InvalidPayload(
                    f"queue {one.queue[:64]!r}: {error}; nothing was created", f"queues/{number}"
                ) from None
            yield one.queue, options


def _different(before: QueueOptions, wanted: QueueOptions) -> dict[str, Any]:
    now, then = options_to_dict(before), options_to_dict(wanted)
    return {name: {"current": now[name], "wanted": then[name]} for name in then if now[name] != then[name]}


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "definitions.import",
        "Create the queues of a list that are missing. Those that are there with other options stay, and are named.",
        DefinitionsArguments,
        Definitions,
        task=Definitions.apply,
        scans=True,
        logged=True,
        audited=True,
    ),
]
