"""The state of the engine, and the counters of the whole broker. Handlers change it."""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappush

from vibemq.engine.queue.consumer import Consumer, SessionState
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Added, Queue
from vibemq.engine.settings import EngineSettings
from vibemq.engine.stage_names import delay_of, version_and_app
from vibemq.engine.step import Step, Wait
from vibemq.errors import VibeMQError
from vibemq.model.commands import Pressure
from vibemq.model.effects import Effect, Published
from vibemq.model.options import Durability
from vibemq.model.records import Record
from vibemq.model.runs import END, Run, RunSet


@dataclass(slots=True, eq=False)
class Open:
    """An outcome whose records have left for storage and of which nothing has been heard."""

    records: list[Record]
    after_append: list[Effect]
    gated: list[Effect]
    added: list[Added]
    moved: list[tuple[Queue, list[Run]]]
    waits: list[Wait] = field(default_factory=list)


@dataclass(slots=True)
class Transaction:
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
    """Runs of all committed versions; see `vibemq.model.stored.with_version`."""


def batches_of(query: str) -> str:
    """The application whose versions are the batches that the query's readers have entered."""
    return f"{query}.read"


@dataclass(slots=True)
class Totals:
    unknown_settles: int = 0
    """Settlements of messages that the consumer did not hold."""
    failed_outcomes: int = 0
    commands: int = 0


class EngineState:
    def __init__(self, settings: EngineSettings, jitter: Callable[[], float], new_id: Callable[[], str]) -> None:
        self.settings = settings
        self.jitter = jitter
        self.new_id = new_id
        self.now = 0
        self.queues: dict[str, Queue] = {}
        self.names: list[str] = []
        """Of the queues, sorted: lists are read from it in pages."""
        self.stages: dict[str, Queue] = {}
        """Hidden queues that hold what transactions have staged; by name, and nowhere shown as queues."""
        self.stages_of: dict[str, dict[str, int]] = {}
        """Application -> name -> version of its stages that are there."""
        self.delay_marks: dict[str, Queue] = {}
        """Hidden queues, always empty, by name: each says that a stage has delayed messages for a queue. Unlike the
        stage's dedup ids, they are there as long as the stage."""
        self.delayed_targets: dict[str, set[str]] = {}
        """Name of a stage -> the queues that delayed messages of it shall go to."""
        self.delaying_stages: dict[str, set[str]] = {}
        """Name of a queue -> the stages that have delayed messages for it."""
        self.queues_by_id: dict[int, Queue] = {}
        """Stages too."""
        self.transactions: dict[str, Transaction] = {}
        """By application, the longest decided first."""
        self.dead_of_deleted_queues: dict[int, int] = {}
        """queue_id -> dead letters of a deleted queue."""
        self.sessions: dict[int, SessionState] = {}
        self.timers: list[tuple[int, int]] = []
        """(instant, queue_id); a queue's entries later than its `armed_at` are stale."""
        self._alarms = 0
        """How many alarms of parts were set: their order when they are due together."""
        self.next_queue_id = 1
        self.next_dead_id = 1
        self.first_new_dead_id = 1
        """Ids from here on were given since the start."""
        self.dead_total = 0
        """Letters of all queues, deleted ones included."""
        self.dead_origins: dict[int, RunSet] = {}
        """queue_id -> ids of letters made since the start that are still there."""
        self.dead_gone = RunSet()
        """Ids purged or replayed since the start."""
        self.pressure = Pressure.NONE
        self.pressure_why = ""
        self.next_ticket = 1
        self.open: dict[int, Open] = {}
        self.owed: list[Record] = []
        """Facts that hold but could not be written; they go with the next records."""
        self.owed_at = END
        """When to try again without other records, or to go on with what follows from a failure."""
        self.carried: Step | None = None
        """Consequences of failed outcomes, for the next step."""
        self.showing: OrderedDict[Queue, None] = OrderedDict()
        """Queues with a tail that has moved: some of their groups are yet to be called."""
        self.totals = Totals()
        self.retired: Counter[str] = Counter()
        """Counters of queues that were deleted since the start."""
        self.parking: dict[Queue, None] = {}
        """Queues with parked publishers."""

    def register(self, queue: Queue, registry: dict[str, Queue]) -> None:
        """`registry`: `queues`, `stages` or `delay_marks`."""
        registry[queue.name] = self.queues_by_id[queue.queue_id] = queue
        if registry is self.queues:
            insort(self.names, queue.name)
        elif registry is self.delay_marks:
            self._note_delay(queue.name)
        else:
            version, app = version_and_app(queue.name)
            self.stages_of.setdefault(app, {})[queue.name] = version

    def unregister(self, queue: Queue, registry: dict[str, Queue]) -> None:
        del registry[queue.name], self.queues_by_id[queue.queue_id]
        if registry is self.queues:
            del self.names[bisect_left(self.names, queue.name)]
            return
        if registry is self.delay_marks:
            self._forget_delay(queue.name)
            return
        app = version_and_app(queue.name)[1]
        del self.stages_of[app][queue.name]
        if not self.stages_of[app]:
            del self.stages_of[app]

    def _note_delay(self, mark: str) -> None:
        stage, target = delay_of(mark)
        self.delayed_targets.setdefault(stage, set()).add(target)
        self.delaying_stages.setdefault(target, set()).add(stage)

    def _forget_delay(self, mark: str) -> None:
        stage, target = delay_of(mark)
        _discard(self.delayed_targets, stage, target)
        _discard(self.delaying_stages, target, stage)

    def session(self, number: int) -> SessionState:
        session = self.sessions.get(number)
        if session is None:
            session = self.sessions[number] = SessionState(number)
        return session

    def consumer(self, session: int, number: int) -> Consumer | None:
        known = self.sessions.get(session)
        return None if known is None else known.consumers.get(number)

    def arm(self, queue: Queue, at: int) -> None:
        """See to the queue at that instant, if nothing calls it earlier."""
        if at < queue.armed_at:
            queue.armed_at = at
            heappush(self.timers, (at, queue.queue_id))

    def arm_part(self, queue: Queue, part: Group | Consumer, at: int) -> None:
        """See to one group or consumer of the queue at that instant; the others need not be looked at for it."""
        if at < part.armed_at:
            part.armed_at = at
            self._alarms += 1
            queue.set_alarm(at, self._alarms, part)
            self.arm(queue, at)

    def new_dead_ids(self, queue: Queue, count: int) -> int:
        """The first of `count` ids for letters of the queue."""
        first = self.next_dead_id
        self.next_dead_id += count
        self.dead_origins.setdefault(queue.queue_id, RunSet()).add(first, first + count - 1)
        queue.dead += count
        self.dead_total += count
        return first

    @property
    def need_of_known(self) -> Durability:
        """What an answer needs that tells of facts already known here: they may still be on their way to the disk."""
        return Durability.STRONG if self.owed or self.open else Durability.TRANSIENT

    def refusal(self, error: VibeMQError, count: int, queue: str) -> Published:
        """The answer when every row of a publish is refused."""
        return Published(queue, 0, count, refused=dict.fromkeys(range(count), error))


def _discard(known: dict[str, set[str]], key: str, value: str) -> None:
    known[key].discard(value)
    if not known[key]:
        del known[key]
