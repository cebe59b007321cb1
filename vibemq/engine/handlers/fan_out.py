"""Groups come and go. What a fan-out queue does beyond that:

no subscriber        the waiting group (name "") keeps everything
first subscriber     adopts the waiting group, with its backlog
further subscribers  an own group each, from now; named ones are durable, unnamed ones end with their consumer
last one leaves      its group becomes the waiting group again, with everything unsettled
"""

from collections.abc import Sequence
from functools import partial

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.queue.tail import Tail
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import InvalidOptions, NotAuthorized
from vibemq.model.commands import StartAt
from vibemq.model.effects import ConsumerLeft
from vibemq.model.instants import Values
from vibemq.model.options import Durability
from vibemq.model.records import GroupCreated, GroupDeleted, GroupFiltered, GroupMoved, GroupOwned, GroupRenamed
from vibemq.model.runs import END, Run, RunSet, gaps, runs_of_ascending
from vibemq.model.selector import Selector

PASSING_PREFIX = "~"
GROUP_NAME_MAX = 256


def check_group_name(name: str) -> str:
    if 1 <= len(name) <= GROUP_NAME_MAX and not name.startswith(PASSING_PREFIX):
        return name
    raise InvalidOptions(
        f"group name {name[:64]!r} is not allowed; use 1 to {GROUP_NAME_MAX} characters, "
        f"the first of them not {PASSING_PREFIX!r}"
    )


def durable_need(queue: Queue) -> Durability:
    """What the creation of a durable group needs; its definition is kept even in a transient queue."""
    return Durability.ASYNC if queue.transient else Durability.STRONG


def check_owner(queue: Queue, group: Group, user: str, *, manage: bool) -> None:
    """Raises NotAuthorized when the group is not the user's, and the user may not act on groups of others. A group
    without an owner is a superuser's, or was made before the broker had users."""
    if not manage and (not group.owner or group.owner != user):
        whose = "belongs to another user" if group.owner else "belongs to no user"
        raise NotAuthorized(
            f"group {group.name!r} of queue {queue.name!r} {whose}; {user!r} needs the permission "
            f'`manage` on it (groups = "{queue.name}/{group.name}"), or a group with a name of its own'
        )


def claim(step: Step, queue: Queue, group: Group, user: str) -> None:
    """A durable group without an owner belongs from now on to the user, who has made it or may manage it."""
    if user and not group.owner and group.durable and group.name != WAITING_NAME:
        group.owner = user
        step.note_structure(GroupOwned(queue.queue_id, group.group_id, user), durable_need(queue))


def check_filter(queue: Queue, group: Group | None) -> None:
    """Raises InvalidOptions when the group, which may be missing yet, cannot have one."""
    if not queue.options.is_fan_out:
        raise InvalidOptions(
            f"queue {queue.name!r} is a work queue, and only groups of fan-out queues have filters; subscribe with a "
            "selector, or use a fan-out queue"
        )
    if group is not None and group.cursor is not None:
        raise InvalidOptions(
            f"group {group.name!r} of queue {queue.name!r} is a cursor, which reads every message of a range and "
            "cannot have a filter; use a group with another name"
        )


def set_filter(step: Step, queue: Queue, group: Group, where: Selector | None) -> bool:
    """Whether it had another one before."""
    if group.where == where:
        return False
    group.filter_by(where)
    text = "" if where is None else where.text
    step.note_structure(GroupFiltered(queue.queue_id, group.group_id, text), durable_need(queue))
    step.touch(queue, group)
    return True


def group_for(
    state: EngineState, step: Step, queue: Queue, name: str | None, start: StartAt, start_sequence: int
) -> tuple[Group, bool]:
    """The group a subscriber joins, and whether it is new to it (created or adopted) and durable."""
    wanted = name if name is not None else (None if queue.options.is_fan_out else WAITING_NAME)
    if wanted is not None and wanted in queue.groups:
        return queue.groups[wanted], False
    durable = wanted is not None
    if wanted is None:
        wanted = PASSING_PREFIX + state.new_id()
    if (adopted := to_adopt(queue)) is not None:
        return _adopt(state, step, queue, adopted, wanted, start, start_sequence, durable=durable), durable
    return create_group(state, step, queue, wanted, start, start_sequence, durable=durable), durable


def open_waiting_group(step: Step, queue: Queue, need: Durability) -> None:
    """The default group of a new queue, or of a fan-out queue whose last group was deleted."""
    group = queue.new_group(WAITING_NAME, durable=True, start=queue.open_end())
    record = GroupCreated(queue.queue_id, group.group_id, WAITING_NAME, durable=True, head=group.start)
    step.note_structure(record, need)


def _adopt(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    name: str,
    start: StartAt,
    start_sequence: int,
    *,
    durable: bool,
) -> Group:
    need = durable_need(queue) if durable else Durability.ASYNC
    rename_group(step, queue, group, name, durable=durable, need=need)
    if (start := _start_of_adopted(queue, start)) is not StartAt.DEFAULT:
        move_group(state, step, queue, group, start, start_sequence, need)
    return group


