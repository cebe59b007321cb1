"""Which messages a failed query was reading, from the offsets at the end of Spark's error."""

import json
import re
from typing import Any

from vibemq.spark.errors import OptionError, quarantine_command
from vibemq.spark.read.offsets import Positions, load

_SECTIONS = re.compile(r"Current Committed Offsets: (.*?)\nCurrent Available Offsets: (.*?)(?:\n\n|\Z)", re.DOTALL)
_NO_MESSAGE = re.compile(r"vibemq\.spark\.errors\.(Unreachable|DataLoss|OptionError|Refused(?!.*\b(INVALID|MESSAGE)_))")
"""Errors that no message causes; they name their own remedy."""


def failed_batch(error: BaseException | str, group: str) -> str:
    """The messages of the batch in which a query failed, and the command that moves some of them to the dead letters.

    Args:
        error: what `query.awaitTermination()` raised, or its text.
        group: of the query's source.

    Returns:
        A line for each queue; empty when the error has no offsets of this source, or no message can be its cause.
    """
    text = str(error)
    found = _SECTIONS.search(text)
    if found is None or _NO_MESSAGE.search(text):
        return ""
    done, planned = _positions(found[1]), _positions(found[2])
    sentences = []
    for queue, end in sorted(planned.items()):
        since = done.get(queue)
        first = since.sequence if since is not None and since.incarnation == end.incarnation else None
        if first is None:
            where = f"up to {end.sequence - 1}, from the cursor of group {group!r}"
        elif first < end.sequence:
            where = f"{first} to {end.sequence - 1}"
        else:
            continue
        command = quarantine_command(queue, group, first or 1, end.sequence - 1)
        sentences.append(
            f"The batch that failed reads the messages {where}, of queue {queue!r}. If the same error comes back at"
            f" every start, find those that cause it, and move these alone to the dead letters: {command}"
        )
    return "\n".join(sentences)


def _positions(section: str) -> Positions:
    """Of all sources of this kind."""
    found: Positions = {}
    for start in re.finditer(r'\{"q": ?\{', section):
        try:
            offset: Any = json.JSONDecoder().raw_decode(section, start.start())[0]
            found |= load(offset)
        except (ValueError, OptionError):
            continue
    return found
