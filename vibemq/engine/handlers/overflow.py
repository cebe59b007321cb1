"""max_messages and max_bytes: what fits, and what is dropped for it.

Counted is what waits (delayed and not yet visible messages too), not what is in flight.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate

from vibemq.engine.handlers.dead_lettering import drop_from, drop_waiting
from vibemq.engine.pacing import STEP_UNITS, Slices, is_crowded
from vibemq.engine.queue.group import FORGOTTEN_PER_RUN, Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import QueueFull
from vibemq.model.records import Reason
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, run_count

LOOKS_PER_UNIT = 2
"""Groups that are looked at for the cost of one run."""
_GROWTH = 16
"""So many times as many messages are looked at for the bytes that have to go, until they have as many."""


def fitting(queue: Queue, rows: Rows, indexes: Sequence[int]) -> int:
    """How many of these rows, from the first on, fit into the queue. With very many groups, `count_first` should be
    done before, unless `is_clear`: else all of them are looked at here."""
    options = queue.options
    count = len(indexes)
    if queue.surely_within(count, rows.size):
        return count
    if queue.surely_full():
        return 0
    if options.max_messages:
        count = min(count, max(0, options.max_messages - waiting_in(queue)))
    if options.max_bytes and count:
        room = options.max_bytes - (queue.counted()[1] if is_crowded(queue) else queue.waiting_size())
        if len(indexes) == rows.count and rows.size <= room:
            return count
        lengths = rows.row_lengths()
        ends = list(accumulate(lengths[index] for index in indexes[:count]))
        count = bisect_right(ends, room)
    return count


def waiting_in(queue: Queue) -> int:
    """`Backlog.waiting`, with very many groups by the count that was just finished."""
    return queue.counted()[0] if is_crowded(queue) else queue.waiting()


def is_clear(queue: Queue, rows: Rows) -> bool:
    """Whether it is known, without a look at very many groups, how many of the rows fit."""
    return not is_crowded(queue) or queue.surely_within(rows.count, rows.size) or queue.surely_full()


def when_counted(step: Step, queue: Queue | None, rows: Rows, carry_out: Callable[[Step], None]) -> Slices | None:
    """Carry out what puts as many of the rows into the queue as fit: at once, or when very many groups were looked at.
    It must look for the queue itself, which may have gone meanwhile."""
    if queue is not None and not is_clear(queue, rows):
        return _when_counted(step, queue, carry_out)
    carry_out(step)
    return None


def _when_counted(step: Step, queue: Queue, carry_out: Callable[[Step], None]) -> Slices:
    step = yield from count_first(step, queue)
    try:
        carry_out(step)
    finally:
        queue.forget_count()


def count_first(step: Step, queue: Queue) -> Generator[None, Step, Step]:
    """Look at all groups of the queue, in slices; returns the last one's step. The count holds for that step: then
    `Backlog.forget_count`."""
    count = queue.begin_count()
    while not queue.go_on_counting(count, LOOKS_PER_UNIT * max(1, STEP_UNITS - step.work)):
        step.work = STEP_UNITS
        step = yield
        if queue.deleted:
            return step
    step.work += 1
    return step


def full(queue: Queue, waited_ms: int = 0) -> QueueFull:
    options = queue.options
    limits = []
    if options.max_messages:
        limits.append(f"max_messages {options.max_messages}")
    if options.max_bytes:
        limits.append(f"max_bytes {options.max_bytes}")
    waited = f", after waiting {waited_ms} ms" if waited_ms else ""
    return QueueFull(queue.name, " and ".join(limits) + waited, _limit_met(queue))


def _limit_met(queue: Queue) -> str:
    """Which limit keeps the next message out, when what fits is in the queue."""
    options = queue.options
    if not options.max_bytes or queue.surely_full():
        return "messages"
    return "messages" if options.max_messages and waiting_in(queue) >= options.max_messages else "bytes"


def trim_oldest(state: EngineState, step: Step, queue: Queue) -> None:
    """Drop the oldest waiting messages until every group is within the limits; what is more than the work of one step
    goes at the next tick, at once. Of very many groups each gives up its own oldest ones, with the next ticks."""
    options = queue.options
    if queue.surely_within():
        return
    if is_crowded(queue):
        if queue.begin_trim():
            state.arm(queue, step.now)
        return
    if options.max_messages and queue.waiting() <= options.max_messages and not options.max_bytes:
        # The next publishes need not look at all groups.
        return
    for group in queue.groups.values():
        oldest, is_all = _beyond_limits(queue, group)
        if oldest:
            step.work += len(oldest)
            drop_waiting(step, queue, oldest, Reason.OVERFLOW)
        if not is_all:
            state.arm(queue, step.now)


def trim_some(state: EngineState, step: Step, queue: Queue) -> None:
    """Go on with the groups of a queue that has very many. What one of them drops, others keep: it leaves the store
    when the last one has let go of it."""
    trim = queue.trim
    if trim is None or not trim.groups:
        return
    looks = 0
    while trim.groups and step.work < STEP_UNITS:
        group = trim.groups[0]
        looks += 1
        step.work += not looks % LOOKS_PER_UNIT
        if queue.groups.get(group.name) is not group or _trim_one(step, queue, group):
            trim.groups.popleft()
    if trim.groups:
        state.arm(queue, step.now)
    else:
        step.doubt(queue)
        trim_oldest(state, step, queue)


def _trim_one(step: Step, queue: Queue, group: Group) -> bool:
    """Whether that is all."""
    oldest, is_all = _beyond_limits(queue, group)
    if oldest:
        step.work += 1 + len(oldest)
        drop_from(step, queue, group, oldest)
    return is_all


def _beyond_limits(queue: Queue, group: Group) -> tuple[list[Run], bool]:
    """The oldest that are too many of what waits in the group, as many as one step can drop; whether that is all."""
    options = queue.options
    excess = group.waiting - options.max_messages if options.max_messages else 0
    size = queue.group_size(group) if options.max_bytes else 0
    if excess <= 0 and size <= options.max_bytes:
        return [], True
    most = _in_one_step(queue, group)
    oldest, is_all = _oldest_of_size(queue, group, size, most) if size > options.max_bytes else ([], True)
    if excess > run_count(oldest):
        return group.oldest_waiting(min(excess, most)), is_all and excess <= most
    return oldest, is_all


def _oldest_of_size(queue: Queue, group: Group, size: int, most: int) -> tuple[list[Run], bool]:
    """The oldest that are too many for max_bytes, of a group of about `size` bytes, at most so many messages; whether
    that is all."""
    count, sizes, excess = 1, queue.sizes, size - queue.options.max_bytes
    while True:
        oldest = group.oldest_waiting(min(count, most))
        known = sizes.of_runs(oldest)
        if run_count(oldest) >= group.waiting:
            # All of them, so nothing is estimated by an average.
            excess = known - queue.options.max_bytes
            return (sizes.front(oldest, excess), True) if excess > 0 else ([], True)
        if known >= excess or count >= most:
            break
        count *= _GROWTH
    if known >= excess:
        oldest = sizes.front(oldest, excess)
    # The average may be that of what others hold: no more goes at once than its share, and the rest is looked at anew.
    share = -(-excess * group.waiting // size)
    if not queue.is_size_counted(group) and run_count(oldest) > share:
        return group.oldest_waiting(share), False
    return oldest, known >= excess


def _in_one_step(queue: Queue, group: Group) -> int:
    """How many of the oldest messages that wait can be dropped in one step."""
    if group.delayed or group.scheduled or queue.levels:
        return STEP_UNITS
    in_runs = group.ready.in_runs(STEP_UNITS)
    return min(in_runs, FORGOTTEN_PER_RUN * STEP_UNITS) if group.attempts else in_runs
