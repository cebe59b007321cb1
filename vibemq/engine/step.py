"""One step of the engine while it happens: collects what becomes its `Outcome`."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Added, Queue, TakenOut
from vibemq.errors import VibeMQError
from vibemq.model.effects import Effect, Published, Reply, StandingReply
from vibemq.model.extras.message_extra import Extras
from vibemq.model.options import Durability
from vibemq.model.records import CursorChanged, HandedOut, MessagesAdded, Record, Settled
from vibemq.model.rows import Rows, join_rows
from vibemq.model.runs import Run, RunSet


@dataclass(slots=True, eq=False)
class Wait:
    """An answer that speaks of messages of other, still open outcomes (duplicates of what is on its way)."""

    session: int
    token: Any
    result: Published
    tickets: set[int]


class Asked(Protocol):
    """A command that may be answered."""

    session: int
    token: Any


class Step:
    __slots__ = (
        "_parts",
        "_settled",
        "added",
        "after_append",
        "answering",
        "dirty",
        "doubtful",
        "durability",
        "effects",
        "facts",
        "freed",
        "gated",
        "given_up",
        "moved",
        "now",
        "records",
        "undo",
        "waits",
        "watched",
        "work",
    )

    def __init__(self, now: int, watched: Container[int] = ()) -> None:
        """`watched`: ids of queues in which jobs have made messages."""
        self.now = now
        self.watched = watched
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.after_append: list[Effect] = []
        self.gated: list[Effect] = []
        self.durability = Durability.TRANSIENT
        self.answering = -1
        """Which command of the step is carried out."""
        self.facts = 0
        """How often something was noted that has to be kept."""
        self.work = 0
        """What it has cost so far, in units of `vibemq.engine.pacing`; only what may be much is counted."""
        self.added: list[Added] = []
        self.moved: list[TakenOut] = []
        """What left a queue, or a stage, for another queue."""
        self.undo: list[Callable[[], None]] = []
        """What takes back, when the step is not stored, what no other list here says: of imports and of jobs."""
        self.waits: list[Wait] = []
        """Answers that wait for earlier outcomes."""
        self.dirty: dict[Group, Queue] = {}
        """Groups where something may be handed out now."""
        self.freed: dict[Queue, None] = {}
        """Queues where a parked publisher may go on now, or whose last consumer may have left."""
        self.doubtful: dict[Queue, None] = {}
        """Queues of which a group has given up messages, that may have been requests."""
        self.given_up: dict[Queue, RunSet] = {}
        """Messages of `watched` queues that have left them though no consumer has settled them, and are no letters."""
        self._settled: dict[Group, Settled] = {}
        self._parts: list[Rows] = []
        """Rows of the last record, while it is a MessagesAdded that may still grow."""

    # -- facts ----------------------------------------------------------------------------------------------------

    def note(self, record: Record, need: Durability) -> None:
        """Keep a fact. Those about queues and groups close the settlements gathered so far, which must come first."""
        if self._parts:
            self.close()
        self.records.append(record)
        if need > Durability.TRANSIENT:
            self.facts += 1
            if need > self.durability:
                self.durability = need

    def note_added(self, queue: Queue, first: int, rows: Rows, extras: Extras | None, *, apart: bool) -> None:
        """Plain publishes that follow each other become one record: the disk is paid per record."""
        before = self.records[-1] if self._parts else None
        if isinstance(before, MessagesAdded) and before.queue_id == queue.queue_id and not (extras or apart):
            self._parts.append(rows)
            self.facts += queue.options.durability > Durability.TRANSIENT
            return
        self.note(MessagesAdded(queue.queue_id, first, self.now, rows, extras, apart), queue.options.durability)
        if not extras:
            self._parts.append(rows)

    def close(self) -> None:
        """Nothing more is added to the last record."""
        if len(self._parts) > 1:
            record = self.records[-1]
            assert isinstance(record, MessagesAdded)
            record.rows = join_rows(self._parts)
        self._parts = []

    def note_structure(self, record: Record, need: Durability = Durability.STRONG) -> None:
        self._settled.clear()
        self.note(record, need)

    def note_settled(self, queue: Queue, group: Group, runs: list[Run]) -> None:
        """Gathers the settlements of one group into one record."""
        record = self._settled.get(group)
        if record is None:
            record = self._settled[group] = Settled(queue.queue_id, group.group_id, [])
            self.note(record, light(queue))
        elif not queue.transient:
            self.facts += 1
        gathered = record.runs
        for run in runs:
            if gathered and gathered[-1][1] + 1 == run[0]:
                gathered[-1] = (gathered[-1][0], run[1])
            else:
                gathered.append(run)

    def note_cursor(self, queue: Queue, group: Group, need: Durability) -> None:
        """What is known of the group's cursor now."""
        assert group.cursor is not None
        self.note(CursorChanged(queue.queue_id, group.group_id, group.cursor.facts(group.epoch)), need)

    def note_handed_out(self, queue: Queue, group: Group, runs: list[Run]) -> None:
        # What is handed out from here on may have been in flight before: its settlement belongs after this record.
        self._settled.pop(group, None)
        self.note(HandedOut(queue.queue_id, group.group_id, runs), light(queue))

    def note_moved(self, taken: TakenOut) -> None:
        """It leaves its queue in this batch, and comes back if that cannot be stored."""
        taken.queue.leaving += 1
        self.moved.append(taken)

    # -- answers --------------------------------------------------------------------------------------------------

    def answer(self, command: Asked, result: Any, need: Durability = Durability.TRANSIENT) -> None:
        """Reply to a command, at once or, when the answer speaks of facts that need it, when these are kept.

        The facts may be those of earlier outcomes: what they need holds for all records up to and with this outcome's.
        """
        if command.token is not None:
            self.tell(Reply(command.session, command.token, result, self.answering), need)

    def answer_standing(self, command: Asked, result: Any, need: Durability, *, unchanged: bool = False) -> None:
        """The same for an answer that stays true when its outcome cannot be written (`StandingReply`): nothing of it is
        taken back by `Engine.failed`."""
        if command.token is not None:
            self.tell(StandingReply(command.session, command.token, result, self.answering, unchanged), need)

    def answer_unchanged(self, command: Asked, need: Durability, result: Any = None) -> None:
        """What the command asks for is so already."""
        if command.token is not None:
            self.tell(Reply(command.session, command.token, result, self.answering, unchanged=True), need)

    def tell(self, effect: Effect, need: Durability) -> None:
        if need > Durability.ASYNC:
            self.gated.append(effect)
            if need > self.durability:
                self.durability = need
        elif need is Durability.ASYNC:
            self.after_append.append(effect)
        else:
            self.effects.append(effect)

    def confirm_after_append(self, told: int) -> None:
        """Nothing from the effect of that index on is told before the records are appended."""
        later = self.effects[told:]
        del self.effects[told:]
        self.after_append += later
        for effect in later:
            if isinstance(effect, Reply) and isinstance(effect.result, Published):
                for added in self.added:
                    if (added.queue.name, added.first) == (effect.result.queue, effect.result.first_sequence):
                        added.promised = False

    def end_deliveries(self, command: Asked) -> None:
        """Answer a command after which its consumer is handed nothing more."""
        if command.token is not None:
            self.effects.append(Reply(command.session, command.token, None, self.answering, ends_deliveries=True))

    def refuse(self, command: Asked, error: VibeMQError) -> None:
        self.answer(command, error)

    # -- consequences ---------------------------------------------------------------------------------------------

    def touch(self, queue: Queue, group: Group) -> None:
        """Something can be handed out, or somebody can take it."""
        self.dirty[group] = queue

    def doubt(self, queue: Queue) -> None:
        """A group has gone, or was moved: requests may be among what it had."""
        # What a log keeps may be read again by a group that joins later.
        if queue.requests and queue.log is None:
            self.doubtful[queue] = None

    def leave(self, queue: Queue) -> None:
        """A consumer has left the queue."""
        if queue.options.goes_away:
            queue.unused_since = self.now
            self.freed[queue] = None

    def give_up(self, queue: Queue, runs: Iterable[Run]) -> None:
        """They are in no group any more."""
        if queue.queue_id in self.watched:
            self.given_up.setdefault(queue, RunSet()).add_all(runs)

    def free(self, queue: Queue) -> None:
        """Room was made in the queue."""
        if queue.parked:
            self.freed[queue] = None


def light(queue: Queue) -> Durability:
    """What hand-outs, returns and settlements need: losing them means a redelivery, never a loss."""
    return Durability.TRANSIENT if queue.transient else Durability.ASYNC


def heavy(queue: Queue) -> Durability:
    """What moves into the DLQ and drops need."""
    return Durability.TRANSIENT if queue.transient else Durability.STRONG
