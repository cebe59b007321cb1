"""The state of a store without its messages: the state that `open()` returns and that records change.

Membership of a message in a group, for sequences of its queue:

    below `head`          settled, unless in `pending`
    `head` and above      not yet handed out, unless in `taken` (then settled or, if in `pending`, handed out)

`taken` holds only sequences above `head`; `head` moves up over it. A message is alive while some group has not
settled it, while it is in `dead`, or, with log retention, until it is dropped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import quote

from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.dead.groups import EVERY_LETTER, LetterChoice
from vibemq.model.extras.dedup_table import DedupTable
from vibemq.model.instants import Instants
from vibemq.model.jobs.job import StoredJob
from vibemq.model.options import QueueOptions
from vibemq.model.records import Attempts, CursorFacts, DeadFacts, Plan
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet

_LATER: Any = object()
"""Stands for a container that is made when it is asked for: most of many queues and groups never need it."""


@dataclass(slots=True)
class _OnFirstUse:
    """Makes containers when they are first read."""

    made: ClassVar[dict[str, Callable[[], Any]]]
    is_bare: bool = field(default=True, init=False, compare=False, repr=False)
    """Not one of the containers was ever made."""

    def __post_init__(self) -> None:
        for name in self.made:
            if getattr(self, name) is _LATER:
                delattr(self, name)
            else:
                self.is_bare = False

    def peek(self, name: str) -> Any:
        """The container; None, and nothing is made, as long as nobody has used it. Who reads without the lock of those
        who write must not make one: theirs, made at the same time, would be lost."""
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return None

    def has(self, name: str) -> bool:
        """Whether the container holds anything. Does not make it, as reading it would."""
        return bool(self.peek(name))

    def shed(self) -> None:
        """Give back the containers that hold nothing."""
        if self.is_bare:
            return
        self.is_bare = True
        for name in self.made:
            try:
                value = object.__getattribute__(self, name)
            except AttributeError:
                continue
            if value:
                self.is_bare = False
            else:
                delattr(self, name)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            make = self.made.get(name)
            if make is None:
                raise AttributeError(name)
            value = make()
            setattr(self, name, value)
            self.is_bare = False
            return value


@dataclass(slots=True)
class StoredGroup(_OnFirstUse):
    group_id: int
    name: str
    durable: bool
    head: int = 1
    epoch: int = 0
    taken: RunSet = _LATER
    pending: RunSet = _LATER
    attempts: dict[int, Attempts] = _LATER
    cursor: CursorFacts | None = None
    """Of a group that reads by ranges instead of being handed messages."""
    owner: str = ""
    """The user to whom it belongs; "" = nobody."""
    plans: dict[int, Plan] = _LATER
    """By number, ascending."""
    where: str = ""
    """The text of its filter; "" = none."""
    made: ClassVar[dict[str, Callable[[], Any]]] = {
        "taken": RunSet,
        "pending": RunSet,
        "attempts": dict,
        "plans": dict,
    }


@dataclass(slots=True)
class StoredTransaction:
    """The last committed version of one application."""

    version: int
    decided_at: int
    stages: list[int]
    """queue_id of each committed stage, in order; those that are gone have been moved whole."""
    tag: str = ""
    """The application's own note."""
    owner: str = ""
    """The user to whom the application belongs; "" = nobody."""
    committed: list[Run] = field(default_factory=list)
    """Every version that was committed: see `with_version`."""


IMPORT_PREFIX = "~import/"


def import_of(queue_id: int, user: str, import_id: str) -> str:
    """The application whose version says how far a user's import into the queue has come.

    A queue that is deleted and made anew begins anew; what one user has imported counts for no other.
    """
    return f"{IMPORT_PREFIX}{queue_id}/{quote(user, safe='')}/{import_id}"


def importer_of(app: str) -> tuple[int, str] | None:
    """(queue_id, quoted user) of an import; None = it is none.

    A store of an earlier version may have applications of users that begin so.
    """
    match app.removeprefix(IMPORT_PREFIX).split("/", 2):
        case [queue_id, user, _] if app.startswith(IMPORT_PREFIX) and queue_id.isdecimal():
            return int(queue_id), user
    return None


