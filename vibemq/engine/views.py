"""Read-only views for answers, metrics and operators. Their cost does not grow with what a queue holds."""

from collections import Counter
from collections.abc import Generator, Iterator
from itertools import islice

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import Group, GroupCounters
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.unacked import NEVER
from vibemq.engine.stage_names import is_plain, plain_of, stage_in
from vibemq.engine.state import OWN_PREFIXES, EngineState
from vibemq.model.effects import (
    COUNTERS,
    ApplicationFigures,
    ConsumerFigures,
    CursorFigures,
    Extent,
    QueueDepth,
    QueueFigures,
    StageFigures,
)
from vibemq.model.jobs.job import Stretch
from vibemq.model.runs import END, Run, RunSet, run_count, runs_of, without
from vibemq.model.shared.queue_info import GroupInfo, QueueInfo
from vibemq.model.steps import at_once

GROUPS_PER_STEP = 32
"""Of a queue that is described, at about 5 µs each."""
CONSUMERS_AS_GROUP = 16
"""So many consumers of which each is asked are as much work as a group."""


def group_info(group: Group, next_sequence: int) -> GroupInfo:
    cursor = group.cursor
    return GroupInfo(
        name=group.name,
        durable=group.durable,
        head=group_head(group, next_sequence) if cursor is None else cursor.committed,
        waiting=group.waiting,
        in_flight=group.in_flight - group.held_back,
        consumers=group.active,
        epoch=group.epoch,
        cursor=cursor is not None,
        owner="" if cursor is None else cursor.owner,
        user=group.owner,
        selectors=0 if group.routes is None else len(group.routes.lines),
        where="" if group.where is None else group.where.text,
    )


def group_head(group: Group, next_sequence: int) -> int:
    """The lowest sequence it has not settled; where it will go on when there is none."""
    return head_from(min(group.lowest_waiting(), group.lowest_held()), group.start, next_sequence)


def head_from(lowest: int, start: int, next_sequence: int) -> int:
    """The same of a group that starts there; `lowest` is END when it has nothing."""
    return lowest if lowest < END else max(start, next_sequence)


def furthest_behind(queue: Queue) -> Group | None:
    behind = None
    for group in queue.groups.values():
        behind = _further(behind, group)
    return behind


def _further(behind: Group | None, group: Group) -> Group:
    """Which of them has more waiting; of equals the first."""
    return group if behind is None or group.waiting > behind.waiting else behind


def _oldest_at(queue: Queue, behind: Group | None) -> int:
    """When the oldest message that the group has not done with was published; 0 when there is none."""
    oldest = group_oldest(behind) if behind is not None else END
    return queue.sizes.published_at(oldest) if oldest < END else 0


def counters_of(queue: Queue) -> dict[str, int]:
    """Since the start; of all groups, those that are gone included. Keys: COUNTERS."""
    counters = GroupCounters()
    counters.add(queue.retired)
    for group in queue.groups.values():
        counters.add(group.counters)
    return _told(queue, counters)


def _told(queue: Queue, groups: GroupCounters) -> dict[str, int]:
    return dict(
        zip(
            COUNTERS,
            (
                queue.published,
                groups.delivered,
                groups.acknowledged,
                groups.redelivered,
                groups.dead + queue.redirected,
                groups.expired + groups.expired_dead,
                groups.dropped,
                queue.refused,
            ),
            strict=True,
        )
    )


def extent_of(queue: Queue) -> Extent:
    return Extent(_first_sequence(queue), _oldest_at(queue, furthest_behind(queue)))


def queue_info(queue: Queue) -> QueueInfo:
    """In one piece, however many groups it has."""
    return at_once(describe(queue))


