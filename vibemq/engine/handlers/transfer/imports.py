"""Messages of a file enter a queue, each once: they and the position in the file are one batch.

The position is kept as the version of an application of its own (`TransactionDecided` without stages), so whoever goes
on with a file after a crash asks for it, and a batch that is sent again changes nothing.
"""

from functools import partial

from vibemq.engine.handlers.append import add, pick
from vibemq.engine.handlers.overflow import fitting, when_counted
from vibemq.engine.handlers.publish import check_delays, check_pressure
from vibemq.engine.handlers.queues import find
from vibemq.engine.handlers.transactions import REMEMBERED_MS, check_own, remember
from vibemq.engine.pacing import Slices
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import InvalidOptions
from vibemq.model.commands import ImportMessages, Pressure
from vibemq.model.effects import Imported
from vibemq.model.options import Durability
from vibemq.model.stored import StoredTransaction, import_of, importer_of

IMPORTS_MAX = 1_000
"""Of one user into one queue that are remembered. More are refused: a file whose import was forgotten could enter
twice."""
IMPORTS_OF_USER_MAX = 10_000
"""The same into all queues."""


def import_messages(state: EngineState, step: Step, command: ImportMessages) -> Slices | None:
    return when_counted(step, state.queues.get(command.queue), command.rows, partial(_import, state, command))


def _import(state: EngineState, command: ImportMessages, step: Step) -> None:
    queue = find(state, command.queue)
    app = import_of(queue.queue_id, command.user, command.import_id)
    before = state.transactions.get(app)
    position = 0 if before is None else before.version
    if command.position > position:
        raise InvalidOptions(f"the import is at message {position} of its file, not at {command.position}; go on there")
    count = command.rows.count
    known = min(position - command.position, count)
    if known < count:
        if before is None:
            _check_new(state, step, queue, app, command.user)
        _take(state, step, queue, command, known, app, before)
    else:
        step.answer(command, Imported(position, 0, 0, 0), state.need_of_known)


def _check_new(state: EngineState, step: Step, queue: Queue, app: str, user: str) -> None:
    """Raises InvalidOptions: the broker cannot remember it, or one more."""
    check_own(app)
    importer = importer_of(app)
    assert importer is not None
    known = state.imports.get(importer[0], {}).get(importer[1], {})
    who = f"user {user!r}" if user else "somebody"
    if state.imports_of[importer[1]] >= IMPORTS_OF_USER_MAX:
        raise InvalidOptions(
            f"{who} has imported {IMPORTS_OF_USER_MAX:,} files within 30 days, the most that the broker remembers; "
            "join the files into fewer, or delete queues of earlier imports that are no longer needed"
        )
    if len(known) < IMPORTS_MAX:
        return
    if state.transactions[next(iter(known))].decided_at < step.now - REMEMBERED_MS:
        # It is about to be forgotten.
        return
    raise InvalidOptions(
        f"{who} has imported {IMPORTS_MAX:,} files into queue {queue.name!r} within 30 days, the most that the broker "
        "remembers; import into another queue and move the messages with `queue move`"
    )


def _take(
    state: EngineState,
    step: Step,
    queue: Queue,
    command: ImportMessages,
    known: int,
    app: str,
    before: StoredTransaction | None,
) -> None:
    """Take what is new from index `known` on, as far as the queue has room for it."""
    rows, extras, count = command.rows, command.extras or {}, command.rows.count
    if state.pressure >= Pressure.BLOCKING:
        check_pressure(state, queue, count - known)
    check_delays(queue, any(extra.deliver_at > step.now for extra in extras.values()))
    step.work += count
    expired = {index for index, extra in extras.items() if 0 < extra.expires_at <= step.now}
    alive = [index for index in range(known, count) if index not in expired]
    fits = fitting(queue, rows, alive)
    end = count if fits == len(alive) else alive[fits]
    position = command.position + end
    result = Imported(position, fits, sum(known <= index < end for index in expired), count - end)
    if end == known:
        step.answer(command, result, state.need_of_known)
        return
    if fits:
        add(state, step, queue, *pick(rows, extras or None, alive[:fits]))
    # What a transient queue loses with the process, its import must forget with it.
    remember(state, step, app, position, keep=not queue.transient)
    step.undo.append(partial(_take_back, state, app, before))
    step.answer(command, result, Durability.TRANSIENT if queue.transient else Durability.STRONG)


def _take_back(state: EngineState, app: str, before: StoredTransaction | None) -> None:
    """A batch that could not be stored was not imported, nor were those behind it."""
    now = state.transactions.get(app)
    if now is None or (before is not None and now.version <= before.version):
        return
    if before is None:
        state.drop_transaction(app)
    else:
        state.keep_transaction(app, before)
