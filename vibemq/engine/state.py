"""The state of the engine, and the counters of the whole broker. Handlers change it."""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from heapq import heappush
from urllib.parse import quote

from vibemq.engine.jobs.job_table import JobTable
from vibemq.engine.queue.consumer import Consumer, SessionState
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.parts.waiting_room import WaitingRoom
from vibemq.engine.queue.queue import Added, Queue, TakenOut
from vibemq.engine.queue.share import Share
from vibemq.engine.queue.timing.alarms import arm
from vibemq.engine.settings import EngineSettings
from vibemq.engine.stage_names import delay_of, is_plain, is_stage, plain_of, version_and_app
from vibemq.engine.step import Step, Wait
from vibemq.engine.waiting import RequestTable
from vibemq.errors import VibeMQError
from vibemq.model.commands import Pressure
from vibemq.model.effects import Departure, Effect, Published
from vibemq.model.options import Durability
from vibemq.model.records import QueueChanged, QueueCreated, Record
from vibemq.model.runs import END, RunSet
from vibemq.model.stored import IMPORT_PREFIX, StoredTransaction, importer_of


@dataclass(slots=True, eq=False)
class Open:
    """An outcome whose records have left for storage and of which nothing has been heard."""

    records: list[Record]
    after_append: list[Effect]
    gated: list[Effect]
    added: list[Added]
    moved: list[TakenOut]
    undo: list[Callable[[], None]]
    durability: Durability
    waits: list[Wait] = field(default_factory=list)
    pays: bool = False
    """It has nothing but what was owed, and the answers that waited with it."""
    counted: bool = False
    """What it has added is counted as published."""


REGISTER_PREFIX = "~read/"
OWN_PREFIXES = (REGISTER_PREFIX, IMPORT_PREFIX)
"""Begin the names of applications that the engine alone commits."""
OWED = 0
"""The ticket of what has none."""


def register_of(query: str, group: Group) -> str:
    """The application whose versions are the batches of the query that readers of the group's user have entered.

    What one user's readers say of a query counts for no other user.
    """
    return f"{REGISTER_PREFIX}{quote(group.owner, safe='')}/{query}"


def registrar_of(app: str) -> str:
    """Of a register what it has in common with the others of the same user; "" = it is no register."""
    return app[: app.find("/", len(REGISTER_PREFIX)) + 1] if app.startswith(REGISTER_PREFIX) else ""


@dataclass(slots=True)
class Totals:
    unknown_settles: int = 0
    """Settlements of messages that the consumer did not hold."""
    failed_outcomes: int = 0
    commands: int = 0
    cursors_made: int = 0
    """Since the start."""


@dataclass(slots=True)
class Doubt:
    """Which requests of a queue have to be looked at."""

    sequences: list[int]
    again: bool = False
    """All of them once more: another group has gone meanwhile."""
    asking: "Asking | None" = None
    """With very many groups: some of the requests, which one group after the other is asked about."""