def describe(queue: Queue, groups_max: int = END) -> Generator[None, None, QueueInfo]:
    """The caller may pause where this yields, which is behind each GROUPS_PER_STEP groups: the figures of a queue with
    more belong to a few steps. `groups_max`: how many groups are described; the figures are of all."""
    groups = list(queue.groups.values())
    shown: list[GroupInfo] = []
    ready = in_flight = delayed = consumers = size = 0
    first, behind = END, None
    counters = GroupCounters()
    counters.add(queue.retired)
    for number, group in enumerate(groups, 1):
        ready = max(ready, group.ready_count)
        delayed = max(delayed, group.delayed_count)
        in_flight += group.in_flight - group.held_back
        consumers += group.active
        size = max(size, queue.group_size(group))
        if group.unsettled:
            first = min(first, group_head(group, queue.next_sequence))
        behind = _further(behind, group)
        counters.add(group.counters)
        if number <= groups_max:
            shown.append(group_info(group, queue.next_sequence))
        if not number % GROUPS_PER_STEP:
            yield
    if queue.log:
        first = queue.log.first
    return QueueInfo(
        name=queue.name,
        queue_id=queue.queue_id,
        incarnation=queue.incarnation,
        options=queue.options,
        created_at=queue.created_at,
        ready=ready,
        in_flight=in_flight,
        delayed=delayed,
        dead=queue.dead,
        consumers=consumers,
        size=size,
        first_sequence=first if first < END else queue.next_sequence,
        next_sequence=queue.next_sequence,
        oldest_at=_oldest_at(queue, behind),
        groups=shown,
        counters=_told(queue, counters),
    )


def named(queue: Queue) -> QueueInfo:
    """As `describe`, without a figure, and at no cost."""
    return QueueInfo(
        name=queue.name,
        queue_id=queue.queue_id,
        incarnation=queue.incarnation,
        options=queue.options,
        created_at=queue.created_at,
        ready=0,
        in_flight=0,
        delayed=0,
        dead=0,
        consumers=0,
        size=0,
        first_sequence=0,
        next_sequence=0,
        oldest_at=0,
        restricted=True,
    )


def depth_steps(queue: Queue) -> Generator[None, None, QueueDepth]:
    """What waits in the queue and who works on it; the caller may pause where this yields, as in `describe`. Costs
    nothing for what the queue holds nor for its consumers."""
    ready = in_flight = delayed = consumers = most = 0
    behind = None
    for number, group in enumerate(list(queue.groups.values()), 1):
        waiting_ready, waiting_delayed = group.ready_count, group.delayed_count
        if waiting_ready > ready:
            ready = waiting_ready
        if waiting_delayed > delayed:
            delayed = waiting_delayed
        if waiting_ready + waiting_delayed > most:
            most, behind = waiting_ready + waiting_delayed, group
        in_flight += group.in_flight - group.held_back
        if group.consumers:
            consumers += group.active
        if not number % GROUPS_PER_STEP:
            yield
    return QueueDepth(ready, in_flight, delayed, queue.dead, consumers, _oldest_at(queue, behind))


def job_unsettled(state: EngineState, job_id: int) -> Generator[None, None, bool]:
    """Whether some message that the job has made waits, or is with a consumer; as `describe`."""
    job = state.jobs.get(job_id)
    look = _Look(state)
    for stretch in job.made if job is not None else ():
        if (yield from look.finds(stretch)):
            return True
    return False


def job_settled(state: EngineState, job_id: int) -> Generator[None, None, list[Stretch]]:
    """The stretches of which none does."""
    job = state.jobs.get(job_id)
    made = job.made if job is not None else ()
    look, unsettled = _Look(state), set[Stretch]()
    for stretch in made:
        if (yield from look.finds(stretch)):
            unsettled.add(stretch)
    return [stretch for stretch in made if stretch not in unsettled]


