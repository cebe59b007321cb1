"""Transactions: messages that become visible together (docs/spec/cursor.md, "Transactions").

A stage is a hidden queue, or two. Its plain part holds messages as they are, all for one queue, with nothing beside
their rows; everything else, and what comes behind it, is held in staged batches. `decide` makes a set of stages
inevitable with one small record. From then on the server has each plain part enter its queue where it is, with one
record, and moves one staged batch after the other, each in a batch of records; after a crash it goes on where it was.
So a transaction may be larger than memory, and needs no more than its own decision to be atomic.
"""

from itertools import islice, takewhile

from vibemq.engine.handlers.append import add, adopt, pick
from vibemq.engine.handlers.publish import accept, answer, check_delays, check_pressure
from vibemq.engine.handlers.queues import check_may_make, check_queue_ids, find_or_create, make_queue, remove
from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.queue.dedup import screen
from vibemq.engine.queue.queue import WAITING_NAME, Queue, TakenOut
from vibemq.engine.stage_names import check_app, delay_mark, plain_stage, stage_name, version_and_app
from vibemq.engine.state import OWN_PREFIXES, EngineState
from vibemq.engine.step import Step
from vibemq.errors import InvalidOptions, NotAuthorized, StageNotFound, VersionSkipped
from vibemq.model.commands import (
    DecideTransaction,
    DropStages,
    ForgetApplication,
    MoveStage,
    MoveStaged,
    Pressure,
    Stage,
)
from vibemq.model.effects import Counted, Decided, Published
from vibemq.model.extras.columns import columns_of
from vibemq.model.extras.message_extra import Extras, MessageExtra
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import APPLICATION_BYTES_MAX, Dropped, Reason, TransactionDecided, TransactionsForgotten
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.model.runs import Run, run_count
from vibemq.model.staged_batch import pack_staged_batch
from vibemq.model.stored import VERSION_RUNS_MAX, StoredTransaction, with_version

STAGE_TTL_MS = 24 * 3_600_000
REMEMBERED_MS = 30 * 24 * 3_600_000
"""How long the last version of an application is known after its last commit."""
VERSION_STEP_MAX = 1 << 40
"""How far a version may lie above the last one: enough for instants in milliseconds and for dates as numbers."""
PLAIN_BYTES_MAX = 512 << 20
"""Of the plain part of a stage: what is known of its sizes enters the queue at once. What is more goes into
staged batches."""
_NAMED_AT_ONCE = 250
"""Stages that are looked for in one step."""
_LOOKED_UP_PER_UNIT = 10
"""Names of stages to be dropped that are looked up for the cost of one run."""
FIRST_VERSION_MAX = 1 << 53
"""For an application that is not known yet; the largest whole number that every JSON reader keeps."""


def stage(state: EngineState, step: Step, command: Stage) -> None:
    check_application(command.app)
    check_queue_ids(state)
    name = stage_name(command.app, command.version, command.stage, command.user)
    done = decided_of(state, command.app, command.user)
    duplicate = _is_duplicate(done, command.app, command.version)
    # What is refused, or would change nothing, makes no queue.
    existing = state.queues.get(command.queue)
    if existing is None:
        check_may_make(state, command.queue, create=command.create)
    if state.pressure >= Pressure.BLOCKING:
        check_pressure(state, existing, 1)
    if existing is not None:
        check_delays(existing, command.delayed)
    if duplicate:
        # Its commit would change nothing, so nothing need be kept.
        step.answer(command, Published(command.queue, 0, 1), state.need_of_known)
        return
    target = find_or_create(state, step, command.queue, create=command.create)
    batches, plain = state.stages.get(name), state.plain_stages.get(name)
    chunk_id = str(command.chunk).encode()
    known = 0 if plain is None else plain.dedup.known(chunk_id, step.now - plain.options.dedup_window_ms)
    if plain is not None and known:
        again = Published(plain.name, 0, 1, None, {0: known})
        answer(state, step, plain, command.session, command.token, again, None)
        return
    extras = {0: MessageExtra(dedup_id=chunk_id)}
    # What comes behind a staged batch goes into staged batches as well, so that the order stays.
    if batches is None and _is_plain(state, target, command) and _has_place(plain, name, command):
        if plain is None:
            plain = make_queue(state, step, plain_stage(name, command.queue), _options(state), state.stages)
        accept(state, step, plain, command.session, command.token, command.rows, extras)
        return
    if batches is None:
        batches = make_queue(state, step, name, _options(state), state.stages)
    if command.delayed:
        _mark_delay(state, step, name, command.queue)
    batch = pack_staged_batch(f"{command.stage}/{command.chunk}", command.queue, command.rows, command.extras)
    accept(state, step, batches, command.session, command.token, batch, extras)


