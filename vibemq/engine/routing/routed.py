"""Dispatch in a group whose consumers have selectors, or that has a filter.

The engine does not know what is in a message. It asks the server which selectors match (`Classify`), for as many
messages as the consumers with room need, and goes on when the answer has come (`Classified`).
"""

from collections import deque
from collections.abc import Sequence

from vibemq.engine.departure import SERVER_SESSION
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.routing.line import Line
from vibemq.engine.queue.routing.routes import Routes
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.routing.isolated import serve_isolated
from vibemq.engine.routing.turns import Given, share_of, take_turns, tell
from vibemq.engine.routing.unwanted import settle_unwanted
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.commands import Classified
from vibemq.model.effects import Classify
from vibemq.model.runs import END, Run, run_count

_FALLEN_AT_ONCE = 256
_LOOKED_PER_UNIT = 16
"""Stretches that are looked through for the cost of one run that is handed out."""
_LINES_PER_UNIT = 4
"""Lines that are looked at for the same, where their messages are handed out in the order of the queue."""
IN_ORDER_MAX = 64
"""With more lines than these each has its part of a step for itself."""
_PARTS_PER_UNIT = 8
"""Runs of an answer that are dealt with for the cost of one that is handed out."""


class Candidates:
    """What a line may be given, as a source for its turns."""

    __slots__ = ("_line", "_routes", "_runs", "cost", "ready_count", "taken")

    def __init__(self, routes: Routes, line: Line, most: int) -> None:
        self._routes, self._line = routes, line
        runs, looked = routes.candidates(line, most)
        self.cost = looked // _LOOKED_PER_UNIT
        self._runs = deque(runs)
        self.ready_count = run_count(self._runs)
        self.taken = 0
        """Runs."""

    @property
    def turn(self) -> int:
        return self._line.turn

    @turn.setter
    def turn(self, place: int) -> None:
        self._line.turn = place

    def peek(self, sizes: Sizes, count: int) -> list[Run]:
        found: list[Run] = []
        for first, last in self._runs:
            if count <= 0:
                break
            found.append((first, min(last, first + count - 1)))
            count -= last - first + 1
        return found

    def cut(self, horizon: int) -> None:
        """Nothing behind it."""
        runs = self._runs
        while runs and runs[-1][1] > horizon:
            first, last = runs.pop()
            self.ready_count -= last - max(first - 1, horizon)
            if first <= horizon:
                runs.append((first, horizon))

    def pop(self, sizes: Sizes, count: int) -> list[Run]:
        taken = self.peek(sizes, count)
        self.taken += len(taken)
        for first, last in taken:
            self._routes.sifted.remove(first, last)
            self.ready_count -= last - first + 1
            if self._runs[0][1] == last:
                self._runs.popleft()
            else:
                self._runs[0] = last + 1, self._runs[0][1]
        return taken


def route(state: EngineState, step: Step, queue: Queue, group: Group, routes: Routes, units: int) -> int:
    """As `dispatch`."""
    sifted = group.ready
    if not (sifted.count or group.scheduled.levels):
        return 0
    _take_fallen(step, queue, group)
    given: Given = {}
    left = units
    lines = [line for level in routes.by_priority() for line in level if line.known and line.top.open]
    in_order = _in_order(queue, group, routes, lines)
    horizon = _horizon(routes, lines, units) if in_order else END
    for line in lines:
        # Up to the horizon there is no more than there is time for.
        most = left if horizon == END else units
        if most > 0 and line.top.open:
            left -= _serve(state, step, queue, group, line, given, most, horizon)
    cost = max(units - left, tell(state, step, queue, group, given, in_order=in_order) if given else 1)
    if in_order:
        # All of them were looked at, for however few messages.
        cost += len(lines) // _LINES_PER_UNIT
    if left <= 0 or horizon < END:
        step.touch(queue, group)
    else:
        _ask(state, step, queue, group, routes)
    return cost


