"""Dead letters: lists of them and of their groups, what a filter would do, replays and purges."""

from typing import Any

from vibemq.operations.dead_letters import groups, letters, preview
from vibemq.operations.dead_letters.filters import GivenFilters, LetterFilter, LetterFilters, LetterListArguments
from vibemq.operations.dead_letters.groups import DeadLetterGroups
from vibemq.operations.dead_letters.letters import DeadLetters, LetterAccess, no_room, put_back
from vibemq.operations.dead_letters.preview import LetterPreview
from vibemq.operations.dead_letters.reader import DeadLetterReader, Fits, Found
from vibemq.operations.registry import Operation

OPERATIONS: list[Operation[Any]] = [
    *letters.OPERATIONS[:2],
    *groups.OPERATIONS,
    *preview.OPERATIONS,
    *letters.OPERATIONS[2:],
]

__all__ = [
    "OPERATIONS",
    "DeadLetterGroups",
    "DeadLetterReader",
    "DeadLetters",
    "Fits",
    "Found",
    "GivenFilters",
    "LetterAccess",
    "LetterFilter",
    "LetterFilters",
    "LetterListArguments",
    "LetterPreview",
    "no_room",
    "put_back",
]
