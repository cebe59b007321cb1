"""Queues: make, change, look at and remove them, and what waits in them."""

import asyncio
from typing import Any

import orjson
from pydantic import Field

from vibemq.auth.policy import Policy
from vibemq.model.access import Action
from vibemq.model.commands import (
    ChangeQueue,
    Command,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListQueues,
    PurgeQueue,
    RemoveMessages,
)
from vibemq.model.effects import QueuePage
from vibemq.model.options import QueueOptions, options_from_dict
from vibemq.model.runs import RunSet
from vibemq.operations.arguments import (
    Arguments,
    CanBeTried,
    Limit,
    Options,
    QueueName,
    Runs,
    Text,
    Whole,
    limit_of,
    page_size,
)
from vibemq.operations.contracts import CommandSession, EngineQuestions
from vibemq.operations.registry import Caller, Operation

PAGE_QUEUES = 100
"""Most queues of one page: what the engine describes, and the session writes, within a few milliseconds."""
GROUPS_SHOWN = 100
"""Groups told of each queue; `group.list` has all of them, in pages."""
MESSAGES_PER_TURN = 100
"""Messages of an answer between which the loop has a turn."""
ANSWER_BYTES_MAX = 768 * 1024
"""An answer must fit a frame."""


class QueueArguments(Arguments):
    queue: QueueName = Field(description="Name of the queue.")


class InfoArguments(QueueArguments):
    groups_max: Whole | None = Field(
        None, description="Most groups to describe; left out: all. group.list has them in pages."
    )


class CreateArguments(CanBeTried, QueueArguments):
    options: Options | None = Field(None, description="Options of the queue; left out: the broker's defaults.")
    must_match: bool = Field(False, description="Refuse when the queue exists with other options.")


class ChangeArguments(CanBeTried, QueueArguments):
    changes: Options = Field(description="Options to change, by name.")
    if_tag: Text | None = Field(
        None, description="Refuse if the options are others by now: the tag of those that the caller has seen."
    )


class DeleteQueueArguments(CanBeTried, QueueArguments):
    at_most: Whole | None = Field(
        None, description="Refuse if the queue has more messages than that, with those that consumers hold."
    )
    if_tag: Text | None = Field(
        None, description="Refuse if the queue has other options by now, or was made anew: the tag that the caller saw."
    )


class PurgeQueueArguments(CanBeTried, QueueArguments):
    at_most: Whole | None = Field(None, description="Refuse if more messages than that are ready or delayed.")


class RemoveArguments(CanBeTried, QueueArguments):
    runs: Runs = Field(description="Sequences to remove, as pairs [first, last], at most 10,000.")
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: `incarnation` of the queue.")


class QueueListArguments(Arguments):
    after: str | None = Field(None, description="Go on behind this name: `next` of the page before.")
    limit: Limit = limit_of(PAGE_QUEUES)


