"""What becomes of the answers of an outcome that could not be written.

Each is answered where it stands, so that whoever waits for it is told in the order of the commands. An answer that
stands (`StandingReply`) waits with the facts that are owed. A known duplicate waits as well, when its original is still
there: that one may be on its way to the disk. Everything else is refused, with a sentence that says what became of the
command.
"""

from collections.abc import Sequence

from vibemq.engine.failures.rollback import Holes
from vibemq.engine.handlers import settle
from vibemq.engine.handlers.fan_out import remove_consumer
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import StorageFull, VibeMQError
from vibemq.model.effects import AccountsChanged, Effect, Moved, Published, Replayed, Reply, StandingReply, Subscribed
from vibemq.model.runs import RunSet

NOT_STORED = "the message was not stored"
NOTHING_DONE = "nothing of it was carried out"
UNCERTAIN = (
    "it may hold in the running broker, and is then stored as soon as there is room: look at what is there, or repeat "
    "the command"
)
KNOWN = "the broker knows a message with this id, which may be stored: publish it again"
_TAKEN_BACK = (Moved, Replayed)
"""Of whose commands nothing is left when their outcome has failed."""


def answer_failed(state: EngineState, effects: Sequence[Effect], error: StorageFull, holes: Holes) -> None:
    """The messages of the outcome have vanished; `holes` has them."""
    for effect in effects:
        if isinstance(effect, Reply) and not isinstance(effect.result, VibeMQError):
            _answer(state, effect, error, holes)


def _answer(state: EngineState, reply: Reply, error: StorageFull, holes: Holes) -> None:
    result = reply.result
    if isinstance(result, Published):
        refuse_vanished(state, result, error, holes, all_new=True)
        waits = bool(result.duplicates)
    else:
        waits = isinstance(reply, StandingReply)
        if not waits:
            reply.result = _told(error, done=not isinstance(result, _TAKEN_BACK))
    if waits:
        state.owed_answers.append(reply)


def refuse_vanished(
    state: EngineState, result: Published, error: StorageFull, holes: Holes, *, all_new: bool = False
) -> None:
    """Refuse, in place, the rows that vanished, and the known duplicates of messages that did.

    Args:
        all_new: the publish belongs to the outcome that failed; without it, its new rows may stand.
    """
    queue = state.queues.get(result.queue) or state.stages.get(result.queue)
    gone = RunSet() if queue is None else holes.of(queue.queue_id)
    refused, known = dict(result.refused or {}), result.duplicates or {}
    duplicates = {
        index: original
        for index, original in known.items()
        if index not in refused and queue is not None and original not in gone
    }
    if all_new or result.first_sequence in gone:
        result.first_sequence = 0
    not_stored = error.about(NOT_STORED)
    for index in known if result.first_sequence else range(result.count):
        if index not in duplicates:
            refused.setdefault(index, not_stored)
    result.refused, result.duplicates = refused or None, duplicates or None


def give_up(state: EngineState, step: Step, effects: Sequence[Effect], error: StorageFull) -> None:
    """What is owed could not be written either: who waited with it is told what that means."""
    for effect in effects:
        if not isinstance(effect, Reply) or isinstance(effect.result, VibeMQError):
            continue
        result = effect.result
        if isinstance(result, Published):
            known = dict.fromkeys(result.duplicates or (), error.about(KNOWN))
            effect.result = Published(result.queue, 0, result.count, (result.refused or {}) | known)
            continue
        if isinstance(result, Subscribed):
            consumer = state.consumer(effect.session, result.consumer)
            if consumer is not None:
                settle.take_back(state, step, consumer, clean=True)
                remove_consumer(step, consumer)
        effect.result = _told(error, done=not isinstance(result, Subscribed | AccountsChanged))


def _told(error: StorageFull, *, done: bool) -> StorageFull:
    return error.about(UNCERTAIN, may_hold=True) if done else error.about(NOTHING_DONE)
