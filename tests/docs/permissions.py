"""The tables of docs/reference/permissions.md as the product has them: `python -m tests.docs.permissions`."""

from collections.abc import Iterator

from vibemq.auth.matrix import COMMANDS, OPERATIONS, Row
from vibemq.model.access import Action, NeededPermission, ResourceKind, When
from vibemq.model.commands import GiveUp, Respond

PLACES = {
    ResourceKind.QUEUE: "the queue",
    ResourceKind.GROUP: "the group",
    ResourceKind.TRANSACTION: "the application",
}
CONDITIONS = {
    When.ALWAYS: "",
    When.MISSING: ", if it is missing",
    When.NAMED: ", if one is named",
    When.NOT_OWNER: ", if it does not belong to the user",
}


def lines() -> Iterator[str]:
    for name, row in OPERATIONS.items():
        yield f"| `{name}` | {SAID.get(name) or _row(row)} |"
    for kind, row in COMMANDS.items():
        if all(needed.action is not Action.NEVER for needed in row):
            yield f"| {kind.__name__} | {SAID.get(kind) or _row(row)} |"


_OF_JOBS = (
    "what the work of the job needs: as `dlq.replay`, `dlq.purge` or `dlq.show` on the queue of its filter; whoever "
    "started a job may change it"
)
_SEEN_JOBS = "nothing: it shows one's own jobs, and those on queues on which the user has `inspect`"
_SEEN_FIGURES = "nothing: it shows the queues on which the user has `inspect`"
_SEEN_APPLICATIONS = (
    "nothing: it shows the applications for which the user has `transact`, and which belong to the user or to nobody"
)
SAID: dict[type | str, str] = {
    "broker.overview": _SEEN_FIGURES,
    "queue.rows": _SEEN_FIGURES,
    "cursor.list": _SEEN_FIGURES,
    "transaction.list": _SEEN_APPLICATIONS,
    "job.start": _OF_JOBS,
    "job.change": (
        f"{_OF_JOBS}, and others also need what `job.show` needs, without which there is no such job for them"
    ),
    "job.discard": "nothing more, for whoever started the job; a superuser for all others",
    "job.result": "what the work of the job needs: `inspect` on the queue of its filter, or on all queues",
    "job.list": _SEEN_JOBS,
    "job.show": _SEEN_JOBS,
    Respond: "nothing: whoever knows the address of a request, which is in its message, may reply to it once",
    GiveUp: "nothing: it takes back a request of the same connection",
}
"""What a row alone does not say."""


def _row(row: Row) -> str:
    return "; ".join(map(_needed, row))


def _needed(needed: NeededPermission) -> str:
    match needed.action:
        case Action.OWN:
            return "nothing: it concerns only the connection that asks"
        case Action.LIST:
            return "nothing: it shows queues on which the user has a permission, and figures with `inspect`"
        case Action.ADMIN:
            return "a superuser"
        case Action.SELF:
            return "a superuser, or the user itself, logged in with its password"
    place = f"the queue in `{needed.argument}`" if needed.argument else PLACES[needed.kind]
    return f"`{needed.action}` on {place}{CONDITIONS[needed.when]}"


if __name__ == "__main__":
    print("\n".join(lines()))