def _in_order(queue: Queue, group: Group, routes: Routes, lines: Sequence[Line]) -> bool:
    """Whether a client that has several consumers is given what they get in the order of the queue."""
    if not 2 <= len(lines) <= IN_ORDER_MAX or queue.levels or (group.attempts and queue.options.hold_behind_failed):
        return False
    return routes.sessions_meet


def _horizon(routes: Routes, lines: Sequence[Line], units: int) -> int:
    """Up to which message all lines are served in this step; END: each as far as it has room."""
    share = max(1, units // len(lines))
    horizon = END
    for line in lines:
        # Who has less room is full at its end, and the others need not wait for it.
        runs = routes.candidates(line, share)[0] if line.room(share) >= share else []
        if len(runs) >= share:
            horizon = min(horizon, runs[share - 1][1])
    return horizon


def _take_fallen(step: Step, queue: Queue, group: Group) -> None:
    """What was published with a delay that is over has its place by sequence here."""
    scheduled = group.scheduled
    if not scheduled.levels:
        return
    scheduled.advance(step.now)
    for number in scheduled.fallen_levels():
        level = scheduled.level(number)
        fallen = level.front(_FALLEN_AT_ONCE) if level is not None else []
        count = run_count((first, last) for _, first, last in fallen)
        scheduled.pop_front(number, count)
        for _, first, last in fallen:
            group.ready.add(first, last)
        if count == _FALLEN_AT_ONCE:
            step.touch(queue, group)


def _serve(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    line: Line,
    given: Given,
    units: int,
    horizon: int,
) -> int:
    """The turns of one line's consumers, with what is not behind the horizon; returns what it has cost."""
    top, routes = line.top, group.routes
    assert routes is not None
    # Who has no room finds that out at its turn, and only when there is something for it.
    source = Candidates(routes, line, max(1, line.room(units)))
    source.cut(horizon)
    if group.attempts and queue.options.hold_behind_failed:
        return source.cost + serve_isolated(state, step, queue, group, source, top, line.key, given, units)
    least = max(0, source.ready_count - units) if len(top.open) > units else 0
    takers = top.weight
    while source.ready_count > least and takers:
        share = share_of(source.ready_count, takers, least)
        takers = take_turns(step, queue, source, top, share, given, least)
    return source.cost + source.taken


def _ask(state: EngineState, step: Step, queue: Queue, group: Group, routes: Routes) -> None:
    question = routes.ask(state.questions + 1)
    if question is None:
        return
    state.questions = question.number
    selectors = question.selectors
    if selectors:
        state.questioned[question.number] = queue, group
        step.effects.append(Classify(SERVER_SESSION, question.number, queue.queue_id, question.runs, selectors))
    else:
        # Those who take everything, while the group has a filter and nobody a selector.
        _apply(step, queue, group, routes, question.number, [])


def classified(state: EngineState, step: Step, command: Classified) -> None:
    """The server has looked. An answer to a question that nobody has any more is passed over."""
    queue, group = state.questioned.pop(command.number, (None, None))
    if queue is None or group is None or queue.deleted or queue.groups.get(group.name) is not group:
        return
    if group.routes is not None:
        _apply(step, queue, group, group.routes, command.number, command.matched)


def _apply(
    step: Step, queue: Queue, group: Group, routes: Routes, number: int, matched: list[tuple[int, int, int]]
) -> None:
    unfit = routes.unfit(number, matched)
    if unfit:
        settle_unwanted(step, queue, group, unfit)
    answered = routes.answer(number, matched)
    if answered is None:
        return
    step.work += 1 + (len(matched) + len(unfit) + answered.cost) // _PARTS_PER_UNIT
    if answered.unwanted and not group.durable and queue.options.is_fan_out:
        # It is the consumer's own, and nobody else will ever ask for them.
        settle_unwanted(step, queue, group, answered.unwanted)
    step.touch(queue, group)
