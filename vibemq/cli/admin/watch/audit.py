"""`vibemq-admin audit`: who changed what, and who logged in."""

import sys
from typing import Annotated, Any

import anyio
import typer

from vibemq.cli.exits import plain, root_of
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, duration_option, queue_names, user_names
from vibemq.cli.online import call
from vibemq.cli.output import Output, instant_text, print_json, table
from vibemq.client import Client

app = typer.Typer(help="The audit log of a running broker.", no_args_is_help=True)

COLUMNS = ("time", "user", "from", "protocol", "operation", "on", "outcome", "count")
PAGE = 500

User = Annotated[
    str | None,
    typer.Option("--user", "-u", metavar="USER", help="Only what this user did.", autocompletion=user_names),
]
OperationName = Annotated[
    str | None,
    typer.Option("--operation", metavar="NAME", help="Only this operation (queue.delete), or all of a noun (queue)."),
]
QueueOnly = Annotated[
    str | None,
    typer.Option("--queue", "-q", metavar="QUEUE", help="Only what concerns this queue.", autocompletion=queue_names),
]
OutcomeOnly = Annotated[
    str | None, typer.Option("--outcome", metavar="WORD", help="Only what ended so: done, failed or refused.")
]


@app.command("ls")
def list_records(
    user: User = None,
    operation: OperationName = None,
    queue: QueueOnly = None,
    outcome: OutcomeOnly = None,
    newer_than: Annotated[
        int | None, duration_option("--newer-than", "Only what was recorded within this time, such as 1h.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number.")] = 100,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest first.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List changes and logins, newest first.

    Example: vibemq-admin audit ls --operation queue --outcome done
    """
    chosen = {
        "user": user,
        "operation": operation,
        "queue": queue,
        "outcome": outcome,
        "newer_than_ms": newer_than,
    }

    async def work(mq: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: str | None = None
        order = "oldest" if oldest else "newest"
        while len(found) < limit:
            size = min(PAGE, limit - len(found))
            page = await mq.admin("audit.list", order=order, after=after, limit=size, **chosen)
            found += page["records"]
            after = page["next"]
            if after is None:
                break
        return found

    found = call(url, timeout, work)
    Output(json=json).emit_many(found, table(COLUMNS, map(_row, found), whole=True))


@app.command()
def follow(
    user: User = None,
    operation: OperationName = None,
    queue: QueueOnly = None,
    outcome: OutcomeOnly = None,
    interval: Annotated[int, duration_option("--interval", "Time between two looks.", default="1s")] = 1_000,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Print changes and logins as they are recorded, until Ctrl-C."""
    chosen = {"user": user, "operation": operation, "queue": queue, "outcome": outcome}
    out = Output(json=json)

    async def work(mq: Client) -> None:
        after = (await mq.admin("audit.list", limit=1))["position"]
        out.note("waiting for records; Ctrl-C ends this")
        while True:
            page = await mq.admin("audit.list", order="oldest", after=after, limit=PAGE, **chosen)
            for record in page["records"]:
                if json:
                    print_json(record)
                else:
                    out.console.print("  ".join(plain(str(fact)) for fact in _row(record)))
            # A pipe gets them now, not when a block of them is full.
            sys.stdout.flush()
            after = page["next"] or page["position"]
            if page["next"] is None:
                await anyio.sleep(max(interval, 100) / 1000)

    try:
        call(url, timeout, work)
    except BaseException as error:
        # Ctrl-C is how it ends, so it is no interruption.
        if not isinstance(root_of(error), KeyboardInterrupt):
            raise


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    count = record["count"]
    return (
        instant_text(record["at"]),
        record["user"] or "–",
        record["address"] or "–",
        record["protocol"] or "–",
        record["operation"],
        record["resource"] if record["resource"] is not None else "–",
        record["outcome"] or "–",
        "" if count is None else count,
    )