class Queues:
    def __init__(self, engine: EngineQuestions, local: CommandSession, policy: Policy, defaults: QueueOptions) -> None:
        self._engine = engine
        self._local = local
        self._policy = policy
        self._defaults = defaults

    def create(self, caller: Caller, session: int, token: Any, wanted: CreateArguments) -> Command:
        options = None if wanted.options is None else options_from_dict(wanted.options, self._defaults)
        return CreateQueue(session, token, wanted.queue, options, wanted.must_match, dry_run=wanted.dry_run)

    def change(self, caller: Caller, session: int, token: Any, wanted: ChangeArguments) -> Command:
        return ChangeQueue(session, token, wanted.queue, wanted.changes, wanted.dry_run, wanted.if_tag)

    def delete(self, caller: Caller, session: int, token: Any, wanted: DeleteQueueArguments) -> Command:
        """What consumers hold goes with the queue."""
        return DeleteQueue(session, token, wanted.queue, wanted.dry_run, wanted.at_most, wanted.if_tag)

    def purge(self, caller: Caller, session: int, token: Any, wanted: PurgeQueueArguments) -> Command:
        return PurgeQueue(session, token, wanted.queue, dry_run=wanted.dry_run, at_most=wanted.at_most)

    def remove(self, caller: Caller, session: int, token: Any, wanted: RemoveArguments) -> Command:
        runs = RunSet(sorted(wanted.runs)).runs()
        return RemoveMessages(session, token, wanted.queue, runs, wanted.incarnation, wanted.dry_run)

    def describe(self, caller: Caller, session: int, token: Any, wanted: InfoArguments) -> Command:
        if wanted.groups_max is None:
            return DescribeQueue(session, token, wanted.queue)
        return DescribeQueue(session, token, wanted.queue, groups_max=wanted.groups_max)

    def page(self, caller: Caller, session: int, token: Any, wanted: QueueListArguments) -> Command | None:
        """A page keeps its place among the connection's commands. The whole list, which only requests without paging
        arguments ask for, is gathered by `every`."""
        if wanted.after is None and wanted.limit is None:
            return None
        return self._page(caller, session, token, wanted.after or "", page_size(wanted.limit, PAGE_QUEUES))

    def _page(self, caller: Caller, session: int, token: Any, after: str, limit: int) -> Command:
        visible = self._policy.viewer(caller.principal)
        inspects = self._policy.viewer(caller.principal, Action.INSPECT)
        return ListQueues(
            session,
            token,
            after=after,
            limit=min(limit, PAGE_QUEUES),
            details=True,
            visible=visible,
            patterns=visible.patterns,
            groups_max=GROUPS_SHOWN,
            shown=lambda info: info if inspects(info.name) else info.name_only(),
        )

    async def every(self, caller: Caller, wanted: QueueListArguments) -> Any:
        """The form of old clients: a plain list when it fits a frame, else its beginning as a page. The loop has a turn
        between the engine's pages."""
        # Encoded page by page: an answer of this size would take too long to encode at once.
        queues: list[orjson.Fragment] = []
        size, after = 0, ""
        while True:
            page: QueuePage = await self._local.ask(
                lambda session, token, after=after: self._page(caller, session, token, after, PAGE_QUEUES)  # type: ignore[misc]
            )
            encoded = [orjson.dumps(info) for info in page.queues]
            size += sum(map(len, encoded)) + len(encoded)
            if queues and size > ANSWER_BYTES_MAX:
                return {"queues": queues, "next": after}
            queues += map(orjson.Fragment, encoded)
            if page.next is None:
                return queues
            after = page.next
            await asyncio.sleep(0)


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.create",
        "Create a queue; one that exists is left as it is.",
        CreateArguments,
        Queues,
        command=Queues.create,
        audited=True,
        becomes=CreateQueue,
    ),
    Operation(
        "queue.change",
        "Change options of a queue while it works.",
        ChangeArguments,
        Queues,
        Queues.change,
        audited=True,
        becomes=ChangeQueue,
    ),
    Operation(
        "queue.delete",
        "Delete a queue with its messages, those that consumers hold included; its dead letters stay.",
        DeleteQueueArguments,
        Queues,
        Queues.delete,
        audited=True,
        becomes=DeleteQueue,
    ),
    Operation(
        "queue.purge",
        "Drop every waiting message; what consumers hold stays.",
        PurgeQueueArguments,
        Queues,
        Queues.purge,
        audited=True,
        becomes=PurgeQueue,
    ),
    Operation(
        "queue.remove",
        "Drop waiting messages by sequence.",
        RemoveArguments,
        Queues,
        Queues.remove,
        audited=True,
        becomes=RemoveMessages,
    ),
    Operation("queue.info", "Describe a queue; null for a missing one.", InfoArguments, Queues, Queues.describe),
    Operation(
        "queue.list",
        "The queues that the caller has any right to, by name, in pages.",
        QueueListArguments,
        Queues,
        Queues.page,
        Queues.every,
    ),
]
