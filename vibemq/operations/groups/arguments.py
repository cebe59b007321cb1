"""Arguments of the operations of groups and cursors."""

from typing import Annotated, Literal

from pydantic import Field

from vibemq.operations.arguments import Arguments, CanBeTried, Limit, QueueName, Rejects, Runs, Text, Whole

WAIT_MS_MAX = 30_000
PARTS_MAX = 4096
PLAN_END_MAX = 1 << 18
"""A position of thousands of queues."""
START = "earliest, latest, sequence:N or time:MS"


class OfQueue(Arguments):
    queue: QueueName = Field(description="Name of the queue.")
    incarnation: Text | None = Field(
        None, description="The incarnation that is meant; another one is refused with WRONG_INCARNATION."
    )


class OfGroup(OfQueue):
    group: Text = Field(description="Name of the group.")


class OfReader(OfQueue):
    group: Text | None = Field(None, description="Name of the group; left out: what the queue keeps for anybody.")


class CursorLimits(OfGroup):
    owner: str | None = Field(
        None,
        description="What the reader calls itself, for operators: the group belongs to the user, not to this name.",
    )
    hold_ms: Whole | None = Field(None, description="How long acknowledged messages are kept; 0 switches off.")
    max_lag_ms: Whole | None = Field(
        None, description="Age of the oldest message at which the group expires; 0: never."
    )
    max_lag_bytes: Whole | None = Field(None, description="Backlog at which the group expires; 0: never.")


class SetArguments(CanBeTried, CursorLimits):
    """What an operator changes."""


class DeleteArguments(CanBeTried, OfGroup):
    """The group that shall go."""


class JoinArguments(CanBeTried, CursorLimits):
    start: str | None = Field(None, description=f"Where a new group begins: {START}.")
    create: bool = Field(True, description="Make the group if it is missing; false: refuse with GROUP_NOT_FOUND.")
    begin: Literal["refuse", "continue", "replay"] | None = Field(
        None,
        description="For a reader without a position of its own: what it does where the group has acknowledged "
        "messages, refuse, continue or replay.",
    )
    begin_epoch: Whole | None = Field(
        None,
        description="The epoch of the group for which `begin` was decided, so that it counts once: where the group has "
        "acknowledged messages and another epoch, it is refused; left out: not checked.",
    )


class FilterArguments(CanBeTried, OfGroup):
    where: str = Field(
        description="The selector that messages of the group must match; others are acknowledged for it by themselves. "
        "Empty: every message is the group's."
    )
    start: str | None = Field(None, description=f"Where a group that is missing begins: {START}.")


class SeekArguments(CanBeTried, OfGroup):
    start: str = Field(description=f"Where the group continues: {START}.")


class CursorCommitArguments(OfGroup):
    epoch: Whole = Field(description="The epoch that group.join answered.")
    sequence: Whole = Field(description="Everything below it is acknowledged.")
    plan: Text | None = Field(
        None, description="Tag of the reader's position: what was planned before it is acknowledged, too."
    )


class PlanArguments(OfGroup):
    epoch: Whole = Field(description="The epoch that group.join answered.")
    tag: Text = Field(description="Tag of the position where the batch begins.")
    end: Annotated[str, Field(min_length=1, max_length=PLAN_END_MAX)] = Field(
        description="The position where it ends, unless it was planned before."
    )
    anew: bool = Field(False, description="Forget earlier plans if none of them leads to this position.")
    empty: Text | None = Field(
        None,
        description="The batch had no rows, and ends where it begins: the reader's own name of it, so that it counts "
        "once.",
    )
    elsewhere: bool = Field(
        False,
        description="Another group of the reader keeps its plans, and is told who has read them: this one only notes "
        "that there was a plan, and never counts it as unread.",
    )


class EnterArguments(OfGroup):
    epoch: Whole = Field(description="The epoch that group.join answered.")
    tag: Text = Field(description="Tag of the position where the batch begins.")
    end: Text = Field(description="Tag of the position where it ends.")
    query: Annotated[str, Field(max_length=200)] = Field(
        description="The query whose batch it is; empty: not known, somebody reads it."
    )
    batch: Whole = Field(0, description="Its number in the query.")


class RejectArguments(OfGroup):
    rejects: Rejects = Field(description="Pairs [sequence, error text], at most 10,000.")
    epoch: Whole | None = Field(None, description="The epoch that group.join answered; left out: not checked.")


class QuarantineArguments(CanBeTried, OfGroup):
    runs: Runs = Field(description="Sequences to leave out from now on, as pairs [first, last], at most 10,000.")


class GroupListArguments(OfQueue):
    group: Text | None = Field(None, description="Only the group of this name.")
    after: str | None = Field(None, description="Name of the last group of the page before (its `next`).")
    limit: Limit = None


class OffsetsArguments(OfReader):
    at_ms: Whole | None = Field(
        None, description="Answer also `sequence_at`, the first sequence published then or later."
    )
    plan: Text | None = Field(
        None,
        description="Tag of a position; answer `unread`, whether a batch ends there that nobody has begun to read.",
    )


class AdvanceArguments(OfReader):
    from_: Whole = Field(alias="from", description="Where the reader stands.")
    max_messages: Whole = Field(0, description="Go no further than so many messages; 0: no limit.")
    max_bytes: Whole = Field(0, description="Go no further than so many bytes; 0: no limit.")
    wait_ms: Annotated[int, Field(ge=0, le=WAIT_MS_MAX)] = Field(0, description="How long to wait for a first message.")
    plan: Text | None = Field(
        None, description="Tag of the reader's position; answer where a batch that begins there was planned to end."
    )


class SplitArguments(OfReader):
    from_: Whole = Field(alias="from", description="First sequence of the range.")
    to: Whole = Field(description="End of the range, exclusive.")
    target_bytes: Whole = Field(16 << 20, description="Bytes of one part.")
    min: Whole = Field(1, description="Fewest parts.")
    max: Annotated[int, Field(ge=0, le=PARTS_MAX)] = Field(64, description="Most parts.")
