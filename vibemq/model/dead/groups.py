"""Groups of dead letters: those of one queue that died for one reason with errors that say the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GROUPS_MAX = 1000
"""Of one queue and one reason; letters that would begin another one belong to the group `OTHER`."""


class GroupKey(NamedTuple):
    """Names one group; keys ascend as the store keeps them."""

    queue_id: int
    reason: int
    fingerprint: int
    """`OTHER`: of the letters that no other group has room for."""


@dataclass(slots=True)
class LetterStretch:
    """What is known of the letters of one group together."""

    count: int
    first_id: int
    first_at: int
    last_id: int
    last_at: int
    sample: bytes
    """The beginning of one of their errors, UTF-8."""


def joined(parts: Sequence[LetterStretch]) -> LetterStretch | None:
    """Several parts of one group as one; None when there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    first = min(parts, key=lambda part: part.first_id)
    last = max(parts, key=lambda part: part.last_id)
    sample = next((part.sample for part in parts if part.sample), b"")
    count = sum(part.count for part in parts)
    return LetterStretch(count, first.first_id, first.first_at, last.last_id, last.last_at, sample)


@dataclass(frozen=True, slots=True)
class DeadGroup:
    key: GroupKey
    queue: str
    letters: LetterStretch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroupsWanted:
    """Which stretch of the groups to look at, in the order of their keys."""

    after: GroupKey | None = None
    queue_ids: frozenset[int] | None = None
    """Only of these queues; None = of all."""
    reason: int | None = None
    fingerprint: int | None = None
    limit: int = 100
    scan: int = 400
    """Most groups that are looked at."""


@dataclass(slots=True)
class DeadGroupPage:
    groups: list[DeadGroup] = field(default_factory=list)
    last: GroupKey | None = None
    """Everything up to this key was looked at: the next page goes on behind it. None: nothing was looked at, as what
    came last is still being sorted in; ask again."""
    done: bool = False


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """What the index of dead letters answers by itself. Every part that is given must fit."""

    queue_ids: frozenset[int] | None = None
    reason: int | None = None
    fingerprint: int | None = None
    """Of the error; `OTHER`: letters of the group of that name."""
    since: int = 0
    """Dead at this instant or later."""
    until: int = (1 << 63) - 1
    """Dead at this instant or earlier."""

    @property
    def needs_index(self) -> bool:
        return not (self.queue_ids is None and self.reason is None and self.fingerprint is None)


EVERY_LETTER = LetterChoice()
