"""Messages leave the groups of a crowded queue one group after the other, and the log last.

Each group settles what it gives up, so at every moment the records say what is so, and a group that is handed messages,
or is moved, between two steps has what it has. A group that joins meanwhile has its turn as well, and one that is moved
has another: it may have got back what it had given up.
"""

from collections.abc import Generator, Iterator
from functools import partial

from vibemq.engine.handlers.dead_lettering import drop_from, unlog
from vibemq.engine.pacing import STEP_UNITS, pieces
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.requests.failing import fail_requests
from vibemq.engine.step import Step, heavy
from vibemq.engine.waiting import PER_UNIT
from vibemq.model.records import Dropped, Reason
from vibemq.model.runs import Run, RunSet, without

Parted = Generator[None, Step, tuple[Step, RunSet, RunSet]]
"""The last slice's step, what was dropped, and what consumers or cursors hold."""


def drop_from_groups(step: Step, queue: Queue, runs: list[Run], reason: Reason, *, dry_run: bool = False) -> Parted:
    """As `drop_waiting`, in slices. `dry_run`: what would be dropped."""
    dropped = RunSet()
    held_by: dict[Group, RunSet] = {}
    for group in in_turn(queue):
        # In an earlier turn it may have held others.
        held_by.pop(group, None)
        for piece, cost in pieces(runs, partial(cut_group, group)):
            if there := _held(group, piece):
                held_by.setdefault(group, RunSet()).add_all(there)
            dropped.add_all(_waiting(group, piece) if dry_run else drop_from(step, queue, group, piece))
            # A look, and a record for each.
            step.work += 1 + cost
            if step.work >= STEP_UNITS:
                step = yield
                if queue.deleted or not is_there(queue, group):
                    break
    held = RunSet(run for group, there in held_by.items() if is_there(queue, group) for run in there.runs())
    if queue.log is not None and dry_run:
        dropped.add_all(without([part for run in runs for part in queue.log.overlap(*run)], held.runs()))
    elif not dry_run and not queue.deleted:
        logged = unlog(queue, runs, held)
        if logged:
            step.note(Dropped(queue.queue_id, logged, reason), heavy(queue))
            dropped.add_all(logged)
        gone = without(dropped.runs(), held.runs())
        step.give_up(queue, gone)
        step = yield from fail_dropped(step, queue, gone, reason)
    return step, dropped, held


def in_turn(queue: Queue) -> Iterator[Group]:
    """Every group that is there when its turn has come, until there is none that was made or moved since."""
    epochs: dict[Group, int] = {}
    while groups := [group for group in queue.groups.values() if epochs.get(group) != group.epoch]:
        for group in groups:
            if queue.deleted:
                return
            if is_there(queue, group):
                # That of the beginning: it may be moved during its turn.
                epochs[group] = group.epoch
                yield group


def is_there(queue: Queue, group: Group) -> bool:
    return queue.groups.get(group.name) is group


def cut_group(group: Group, first: int, last: int, most: int) -> tuple[int, int]:
    last, waiting = group.cut_waiting(first, last, most)
    last, held = group.cut_held(first, last, most) if group.in_flight else (last, 0)
    return last, waiting + held


def _held(group: Group, runs: list[Run]) -> list[Run]:
    if not group.in_flight:
        return []
    there = RunSet(group.held_within(runs))
    return [part for run in runs for part in there.overlap(*run)]


def _waiting(group: Group, runs: list[Run]) -> list[Run]:
    return [part for run in runs for part in group.waiting_within(*run)]


def fail_dropped(step: Step, queue: Queue, gone: list[Run], reason: Reason) -> Generator[None, Step, Step]:
    def cut(first: int, last: int, most: int) -> tuple[int, int]:
        stop, number = queue.requests.cut(first, last, PER_UNIT * most)
        return stop, number // PER_UNIT

    for piece, cost in pieces(gone, cut) if queue.requests else ():
        fail_requests(queue, piece, reason)
        step.work += cost
        if step.work >= STEP_UNITS:
            step = yield
    return step