@dataclass(slots=True)
class Asking:
    requests: RunSet
    """None of the groups that were asked has them."""
    groups: deque[Group]
    """They are yet to be asked."""
    regains: int
    """How often a group of the queue had been given messages that it did not have, when this began."""


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
        self.plain_stages: dict[str, Queue] = {}
        """Name of a stage -> the part of it that holds messages as they are."""
        self.delay_marks: dict[str, Queue] = {}
        """Hidden queues, always empty, by name: each says that a stage has delayed messages for a queue. Unlike the
        stage's dedup ids, they are there as long as the stage."""
        self.delayed_targets: dict[str, set[str]] = {}
        """Name of a stage -> the queues that delayed messages of it shall go to."""
        self.delaying_stages: dict[str, set[str]] = {}
        """Name of a queue -> the stages that have delayed messages for it."""
        self.queues_by_id: dict[int, Queue] = {}
        """Stages too."""
        self.batches_at = 0
        """The latest instant at which a batch was planned or entered, or anything was decided."""
        self.transactions: dict[str, StoredTransaction] = {}
        """By application, the longest decided first. Changed with `keep_transaction` and `drop_transaction`."""
        self.registers: Counter[str] = Counter()
        """How many registers of batches each user has, by `registrar_of`."""
        self.imports: dict[int, dict[str, dict[str, None]]] = {}
        """queue_id -> quoted user -> the applications of the user's imports, that of the longest ago first."""
        self.imports_of: Counter[str] = Counter()
        """How many imports each quoted user has, into all queues."""
        self.sessions: dict[int, SessionState] = {}
        self.timers: list[tuple[int, int]] = []
        """(instant, queue_id); what is not its queue's `armed_at` may be behind it (`queue/timing/alarms.py`)."""
        self._alarms = 0
        """How many alarms of parts were set: their order when they are due together."""
        self.questions = 0
        """Number of the last `Classify`."""
        self.questioned: dict[int, tuple[Queue, Group]] = {}
        """By the number of the question, until it is answered."""
        self.next_queue_id = 1
        self.next_dead_id = 1
        self.first_new_dead_id = 1
        """Ids from here on were given since the start."""
        self.dead_id_told = 0
        """The highest id that the disk knows of ahead of any letter, and which no letter gets: the ids below are not
        given again after a restart, also when nothing is kept of their letters."""
        self.dead_ids_due = False
        """The next tick tells the disk of such an id, in an outcome of its own."""
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
        self.owed_behind: list[Record] = []
        """What followed from the failures of a series of outcomes: owed, too, behind the facts of all of them."""
        self.owed_answers: list[Effect] = []
        """Of failed outcomes, those that stand: they are told when what is owed is kept."""
        self.gaps: dict[Queue, int] = {}
        """Queues of which promised messages, the last of them here, are kept behind others that vanished; the disk is
        told of the gap with what is owed."""
        self.brought_back: dict[tuple[int, int], RunSet] = {}
        """(queue_id, group_id) -> messages that failed moves have brought back to a group that was sought meanwhile.
        The seek, whose records fail in the same series, did not see them."""
        self.owed_at = END
        """When to try again without other records, or to go on with what follows from a failure."""
        self.carried: Step | None = None
        """Consequences of failed outcomes, for the next step."""
        self.showing: OrderedDict[Queue, None] = OrderedDict()
        """Queues with a tail that has moved: some of their groups are yet to be called."""
        self.unshown: dict[Queue, None] = {}
        """Queues with messages that are visible, and whose groups are yet to see them."""
        self.totals = Totals()
        self.retired: Counter[str] = Counter()
        """Counters of queues that were deleted since the start."""
        self.called: dict[Share[Consumer], None] = {}
        """Shares with room, in which somebody stands in line, or has its turn."""
        self.requests = RequestTable()
        self.doubtful: dict[Queue, Doubt] = {}
        """Queues with requests that perhaps no group has any more."""
        self.waiting_room = WaitingRoom()
        self.parking: dict[Queue, None] = {}
        """Queues with parked publishers."""
        self.mortal: dict[str, Queue] = {}
        """Queues that go away by themselves, by name."""
        self.doomed: dict[Queue, Departure] = {}
        """Those whose time has ended."""
        self.departing: deque[Generator[None, Step, None]] = deque()
        """What is left to do of those that are gone."""
        self.jobs = JobTable()
        self.removed: Counter[str] = Counter()
        """Queues that went away by themselves since the start, by the reason."""
        self.being_created: dict[int, int] = {}
        """queue_id of transient queues -> the outcome that creates them, OWED when it was refused; those that nobody
        has published to since may stand here longer."""
        self.being_strengthened: dict[int, int] = {}
        """queue_id -> the outcome that gives the queue a stronger durability, in the same way: what was published
        before it may not be as safe yet as what is published now."""

    def count_published(self, outcome: Open) -> None:
        """It is stored: from now on nothing takes its messages back, so that no counter ever falls."""
        if outcome.counted:
            return
        outcome.counted = True
        for added in outcome.added:
            queue, count = added.queue, added.last - added.first + 1
            if not queue.deleted:
                queue.published += count
                queue.redirected += added.redirected
            elif not is_stage(queue.name):
                self.retired["published"] += count
                self.retired["dead_lettered"] += added.redirected

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
            if is_plain(queue.name):
                self.plain_stages[plain_of(queue.name)[0]] = queue

    def unregister(self, queue: Queue, registry: dict[str, Queue]) -> None:
        del registry[queue.name], self.queues_by_id[queue.queue_id]
        self.being_created.pop(queue.queue_id, None)
        self.being_strengthened.pop(queue.queue_id, None)
        if registry is self.queues:
            del self.names[bisect_left(self.names, queue.name)]
            return
        if registry is self.delay_marks:
            self._forget_delay(queue.name)
            return
        if is_plain(queue.name):
            del self.plain_stages[plain_of(queue.name)[0]]
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

    def keep_transaction(self, app: str, transaction: StoredTransaction) -> None:
        """It is the last decided."""
        if app in self.transactions:
            self.drop_transaction(app)
        self.transactions[app] = transaction
        self.batches_at = max(self.batches_at, transaction.decided_at)
        if registrar := registrar_of(app):
            self.registers[registrar] += 1
        if importer := importer_of(app):
            queue_id, user = importer
            self.imports.setdefault(queue_id, {}).setdefault(user, {})[app] = None
            self.imports_of[user] += 1

    def next_batch_instant(self, now: int) -> int:
        """Later than every one before, also when the clock was set back: what was planned before a number was used is
        told by these from what was planned afterwards."""
        self.batches_at = max(now, self.batches_at + 1)
        return self.batches_at

    def drop_transaction(self, app: str) -> None:
        del self.transactions[app]
        if registrar := registrar_of(app):
            self.registers[registrar] -= 1
            if not self.registers[registrar]:
                del self.registers[registrar]
        if importer := importer_of(app):
            self._drop_import(*importer, app)

    def _drop_import(self, queue_id: int, user: str, app: str) -> None:
        users = self.imports[queue_id]
        del users[user][app]
        self.imports_of[user] -= 1
        if not self.imports_of[user]:
            del self.imports_of[user]
        if not users[user]:
            del users[user]
        if not users:
            del self.imports[queue_id]

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
            arm(queue, at)
            heappush(self.timers, (at, queue.queue_id))

    def arm_part(self, queue: Queue, part: Group | Consumer, at: int) -> None:
        """See to one group or consumer of the queue at that instant; the others need not be looked at for it."""
        if at < part.armed_at:
            arm(part, at)
            self._alarms += 1
            queue.set_alarm(at, self._alarms, part)
            self.arm(queue, at)

    def new_dead_ids(self, queue: Queue, count: int) -> int:
        """The first of `count` ids for letters of the queue."""
        first = self.next_dead_id
        if first <= self.dead_id_told < first + count:
            first = self.dead_id_told + 1
        self.next_dead_id = first + count
        self.dead_origins.setdefault(queue.queue_id, RunSet()).add(first, first + count - 1)
        queue.dead += count
        self.dead_total += count
        return first

    @property
    def owes(self) -> bool:
        return bool(self.owed or self.owed_behind or self.gaps)

    def is_being_created(self, queue: Queue) -> bool:
        """Whether storage may not know the (transient) queue yet, so that its messages cannot be kept by themselves."""
        return bool(self.being_created) and self._is_on_its_way(self.being_created, queue.queue_id)

    def is_being_strengthened(self, queue: Queue) -> bool:
        """Whether storage may not know yet that the queue has a stronger durability than before."""
        return bool(self.being_strengthened) and self._is_on_its_way(self.being_strengthened, queue.queue_id)

    def _is_on_its_way(self, tickets: dict[int, int], queue_id: int) -> bool:
        ticket = tickets.get(queue_id)
        if ticket is None or ticket == OWED or ticket == self.next_ticket or ticket in self.open:
            return ticket is not None
        del tickets[queue_id]
        return False

    def note_refused(self, records: list[Record]) -> None:
        """They are owed now."""
        for record in records if self.being_created or self.being_strengthened else ():
            if isinstance(record, QueueCreated) and record.queue_id in self.being_created:
                self.being_created[record.queue_id] = OWED
            if isinstance(record, QueueChanged) and record.queue_id in self.being_strengthened:
                self.being_strengthened[record.queue_id] = OWED

    def note_paid(self) -> None:
        """What is owed goes with the next ticket."""
        for tickets in (self.being_created, self.being_strengthened):
            for queue_id, ticket in tickets.items():
                if ticket == OWED:
                    tickets[queue_id] = self.next_ticket

    @property
    def need_of_known(self) -> Durability:
        """What an answer needs that tells of facts already known here: they may still be on their way to the disk."""
        if self.owes:
            return Durability.STRONG
        return max((outcome.durability for outcome in self.open.values()), default=Durability.TRANSIENT)

    def refusal(self, error: VibeMQError, count: int, queue: str) -> Published:
        """The answer when every row of a publish is refused."""
        return Published(queue, 0, count, refused=dict.fromkeys(range(count), error))


def _discard(known: dict[str, set[str]], key: str, value: str) -> None:
    known[key].discard(value)
    if not known[key]:
        del known[key]