VERSION_RUNS_MAX = 256
"""Stretches of committed versions that are known of one application; the oldest is forgotten first."""


def with_version(committed: Sequence[Run], version: int) -> list[Run]:
    """The runs of committed versions, once that one is committed as well.

    Batch numbers leave nothing out, so they are one run however many there are.
    """
    known = RunSet(committed)
    known.add(version, version)
    return known.runs()[-VERSION_RUNS_MAX:]


@dataclass(slots=True)
class Chunk:
    """A stretch of a queue's stored messages: sizes and age without the messages. Sequences may be missing in it."""

    first: int
    last: int
    size: int
    """Bytes of all rows first stored in the stretch."""
    published_at: int
    keeper: int = field(default=0, compare=False, repr=False)
    """A group that was known to wait for some of it; only a hint of where to look first."""


@dataclass(slots=True)
class StoredQueue(_OnFirstUse):
    queue_id: int
    name: str
    options: QueueOptions
    created_at: int
    incarnation: str
    next_sequence: int = 1
    next_group_id: int = 1
    deleted: bool = False
    """Only its dead letters are left."""
    attended: bool = False
    """It has had a consumer; known of queues with `auto_delete`."""
    groups: dict[int, StoredGroup] = field(default_factory=dict)
    group_order: list[int] = field(default=_LATER, compare=False, repr=False)
    """Their ids, ascending, as far as the reducer has needed them; some may be of groups that are gone."""
    floor_keeper: int = field(default=0, compare=False, repr=False)
    """The group that was furthest behind when this was last asked; only a hint of where to look first."""
    chunks: list[Chunk] = _LATER
    """Ascending, not overlapping; chunks without a live message are dropped in time."""
    dropped: RunSet = _LATER
    """Log retention only: gone although no group need have settled them (trimmed or removed)."""
    priorities: dict[int, RunSet] = _LATER
    """Priority -> sequences, for priorities other than 1."""
    expires: Instants = _LATER
    delayed: Instants = _LATER
    """Sequence -> deliver_at, for messages published with a delay that some group or the log still has."""
    dead: RunSet = _LATER
    """Messages with a dead letter; one that several groups have given up has several letters."""
    letters: int = 0
    """Dead letters of all groups."""
    dedup: DedupTable = _LATER
    """Within the window."""
    made: ClassVar[dict[str, Callable[[], Any]]] = {
        "group_order": list,
        "chunks": list,
        "dropped": RunSet,
        "priorities": dict,
        "expires": Instants,
        "delayed": Instants,
        "dead": RunSet,
        "dedup": DedupTable,
    }


class StoredQueues(dict[int, StoredQueue]):
    """By queue_id. It also knows which of them have, or had, a name: nobody looks through all queues for that.

    Change it by item and by `clear` only. A queue keeps its name.
    """

    __slots__ = ("_others", "_with_name")

    def __init__(self, queues: Iterable[StoredQueue] = ()) -> None:
        super().__init__()
        self._with_name: dict[str, int] = {}
        """Name -> one of the queues that have or had it; of most names it is the only one."""
        self._others: dict[str, set[int]] = {}
        """Name -> the others."""
        for queue in queues:
            self[queue.queue_id] = queue

    def named(self, name: str) -> list[int]:
        """The queue_ids, ascending."""
        one = self._with_name.get(name)
        return [] if one is None else sorted([one, *self._others.get(name, ())])

    def __setitem__(self, queue_id: int, queue: StoredQueue) -> None:
        super().__setitem__(queue_id, queue)
        if self._with_name.setdefault(queue.name, queue_id) != queue_id:
            self._others.setdefault(queue.name, set()).add(queue_id)

    def __delitem__(self, queue_id: int) -> None:
        name = self[queue_id].name
        super().__delitem__(queue_id)
        others = self._others.get(name)
        if others is None:
            del self._with_name[name]
            return
        if self._with_name[name] == queue_id:
            self._with_name[name] = others.pop()
        else:
            others.discard(queue_id)
        if not others:
            del self._others[name]

    def clear(self) -> None:
        super().clear()
        self._with_name.clear()
        self._others.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredQueues, (list(self.values()),)

    def copy(self) -> "StoredQueues":
        """With the same queues, which are not copied."""
        copied = StoredQueues()
        dict.update(copied, self)
        copied._with_name = self._with_name.copy()
        copied._others = {name: others.copy() for name, others in self._others.items()}
        return copied


