"""Every verb of `vibemq-admin` that changes something can be tried, or has a reason why it cannot."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vibemq.cli.admin.main import VERBS
from vibemq.cli.lazy import loaded
from vibemq.operations import OPERATIONS

LOOKS = {
    *("audit follow", "audit ls", "broker backups", "broker history", "broker listeners", "broker overview"),
    *("broker settings", "check", "connections consumers", "connections ls", "consumer ls", "cursor ls"),
    *("definitions export", "dlq groups", "dlq ls", "dlq preview", "dlq show", "doctor", "group ls"),
    *("group show", "job follow", "job ls", "job result", "job show", "message show", "queue export", "queue info"),
    *("queue ls", "queue peek", "token ls", "top", "transaction ls", "user check", "user hash", "user ls"),
    *("user show", "whoami"),
}
"""What changes nothing in a broker or its store."""
WITHOUT = {"connections redirect", "dlq export", "reload"}
"""What changes something and cannot be tried; the reference of the command line says why."""
CLI_REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def commands(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for word, one in inner.items():
        yield from commands(one, *words, word)


ALL = dict(found for word, verb in VERBS.items() for found in commands(loaded(word, verb), word))


def can_be_tried(command: Any) -> bool:
    return any("--dry-run" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize("words", ALL)
def test_every_verb_that_changes_something_can_be_tried(words: str) -> None:
    assert can_be_tried(ALL[words]) is not (words in LOOKS | WITHOUT)


def test_only_verbs_that_there_are_need_not_be_tried() -> None:
    assert ALL.keys() >= LOOKS | WITHOUT
    assert not LOOKS & WITHOUT


@pytest.mark.parametrize("words", sorted(LOOKS))
def test_a_verb_that_only_looks_asks_for_no_change(words: str) -> None:
    source = inspect.getsource(inspect.unwrap(ALL[words].callback))
    assert [o.name for o in OPERATIONS if o.audited and f'"{o.name}"' in source] == []


def test_the_reference_says_why_a_verb_cannot_be_tried() -> None:
    [row] = [line for line in CLI_REFERENCE.read_text().splitlines() if line.startswith("| `--dry-run` |")]
    assert [words for words in WITHOUT if f"`{words}`" not in row] == []
