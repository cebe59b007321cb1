"""Rows of calls that meet a crowd."""

from typing import Any

from tests.integration.cursor_peer import rows_of
from tests.integration.every_call.peers import DEAD, JOBS, NEWS
from tests.integration.every_call.requests import deleted, given_up, having_requested, purged
from tests.integration.every_call.world import Prepared, Row, World, admin


def told_to_all(world: World, attempt: int) -> None:
    world.peer.publish(NEWS, rows_of(100))
    world.peer.settled()


def of_one_error(world: World, attempt: int) -> dict[str, Any]:
    [group] = world.peer.admin("dlq.groups", queue=DEAD, reason="expired", limit=1)["groups"]
    return dict(group)


def all_groups(world: World) -> None:
    after: dict[str, Any] = {}
    while after.get("after", "") is not None:
        after = {"after": world.peer.admin("dlq.groups", limit=1_000, **after)["next"]}


CROWD_ROWS: dict[str, Row | Prepared] = {
    "messages with an id that none has": admin("queue.peek", queue=JOBS, message_id="none", limit=1_000),
    "messages with a header that none has": admin("queue.peek", queue=JOBS, header={"k": "none"}, limit=1_000),
    "messages with a header that all have": admin("queue.peek", queue=NEWS, header={"k": "v"}, limit=1_000),
    "dead letters of a queue, newest first": admin("dlq.list", queue=DEAD, order="newest", limit=1_000),
    "dead letters for a reason": admin("dlq.list", reason="expired", limit=1_000),
    "dead letters for a reason that none has": admin("dlq.list", queue=DEAD, reason="overflow"),
    "dead letters of one error": (
        of_one_error,
        lambda w, g: w.peer.admin("dlq.list", queue=DEAD, reason="expired", fingerprint=g["fingerprint"]),
    ),
    "dead letters of one error, of any queue": (
        of_one_error,
        lambda w, g: w.peer.admin("dlq.list", fingerprint=g["fingerprint"], order="newest"),
    ),
    "dead letters that no group has room for": admin("dlq.list", queue=DEAD, fingerprint="0" * 16, limit=1_000),
    "dead letters by age": admin("dlq.list", since=40_000, until=41_000, limit=1_000),
    "dead letters by id": admin("dlq.list", from_id=30_000, to_id=30_900, limit=1_000),
    "dead letters by a text that none has": admin("dlq.list", error="elsewhere"),
    "dead letters by a header that none has": admin("dlq.list", queue=DEAD, header={"a": "b"}),
    "dead letters that were replayed": admin("dlq.list", replayed=True, order="newest"),
    "all groups of dead letters": lambda w, a: all_groups(w),
    "a preview by a text": admin("dlq.preview", error="snow"),
    "a preview by age": admin("dlq.preview", since=10_000),
    "a preview by a header": admin("dlq.preview", header={"a": "b"}),
    "publish to very many groups": told_to_all,
    "the purge of a queue with very many requests": (having_requested, purged),
    "the deletion of a queue with very many requests": (having_requested, deleted),
    "the end of a connection with very many requests": (having_requested, given_up),
}
"""What another row does, where it meets more."""