@dataclass(slots=True)
class StoredState:
    queues: StoredQueues = field(default_factory=StoredQueues)
    """Deleted ones with dead letters included."""
    next_queue_id: int = 1
    next_dead_id: int = 1
    dead_count: int = 0
    lsn: int = 0
    """Of the last applied batch."""
    instant: int = 0
    """The latest instant any record carried; time never goes back behind it."""
    transactions: dict[str, StoredTransaction] = field(default_factory=dict)
    """By application."""
    users: dict[str, StoredUser] = field(default_factory=dict)
    """Of the store, by name; the settings may name others."""
    tokens: dict[str, StoredToken] = field(default_factory=dict)
    """By token_id."""
    jobs: dict[int, StoredJob] = field(default_factory=dict)
    """By job_id, ascending. The one with the highest is never forgotten: the next is numbered behind it."""

    def for_a_look(self) -> "StoredState":
        """For somebody who only looks at it before the next record: queues and the like, of which there may be a
        million, are not copied."""
        return replace(
            self,
            queues=self.queues.copy(),
            transactions=dict(self.transactions),
            users=dict(self.users),
            tokens=dict(self.tokens),
            jobs=dict(self.jobs),
        )

    def name_of(self, queue_id: int) -> str:
        """Of a queue; "" when it is not known."""
        queue = self.queues.get(queue_id)
        return "" if queue is None else queue.name


SLICE_BYTES_LEAST = 1_024
"""What a slice counts as, however small: it takes as long as so many bytes in large ones."""


@dataclass(slots=True)
class Slice:
    """Consecutive messages read back: sequences first_sequence … last_sequence."""

    first_sequence: int
    published_at: int
    rows: Rows

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.rows.count - 1

    @property
    def run(self) -> Run:
        return self.first_sequence, self.first_sequence + self.rows.count - 1

    @property
    def cost(self) -> int:
        """Bytes, or what reading and encoding it takes in bytes when it is small: for limits of work."""
        size = len(self.rows.data)
        return size if size > SLICE_BYTES_LEAST else SLICE_BYTES_LEAST


@dataclass(slots=True)
class DeadLetter:
    """A dead letter with its whole message."""

    facts: DeadFacts
    queue_id: int
    queue: str
    group: str
    published_at: int
    priority: int
    row: bytes


class DamagedLetter(NamedTuple):
    """A dead letter that is there and cannot be read."""

    dead_id: int
    queue_id: int
    """0 when even that cannot be read."""
    queue: str
    why: str


INDEX_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPageWanted:
    """Which stretch of the DLQ to look at."""

    after: int = 0
    """Ids above this one."""
    below: int = (1 << 63) - 1
    newest_first: bool = False
    """From the greatest id down."""
    choice: LetterChoice = EVERY_LETTER
    """What the index finds, before any facts are read."""
    limit: int = 100
    """Most letters that are returned."""
    scan: int = 250
    """Most letters whose facts are looked at; of those that the index rules out, `INDEX_STEPS` times as many."""
    max_bytes: int = 1 << 20
    rows: bool = True
    """False: without their messages. `row`, `published_at` and `priority` mean nothing then."""
    fits: Callable[[DeadFacts, str], bool] = lambda facts, queue: True
    """(facts, name of the queue it died in) -> whether the letter is wanted; its row is read only then."""


@dataclass(slots=True)
class DeadPage:
    """A stretch of the DLQ. Letters that cannot be read are stepped over and named."""

    letters: list[DeadLetter]
    damaged: list[DamagedLetter]
    last: int
    """Everything up to this id was looked at, in the page's order: the next page goes on behind it."""
    done: bool
    """There is nothing more."""
    examined: int = 0
    """Letters that were looked at."""
    examined_to: dict[int, int] = field(default_factory=dict)
    """dead_id of a letter -> how many were looked at up to it, for whoever takes a part of the page."""
    is_ready: bool = True
    """False: nothing was looked at, as the index does not know all letters yet; ask again."""
