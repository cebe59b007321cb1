"""Queues with their options, as GET /definitions lists them: made where they are missing, on this broker or another."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from vibemq.errors import (
    AuthError,
    InvalidOptions,
    InvalidPayload,
    InvalidQueueName,
    QueueExists,
    StorageFailed,
    VibeMQError,
)
from vibemq.model.commands import CreateQueue
from vibemq.model.options import QueueOptions, options_from_dict, options_to_dict
from vibemq.operations.arguments import Arguments, Options, QueueName, read
from vibemq.operations.contracts import CommandSession, EngineQuestions
from vibemq.operations.registry import Caller, Operation

QUEUES_MAX = 1_000
READ_PER_TURN = 20


class QueueDefinition(Arguments):
    queue: QueueName = Field(description="Name of the queue.")
    options: Options = Field(
        default_factory=dict, description="Its options by name; those that are left out have the broker's defaults."
    )


class DefinitionsArguments(Arguments):
    # Read one after the other, by turns: a thousand of them take long.
    queues: Annotated[list[SkipValidation[QueueDefinition]], Field(max_length=QUEUES_MAX)] = Field(
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

        `failed` of the answer: the queue that could not be created behind others that were, and why; it ended there.

        Raises:
            InvalidPayload: one of them cannot be read, or there may be no such queue; nothing was created.
            StorageFull: as well.
        """
        created: list[str] = []
        unchanged: list[str] = []
        different: list[dict[str, Any]] = []
        failed: dict[str, Any] | None = None
        for number, (queue, options) in enumerate(await self._read(wanted.queues)):
            if number % READ_PER_TURN == 0:
                await asyncio.sleep(0)
            known = self._engine.options_of(queue)
            if known is None and not wanted.dry_run:
                try:
                    await caller.step(self._local, partial(CreateQueue, queue=queue, options=options, must_match=True))
                except QueueExists:
                    # Somebody else was faster.
                    known = self._engine.options_of(queue)
                except (AuthError, StorageFailed):
                    raise
                except VibeMQError as error:
                    if not created:
                        raise
                    failed = {"queue": queue, "code": error.code, "message": str(error)}
                    break
            if known is None:
                created.append(queue)
                caller.done.count += not wanted.dry_run
            elif names := _different(known[1], options):
                different.append({"queue": queue, "options": names})
            else:
                unchanged.append(queue)
        return {
            "created": created,
            "unchanged": unchanged,
            "different": different,
            "failed": failed,
            "count": len(created),
            "dry_run": wanted.dry_run,
        }

    async def _read(self, queues: Sequence[object]) -> list[tuple[str, QueueOptions]]:
        """Raises InvalidPayload."""
        found: dict[str, QueueOptions] = {}
        for number, raw in enumerate(queues):
            if number % READ_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                one = _definition(raw)
                if one.queue in found:
                    raise InvalidOptions("it stands there twice")
                found[one.queue] = self._options(one)
            except (InvalidPayload, InvalidOptions, InvalidQueueName) as error:
                name = raw.get("queue") if isinstance(raw, dict) else None
                which = f"queue {name[:64]!r}" if isinstance(name, str) else f"number {number}"
                raise InvalidPayload(f"{which}: {error}; nothing was created", f"queues/{number}") from None
        return list(found.items())

    def _options(self, one: QueueDefinition) -> QueueOptions:
        """Raises InvalidOptions, InvalidQueueName."""
        options = options_from_dict(one.options, self._defaults)
        if options.exclusive:
            raise InvalidOptions("an exclusive queue belongs to the connection that creates it; leave it out")
        if self._engine.options_of(one.queue) is None:
            self._engine.check_new_queue(one.queue, options)
        return options


def _definition(raw: object) -> QueueDefinition:
    """Raises InvalidPayload, InvalidQueueName."""
    if isinstance(raw, QueueDefinition):
        return raw
    if not isinstance(raw, dict):
        raise InvalidPayload("it must be an object with `queue` and `options`")
    return read(QueueDefinition, "definitions.import", raw)


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
        not_told=("queues",),
        told_in_pieces="created",
    ),
]