def rename_group(step: Step, queue: Queue, group: Group, name: str, *, durable: bool, need: Durability) -> None:
    del queue.groups[group.name]
    group.name, group.durable = name, durable
    queue.groups[name] = group
    step.note_structure(GroupRenamed(queue.queue_id, group.group_id, name, durable), need)


def create_group(
    state: EngineState, step: Step, queue: Queue, name: str, start: StartAt, start_sequence: int, *, durable: bool
) -> Group:
    begin, wanted = _where_made(queue, start, start_sequence, step.now)
    head = _head(queue, wanted, begin)
    if wanted:
        queue.regained()
    group = add_group(state, queue, name, durable=durable, start=begin)
    need = durable_need(queue) if durable else Durability.ASYNC
    step.note_structure(GroupCreated(queue.queue_id, group.group_id, name, durable, head), need)
    _fill(state, step, queue, group, wanted, head)
    if begin == 1:
        queue.whole = group
    return group


def add_group(state: EngineState, queue: Queue, name: str, *, durable: bool, start: int) -> Group:
    """From the second one on, the groups of a queue share the tail of what is visible."""
    if queue.groups and queue.tail is None:
        queue.share_tail(Tail(partial(_put_off, state, queue)))
    return queue.new_group(name, durable=durable, start=start)


def move_group(
    state: EngineState, step: Step, queue: Queue, group: Group, start: StartAt, start_sequence: int, need: Durability
) -> None:
    """Set the cursor and raise the epoch. DEFAULT: the cursor stays, only what is in flight comes back."""
    begin, wanted = where_moved(queue, group, start, start_sequence, step.now)
    head = _head(queue, wanted, begin)
    if wanted and start is not StartAt.DEFAULT:
        queue.regained()
    _empty(group)
    group.epoch += 1
    group.start = begin
    queue.starts_max = max(queue.starts_max, begin)
    step.note_structure(GroupMoved(queue.queue_id, group.group_id, head, group.epoch), need)
    _hide_unwanted(queue)
    _fill(state, step, queue, group, wanted, head)
    step.doubt(queue)
    step.free(queue)


def _hide_unwanted(queue: Queue) -> None:
    """What is on its way, and lies before the start of every group by now, is gone from the store with the record that
    moved or deleted the last group that would have had it; a later group must not expect it."""
    if not queue.unseen or queue.log is not None or (queue.groups and queue.starts_max <= queue.unseen[0].first):
        return
    floor = min((group.start for group in queue.groups.values()), default=END)
    for added in queue.unseen:
        if added.first >= floor:
            break
        added.hidden = added.hidden or RunSet()
        added.hidden.add(added.first, min(added.last, floor - 1))


def head_of(queue: Queue, group: Group) -> int:
    """The lowest sequence that the group has not settled, those on their way included."""
    lowest = min(group.lowest_waiting(), group.lowest_held())
    return lowest if lowest < END else _head(queue, RunSet(), group.start)


def head_at(queue: Queue, begin: int, wanted: RunSet) -> int:
    """The same of a group that begins there, and has what is wanted."""
    return _head(queue, wanted, begin)


def where_moved(queue: Queue, group: Group, start: StartAt, start_sequence: int, now: int) -> tuple[int, RunSet]:
    """Where the group begins when it is moved, and what it has then. Nothing is changed."""
    if start is StartAt.DEFAULT:
        return group.start, group.unsettled_set()
    begin = _first_sequence(queue, start, start_sequence)
    return begin, queue.alive(begin, now)


def where_new(queue: Queue, start: StartAt, start_sequence: int, now: int) -> tuple[int, RunSet]:
    """The same of a durable group that is made; see `group_for`."""
    adopted = to_adopt(queue)
    if adopted is None:
        return _where_made(queue, start, start_sequence, now)
    return where_moved(queue, adopted, _start_of_adopted(queue, start), start_sequence, now)


def to_adopt(queue: Queue) -> Group | None:
    """The group that becomes the next one that is made."""
    return queue.groups.get(WAITING_NAME) if queue.options.is_fan_out else None


def _start_of_adopted(queue: Queue, start: StartAt) -> StartAt:
    """DEFAULT: it is not moved, because it has everything from there on."""
    return StartAt.DEFAULT if start is StartAt.BEGINNING and queue.log is None else start


def _where_made(queue: Queue, start: StartAt, start_sequence: int, now: int) -> tuple[int, RunSet]:
    if start is StartAt.DEFAULT:
        start = StartAt.NOW if queue.groups else StartAt.BEGINNING
    begin = _first_sequence(queue, start, start_sequence)
    return begin, queue.alive(begin, now)


