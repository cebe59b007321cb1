"""Where a stream stands, as Spark's checkpoint keeps it: `{"q":{"orders":{"i":"<incarnation>","s":1234}},"v":1}`.

`s` is the next sequence to read, `i` tells the queue from another one of its name. Spark compares offsets as text, so
every dict is built with its keys in order. A queue enters the offsets in a batch without rows of it: its first entry is
where its reading starts, fixed by the checkpoint. The same when it is made anew.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vibemq.spark.errors import OptionError

VERSION = 1


class QueuePosition(NamedTuple):
    incarnation: str
    sequence: int


Positions = dict[str, QueuePosition]


class OffsetRange(NamedTuple):
    """Sequences [first, end) of one queue."""

    queue: str
    incarnation: str
    first: int
    end: int
    group: str = ""
    """The group whose view it is: without what that one has rejected or in quarantine. Empty: nobody's."""


def dump(
    positions: Mapping[str, QueuePosition], details: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Canonical; `details` are more keys for a queue's entry, in reports only."""
    more = details or {}
    entries = {
        queue: dict(sorted({"i": position.incarnation, "s": position.sequence, **more.get(queue, {})}.items()))
        for queue, position in sorted(positions.items())
    }
    return {"q": entries, "v": VERSION}


def load(offset: Mapping[str, Any]) -> Positions:
    """Raises OptionError for what this source has not written."""
    try:
        if offset["v"] != VERSION:
            raise OptionError(
                f"the checkpoint's offsets have version {offset['v']!r}, this source writes {VERSION}; update vibemq,"
                " or start with a new checkpoint (see newCheckpoint)"
            )
        return {queue: QueuePosition(str(entry["i"]), int(entry["s"])) for queue, entry in offset["q"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OptionError(f"the checkpoint belongs to another source; its offset is {offset!r}") from None


def check_queues(positions: Iterable[str], asked: Iterable[str]) -> None:
    """Raises OptionError when the checkpoint knows queues that the query does not read."""
    strange = sorted(set(positions) - set(asked))
    if strange:
        raise OptionError(
            f"this is a checkpoint of other queues: it knows {', '.join(strange)}, which the query does not read."
            " Correct the option queue, queues or queuePattern, or start with a new checkpoint (see newCheckpoint)."
        )


def spans(start: Mapping[str, QueuePosition], end: Mapping[str, QueuePosition], group: str = "") -> list[OffsetRange]:
    """What lies between two offsets. A queue that enters, leaves or was made anew has nothing there."""
    found = []
    for queue, until in sorted(end.items()):
        since = start.get(queue)
        if since is not None and since.incarnation == until.incarnation and since.sequence < until.sequence:
            found.append(OffsetRange(queue, until.incarnation, since.sequence, until.sequence, group))
    return found
