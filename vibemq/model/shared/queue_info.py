"""A queue and its groups as whoever asks is told of them."""

from dataclasses import dataclass, field, replace
from typing import Any

from vibemq.model.options import QueueOptions


@dataclass(slots=True)
class GroupInfo:
    name: str
    durable: bool
    head: int
    waiting: int
    in_flight: int
    consumers: int
    epoch: int
    cursor: bool = False
    """Reads by ranges: nothing is handed out. `head` is then what it has acknowledged up to."""
    owner: str = ""
    """What its reader calls itself; the user it belongs to is `user`."""
    user: str = ""
    selectors: int = 0
    """Different ones of its consumers, those without one included; 0 = none has any."""
    where: str = ""
    """Its filter; "" = none."""


_NO_OPTIONS = QueueOptions()
_FIGURES = (
    "ready",
    "in_flight",
    "delayed",
    "dead",
    "consumers",
    "size",
    "first_sequence",
    "next_sequence",
    "oldest_at",
)


@dataclass(slots=True)
class QueueInfo:
    name: str
    queue_id: int
    incarnation: str
    options: QueueOptions
    created_at: int
    ready: int
    """Waiting to be handed out, in the group that is furthest behind."""
    in_flight: int
    delayed: int
    dead: int
    consumers: int
    size: int
    """Estimated bytes of waiting messages."""
    first_sequence: int
    next_sequence: int
    oldest_at: int
    """published_at of the oldest waiting message (to within its chunk); 0 when none waits."""
    groups: list[GroupInfo] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """published, delivered, settled, redelivered, dead_lettered, expired, dropped, refused since start."""
    restricted: bool = False
    """The figures are left out, all of them are 0: nobody has asked for them. Or somebody who may not inspect the queue
    has asked for a list: then only the name is told, and the options are those of a queue that was given none."""

    def name_only(self) -> "QueueInfo":
        """Nothing of what it is or of what is in it. The fields stay, because clients expect them."""
        nothing: dict[str, Any] = dict.fromkeys((*_FIGURES, "queue_id", "created_at"), 0)
        return replace(self, **nothing, incarnation="", options=_NO_OPTIONS, groups=[], counters={}, restricted=True)