def _first_sequence(queue: Queue, start: StartAt, start_sequence: int) -> int:
    match start:
        case StartAt.NOW:
            return queue.open_end()
        case StartAt.SEQUENCE:
            return max(1, start_sequence)
        case _:
            return 1


def _head(queue: Queue, wanted: RunSet, begin: int) -> int:
    """The lowest sequence the group has not settled, those on their way included."""
    if wanted:
        return wanted.first
    unseen = min((added.first for added in queue.unseen if added.last >= begin), default=queue.open_end())
    return max(begin, unseen)


def _fill(state: EngineState, step: Step, queue: Queue, group: Group, wanted: RunSet, head: int) -> None:
    """Put the wanted sequences into the group, and settle the others from the head on, which nobody can have."""
    if wanted:
        group.count_in(wanted.count)
        group.ready.fill(wanted)
        if queue.delayed:
            for run in wanted.runs():
                _put_off(state, queue, group, *run)
        step.touch(queue, group)
    # What is on its way is behind everything that is wanted.
    end = queue.open_end()
    on_their_way = queue.unseen[0].first if queue.unseen else end
    absent = gaps(wanted.runs(), head, on_their_way - 1)
    if queue.unseen and max(head, on_their_way) < end:
        absent += _absent_on_their_way(queue, max(head, on_their_way), end - 1)
    if absent:
        step.note_settled(queue, group, absent)


def _absent_on_their_way(queue: Queue, first: int, last: int) -> list[Run]:
    absent = RunSet([(first, last)])
    for added in queue.unseen:
        absent.remove(added.first, added.last)
        if added.hidden is not None:
            for run in added.hidden.overlap(first, END):
                absent.add(*run)
    return absent.runs()


def enter(
    state: EngineState, step: Step, queue: Queue, group: Group, first: int, last: int, dues: Values | None = None
) -> None:
    """Visible messages become ready in a queue's only group, or wait for their instant. `dues`: of all of them, if the
    caller knows them."""
    group.enter(first, last)
    _put_off(state, queue, group, first, last, dues)
    step.touch(queue, group)


def _put_off(state: EngineState, queue: Queue, group: Group, first: int, last: int, dues: Values | None = None) -> None:
    """What of the run, which is ready, was published with a delay has its place by the instant when that ends."""
    delayed = queue.delayed
    if not delayed:
        return
    sequences: Sequence[int] = range(first, last + 1)
    if dues is None:
        sequences, dues = delayed.span(first, last)
    if sequences:
        if len(sequences) == last - first + 1:
            sequences = range(first, last + 1)
        for run in runs_of_ascending(sequences):
            group.ready.remove(*run)
        group.schedule_some(sequences, dues, delayed)
        group.scheduled.advance(state.now)
        state.arm_part(queue, group, dues if isinstance(dues, int) else min(dues))


def _empty(group: Group) -> None:
    unsettled = group.unsettled
    group.counters.moved += unsettled
    group.take_held(1, END)
    group.in_flight = 0
    group.drop_waiting()
    group.attempts.clear()


def remove_consumer(step: Step, consumer: Consumer) -> None:
    """Take out a consumer that holds nothing; a passing group ends with its last one."""
    consumer.session.forget(consumer)
    step.effects.append(ConsumerLeft(consumer.session.number, consumer.number))
    queue, group = consumer.queue, consumer.group
    if group.leave(consumer):
        step.touch(queue, group)
        step.leave(queue)
    if not group.durable and not group.consumers and queue.groups.get(group.name) is group:
        _leave(step, queue, group)


def _leave(step: Step, queue: Queue, group: Group) -> None:
    if len(queue.groups) == 1:
        wait_for_next(step, queue, group)
    else:
        delete_group(step, queue, group, Durability.ASYNC)


def wait_for_next(step: Step, queue: Queue, group: Group) -> None:
    """The last group, whose subscriber is gone, keeps what it has not settled, and what is published from now on."""
    rename_group(step, queue, group, WAITING_NAME, durable=True, need=Durability.ASYNC)
    begin_by_end(step, queue, group)


def begin_by_end(step: Step, queue: Queue, group: Group) -> None:
    """The waiting group does not begin further on, though the subscriber whose group it was may have been to."""
    end = queue.open_end()
    if group.start > end:
        group.start = end
        step.note_structure(GroupMoved(queue.queue_id, group.group_id, end, group.epoch), Durability.ASYNC)


def delete_group(step: Step, queue: Queue, group: Group, need: Durability) -> None:
    """The group and its progress are gone; what it had not settled counts as dropped."""
    del queue.groups[group.name]
    step.dirty.pop(group, None)
    unsettled = group.unsettled
    group.counters.dropped += unsettled
    if queue.tail is not None:
        queue.tail.drop(group)
    queue.alarms.disarm(group)
    queue.retire(group.counters)
    step.note_structure(GroupDeleted(queue.queue_id, group.group_id), need)
    _hide_unwanted(queue)
    step.doubt(queue)
    step.free(queue)