def _is_plain(state: EngineState, target: Queue, command: Stage) -> bool:
    if command.extras or command.delayed or target.transient or state.settings.transient_only:
        return False
    rows = command.rows
    return rows.size <= LARGE_ROW_BYTES or max(rows.row_lengths()) <= LARGE_ROW_BYTES


def _has_place(plain: Queue | None, stage: str, command: Stage) -> bool:
    if plain is None:
        return True
    size = plain.sizes.total + command.rows.size
    return plain.name == plain_stage(stage, command.queue) and size <= PLAIN_BYTES_MAX


def _parts_of(state: EngineState, stage: str) -> list[Queue]:
    """The queues of a stage, or the one of that name, in the order in which they were filled."""
    parts = (state.plain_stages.get(stage), state.stages.get(stage))
    return [queue for queue in parts if queue is not None]


def _mark_delay(state: EngineState, step: Step, stage: str, target: str) -> None:
    """Where delayed messages shall go has to be known before they do, as long as the stage is there."""
    mark = delay_mark(stage, target)
    if mark not in state.delay_marks:
        make_queue(state, step, mark, _options(state), state.delay_marks)


def has_delays_on_their_way(state: EngineState, name: str) -> bool:
    """Whether a committed stage is still to bring delayed messages into the queue."""
    stages = state.delaying_stages.get(name, ())
    decided = {app: _decided_ids(state, app) for app in {version_and_app(stage)[1] for stage in stages}}
    return any(
        stage in state.stages and state.stages[stage].queue_id in decided[version_and_app(stage)[1]] for stage in stages
    )


def _decided_ids(state: EngineState, app: str) -> set[int]:
    done = state.transactions.get(app)
    return set(done.stages) if done is not None else set()


def _remove_stage(state: EngineState, step: Step, stage: Queue) -> None:
    remove(state, step, stage, state.stages)
    step.work += 1
    for target in list(state.delayed_targets.get(stage.name, ())):
        remove(state, step, state.delay_marks[delay_mark(stage.name, target)], state.delay_marks)
        step.work += 1


def _options(state: EngineState) -> QueueOptions:
    durability = Durability.TRANSIENT if state.settings.transient_only else Durability.STRONG
    return QueueOptions(durability=durability, dead_letter=False, dedup_window_ms=STAGE_TTL_MS)


def decide(state: EngineState, step: Step, command: DecideTransaction) -> Slices | None:
    check_application(command.app)
    stages = list(dict.fromkeys(command.stages))
    if len(stages) > _NAMED_AT_ONCE:
        return _decide_in_slices(state, step, command, stages)
    return _decide(state, step, command, stages, _names_of(command, stages))


def _decide_in_slices(state: EngineState, step: Step, command: DecideTransaction, stages: list[str]) -> Slices:
    """What names very many stages is refused a part at a time. Those that are there all have been staged before."""
    names: list[str] = []
    missing: list[str] = []
    decided = _is_duplicate(decided_of(state, command.app, command.user), command.app, command.version)
    for at in range(0, len(stages) if not decided else 0, _NAMED_AT_ONCE):
        some = stages[at : at + _NAMED_AT_ONCE]
        found = _names_of(command, some)
        names += found
        missing += _missing(state, some, found)
        step.work = STEP_UNITS
        step = yield
    if missing:
        raise _not_there(command, stages, missing)
    if (more := _decide(state, step, command, stages, names)) is not None:
        yield from more


def _names_of(command: DecideTransaction, stages: list[str]) -> list[str]:
    return [stage_name(command.app, command.version, stage, command.user) for stage in stages]


def _missing(state: EngineState, stages: list[str], names: list[str]) -> list[str]:
    return [stage for stage, name in zip(stages, names, strict=True) if not _parts_of(state, name)]


def _not_there(command: DecideTransaction, stages: list[str], missing: list[str]) -> StageNotFound:
    return StageNotFound(
        f"{len(missing)} of {len(stages)} stages of {command.app!r}, version {command.version}, are not there "
        f"(the first is {missing[0]!r}): never written, dropped or older than 24 hours; nothing was "
        "committed. Write the batch again"
    )


