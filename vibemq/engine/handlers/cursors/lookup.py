"""Which cursor a request means, and whether it may be used."""

from shlex import quote

from vibemq.engine.handlers.queues import find_same
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.errors import GroupExpired, GroupFenced, GroupNotFound, InvalidOptions


def find_cursor(state: EngineState, name: str, group_name: str, incarnation: str | None) -> tuple[Queue, Group, Cursor]:
    queue = find_same(state, name, incarnation)
    group = queue.groups.get(group_name)
    if group is None:
        raise missing(queue, group_name)
    return queue, group, cursor_of(queue, group)


def missing(queue: Queue, group: str) -> GroupNotFound:
    return GroupNotFound(f"queue {queue.name!r} has no group {group!r}; it was deleted, or no reader has joined it yet")


def cursor_of(queue: Queue, group: Group) -> Cursor:
    if group.where is not None:
        raise InvalidOptions(
            f"group {group.name!r} of queue {queue.name!r} has a filter and cannot be read by ranges, which would have "
            "what does not match in them; choose another group"
        )
    if group.cursor is None:
        raise InvalidOptions(
            f"group {group.name!r} of queue {queue.name!r} is an ordinary group and no cursor: it cannot be "
            "read by ranges, and has no limits of a cursor; choose a group that `vibemq-admin group create` has made"
        )
    return group.cursor


def check_expired(queue: Queue, group: Group, cursor: Cursor) -> None:
    if cursor.expired:
        limit = f"{cursor.max_lag_bytes} bytes" if cursor.max_lag_bytes else f"{cursor.max_lag_ms} ms"
        raise GroupExpired(
            f"group {group.name!r} of queue {queue.name!r} lagged more than its limit ({limit}) and lost what it had "
            f"not read; `vibemq-admin group seek {queue.name} {quote(group.name)} earliest` moves it to what there "
            "still is"
        )


def check_epoch(queue: Queue, group: Group, cursor: Cursor, epoch: int) -> None:
    if epoch != group.epoch:
        raise GroupFenced(
            f"group {group.name!r} of queue {queue.name!r} has a new reader ({cursor.owner or 'unnamed'}, epoch "
            f"{group.epoch}, yours was {epoch}); this one must stop. One query per group: give each its own"
        )
