"""`vibemq-admin dlq edit`: one dead letter goes back as another message."""

import base64
from pathlib import Path
from typing import Annotated

import typer

from vibemq.cli.admin.dlq.filters import FromQueue
from vibemq.cli.exits import Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, pair_option, queue_names
from vibemq.cli.online import ask
from vibemq.cli.output import Output, content_of
from vibemq.cli.values import key_values
from vibemq.model.quantities import NUMBER_MAX


def edit(
    dead_id: Annotated[int, typer.Argument(metavar="ID", min=0, max=NUMBER_MAX, help="Dead id, as `dlq ls` lists it.")],
    queue: FromQueue = None,
    text: Annotated[str | None, typer.Option("--text", help="The new payload; default: the present one.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="In place of --text: a file; - is standard input.")
    ] = None,
    header: Annotated[
        list[str] | None,
        pair_option("--header", "-H", text="Replaces all headers of the message; repeat it for each header to keep."),
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Remove all headers of the message.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="Target queue; default: where it died.",
            autocompletion=queue_names,
        ),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why; for the audit log.")] = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Replay one dead letter with another payload, other headers or to another queue, and remove it in the same step.

    Example: vibemq-admin dlq edit 17 --queue orders --text '{"id": 1, "total": 12.5}' --note "total was missing"
    """
    if text is None and file is None and not header and not no_headers and to is None:
        raise Usage(
            "nothing to change; give --text, --file, --header, --no-headers or --to"
            " (`vibemq-admin dlq replay --id ID` replays a dead letter as it is)"
        )
    if text is not None and file is not None:
        raise Usage("give the new payload with --text or with --file, not with both")
    if header and no_headers:
        raise Usage("give the headers to keep with --header or remove all with --no-headers, not both")
    content = None if file is None else content_of(file)
    given = {
        "queue": queue,
        "text": text,
        "payload": None if content is None else base64.b64encode(content).decode(),
        "headers": {} if no_headers else None if header is None else key_values(header),
        "to": to,
        "note": note,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    done = ask(url, timeout, "dlq.edit", dry_run=dry_run, dead_id=dead_id, **wanted)
    changed = " and ".join(done["edited"]) or "nothing"
    verb, goes = ("would be", "would be changed") if dry_run else ("is", "changed")
    Output(json=json).emit(done, f"dead letter {dead_id} {verb} in queue {done['queue']}; {goes}: {changed}")