def _decide(
    state: EngineState, step: Step, command: DecideTransaction, stages: list[str], names: list[str]
) -> Slices | None:
    """`names`: of the stages."""
    done = decided_of(state, command.app, command.user)
    if _is_duplicate(done, command.app, command.version):
        assert done is not None
        step.answer(command, _answer(state, done, duplicate=True), Durability.STRONG)
        return None
    if missing := _missing(state, stages, names):
        raise _not_there(command, stages, missing)
    parts = [queue for name in names for queue in _parts_of(state, name)]
    # A cursor may have come since they were staged; from the decision on there is no way back.
    for target in sorted({target for name in names for target in state.delayed_targets.get(name, ())}):
        queue = state.queues.get(target)
        if queue is not None and queue not in state.doomed:
            check_delays(queue, delayed=True)
    before = [] if done is None else [queue_id for queue_id in done.stages if queue_id in state.queues_by_id]
    chosen = [queue.queue_id for queue in parts]
    transaction = StoredTransaction(command.version, step.now, before + chosen, command.tag, command.user)
    transaction.committed = with_version(done.committed if done is not None else (), command.version)
    if done is not None:
        transaction.owner = done.owner or command.user
    state.keep_transaction(command.app, transaction)
    record = TransactionDecided(command.app, command.version, step.now, list(transaction.stages), command.tag)
    record.owner = transaction.owner
    step.note_structure(record)
    forget_old(state, step)
    return _drop_losers(state, step, command, transaction)


def remember(
    state: EngineState, step: Step, app: str, version: int, *, keep: bool = True, at: int | None = None
) -> None:
    """A version without stages, by the server itself. `keep`: over a restart. `at`: when, if not now."""
    done = state.transactions.get(app)
    transaction = StoredTransaction(version, step.now if at is None else at, [])
    transaction.committed = with_version(done.committed if done is not None else (), version)
    state.keep_transaction(app, transaction)
    if keep:
        step.note_structure(TransactionDecided(app, version, transaction.decided_at, []))
    forget_old(state, step)


def check_own(app: str) -> None:
    """Raises InvalidOptions for an application of the broker's own that no store could keep: what a user has called it
    is a part of its name."""
    size = len(app.encode(errors="replace"))
    if size > APPLICATION_BYTES_MAX:
        raise InvalidOptions(
            f"{app[:40]!r}… would be kept under a name of {size} bytes, and {APPLICATION_BYTES_MAX} is the most; use "
            "a shorter name"
        )


def check_application(app: str) -> None:
    """Raises InvalidOptions for a name that is not for transactions of users."""
    check_app(app)
    for prefix in OWN_PREFIXES:
        if app.startswith(prefix):
            raise InvalidOptions(
                f"names of applications that begin with {prefix} are the broker's own; use another name"
            )


def decided_of(state: EngineState, app: str, user: str) -> StoredTransaction | None:
    """The last decision of the application, None when there is none.

    Raises NotAuthorized when the application belongs to another user; `user` "" may act for everybody.
    """
    done = state.transactions.get(app)
    if done is not None and user and app.startswith(OWN_PREFIXES):
        raise NotAuthorized(f"application {app[:40]!r} is the broker's own")
    if done is not None and done.owner and user and done.owner != user:
        raise NotAuthorized(
            f"application {app[:40]!r} belongs to another user; {user!r} must commit under a name of its own"
        )
    return done


def _is_duplicate(done: StoredTransaction | None, app: str, version: int) -> bool:
    """Whether that version counts as committed already. Raises VersionSkipped for one that was left out, InvalidOptions
    for one that is too large or too old."""
    if done is None:
        if version > FIRST_VERSION_MAX:
            raise InvalidOptions(
                f"version {version} of application {app[:40]!r} is too large for its first one; the largest is "
                f"{FIRST_VERSION_MAX}"
            )
        return False
    if any(first <= version <= last for first, last in done.committed):
        return True
    if version > done.version + VERSION_STEP_MAX:
        raise InvalidOptions(
            f"version {version} of application {app[:40]!r} is more than {VERSION_STEP_MAX} above the last one, "
            f"{done.version}; versions must go up in small steps, as batch numbers and instants in milliseconds do. "
            "Use the next version, or another application name"
        )
    if version < done.version:
        known = len(done.committed) < VERSION_RUNS_MAX or version > done.committed[0][0]
        why = "was never committed" if known else "is older than the versions that the broker remembers"
        refusal = VersionSkipped if known else InvalidOptions
        raise refusal(
            f"version {version} of application {app[:40]!r} {why}, and the later version {done.version} was committed; "
            "nothing is stored. Use a version above that one or another application name, or have the broker's "
            "operator reset this application with transaction.forget"
        )
    return False


def forget(state: EngineState, step: Step, command: ForgetApplication) -> None:
    """Its last version and its owner; what was decided is carried out before."""
    done = state.transactions.get(command.app)
    if done is not None and unfinished_of(state, done):
        raise InvalidOptions(
            f"application {command.app[:40]!r} has a commit that is not carried out yet; try again soon"
        )
    if done is not None:
        state.drop_transaction(command.app)
        step.note_structure(TransactionsForgotten([command.app]))
    step.answer_standing(command, Counted(int(done is not None)), Durability.STRONG)