class _Look:
    """For messages that are not settled, with pauses."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._looked = 0

    def finds(self, stretch: Stretch) -> Generator[None, None, bool]:
        queue_id, first, last = stretch
        if self._is_due(1):
            yield
        queue = self._state.queues_by_id.get(queue_id)
        if queue is None:
            return False
        # What is unseen lies behind all that a group has; what leaves may come back.
        if queue.leaving or (queue.unseen and last >= queue.unseen[0].first):
            return True
        for group in list(queue.groups.values()):
            if group.waiting_within(first, last) or (group.in_flight and group.held_within([(first, last)])):
                return True
            if self._is_due(1 + len(group.consumers) // CONSUMERS_AS_GROUP):
                yield
        return False

    def _is_due(self, work: int) -> bool:
        """Whether there was so much that others have their turn."""
        self._looked += work
        if self._looked < GROUPS_PER_STEP:
            return False
        self._looked = 0
        return True


def group_oldest(group: Group) -> int:
    """The lowest waiting sequence; END when none waits."""
    return group.lowest_waiting()


def _first_sequence(queue: Queue) -> int:
    """The oldest message that some group or the log still keeps."""
    if queue.log:
        return queue.log.first
    firsts = [group_head(group, queue.next_sequence) for group in queue.groups.values() if group.unsettled]
    return min(firsts, default=queue.next_sequence)


class Survey:
    """The figures of every queue, found step by step while the engine goes on working between the steps.

    Iterating yields a queue's figures, or None after a part of a queue that has many groups: the caller may pause
    after either. The figures of one queue belong to one instant, or to a few steps when it has many groups; those of
    two queues may be as far apart as the survey is long. A queue created meanwhile is left to the next survey, and one
    deleted meanwhile is left out. Its counters are then in `retired`, so that totals never fall and count nothing
    twice.
    """

    def __init__(self, state: EngineState) -> None:
        self._queues = list(state.queues.values())
        self.retired: Counter[str] = Counter(state.retired)
        """Counters of queues that are gone. Complete when the survey is over."""
        self.dead_count = state.dead_total
        """Dead letters, also of queues that are gone. Complete when the survey is over."""
        self._state = state
        self.unknown_settles = state.totals.unknown_settles
        self.cursors_made = state.totals.cursors_made
        """Since the start of the broker; the survey has all of these that are still there."""

    def __iter__(self) -> Iterator[QueueFigures | None]:
        for queue in self._queues:
            if not queue.deleted:
                figures = yield from self._figures(queue)
                if not queue.deleted:
                    yield figures
                    continue
            self.retired.update(counters_of(queue))
        self.dead_count = self._state.dead_total

    def _figures(self, queue: Queue) -> Generator[None, None, QueueFigures]:
        ready = size = in_flight = delayed = consumers = behind = 0
        retired = queue.retired
        delivered, settled, redelivered = retired.delivered, retired.acknowledged, retired.redelivered
        dead, expired, dropped = retired.dead, retired.expired + retired.expired_dead, retired.dropped
        oldest = END
        cursors: list[CursorFigures] = []
        groups = queue.groups
        steps = GROUPS_PER_STEP
        for group in groups.values() if len(groups) == 1 else list(groups.values()):
            waiting_ready, waiting_delayed = group.ready_count, group.delayed_count
            waiting = waiting_ready + waiting_delayed
            if waiting:
                if waiting_ready > ready:
                    ready = waiting_ready
                if waiting_delayed > delayed:
                    delayed = waiting_delayed
                run = None if waiting_delayed or group.scheduled else group.ready.only_run()
                group_size = queue.group_size(group) if run is None else queue.sizes.between(*run)
                if group_size > size:
                    size = group_size
                if waiting > behind:
                    behind = waiting
                    oldest = group.lowest_waiting()
            in_flight += group.in_flight
            for consumer in group.consumers:
                consumers += consumer.active
            if group.cursor is not None:
                in_flight -= group.held_back
                cursors.append(CursorFigures(group.name, waiting, group.cursor.committed, group.epoch))
            counters = group.counters
            delivered += counters.delivered
            settled += counters.acknowledged
            redelivered += counters.redelivered
            dead += counters.dead
            expired += counters.expired + counters.expired_dead
            dropped += counters.dropped
            steps -= 1
            if not steps:
                steps = GROUPS_PER_STEP
                yield None
        options = queue.options
        filled = 100 * (behind + queue.unseen_count) // options.max_messages if options.max_messages else 0
        if options.max_bytes:
            filled = max(filled, 100 * size // options.max_bytes)
        return QueueFigures(
            queue.name,
            queue.queue_id,
            ready,
            size,
            in_flight,
            delayed,
            queue.dead,
            consumers,
            queue.sizes.published_at(oldest) if oldest < END else 0,
            queue.published,
            delivered,
            settled,
            redelivered,
            dead + queue.redirected,
            expired,
            dropped,
            queue.refused,
            filled,
            options.durability,
            cursors,
        )


def waiting_runs(queue: Queue, limit: int, start: int = 0) -> list[Run]:
    """Up to `limit` messages from `start` on that the group furthest behind would hand out next, delayed ones last."""
    group = furthest_behind(queue)
    if group is None or limit <= 0:
        return []
    runs = group.peek(queue.sizes, limit, start)
    rest = limit - run_count(runs)
    later = RunSet(runs_of(group.delayed.smallest(rest, start)))
    waiting = group.scheduled.smallest(limit, start) if rest else []
    later.add_all(without(runs_of(waiting), sorted(runs)))
    return runs + later.front(rest)


def consumers_of(queue: Queue) -> Generator[None, None, list[ConsumerFigures]]:
    """All of them; the caller may pause where this yields."""
    found: list[ConsumerFigures] = []
    for number, group in enumerate(list(queue.groups.values()), 1):
        for consumer in list(group.consumers):
            found.append(_consumer_figures(consumer))
            if not len(found) % GROUPS_PER_STEP:
                yield
        if not number % GROUPS_PER_STEP:
            yield
    return found


def _consumer_figures(consumer: Consumer) -> ConsumerFigures:
    deadline = consumer.unacked.first_deadline() if consumer.unacked.count else NEVER
    return ConsumerFigures(
        consumer.session.number,
        consumer.number,
        consumer.queue.name,
        consumer.group.name,
        consumer.active,
        consumer.capacity_messages,
        consumer.unacked.count,
        0 if deadline == NEVER else deadline,
        consumer.ack_timeout_ms,
        consumer.settled_at,
    )


def consumers_of_session(state: EngineState, session: int, first: int, most: int) -> list[ConsumerFigures]:
    """Up to `most` of a session's consumers, the `first` ones left out, in the order of their subscriptions."""
    known = state.sessions.get(session)
    return [] if known is None else list(map(_consumer_figures, islice(known.consumers.values(), first, first + most)))


