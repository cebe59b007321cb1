"""Which handler carries out which command; and those that tell what there is, which are short."""

from bisect import bisect_right
from collections.abc import Callable, Generator

from vibemq.engine import departure, views
from vibemq.engine.handlers import (
    accounts,
    dead_letters,
    groups,
    publish,
    queues,
    settle,
    subscribe,
    transactions,
)
from vibemq.engine.handlers.cursors import batches, plans
from vibemq.engine.handlers.cursors import requests as cursor_requests
from vibemq.engine.handlers.jobs import advancing, starting
from vibemq.engine.handlers.transfer import imports, moves
from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.queue.queue import Queue
from vibemq.engine.requests import answering
from vibemq.engine.routing.routed import classified
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model import commands as ask
from vibemq.model.effects import QueuePage
from vibemq.model.shared.queue_info import QueueInfo

_NAMES_LOOKED_AT = 2_000
"""Names that one page of a list goes through, so that a list of few visible queues among many stays short work."""
_NAMES_PER_UNIT = 32
"""When each is compared to one pattern; one name to so many patterns costs the same."""

Handler = Callable[..., Slices | None]
"""(state, step, command). What it returns is left to do; see `vibemq.engine.pacing`."""


def _describe(state: EngineState, step: Step, command: ask.DescribeQueue) -> Slices:
    queue = state.queues.get(command.queue)
    info: QueueInfo | None = None
    if queue is not None and not command.figures:
        info = views.named(queue)
    elif queue is not None:
        step, info = yield from _described(step, queue, command.groups_max)
    step.answer(command, info)


def _described(step: Step, queue: Queue, groups_max: int) -> Generator[None, Step, tuple[Step, QueueInfo]]:
    """And the step in which that was done."""
    describing = views.describe(queue, groups_max)
    while True:
        step.work += 1
        try:
            next(describing)
        except StopIteration as done:
            return step, done.value
        step.work += views.GROUPS_PER_STEP
        if step.work >= STEP_UNITS:
            step = yield


def _list(state: EngineState, step: Step, command: ask.ListQueues) -> Slices:
    names, page = state.names, QueuePage([], [])
    start = bisect_right(names, command.after)
    limit = command.limit or len(names)
    found = names[start : start + (_NAMES_LOOKED_AT if command.limit else limit)]
    more = start + len(found) < len(names)
    patterns = max(1, command.patterns)
    per_unit, units = max(1, _NAMES_PER_UNIT // patterns), max(1, patterns // _NAMES_PER_UNIT)
    for number, name in enumerate(found, 1):
        if not number % per_unit:
            step.work += units
            if step.work >= STEP_UNITS:
                step = yield
        # None: it was deleted between two steps.
        queue = state.queues.get(name)
        if queue is None or (command.visible is not None and not command.visible(name)):
            continue
        if len(page.names) == limit:
            page.next = page.names[-1]
            break
        page.names.append(name)
        if command.details:
            # What of it may be told is asked of the rules once more.
            step.work += units
            step, info = yield from _described(step, queue, command.groups_max)
            page.queues.append(info if command.shown is None else command.shown(info))
    else:
        page.next = found[-1] if found and more else None
    step.answer(command, page)


def _set_pressure(state: EngineState, step: Step, command: ask.SetPressure) -> None:
    state.pressure, state.pressure_why = command.level, command.why
    for queue in state.parking:
        step.free(queue)


_OWN_HANDLERS: dict[type, Handler] = {
    ask.Publish: publish.publish,
    ask.Respond: answering.respond,
    ask.GiveUp: queues.give_up,
    ask.Settle: settle.settle,
    ask.Extend: settle.extend,
    ask.Subscribe: subscribe.subscribe,
    ask.Unsubscribe: subscribe.unsubscribe,
    ask.SetCapacity: subscribe.set_capacity,
    ask.SetShare: subscribe.set_share,
    ask.SetFlow: subscribe.set_flow,
    ask.CloseSession: subscribe.close_session,
    ask.EndConsumers: subscribe.end_consumers_of,
    ask.CreateQueue: queues.create_queue,
    ask.ChangeQueue: queues.change_queue,
    ask.DeleteQueue: queues.delete_queue,
    ask.PurgeQueue: queues.purge_queue,
    ask.RemoveMessages: queues.remove_messages,
    ask.RemoveListed: queues.remove_listed,
    ask.DescribeQueue: _describe,
    ask.ListQueues: _list,
    ask.DeleteGroup: groups.drop_group,
    ask.SeekGroup: groups.seek_group,
    ask.FilterGroup: groups.filter_group,
    ask.JoinCursor: cursor_requests.join,
    ask.CommitCursor: cursor_requests.commit,
    ask.PlanBatch: plans.plan,
    ask.EnterBatch: batches.enter,
    ask.RejectAt: cursor_requests.reject,
    ask.Quarantine: cursor_requests.quarantine,
    ask.Stage: transactions.stage,
    ask.DecideTransaction: transactions.decide,
    ask.MoveStage: transactions.move_whole,
    ask.MoveStaged: transactions.move,
    ask.DropStages: transactions.drop,
    ask.ForgetApplication: transactions.forget,
    ask.ChangeAccounts: accounts.change,
    ask.MoveMessages: moves.move_messages,
    ask.ImportMessages: imports.import_messages,
    ask.ReplayDead: dead_letters.replay_dead,
    ask.PurgeDead: dead_letters.purge_dead,
    ask.StartJob: starting.start,
    ask.ChangeJob: starting.change,
    ask.AdvanceJob: advancing.advance,
    ask.ForgetJobs: starting.forget,
    ask.ForgetMade: advancing.forget_made,
    ask.SetPressure: _set_pressure,
    ask.Classified: classified,
}


def _behind_a_look(handler: Handler, fields: tuple[str, ...]) -> Handler:
    """The handler, for a command about queues that may go away by themselves."""

    def look_first(state: EngineState, step: Step, command: ask.Command) -> Slices | None:
        if state.mortal:
            departure.look(state, step, command, fields)
        slices = handler(state, step, command)
        return slices if slices is None else departure.looking(state, command, fields, slices)

    return look_first


HANDLERS: dict[type, Handler] = {
    kind: _behind_a_look(handler, fields) if (fields := departure.fields_of(kind)) else handler
    for kind, handler in _OWN_HANDLERS.items()
}