def _answer(state: EngineState, transaction: StoredTransaction, *, duplicate: bool) -> Decided:
    return Decided(duplicate, unfinished_of(state, transaction), transaction.version, transaction.tag)


def _drop_losers(state: EngineState, step: Step, command: DecideTransaction, transaction: StoredTransaction) -> Slices:
    chosen = set(transaction.stages)
    for name, version in list(state.stages_of.get(command.app, {}).items()):
        queue = state.stages.get(name)
        if queue is not None and version <= transaction.version and queue.queue_id not in chosen:
            _remove_stage(state, step, queue)
            if step.work >= STEP_UNITS:
                step = yield
    step.answer(command, _answer(state, transaction, duplicate=False), Durability.STRONG)


def forget_old(state: EngineState, step: Step) -> None:
    """A few of the applications that nobody has used for so long."""
    oldest = step.now - REMEMBERED_MS
    # The longest decided are in front.
    known = takewhile(lambda item: item[1].decided_at < oldest, state.transactions.items())
    old = [app for app, transaction in islice(known, STEP_UNITS) if not unfinished_of(state, transaction)]
    if old:
        for app in old:
            state.drop_transaction(app)
        step.note(TransactionsForgotten(old), Durability.ASYNC)


def move(state: EngineState, step: Step, command: MoveStaged) -> None:
    """The staged batch leaves its stage, and its messages enter their queue, in one step. Those of a deleted queue are
    gone with it."""
    queue = state.stages.get(command.stage)
    last = command.sequence + command.count - 1
    taken = queue.groups[WAITING_NAME].take_waiting(command.sequence, last) if queue is not None else []
    if queue is None or not taken:
        step.answer(command, Counted(0))
        return
    target = state.queues.get(command.queue)
    count = 0 if target is None else _enter(state, step, target, command)
    _take_out(step, queue, taken)
    step.answer(command, Counted(count), Durability.STRONG)


def move_whole(state: EngineState, step: Step, command: MoveStage) -> None:
    """As `move`, of all messages of a plain part, whose rows stay where they are."""
    stage = state.stages.get(command.stage)
    target = state.queues.get(command.queue)
    if stage is None or stage.unseen or (target is not None and target.transient):
        step.answer(command, Counted(0))
        return
    taken = stage.groups[WAITING_NAME].take_waiting(1, stage.next_sequence)
    if not taken:
        step.answer(command, Counted(0))
        return
    count = 0 if target is None else adopt(state, step, target, stage, taken)
    _take_out(step, stage, taken)
    step.answer(command, Counted(count), Durability.STRONG)


def _take_out(step: Step, stage: Queue, taken: list[Run]) -> None:
    stage.groups[WAITING_NAME].counters.moved += run_count(taken)
    step.note(Dropped(stage.queue_id, taken, Reason.MOVED), Durability.STRONG)
    step.note_moved(TakenOut(stage, taken))


def _enter(state: EngineState, step: Step, target: Queue, command: MoveStaged) -> int:
    window_ms = target.options.dedup_window_ms
    extras: Extras | None = columns_of(command.extras).with_short_ids() if command.extras else None
    fresh = list(screen(target.dedup, window_ms, command.rows.count, extras, step.now).fresh)
    if fresh:
        rows, extras = pick(command.rows, extras, fresh)
        add(state, step, target, rows, extras)
    return len(fresh)


def drop(state: EngineState, step: Step, command: DropStages) -> Slices:
    for number, name in enumerate(command.stages, 1):
        for queue in _parts_of(state, name):
            if not (_is_decided(state, queue) and (holds_something(queue) or queue.leaving)):
                _remove_stage(state, step, queue)
        step.work += not number % _LOOKED_UP_PER_UNIT
        if step.work >= STEP_UNITS:
            step = yield
    step.answer(command, None, Durability.STRONG)


def _is_decided(state: EngineState, stage: Queue) -> bool:
    done = state.transactions.get(version_and_app(stage.name)[1])
    return done is not None and stage.queue_id in done.stages


def holds_something(queue: Queue) -> bool:
    return bool(queue.groups[WAITING_NAME].unsettled or queue.unseen)


def unfinished_of(state: EngineState, transaction: StoredTransaction) -> list[str]:
    """Names of its stages that are still there, in order."""
    return [state.queues_by_id[queue_id].name for queue_id in transaction.stages if queue_id in state.queues_by_id]