def session_consumers(state: EngineState, session: int) -> list[int]:
    known = state.sessions.get(session)
    return [] if known is None else list(known.consumers)


def session_load(state: EngineState, session: int) -> tuple[int, int]:
    """(consumers, messages that they hold) of a session."""
    known = state.sessions.get(session)
    if known is None:
        return 0, 0
    consumers = list(known.consumers.values())
    return len(consumers), sum(consumer.unacked.count for consumer in consumers)


def applications(state: EngineState) -> Iterator[ApplicationFigures]:
    """Those of users, by name, without those that the engine keeps for itself."""
    for app in sorted(state.transactions.keys() | state.stages_of.keys()):
        if app.startswith(OWN_PREFIXES):
            continue
        done = state.transactions.get(app)
        stages = _stages_of(state, app)
        owner = "" if done is None else done.owner
        version, decided_at = (None, 0) if done is None else (done.version, done.decided_at)
        yield ApplicationFigures(app, owner, version, decided_at, stages)


def _stages_of(state: EngineState, app: str) -> list[StageFigures]:
    found: dict[str, StageFigures] = {}
    for name, version in state.stages_of.get(app, {}).items():
        queue = state.stages.get(name)
        if queue is None:
            continue
        whole = plain_of(name)[0] if is_plain(name) else name
        before = found.get(whole)
        created_at = queue.created_at if before is None else min(before.created_at, queue.created_at)
        size = queue.sizes.total + (0 if before is None else before.size)
        found[whole] = StageFigures(stage_in(name), version, created_at, size)
    return list(found.values())


def violations(queue: Queue) -> list[str]:
    """Where the conservation law does not hold; empty when all is well."""
    found = []
    for group in queue.groups.values():
        held = sum(consumer.unacked.count for consumer in group.consumers) + group.held_back
        if held != group.in_flight:
            found.append(f"{queue.name}/{group.name}: {held} held, {group.in_flight} counted in flight")
        if group.unsettled != group.counters.remainder():
            found.append(f"{queue.name}/{group.name}: {group.unsettled} unsettled, {group.counters} expected")
        if len(group.unsettled_set()) != group.unsettled:
            found.append(f"{queue.name}/{group.name}: a message is in two places")
    return found
