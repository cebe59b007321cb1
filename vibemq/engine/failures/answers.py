"""What becomes of the answers of an outcome that could not be written.

Each is answered where it stands, so that whoever waits for it is told in the order of the commands. An answer that
stands (`StandingReply`) waits with the facts that are owed. A known duplicate waits as well, when its original is still
there: that one may be on its way to the disk. Everything else is refused.
"""

from collections.abc import Sequence

from vibemq.engine.failures.rollback import Holes
from vibemq.engine.handlers import settle
from vibemq.engine.handlers.fan_out import remove_consumer
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import VibeMQError
from vibemq.model.effects import Effect, Published, Reply, StandingReply, Subscribed
from vibemq.model.runs import RunSet


def answer_failed(state: EngineState, effects: Sequence[Effect], error: VibeMQError, holes: Holes) -> None:
    """The messages of the outcome have vanished; `holes` has them."""
    for effect in effects:
        if isinstance(effect, Reply) and not isinstance(effect.result, VibeMQError):
            _answer(state, effect, error, holes)


def _answer(state: EngineState, reply: Reply, error: VibeMQError, holes: Holes) -> None:
    if isinstance(reply.result, Published):
        reply.result = _without_new(state, reply.result, error, holes)
        waits = bool(reply.result.duplicates)
    else:
        waits = isinstance(reply, StandingReply)
        if not waits:
            reply.result = error
    if waits:
        state.owed_answers.append(reply)


def _without_new(state: EngineState, result: Published, error: VibeMQError, holes: Holes) -> Published:
    refused = dict.fromkeys(range(result.count), error) | (result.refused or {})
    known = {i: sequence for i, sequence in (result.duplicates or {}).items() if i not in (result.refused or {})}
    queue = state.queues.get(result.queue) or state.stages.get(result.queue)
    gone = None if queue is None else holes.get(queue.queue_id)
    duplicates: dict[int, int] = {}
    for index, original in known.items():
        if queue is not None and (gone is None or original not in gone):
            duplicates[index] = original
            del refused[index]
    return Published(result.queue, 0, result.count, refused or None, duplicates or None)


def give_up(state: EngineState, step: Step, effects: Sequence[Effect], error: VibeMQError) -> None:
    """What is owed could not be written either: who waited with it is told that nothing is certain."""
    for effect in effects:
        if not isinstance(effect, Reply) or isinstance(effect.result, VibeMQError):
            continue
        result = effect.result
        if isinstance(result, Published):
            effect.result = state.refusal(error, result.count, result.queue)
            continue
        if isinstance(result, Subscribed):
            consumer = state.consumer(effect.session, result.consumer)
            if consumer is not None:
                settle.take_back(state, step, consumer, clean=True)
                remove_consumer(step, consumer)
        effect.result = error


def refuse_vanished(result: Published, gone: RunSet, error: VibeMQError) -> None:
    """Rows whose original vanished are refused like it."""
    refused = dict(result.refused or {})
    duplicates = dict(result.duplicates or {})
    for index, sequence in list(duplicates.items()):
        if sequence in gone:
            del duplicates[index]
            refused[index] = error
    if result.first_sequence and result.first_sequence in gone:
        for index in range(result.count):
            if index not in duplicates:
                refused.setdefault(index, error)
        result.first_sequence = 0
    result.refused, result.duplicates = refused or None, duplicates or None
