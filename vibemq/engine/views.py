"""Read-only views for answers, metrics and operators."""

from vibemq.engine.queue.group import END, Group, Tally
from vibemq.engine.queue.queue import Queue
from vibemq.model.effects import GroupInfo, QueueInfo
from vibemq.model.runs import Run


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
    )


def group_head(group: Group, next_sequence: int) -> int:
    """The lowest sequence it has not settled; where it will go on when there is none."""
    runs = group.ready.runs()[:1] + group.later.runs()[:1] + group.held_runs()
    return min((first for first, _ in runs), default=max(group.start, next_sequence))


def furthest_behind(queue: Queue) -> Group | None:
    return max(queue.groups.values(), key=lambda group: group.waiting, default=None)


def tally_of(queue: Queue) -> Tally:
    """Of all groups, those that are gone included."""
    tally = Tally()
    tally.add(queue.retired)
    for group in queue.groups.values():
        tally.add(group.tally)
    return tally


def counters_of(queue: Queue) -> dict[str, int]:
    tally = tally_of(queue)
    return {
        "published": queue.published,
        "delivered": tally.delivered,
        "settled": tally.settled,
        "redelivered": tally.redelivered,
        "dead_lettered": tally.dead + queue.redirected,
        "expired": tally.expired,
        "dropped": tally.dropped,
        "refused": queue.refused,
    }


def queue_info(queue: Queue) -> QueueInfo:
    groups = list(queue.groups.values())
    behind = furthest_behind(queue)
    first = _first_sequence(queue)
    oldest = group_oldest(behind) if behind is not None else END
    return QueueInfo(
        name=queue.name,
        queue_id=queue.queue_id,
        incarnation=queue.incarnation,
        options=queue.options,
        created_at=queue.created_at,
        ready=max((group.ready.count for group in groups), default=0),
        in_flight=sum(group.in_flight - group.held_back for group in groups),
        delayed=max((len(group.later) for group in groups), default=0),
        dead=queue.dead,
        consumers=sum(group.active for group in groups),
        size=max((queue.group_size(group) for group in groups), default=0),
        first_sequence=first,
        next_sequence=queue.next_sequence,
        oldest_at=queue.sizes.published_at(oldest) if oldest < END else 0,
        groups=[group_info(group, queue.next_sequence) for group in groups],
        counters=counters_of(queue),
    )


def group_oldest(group: Group) -> int:
    """The lowest waiting sequence; END when none waits."""
    runs = group.ready.runs()[:1] + group.later.runs()[:1]
    return min((first for first, _ in runs), default=END)


def _first_sequence(queue: Queue) -> int:
    """The oldest message that some group or the log still keeps."""
    if queue.log:
        return queue.log.first
    firsts = [group_head(group, queue.next_sequence) for group in queue.groups.values() if group.unsettled]
    return min(firsts, default=queue.next_sequence)


def waiting_runs(queue: Queue, limit: int) -> list[Run]:
    """Up to `limit` messages that the group furthest behind would hand out next, delayed ones last."""
    group = furthest_behind(queue)
    runs: list[Run] = []
    for first, last in [] if group is None else group.ready.ordered() + group.later.runs():
        if limit <= 0:
            break
        runs.append((first, min(last, first + limit - 1)))
        limit -= last - first + 1
    return runs


def violations(queue: Queue) -> list[str]:
    """Where the conservation law does not hold; empty when all is well."""
    found = []
    for group in queue.groups.values():
        held = sum(consumer.held.count for consumer in group.consumers) + group.held_back
        if held != group.in_flight:
            found.append(f"{queue.name}/{group.name}: {held} held, {group.in_flight} counted in flight")
        if group.tally.remainder() != group.unsettled:
            found.append(f"{queue.name}/{group.name}: {group.unsettled} unsettled, {group.tally} expected")
        if len(group.unsettled_set()) != group.unsettled:
            found.append(f"{queue.name}/{group.name}: a message is in two places")
    return found
